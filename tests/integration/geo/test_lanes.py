"""Events of one read go out together; what everybody gets is the same as one by one."""

from __future__ import annotations

import random

import pytest

from tests.conformance.raw import Clients, Raw, clients_of, publish, subscribe_with
from tests.conftest import StartBroker
from tests.integration.geo.wire import (
    entry,
    geopublish,
    granted,
    location,
    move,
    payloads,
    received,
    settle,
    tell,
)

BOX = "BBOX(8,54,9,55)"


def subscribers(clients: Clients, topic: str, *, mixed: bool) -> dict[str, Raw]:
    """Everybody that an event may reach; mixed: in other forms than it came, too."""
    made = {
        name: clients.connect() for name in ("box", "many", "near", "time", "publisher", "wild")
    }
    granted(made["box"], entry(f"{topic}/a", at=BOX))
    granted(
        made["many"],
        *(entry(f"{topic}/a", at=f"BBOX({8 + n / 10},54,{8.2 + n / 10},54.7)") for n in range(10)),
        entry(f"{topic}/#", at="POLYGON((8 54,9 54,8.5 55,8 54))"),
    )
    granted(made["near"], entry(f"{topic}/+", near=30_000.0))
    move(made["near"], 54.5, 8.5)
    granted(made["time"], entry(f"{topic}/a", time="1970-01-01/PT20S", at=BOX))
    granted(made["publisher"], entry(f"{topic}/b", at=BOX, publisher=True))
    granted(made["wild"], entry(f"{topic}/#"))
    if mixed:
        for name in ("wkt", "plain", "one", "topic", "fenced", "qos1"):
            made[name] = clients.connect()
        granted(made["wkt"], entry(f"{topic}/a", at=BOX, deliver=2))
        granted(made["one"], entry(f"{topic}/#", deliver=1))
        subscribe_with(made["plain"], f"{topic}/b")
        subscribe_with(made["topic"], f"$geo/covers={BOX};prefix=keep/{topic}/a")
        granted(made["fenced"], entry(f"{topic}/#"))
        tell(made["fenced"], "$/SYS/MQTT/geofence/x", "BBOX(8.4,54.4,8.6,54.6)")
        granted(made["qos1"], entry(f"{topic}/a", at=BOX, qos=1))
    return made


def packets(topic: str, seed: int) -> list[bytes]:
    """Events that qualify for any short cut, between others that do not."""
    draw = random.Random(seed)
    made = []
    for number in range(120):
        at = (round(draw.uniform(7.8, 9.2), 3), round(draw.uniform(53.8, 55.2), 3))
        name, payload = f"{topic}/{draw.choice('aab')}", f"{number}"
        kind = draw.random()
        if kind < 0.75:
            made.append(geopublish(name, payload, at=at, time=draw.randrange(40) * 1000))
        elif kind < 0.80:
            made.append(geopublish(name, payload, at=f"POINT({at[0]} {at[1]})", time=5))
        elif kind < 0.85:
            made.append(publish(name, payload))
        elif kind < 0.90:
            made.append(b"\xc4\x15" + location(at[1], at[0]))
        elif kind < 0.95:
            made.append(geopublish(name, payload, at=at, time=5, to="BBOX(8,54,8.6,55)"))
        else:
            made.append(geopublish(name, payload, at=(at[0], 91.0), time=5))
    return made


def pings(several: list[bytes]) -> int:
    return sum(each[0] == 0xC4 for each in several)


def everything(client: Raw) -> list[tuple[int, bytes]]:
    """What has come, up to the answer to a ping; acknowledged where that is due."""
    client.send("c0 00")
    found = []
    while True:
        first, body = client.packet()
        if first == 0xD0:
            return found
        found.append((first, body))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mixed", [False, True])
