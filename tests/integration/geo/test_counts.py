"""What is wrong with places is counted, and the log names it."""

from __future__ import annotations

import socket
import urllib.request

from tests.conformance.raw import clients_of, framed, publish, subscribe
from tests.conftest import RunningBroker, StartBroker
from tests.integration.geo.wire import answered, entry, geopublish, location, move, settle, tell


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def counts(broker: RunningBroker) -> dict[str, float]:
    """The counters, as a monitoring system reads them."""
    host, port = broker.address("http")
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_wrong_places_are_counted_and_named(start_broker: StartBroker) -> None:
    broker = start_broker("--http-port", str(free_port()))
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("clumsy")
        before = counts(broker)
        move(client, 91.0, 8.5)
        move(client, 54.5, 200.0)
        settle(client, geopublish("t", at="POINT(8 92)"))
        settle(client, publish("$geo/at=nowhere/t", "x"))
        tell(client, "$/SYS/MQTT/geofence/home", "POLYGON EMPTY")
        assert answered(client, entry("t", at="POINT(8 93)")) == [0xC1]
        client.send(subscribe(1, ("$geo/near=far/t", 0)))
        client.expect("90 03 00 01 80")
        closed = clients.connect("broken")
        closed.send(framed(0xC4, location(54.5, 8.5)[:5]))
        closed.expect_close()
        after = counts(broker)
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["geomqtt_locations_unusable_total"] == 2
    assert grown["geomqtt_geo_refused_total"] == 3
    assert grown["geomqtt_subscriptions_refused_total"] == 2
    assert grown["geomqtt_protocol_errors_total"] == 1
    for reason in ("latitude 92", "latitude 93", "too short for its location", "'clumsy'"):
        assert reason in broker.log
