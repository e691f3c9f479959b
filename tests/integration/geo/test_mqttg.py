"""MQTT-G: flagged packets, last known locations, geofences of clients, and what is refused."""

from __future__ import annotations

import json
import math

import pytest

from tests.conformance.raw import (
    Clients,
    Raw,
    clients_of,
    connect,
    field,
    framed,
    publish,
    subscribe,
    subscribe_with,
)
from tests.conftest import StartBroker
from tests.integration.geo.wire import (
    entry,
    geopublish,
    granted,
    location,
    move,
    publishg,
    received,
    settle,
    tell,
)

BOX = "POLYGON((8 54,9 54,9 55,8 55,8 54))"
FENCE = "$/SYS/MQTT/geofence"
IN, OUT = (54.5, 8.5), (10.0, 8.5)  # latitude, longitude


def is_inside(clients: Clients, client: Raw, topic: str) -> bool:
    """Whether the broker thinks that a client is in the box: it publishes, and we look."""
    watcher = clients.connect()
    granted(watcher, entry(topic, at=BOX))
    settle(client, publish(topic, "where"))
    watcher.send("c0 00")
    first, _ = watcher.packet()
    return first == 0xF6


def flagged(first: int, body: bytes = b"", where: tuple[float, float] = IN) -> bytes:
    return framed(first, body + location(*where))


def test_connect_with_a_location_sets_it(clients: Clients, topic: str) -> None:
    client = clients.raw()
    body = field("MQTT") + bytes((4, 2, 0, 0)) + location(*IN) + field("located")
    client.send(framed(0x14, body))
    client.expect("20 02 00 00")
    assert is_inside(clients, client, topic)


def test_subscribe_and_unsubscribe_with_a_location_set_it(clients: Clients, topic: str) -> None:
    client = clients.connect()
    client.send(framed(0x86, b"\0\1" + location(*IN) + field("x") + b"\1"))
    client.expect("90 03 00 01 01")
    assert is_inside(clients, client, topic)
    client.send(framed(0xA6, b"\0\2" + location(*OUT) + field("x")))
    client.expect("b0 02 00 02")
    assert not is_inside(clients, client, topic)


def test_acknowledgements_with_a_location_set_it(clients: Clients, topic: str) -> None:
    client, other = clients.subscribed(f"{topic}/in", 2), clients.connect()
    other.send(publish(f"{topic}/in", "1", qos=1, packet_id=1))
    other.expect("40 02 00 01")
    assert received(client).qos == 1
    client.send(flagged(0x44, b"\0\1"))  # PUBACK
    assert is_inside(clients, client, topic)
    other.send(publish(f"{topic}/in", "2", qos=2, packet_id=2))
    other.expect("50 02 00 02")
    assert received(client).packet_id == 2
    client.send(flagged(0x54, b"\0\2", OUT))  # PUBREC
    client.expect("62 02 00 02")
    assert not is_inside(clients, client, topic)
    client.send(flagged(0x74, b"\0\2"))  # PUBCOMP
    assert is_inside(clients, client, topic)
    client.send(publish("x", "3", qos=2, packet_id=3))
    client.expect("50 02 00 03")
    client.send(flagged(0x66, b"\0\3", OUT))  # PUBREL
    client.expect("70 02 00 03")
    assert not is_inside(clients, client, topic)


def test_disconnect_with_a_location_sets_it_for_the_next_time(clients: Clients, topic: str) -> None:
    client = clients.connect("leaver")
    client.send(flagged(0xE4))
    client.expect_close()
    assert is_inside(clients, clients.connect("leaver"), topic)


def test_a_location_outlives_a_clean_session(clients: Clients, topic: str) -> None:
    client = clients.connect("comes-and-goes")
    move(client, *IN)
    client.disconnect()
    assert is_inside(clients, clients.connect("comes-and-goes"), topic)


def test_a_location_is_forgotten_after_its_time(start_broker: StartBroker) -> None:
    broker = start_broker(config="[geo]\nlocation_ttl_s = 0\n")
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("short")
        move(client, *IN)
        client.disconnect()
        assert not is_inside(clients, clients.connect("short"), "where")