def test_one_read_and_many_reads_give_everybody_the_same(
    clients: Clients, seed: int, mixed: bool
) -> None:
    found = []
    for number, together in enumerate((False, True)):
        topic = f"lanes/{seed}/{mixed:d}/{number}"
        who = subscribers(clients, topic, mixed=mixed)
        sensor = clients.connect()
        settle(sensor, geopublish("elsewhere", at=(0.0, 0.0), time=0))
        several = packets(topic, seed)
        if together:
            sensor.send(b"".join(several) + b"\xc0\x00")
            sensor.expect(b"\xd0\x00" * (pings(several) + 1))
        else:
            for packet in several:
                sensor.send(packet + b"\xc0\x00")
                sensor.expect(b"\xd0\x00" * (pings([packet]) + 1))
        found.append(
            {
                name: [
                    (first, _timeless(body.replace(topic.encode(), b"")))
                    for first, body in everything(client)
                ]
                for name, client in who.items()
            }
        )
        for client in who.values():
            client.drop()
    assert found[0] == found[1]
    assert sum(map(len, found[0].values())) > 100


def _timeless(body: bytes) -> bytes:
    """Events without a time of their own carry the time of receipt: leave that out."""
    if body[:1] in (b"\x30", b"\x32") and body[3 + 2 : 3 + 2 + 1] == b"\x01":
        return body[:6] + body[14:]
    return body


def test_a_run_of_events_reaches_a_subscriber_that_came_in_between(
    clients: Clients, topic: str
) -> None:
    sensor, early = clients.connect(), clients.connect()
    granted(early, entry(topic, at=BOX))
    event = geopublish(topic, "x", at=(8.5, 54.5), time=1)
    settle(sensor, *[event] * 50)
    early.expect(event * 50)
    late = clients.connect()
    granted(late, entry(f"{topic}/#", at=BOX))
    settle(sensor, *[event] * 50)
    late.expect(event * 50)
    early.expect(event * 50)
    plain = clients.subscribed(topic)
    settle(sensor, *[event] * 50)
    plain.expect(publish(topic, "x") * 50)
    early.expect(event * 50)


def test_a_persistent_session_gets_its_run_of_qos_1_events_later(
    clients: Clients, topic: str
) -> None:
    """QoS 0 events of a run do not wait for anybody; QoS 1 ones do."""
    client = clients.connect(f"lane-{topic}", clean=False)
    granted(client, entry(topic, at=BOX, qos=1))
    client.disconnect()
    sensor = clients.connect()
    events = [
        geopublish(topic, str(n), at=(8.5, 54.5), time=1, qos=n % 2, packet_id=n + 1)
        for n in range(20)
    ]
    sensor.send(b"".join(events))
    for n in range(1, 20, 2):
        sensor.expect(b"\x40\x02" + (n + 1).to_bytes(2, "big"))
    again = clients.connect(f"lane-{topic}", clean=False, present=True)
    assert payloads(again, 10) == [str(n) for n in range(1, 20, 2)]


def test_offline_sessions_keep_qos_0_where_the_operator_says_so(start_broker: StartBroker) -> None:
    """The short cuts are closed then: they wait for nobody."""
    broker = start_broker(config="queue_qos0_messages = true\n")
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("away", clean=False)
        granted(client, entry("g", at=BOX))
        subscribe_with(client, "p")
        sensor = clients.connect()
        events = geopublish("g", "g", at=(8.5, 54.5), time=1) * 5, publish("p", "p") * 5
        settle(sensor, *events)
        client.expect(b"".join(events))
        client.disconnect()
        settle(sensor, *events)
        again = clients.connect("away", clean=False, present=True)
        again.expect(b"".join(events))


def test_a_run_counts_for_the_publisher_too(clients: Clients, topic: str) -> None:
    """A client hears its own events."""
    client = clients.connect()
    granted(client, entry(topic, at=BOX))
    event = geopublish(topic, "x", at=(8.5, 54.5), time=1)
    client.send(event * 10)
    client.expect(event * 10)
    assert not received_more(client)


def received_more(client: Raw) -> bool:
    client.send("c0 00")
    first, _ = client.packet()
    return first != 0xD0


def test_an_event_with_a_longitude_beyond_180_is_where_it_wraps_to(
    clients: Clients, topic: str
) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(topic, at="BBOX(170,-10,-170,10)"))
    events = [geopublish(topic, f"{x}", at=(x, 0.0), time=1) for x in (180.0, 190.0, 181.5, 200.0)]
    settle(sensor, *events)
    assert [received(client).geometry[0] for _ in range(3)] == [180.0, 190.0, 181.5]
    client.expect_nothing()
