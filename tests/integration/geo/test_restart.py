"""Places survive: locations, fences, geo subscriptions, queued and retained events."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest

from tests.conformance.raw import Clients, clients_of, publish, subscribe_with
from tests.conftest import RunningBroker, StartBroker
from tests.integration.geo.wire import (
    entry,
    geopublish,
    granted,
    location,
    move,
    payloads,
    publishg,
    received,
    settle,
    tell,
)

BOX = "BBOX(8,54,9,55)"
IN, OUT = (8.5, 54.5), (8.5, 10.0)
FENCE = "$/SYS/MQTT/geofence"


def end(broker: RunningBroker, how: str) -> None:
    if how == "kill -9":
        broker.kill()
    else:
        broker.stop()


@pytest.fixture(params=["kill -9", "SIGTERM"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_geo_subscriptions_survive(start_broker: StartBroker, how: str) -> None:
    broker = start_broker()
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("stays", clean=False)
        granted(
            client,
            entry("a", at=BOX, qos=1, deliver=3),
            entry("a", at="BBOX(0,0,1,1)", qos=1),
            entry("b", time="1970-01-01/PT10S", qos=1, deliver=1),
            entry("c", near=500.0, qos=1),
            entry("d", at=BOX, publisher=True),
        )
        subscribe_with(client, f"$geo/covers={BOX};prefix=keep/e", 1)
        tell(client, "$/SYS/MQTT/location", "POINT(8.5 54.5)")
        end(broker, how)
    broker = start_broker(data=broker.data)
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("stays", clean=False, present=True)
        sensor = clients.connect("sensor")
        settle(
            sensor,
            geopublish("a", "a", at=IN),
            geopublish("a", "a2", at=(0.5, 0.5)),
            geopublish("a", at=OUT),
            geopublish("b", "b", time=5_000),
            geopublish("b", time=15_000),
            geopublish("c", "c", at=(8.503, 54.5)),
            geopublish("c", at=(8.6, 54.5)),
            geopublish("d", at=IN),
            geopublish("e", "e", at=IN),
        )
        move(sensor, 54.5, 8.5)
        settle(sensor, geopublish("d", "d", at=OUT))
        found = [received(client) for _ in range(6)]
        client.expect_nothing()
    assert [(event.payload, event.form) for event in found] == [
        ("a", 5), ("a2", 1), ("b", 0), ("c", 1), ("e", 0), ("d", 1),
    ]  # fmt: skip
    assert found[4].topic == f"$geo/covers={BOX};prefix=keep/e"


def test_the_one_made_last_is_still_the_last(start_broker: StartBroker) -> None:
    broker = start_broker()
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("stays", clean=False)
        granted(client, entry("a", deliver=3), entry("a", at=BOX, deliver=2))
        granted(client, entry("a", deliver=4))  # replaces the first, and is the last now
        broker.kill()
    broker = start_broker(data=broker.data)
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("stays", clean=False, present=True)
        settle(clients.connect(), geopublish("a", at=IN))
        assert received(client).form == 4


def test_fences_survive_where_they_were_and_move_on(start_broker: StartBroker, how: str) -> None:
    broker = start_broker()
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("fenced", clean=False)
        subscribe_with(client, "#")
        tell(client, "$/SYS/MQTT/location", "POINT(8.5 54.5)")
        dynamic = {"geometry": "BUFFER(POINT(8.5 54.5), 1000)", "mode": "dynamic", "topics": ["m"]}
        tell(client, f"{FENCE}/around", json.dumps(dynamic))
        tell(client, f"{FENCE}/home", json.dumps({"geometry": BOX, "topics": ["s"]}))
        tell(client, f"{FENCE}/gone", "BBOX(0,0,1,1)")
        tell(client, f"{FENCE}/gone", "")
        tell(client, "$/SYS/MQTT/location", "POINT(20 0)")
        end(broker, how)
    broker = start_broker(data=broker.data)
    with clients_of(broker.host, broker.port) as clients:
        client, sensor = clients.connect("fenced", clean=False, present=True), clients.connect()
        settle(
            sensor,
            geopublish("m", "moved along", at=(20.005, 0.0)),
            geopublish("m", at=IN),
            geopublish("s", "stayed", at=IN),
            geopublish("s", at=OUT),
            geopublish("t", "unfenced", at=OUT),
        )
        assert payloads(client, 3) == ["moved along", "stayed", "unfenced"]
        move(client, 54.5, 8.5)
        settle(sensor, geopublish("m", "back", at=(8.505, 54.5)), geopublish("m", at=(20.0, 0.0)))
        assert payloads(client, 1) == ["back"]


def stored(data: Path, client_id: str) -> bool:
    """Whether a location has reached the disk."""
    for path in data.glob("store.sqlite"):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            if db.execute("SELECT 1 FROM location WHERE client_id = ?", (client_id,)).fetchone():
                return True
    return False


def test_locations_survive(start_broker: StartBroker, how: str) -> None:
    """Those of flagged packets reach the disk within a moment."""
    broker = start_broker()
    with clients_of(broker.host, broker.port) as clients:
        move(clients.connect("walker"), 54.5, 8.5)
        if how == "kill -9":
            deadline = time.monotonic() + 5
            while not stored(broker.data, "walker"):
                assert time.monotonic() < deadline, "never stored"
        end(broker, how)
    broker = start_broker(data=broker.data)
    with clients_of(broker.host, broker.port) as clients:
        watcher, walker = clients.connect(), clients.connect("walker")
        granted(watcher, entry("t", at=BOX))
        settle(walker, publish("t", "here"))
        assert received(watcher).payload == "here"


def test_queued_and_retained_events_survive_in_their_form(
    start_broker: StartBroker, how: str
) -> None:
    broker = start_broker()
    ring = ",".join(f"8.{n:05} 54.0" for n in range(6000))
    large = f"LINESTRING({ring})"
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("away", clean=False)
        granted(
            client, entry("q/as", at=BOX, qos=1), entry("q/wkb", qos=2, deliver=0x84, epsg=25832)
        )
        client.disconnect()
        sensor = clients.connect("sensor")
        sensor.send(geopublish("q/as", "1", at=large, time="1970-01-01/PT5S", qos=1, packet_id=1))
        sensor.expect("40 02 00 01")
        sensor.send(geopublish("q/wkb", "2", at=IN, time=9, qos=2, packet_id=2))
        sensor.expect("50 02 00 02")
        move(sensor, 54.6, 8.6)
        for number, packet in enumerate(
            (
                geopublish("r/geo", "g", at=IN, to=BOX, time=5, qos=1, packet_id=10, retain=True),
                publishg("r/g", "pg", location(54.5, 8.5, 3.0), qos=1, packet_id=11, retain=True),
                publish("r/plain", "p", qos=1, packet_id=12, retain=True),
            ),
            10,
        ):
            sensor.send(packet)
            sensor.expect(f"40 02 00 {number:02x}")
        end(broker, how)
    broker = start_broker(data=broker.data)
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("away", clean=False, present=True)
        first, second = received(client), received(client)
        assert (first.geometry, first.time) == (large, "1970-01-01/PT5S")
        assert (second.qos, second.form, second.epsg, second.time) == (2, 4, 25832, 9)
        _check_retained(clients)


def _check_retained(clients: Clients) -> None:
    inside = clients.connect()
    move(inside, 54.5, 8.5)
    granted(inside, entry("r/#", at=BOX))
    found = {event.payload: event for event in (received(inside) for _ in range(3))}
    inside.expect_nothing()
    assert (found["g"].geometry, found["g"].time) == (IN, 5)
    assert found["pg"].geometry == (8.5, 54.5, 3.0)
    assert found["p"].geometry is None
    publisher = clients.connect()
    granted(publisher, entry("r/#", at="BBOX(8.4,54.4,8.55,54.55)", publisher=True))
    assert payloads(publisher, 2) == ["pg", "p"]  # the PUBLISHg had moved the publisher


def test_what_a_larger_limit_let_in_comes_back(start_broker: StartBroker) -> None:
    """Limits are for what arrives, not for what has been accepted."""
    config = "[limits]\nmax_vertices = 50000\n"
    broker = start_broker(config=config)
    shape = "LINESTRING(" + ",".join(f"8.{n:05} 54.5" for n in range(20_000)) + ")"
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("large", clean=False)
        granted(client, entry("t", relation="intersects", at=shape, qos=1, deliver=2))
        subscribe_with(client, f"$geo/intersects={BOX}/u", 1)
        tell(client, f"{FENCE}/shape", json.dumps({"geometry": shape, "topics": ["v"]}))
        client.disconnect()
        sensor = clients.connect()
        sensor.send(geopublish("t", "queued", at=shape, qos=1, packet_id=1, retain=True))
        sensor.expect("40 02 00 01")
        broker.kill()
    broker = start_broker(config=config, data=broker.data)
    with clients_of(broker.host, broker.port) as clients:
        client, sensor = clients.connect("large", clean=False, present=True), clients.connect()
        assert received(client).geometry.startswith("LINESTRING (8 54.5")
        subscribe_with(client, "v")
        settle(
            sensor,
            geopublish("t", "fence", at=(8.1, 54.5)),
            geopublish("v", "kept out", at=OUT),
            geopublish("v", "let in", at=(8.1, 54.5)),
        )
        assert payloads(client, 2) == ["fence", "let in"]
        late = clients.connect()
        granted(late, entry("t", at=BOX))
        assert received(late).geometry == shape


def test_a_limit_of_zero_is_no_limit(start_broker: StartBroker) -> None:
    broker = start_broker(config="[limits]\nmax_vertices = 0\nmax_fences = 0\n")
    with clients_of(broker.host, broker.port) as clients:
        client, sensor = clients.connect(), clients.connect()
        granted(client, entry("t", at=BOX))
        settle(sensor, geopublish("t", "x", at="LINESTRING(8.1 54.1,8.2 54.2)"))
        assert received(client).payload == "x"