def test_plain_and_flagged_packets_mix_freely(clients: Clients, topic: str) -> None:
    client = clients.connect()
    client.send(b"\xc0\x00" + flagged(0xC4) + b"\xc0\x00" + publish("x", "y") + flagged(0xC4))
    client.expect("d0 00 d0 00 d0 00 d0 00")
    assert is_inside(clients, client, topic)


def test_a_block_of_another_version_is_skipped(clients: Clients, topic: str) -> None:
    client = clients.connect()
    move(client, *IN)
    client.send(framed(0xC4, location(*OUT, version=2)))
    client.expect("d0 00")
    assert is_inside(clients, client, topic)
    watcher = clients.subscribed(f"{topic}/g")
    settle(client, publishg(f"{topic}/g", "still a message", location(*OUT, version=7)))
    watcher.expect(publish(f"{topic}/g", "still a message"))


@pytest.mark.parametrize("where", [(91.0, 8.5), (54.5, 181.0), (math.nan, 8.5), (54.5, math.inf)])
def test_an_impossible_location_is_ignored_and_the_packet_is_not(
    clients: Clients, topic: str, where: tuple[float, float]
) -> None:
    client = clients.connect()
    move(client, *IN)
    move(client, *where)
    assert is_inside(clients, client, topic)
    watcher = clients.subscribed(f"{topic}/g")
    settle(client, publishg(f"{topic}/g", "hi", location(*where)))
    watcher.expect(publish(f"{topic}/g", "hi"))


@pytest.mark.parametrize(
    "packet",
    [
        framed(0xC4, location(*IN)[:20]),
        framed(0xC4, b""),
        framed(0xC4, location(*IN) + b"\0"),
        framed(0xE4, location(*IN)[:3]),
        framed(0x44, b"\0\1" + location(*IN)[:20]),
        framed(0x86, b"\0\1" + field("a") + b"\0"),
        framed(0xF0, field("a") + location(*IN)[:20]),
        framed(0xF2, field("a") + location(*IN)[:20]),
    ],
)
def test_a_packet_too_short_for_its_location_closes(clients: Clients, packet: bytes) -> None:
    client = clients.connect()
    client.send(packet)
    client.expect_close()


@pytest.mark.parametrize(
    "first", [0x14, 0x44, 0x54, 0x66, 0x74, 0x86, 0xA6, 0xC4, 0xE4, *range(0xF0, 0x100)]
)
def test_a_plain_listener_knows_none_of_it(plain_clients: Clients, first: int) -> None:
    client = plain_clients.raw() if first == 0x14 else plain_clients.connect()
    client.send(framed(first, b"\0\1" + location(*IN)))
    client.expect_close()


@pytest.mark.parametrize("order", ["big", "little"])
@pytest.mark.parametrize("position", ["after-variable-header", "after-fixed-header"])
def test_a_listener_reads_the_paper_as_it_is_told(
    start_broker: StartBroker, order: str, position: str
) -> None:
    config = f'mqttg_byte_order = "{order}"\nmqttg_position = "{position}"\n'
    broker = start_broker(config=f"[[listener]]\nport = 0\n{config}", listen=False)
    block = location(*IN, 34.0)
    if order == "little":
        block = block[:1] + block[8:0:-1] + block[16:8:-1] + block[:16:-1]
    with clients_of(broker.host, broker.port) as clients:
        client, watcher = clients.connect(), clients.connect()
        granted(watcher, entry("t", at=BOX))
        header, payload = field("t") + b"\0\1", b"hi"
        body = block + header if position == "after-fixed-header" else header + block
        client.send(framed(0xF2, body + payload))
        client.expect("40 02 00 01")
        event = received(watcher)
        assert (event.payload, event.geometry) == ("hi", (8.5, 54.5, 34.0))


# The location topic


@pytest.mark.parametrize(
    "payload", ["POINT(8.5 54.5)", '{"lat": 54.5, "lon": 8.5}', "POINT Z(8.5 54.5 3)"]
)
def test_a_client_without_flags_tells_its_location_by_a_publish(
    clients: Clients, topic: str, payload: str
) -> None:
    watcher = clients.subscribed("$/SYS/MQTT/location")
    client = clients.connect()
    settle(client, publish("$/SYS/MQTT/location", payload, retain=True))
    assert is_inside(clients, client, topic)
    watcher.expect_nothing()
    subscribe_with(watcher, "$/SYS/MQTT/location")
    watcher.expect_nothing()


@pytest.mark.parametrize(
    "payload",
    ["", "here", "POINT(8 91)", BOX, '{"lat": 1}', '{"lat": "x", "lon": 2}', "{", "[1,2]"],
)
def test_a_location_that_is_none_is_told_and_changes_nothing(
    clients: Clients, topic: str, payload: str
) -> None:
    client = clients.connect()
    subscribe_with(client, "$/SYS/MQTT/error")
    move(client, *IN)
    tell(client, "$/SYS/MQTT/location", payload)
    error = received(client)
    assert json.loads(error.payload).keys() == {"topic", "reason"}
    assert json.loads(error.payload)["topic"] == "$/SYS/MQTT/location"
    assert is_inside(clients, client, topic)


# Geofences


@pytest.mark.parametrize("root", [FENCE, "$SYS/MQTT/geofence"])
def test_a_fence_filters_what_its_client_gets_and_nobody_else(
    clients: Clients, topic: str, root: str
) -> None:
    fenced, free, sensor = clients.subscribed(topic), clients.subscribed(topic), clients.connect()
    tell(fenced, f"{root}/home", BOX)
    settle(sensor, geopublish(topic, "in", at=(8.5, 54.5)), geopublish(topic, "out", at=(0.0, 0.0)))
    fenced.expect(publish(topic, "in"))
    fenced.expect_nothing()
    free.expect(publish(topic, "in") + publish(topic, "out"))


def test_the_edge_of_a_fence_is_inside(clients: Clients, topic: str) -> None:
    fenced, sensor = clients.subscribed(topic), clients.connect()
    tell(fenced, f"{FENCE}/home", BOX)
    settle(sensor, geopublish(topic, "edge", at=(8.0, 54.3)), geopublish(topic, at=(7.999, 54.3)))
    fenced.expect(publish(topic, "edge"))
    fenced.expect_nothing()


def test_fences_are_never_forwarded_or_retained(clients: Clients) -> None:
    nosy = clients.connect()
    for number, name in enumerate((f"{FENCE}/#", "$SYS/MQTT/geofence/#"), 1):
        nosy.send(subscribe(number, (name, 0)))
        nosy.packet()
    client = clients.connect()
    settle(client, publish(f"{FENCE}/home", BOX, retain=True))
    settle(client, publish("$SYS/MQTT/geofence/home", BOX, retain=True))
    nosy.expect_nothing()


def test_an_empty_payload_clears_one_or_all(clients: Clients, topic: str) -> None:
    client, sensor = clients.subscribed(topic), clients.connect()
    for name, box in (("a", BOX), ("b", "BBOX(0,0,1,1)"), ("c", "BBOX(2,2,3,3)")):
        tell(client, f"{FENCE}/{name}", box)
    events = [
        geopublish(topic, name, at=at) for name, at in (("a", (8.5, 54.5)), ("b", (0.5, 0.5)))
    ]
    settle(sensor, *events)
    assert [received(client).payload for _ in range(2)] == ["a", "b"]
    tell(client, f"{FENCE}/b", "")
    settle(sensor, *events)
    assert received(client).payload == "a"
    client.expect_nothing()
    tell(client, FENCE, "")
    settle(sensor, *events)
    assert [received(client).payload for _ in range(2)] == ["a", "b"]


def test_a_fence_may_concern_some_topics_only(clients: Clients, topic: str) -> None:
    client, sensor = clients.subscribed(f"{topic}/#"), clients.connect()
    wish = {"geometry": BOX, "topics": [f"{topic}/+/temperature"]}
    tell(client, f"{FENCE}/home", json.dumps(wish))
    settle(
        sensor,
        geopublish(f"{topic}/1/temperature", "no", at=(0.0, 0.0)),
        geopublish(f"{topic}/1/humidity", "yes", at=(0.0, 0.0)),
        geopublish(f"{topic}/1/temperature", "inside", at=(8.5, 54.5)),
    )
    assert [received(client).payload for _ in range(2)] == ["yes", "inside"]
    client.expect_nothing()


def test_a_fence_may_be_geojson(clients: Clients, topic: str) -> None:
    client, sensor = clients.subscribed(topic), clients.connect()
    ring = [[8, 54], [9, 54], [9, 55], [8, 55], [8, 54]]
    polygon = {"type": "Polygon", "coordinates": [ring]}
    for payload in ({"geometry": polygon, "mode": "static"}, polygon):
        tell(client, f"{FENCE}/home", json.dumps(payload))
        settle(sensor, geopublish(topic, "in", at=(8.5, 54.5)), geopublish(topic, at=(0.0, 0.0)))
        client.expect(publish(topic, "in"))
        client.expect_nothing()


def test_a_dynamic_fence_moves_with_its_client(clients: Clients, topic: str) -> None:
    client, sensor = clients.subscribed(topic), clients.connect()
    move(client, 54.5, 8.5)
    wish = {"geometry": "BUFFER(POINT(8.5 54.5), 1000)", "mode": "dynamic"}
    tell(client, f"{FENCE}/around", json.dumps(wish))
    here, there = (
        geopublish(topic, "here", at=(8.51, 54.5)),
        geopublish(topic, "there", at=(0.0, 0.005)),
    )
    settle(sensor, here, there)
    client.expect(publish(topic, "here"))
    move(client, 0.0, 0.0)
    settle(sensor, here, there)
    client.expect(publish(topic, "there"))
    client.expect_nothing()


def test_a_dynamic_fence_keeps_its_metres(clients: Clients, topic: str) -> None:
    """A kilometre east of 60 degrees north is two kilometres' worth of degrees at the equator."""
    client, sensor = clients.subscribed(topic), clients.connect()
    move(client, 60.0, 10.0)
    east_km = 1000 / 55_800  # degrees of a kilometre there
    wish = {"geometry": f"BBOX(10,59.99,{10 + east_km},60.01)", "mode": "dynamic"}
    tell(client, f"{FENCE}/east", json.dumps(wish))
    move(client, 0.0, 20.0)
    settle(
        sensor,
        geopublish(topic, "near", at=(20 + 900 / 111_320, 0.0)),
        geopublish(topic, "beyond", at=(20 + 1100 / 111_320, 0.0)),
    )
    client.expect(publish(topic, "near"))
    client.expect_nothing()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (json.dumps({"geometry": BOX, "mode": "dynamic"}), "known location"),
        (json.dumps({"geometry": BOX, "mode": "sometimes"}), "sometimes"),
        (json.dumps({"geometry": BOX, "topics": "a"}), "topics"),
        (json.dumps({"geometry": BOX, "topics": ["a/#/b"]}), "#"),
        (json.dumps({"geometry": 7}), "geometry"),
        ("POLYGON((0 0,1 1,1 0,0 1,0 0))", "self-intersection"),
        ("{", "JSON"),
        ("somewhere", "somewhere"),
    ],
)
def test_a_fence_that_is_refused_is_acknowledged_and_told(
    clients: Clients, topic: str, payload: str, reason: str
) -> None:
    client, sensor = clients.subscribed(topic), clients.connect()
    subscribe_with(client, "$/SYS/MQTT/error")
    tell(client, f"{FENCE}/home", payload)
    error = json.loads(received(client).payload)
    assert error["topic"] == f"{FENCE}/home"
    assert reason in error["reason"]
    settle(sensor, geopublish(topic, "unfiltered", at=(0.0, 0.0)))
    client.expect(publish(topic, "unfiltered"))


def test_a_message_of_unknown_place_passes(clients: Clients, topic: str) -> None:
    client, sensor = clients.subscribed(topic), clients.connect()
    tell(client, f"{FENCE}/home", BOX)
    settle(sensor, publish(topic, "from nowhere"))
    client.expect(publish(topic, "from nowhere"))
    move(sensor, *OUT)
    settle(sensor, publish(topic, "from outside"))
    client.expect_nothing()


def test_a_message_of_unknown_place_is_dropped_where_the_operator_says_so(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(config='[geo]\nunknown_location = "drop"\n')
    with clients_of(broker.host, broker.port) as clients:
        client, free, sensor = clients.subscribed("t"), clients.subscribed("t"), clients.connect()
        tell(client, f"{FENCE}/home", BOX)
        settle(sensor, publish("t", "from nowhere"))
        client.expect_nothing()
        free.expect(publish("t", "from nowhere"))


def test_the_receivers_location_is_tested_where_the_operator_says_so(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(config='[geo]\nfence_subject = "subscriber"\n')
    with clients_of(broker.host, broker.port) as clients:
        client, sensor = clients.subscribed("t"), clients.connect()
        tell(client, f"{FENCE}/home", BOX)
        far = geopublish("t", "far", at=(0.0, 0.0))
        settle(sensor, far)
        client.expect(publish("t", "far"))  # unknown passes
        move(client, *OUT)
        settle(sensor, far)
        client.expect_nothing()
        move(client, *IN)
        settle(sensor, far)
        client.expect(publish("t", "far"))


def test_topics_of_the_broker_are_never_filtered(start_broker: StartBroker) -> None:
    broker = start_broker(config='sys_interval_s = 0.2\n[geo]\nunknown_location = "drop"\n')
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect()
        tell(client, f"{FENCE}/home", BOX)
        client.send(subscribe(1, ("$SYS/broker/uptime", 0)))
        client.expect("90 03 00 01 00")
        assert received(client).topic == "$SYS/broker/uptime"


def test_fences_end_with_a_clean_session(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect("fenced-once"), clients.connect()
    tell(client, f"{FENCE}/home", BOX)
    client.disconnect()
    again = clients.connect("fenced-once")
    subscribe_with(again, topic)
    settle(sensor, geopublish(topic, "far", at=(0.0, 0.0)))
    again.expect(publish(topic, "far"))


def test_a_limit_on_fences_is_told(start_broker: StartBroker) -> None:
    broker = start_broker(config="[limits]\nmax_fences = 2\n")
    with clients_of(broker.host, broker.port) as clients:
        client = clients.subscribed("$/SYS/MQTT/error")
        for name in "ab":
            tell(client, f"{FENCE}/{name}", BOX)
        tell(client, f"{FENCE}/a", "BBOX(0,0,1,1)")
        client.expect_nothing()
        tell(client, f"{FENCE}/c", BOX)
        assert "limit of 2" in json.loads(received(client).payload)["reason"]


def test_a_fence_closes_the_fast_lane_for_its_topics(clients: Clients, topic: str) -> None:
    """Plain QoS 0 in runs goes past the router; not any more when somebody looks at places."""
    client, sensor = clients.subscribed(topic), clients.connect()
    settle(sensor, *[publish(topic, "run")] * 20)
    client.expect(publish(topic, "run") * 20)
    tell(client, f"{FENCE}/home", BOX)
    move(sensor, *OUT)
    settle(sensor, *[publish(topic, "run")] * 20)
    client.expect_nothing()
    tell(client, FENCE, "")
    settle(sensor, *[publish(topic, "run")] * 20)
    client.expect(publish(topic, "run") * 20)


def test_connect_is_still_connect(clients: Clients) -> None:
    """A second CONNECT with a location is as wrong as one without."""
    client = clients.connect()
    body = connect("x")[2:]
    client.send(framed(0x14, body[:10] + location(*IN) + body[10:]))
    client.expect_close()
