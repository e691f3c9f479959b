"""GEOPUBLISH, GEOSUBSCRIBE and GEOUNSUBSCRIBE against the running daemon."""

from __future__ import annotations

import json
import math
import struct
import time

import pytest

from tests.conformance.raw import Clients, publish, subscribe, subscribe_with, unsubscribe
from tests.conftest import StartBroker
from tests.integration.geo.wire import (
    RELATIONS,
    TIMES,
    answered,
    entry,
    fence,
    geopublish,
    geosubscribe,
    granted,
    location,
    move,
    publishg,
    received,
    removed,
    settle,
    tell,
)

BOX = "BBOX(8,54,9,55)"
INSIDE, OUTSIDE = (8.5, 54.5), (10.0, 50.0)
EVENT_MS = 1_700_000_000_000


def test_a_geo_subscriber_gets_what_happens_inside_as_it_was_published(
    clients: Clients, topic: str
) -> None:
    watcher, sensor = clients.connect(), clients.connect()
    granted(watcher, entry(f"{topic}/#", at=BOX))
    wanted = geopublish(f"{topic}/7", "21", at=INSIDE, time=EVENT_MS)
    settle(sensor, geopublish(f"{topic}/8", at=OUTSIDE), wanted)
    watcher.expect(wanted)
    watcher.expect_nothing()


def test_a_plain_subscriber_gets_an_ordinary_publish(clients: Clients, topic: str) -> None:
    watcher, sensor = clients.subscribed(topic), clients.connect()
    settle(sensor, geopublish(topic, "21", at=INSIDE, time=EVENT_MS))
    watcher.expect(publish(topic, "21"))


def test_an_event_without_a_time_goes_out_with_the_time_of_its_receipt(
    clients: Clients, topic: str
) -> None:
    watcher, sensor = clients.connect(), clients.connect()
    granted(watcher, entry(topic))
    before = time.time_ns() // 1_000_000
    settle(sensor, geopublish(topic, at=INSIDE))
    event = received(watcher)
    assert isinstance(event.time, int)
    assert before <= event.time <= time.time_ns() // 1_000_000
    assert event.geometry == INSIDE


def test_a_plain_publish_reaches_only_filters_with_any_place(clients: Clients, topic: str) -> None:
    anywhere, somewhere, client = clients.connect(), clients.connect(), clients.connect()
    granted(anywhere, entry(topic))
    granted(somewhere, entry(topic, at="BBOX(-180,-90,180,90)"))
    settle(client, publish(topic, "hi"))
    event = received(anywhere)
    assert (event.enveloped, event.form, event.payload) == (True, 0, "hi")
    somewhere.expect_nothing()


def test_a_plain_publish_is_where_its_publisher_is_and_does_not_say_so(
    clients: Clients, topic: str
) -> None:
    watcher, walker = clients.connect(), clients.connect()
    granted(watcher, entry(topic, at=BOX))
    move(walker, 54.5, 8.5)
    settle(walker, publish(topic, "here"))
    event = received(watcher)
    assert (event.payload, event.form, event.geometry) == ("here", 0, None)
    move(walker, 50.0, 8.5)
    settle(walker, publish(topic, "gone"))
    watcher.expect_nothing()


def test_every_spatial_relation_is_read_from_the_filter_to_the_event(
    clients: Clients, topic: str
) -> None:
    """A fence, and an event that lies in it and touches it from within."""
    client = clients.connect()
    holding = {}
    for relation in RELATIONS:
        operand = {"de9im": b"T*****FF*", "dwithin": struct.pack(">d", 0.0)}.get(relation, b"")
        wish = entry(f"{topic}/{relation}", relation=relation, at=BOX, operand=operand)
        granted(client, wish)
        settle_event = geopublish(f"{topic}/{relation}", at="BBOX(8,54,8.5,54.5)")
        client.send(settle_event + b"\xc0\x00")
        first, _ = client.packet()
        holding[relation] = first == 0xF6
        if holding[relation]:
            client.expect("d0 00")
    assert {relation for relation, holds in holding.items() if holds} == {
        "any", "covers", "contains", "intersects", "de9im", "dwithin",
    }  # fmt: skip


def test_every_temporal_relation_is_read_from_the_event_to_the_filter(
    clients: Clients, topic: str
) -> None:
    """An event from 10 to 20 s against windows made for each relation."""
    windows = {
        "any": "100/200", "intersects": "15/30", "before": "21/30", "after": "0/9",
        "meets": "20/30", "met_by": "0/10", "overlaps": "15/30", "overlapped_by": "0/15",
        "starts": "10/30", "started_by": "10/15", "during": "5/30", "contains": "12/15",
        "finishes": "5/20", "finished_by": "15/20", "equals": "10/20",
    }  # fmt: skip
    client = clients.connect()
    for relation in TIMES:
        number = TIMES.index(relation)
        granted(client, entry(f"{topic}/{relation}", temporal=number, time=windows[relation]))
        settle(client)
        client.send(geopublish(f"{topic}/{relation}", relation, time=(10_000, 20_000)))
        assert received(client).payload == relation
        client.send(geopublish(f"{topic}/{relation}", time=(300_000, 400_000)))
        if relation not in ("any", "after"):
            client.expect_nothing()
        else:
            received(client)


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (entry("a", qos=3), 0x80),
        (entry("a", deliver=5), 0x80),
        (entry("a", deliver=0x7F), 0x80),
        (entry("a/#/b"), 0x8F),
        (entry(""), 0x8F),
        (entry("a+"), 0x8F),
        (entry("$geo/near=1/a"), 0x8F),
        (entry("$share/group"), 0x8F),
        (entry("$share/gr+up/a"), 0x8F),
        (entry("$share/group/$geo/near=1/a"), 0x8F),
        (entry("a", time="2026-03-28T11:15:00Z"), 0xC0),
        (entry("a", time="R0/2026-03-28/P1D"), 0xC0),
        (entry("a", time="2026-03-28/2026-03-28"), 0xC0),
        (entry("a", time="R/2026-03-28/.."), 0xC0),
        (entry("a", time="0 0 8 ? * ?/PT1H"), 0xC0),
        (entry("a", time="0 0 8 * * ?/PT0S"), 0xC0),
        (entry("a", time="next week"), 0xC0),
        (entry("a", at="POLYGON((0 0,1 1,1 0,0 1,0 0))"), 0xC1),
        (entry("a", at="POLYGON((0 0,1 0,1 1,0 1))"), 0xC1),
        (entry("a", at="POINT EMPTY"), 0xC1),
        (entry("a", at="POINT(8 91)"), 0xC1),
        (entry("a", at=(math.nan, 1.0)), 0xC1),
        (entry("a", at=b"\x01\x02"), 0xC1),
        (entry("a", at={"type": "Circle"}), 0xC1),
        (entry("a", at="LINESTRING(" + ",".join(["1 2", "2 1"] * 5001) + ")"), 0xC1),
        (entry("a", at=(1.0, 2.0, 3.0)), 0xC1),
        (entry("a", at="POINT(1 2)", form=6), 0xC1),
        (entry("a", at="POINT(1 2)", form=8), 0xC1),
        (entry("a", relation="covers", at=(1.0, 2.0), operand=b"\0"), 0xC1),
        (entry("a", relation="de9im", at="POINT(1 2)", operand=b"T*F**F**X"), 0xC1),
        (entry("a", relation="de9im", at="", operand=b"T*F"), 0xC1),
        (entry("a", relation="dwithin", at="POINT(1 2)", operand=b"\0\0"), 0xC1),
        (entry("a", relation="dwithin", at="POINT(1 2)", operand=struct.pack(">d", -1)), 0xC1),
        (entry("a", near=-1.0), 0xC1),
        (entry("a", near=math.nan), 0xC1),
        (entry("a", near=math.inf), 0xC1),
        (entry("a", relation=13, at="POINT(1 2)"), 0xC2),
        (entry("a", relation=0x7F, at="POINT(1 2)"), 0xC2),
        (entry("a", temporal=15, time="2026-01-01/P1D"), 0xC2),
        (entry("a", relation="disjoint", near=150.0), 0xC2),
        (entry("a", at="POINT(1 2)", epsg=999_999), 0xC3),
        (entry("a", at="SRID=999999;POINT(1 2)"), 0xC3),
    ],
)
def test_a_value_that_cannot_be_used_gets_its_code_and_the_connection_lives(
    clients: Clients, wish: object, code: int
) -> None:
    client = clients.connect()
    fine = entry("fine", qos=1)
    assert answered(client, fine, wish, fine) == [1, code, 1]  # type: ignore[arg-type]
    client.expect_nothing()


def test_a_shared_geosubscription_goes_to_a_member_that_passes(
    clients: Clients, topic: str
) -> None:
    west, east, sensor = clients.connect(), clients.connect(), clients.connect()
    granted(west, entry(f"$share/g/{topic}", at="BBOX(8,54,8.4,55)"))
    granted(east, entry(f"$share/g/{topic}", at="BBOX(8.6,54,9,55)"))
    inside = geopublish(topic, "east", at=(8.8, 54.5), time=1)
    settle(sensor, inside * 3)
    east.expect(inside * 3)
    west.expect_nothing()


def test_mqtt_31_gets_the_same_codes_in_a_geosuback(clients: Clients) -> None:
    """Only SUBACK has no way to fail there."""
    client = clients.raw()
    client.send('10 10 00 06 "MQIsdp" 03 02 00 00 00 02 "g3"')
    client.expect("20 02 00 00")
    assert answered(client, entry("a", at="POINT(8 91)")) == [0xC1]
    client.expect_nothing()


def test_a_limit_on_subscriptions_is_a_code(start_broker: StartBroker) -> None:
    broker = start_broker(config="[limits]\nmax_subscriptions = 2\n")
    clients = Clients(broker.host, broker.port)
    client = clients.connect()
    assert answered(client, entry("a"), entry("b"), entry("c")) == [0, 0, 0x97]
    assert answered(client, entry("b")) == [0]  # the same one again takes no room
    clients.close()


def test_an_acl_is_a_code(start_broker: StartBroker, tmp_path: object) -> None:
    broker = start_broker(config=f'acl_file = "{_acl(tmp_path)}"\n')
    clients = Clients(broker.host, broker.port)
    client = clients.connect()
    assert answered(client, entry("open/a"), entry("closed/a")) == [0, 0x87]
    clients.close()


def _acl(folder: object) -> str:
    path = f"{folder}/acl.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(ACL)
    return path


ACL = """\
[[rule]]
allow = ["publish", "subscribe", "receive"]
topics = ["open/#"]
"""


@pytest.mark.parametrize(
    "packet",
    [
        "f6 00",
        "f6 01 10",
        "f6 04 90 00 0b 01",
        "f6 04 b0 00 0b 00",
        "f6 03 82 00 01",
        "f6 03 a2 00 01",
        'f6 0b 36 00 03 "a/b" 00 0a 00 "hi"',
        'f6 07 30 00 03 "a/b" 04',
        'f6 07 30 00 03 "a/b" 30',
        'f6 08 30 00 03 "a/b" 18 20',
        'f6 08 30 00 03 "a/b" 80 05',
        "f7 00",
        "f8 00",
        "f9 00",
        "fe 00",
        "ff 00",
        'f0 07 00 03 "a/b" "hi"',
    ],
)
def test_framing_that_cannot_be_read_closes(clients: Clients, packet: str) -> None:
    client = clients.connect()
    client.send(packet)
    client.expect_close()


def test_extensions_are_forwarded_unchanged(clients: Clients, topic: str) -> None:
    watcher, sensor = clients.connect(), clients.connect()
    granted(watcher, entry(topic))
    move(watcher, 54.5, 8.5)
    tlv = b"\x63\x03abc" + fence(BOX)[1:]
    extensions = bytes((len(tlv),)) + tlv
    settle(sensor, geopublish(topic, at=INSIDE, time=1, extensions=extensions))
    assert received(watcher).extensions == extensions


# deliver


def test_deliver_says_in_which_form_a_place_comes(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    forms = {}
    for deliver in range(5):
        granted(client, entry(f"{topic}/{deliver}", deliver=deliver))
        settle(sensor, geopublish(f"{topic}/{deliver}", at=BOX, time=EVENT_MS))
        event = received(client)
        forms[deliver] = (event.enveloped, event.form, event.epsg)
        assert (event.time if event.enveloped else EVENT_MS) == EVENT_MS
        if deliver == 0:
            assert event.geometry == BOX
        elif deliver == 2:
            assert event.geometry == "POLYGON ((8 54, 9 54, 9 55, 8 55, 8 54))"
        elif deliver == 3:
            assert json.loads(event.geometry)["type"] == "Polygon"
        elif deliver == 4:
            assert event.geometry[:5] == bytes.fromhex("01 03 00 00 00")
    assert forms == {
        0: (True, 3, None),
        1: (False, 0, None),
        2: (True, 3, None),
        3: (True, 5, None),
        4: (True, 4, None),
    }


def test_a_place_can_come_in_the_system_of_the_subscription(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(f"{topic}/kept", epsg=25832, deliver=0x80))
    granted(client, entry(f"{topic}/wkt", epsg=25832, deliver=0x82))
    settle(sensor, geopublish(f"{topic}/kept", at=(9.0, 51.0)))
    event = received(client)
    assert (event.form, event.epsg) == (1, 25832)
    assert event.geometry == pytest.approx((500_000.0, 5_649_824.8), abs=1)
    settle(sensor, geopublish(f"{topic}/wkt", at="SRID=3857;POINT(1001875.417 6621293.722)"))
    event = received(client)
    assert (event.form, event.epsg) == (3, 25832)
    assert event.geometry.startswith("POINT (499999.99")
    assert "SRID" not in event.geometry


def test_without_an_epsg_a_place_comes_in_degrees(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(topic, deliver=0x80))
    settle(sensor, geopublish(topic, at=(294_400.0, 5_628_700.0), epsg=25832))
    event = received(client)
    assert (event.form, event.epsg) == (1, None)
    assert event.geometry == pytest.approx((6.083, 50.77), abs=0.01)


def test_wkb_comes_without_an_srid_of_its_own(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(topic, deliver=4))
    ewkb = struct.pack(">BIIdd", 0, 0x2000_0001, 25832, 294_400, 5_628_700)
    settle(sensor, geopublish(topic, at=ewkb))
    event = received(client)
    assert (event.form, event.epsg) == (4, 25832)
    assert event.geometry == struct.pack("<BIdd", 1, 1, 294_400, 5_628_700)


def test_another_form_keeps_the_system_and_names_it_in_the_flags(
    clients: Clients, topic: str
) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(topic, deliver=2))
    settle(sensor, geopublish(topic, at="SRID=25832;POINT(294400 5628700)"))
    event = received(client)
    assert (event.geometry, event.epsg) == ("POINT (294400 5628700)", 25832)


def test_an_event_in_another_system_is_matched_in_degrees(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(topic, at="BBOX(6,50.7,6.2,50.8)"))
    wanted = geopublish(topic, at="POINT (294400 5628700)", epsg=25832, time=1)
    settle(sensor, wanted)
    client.expect(wanted)


def test_a_filter_in_another_system_is_matched_in_degrees(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(topic, at="BBOX(290000,5620000,300000,5630000)", epsg=25832))
    settle(sensor, geopublish(topic, "in", at=(6.1, 50.75)), geopublish(topic, at=(7.1, 50.75)))
    assert received(client).payload == "in"
    client.expect_nothing()


# Identity


def test_the_same_identity_replaces_and_sends_what_is_retained_again(
    clients: Clients, topic: str
) -> None:
    client, sensor = clients.connect(), clients.connect()
    settle(sensor, geopublish(topic, "kept", at=INSIDE, retain=True, qos=0))
    granted(client, entry(topic, at=BOX))
    assert received(client).retain
    granted(client, entry(topic, at=BOX, qos=1, deliver=1))
    again = received(client)
    assert (again.enveloped, again.retain, again.payload) == (False, True, "kept")
    settle(sensor, geopublish(topic, "live", at=INSIDE))
    live = received(client)
    assert (live.enveloped, live.payload) == (False, "live")
    client.expect_nothing()


def test_many_fences_on_one_topic_are_one_delivery(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, *(entry(topic, at=f"BBOX({8 - n},54,9,55)") for n in range(5)))
    granted(client, entry(topic, at="BBOX(0,0,1,1)"))
    settle(sensor, geopublish(topic, "once", at=INSIDE), geopublish(topic, "far", at=(0.5, 0.5)))
    assert [received(client).payload for _ in range(2)] == ["once", "far"]
    client.expect_nothing()


def test_unsubscribing_names_every_byte_or_all(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    fences = [entry(topic, at=BOX), entry(topic, at="BBOX(8,54,9,55) "), entry(topic, near=5.0)]
    granted(client, *fences)
    assert removed(client, entry(topic, relation="intersects", at=BOX)) == [0x11]
    assert removed(client, entry(topic, at=BOX, epsg=4326)) == [0x11]
    assert removed(client, fences[0], fences[0]) == [0, 0x11]
    settle(sensor, geopublish(topic, "second", at=INSIDE))
    assert received(client).payload == "second"
    assert removed(client, entry(topic), entry(topic), entry("other")) == [0, 0x11, 0x11]
    settle(sensor, geopublish(topic, at=INSIDE))
    client.expect_nothing()


def test_the_three_sets_do_not_touch_each_other(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    in_topic = f"$geo/covers={BOX}/{topic}"
    subscribe_with(client, topic)
    subscribe_with(client, in_topic)
    granted(client, entry(topic, at=BOX))
    event = geopublish(topic, at=INSIDE, time=1)

    client.send(unsubscribe(1, topic))
    client.expect("b0 02 00 01")
    settle(sensor, event)
    assert received(client).enveloped
    assert removed(client, entry(topic)) == [0]
    settle(sensor, event)
    assert not received(client).enveloped
    client.send(unsubscribe(2, topic))
    client.expect("b0 02 00 02")
    settle(sensor, event)
    assert not received(client).enveloped
    client.send(unsubscribe(3, in_topic))
    client.expect("b0 02 00 03")
    settle(sensor, event)
    client.expect_nothing()


# Forms and sessions


def test_geomqtt_as_protocol_name_is_welcome(clients: Clients, topic: str) -> None:
    client, sensor = clients.raw(), clients.connect()
    client.send('10 11 00 07 "GeoMQTT" 04 02 00 3c 00 02 "gm"')
    client.expect("20 02 00 00")
    granted(client, entry(topic))
    settle(sensor, geopublish(topic, at=INSIDE, time=5))
    client.expect(geopublish(topic, at=INSIDE, time=5))


def test_the_broker_never_sends_publishg(clients: Clients, topic: str) -> None:
    plain, geo, walker = clients.subscribed(topic), clients.connect(), clients.connect()
    granted(geo, entry(topic, at=BOX))
    settle(walker, publishg(topic, "low", location(54.5, 8.5)))
    settle(walker, publishg(topic, "high", location(54.5, 8.5, 30.0)))
    plain.expect(publish(topic, "low") + publish(topic, "high"))
    low, high = received(geo), received(geo)
    assert (low.form, low.geometry) == (1, (8.5, 54.5))
    assert (high.form, high.geometry) == (2, (8.5, 54.5, 30.0))


def test_several_matching_subscriptions_are_one_delivery_in_the_form_of_the_one_made_last(
    clients: Clients, topic: str
) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(topic, at=BOX, qos=0, deliver=3))
    granted(client, entry(topic, qos=1, deliver=2))
    client.send(subscribe(9, (f"{topic}/#", 2)))
    client.expect("90 03 00 09 02")
    sensor.send(geopublish(topic, at=INSIDE, qos=2, packet_id=5))
    sensor.expect("50 02 00 05")
    event = received(client)
    assert (event.qos, event.enveloped, event.form) == (2, True, 3)
    granted(client, entry(topic, at=BOX, qos=0, deliver=3))
    settle(sensor, geopublish(topic, at=INSIDE))
    assert received(client).form == 5
    client.expect_nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_a_geopublish_shares_packet_ids_and_qos_with_publish(
    clients: Clients, topic: str, qos: int
) -> None:
    watcher, sensor = clients.connect(), clients.connect()
    granted(watcher, entry(topic, qos=qos))
    event = geopublish(topic, at=INSIDE, time=1, qos=qos, packet_id=3)
    sensor.send(event)
    sensor.expect(f"{'40' if qos == 1 else '50'} 02 00 03")
    watcher.expect(geopublish(topic, at=INSIDE, time=1, qos=qos, packet_id=1))
    if qos == 1:
        watcher.send("40 02 00 01")
    else:
        sensor.send(event)  # the same again before PUBREL
        sensor.expect("50 02 00 03")
        sensor.send("62 02 00 03")
        sensor.expect("70 02 00 03")
        watcher.send("50 02 00 01")
        watcher.expect("62 02 00 01")
        watcher.send("70 02 00 01")
    watcher.expect_nothing()


def test_a_faulty_event_is_acknowledged_and_told_and_not_delivered(
    clients: Clients, topic: str
) -> None:
    watcher, sensor = clients.subscribed(f"{topic}/#"), clients.connect()
    subscribe_with(sensor, "$/SYS/MQTT/error", 1)
    sensor.send(geopublish(topic, at="POINT(8 91)", qos=1, packet_id=4))
    sensor.expect("40 02 00 04")
    told = received(sensor)
    assert (told.topic, told.qos) == ("$/SYS/MQTT/error", 1)
    document = json.loads(told.payload)
    assert document["topic"] == topic
    assert "latitude 91" in document["reason"]
    sensor.send(geopublish(topic, time="soon", qos=2, packet_id=5))
    sensor.expect("50 02 00 05")
    assert "soon" in json.loads(received(sensor).payload)["reason"]
    sensor.send(geopublish("$geo/at=POINT(1 2)/x", qos=1, packet_id=6))
    sensor.expect("40 02 00 06")
    assert json.loads(received(sensor).payload)["topic"] == "$geo/at=POINT(1 2)/x"
    watcher.expect_nothing()


def test_an_error_is_told_only_to_the_one_who_made_it(clients: Clients, topic: str) -> None:
    other = clients.subscribed("$/SYS/MQTT/error")
    deaf = clients.connect()
    settle(deaf, geopublish(topic, at="nowhere"))
    other.expect_nothing()


def test_nobody_else_can_tell_an_error(clients: Clients) -> None:
    client, forger = clients.subscribed("$/SYS/MQTT/error"), clients.connect()
    tell(forger, "$/SYS/MQTT/error", '{"topic": "x", "reason": "forged"}')
    client.expect_nothing()


def test_every_geosubscribe_byte_by_byte(clients: Clients, topic: str) -> None:
    client = clients.connect()
    for byte in geosubscribe(7, entry(topic, at=BOX, time="2026-01-01/P1D")):
        client.send(bytes((byte,)))
    client.expect("f6 04 90 00 07 00")


def test_a_location_noted_between_two_publishes_of_one_read_divides_them(
    clients: Clients, topic: str
) -> None:
    watcher, walker = clients.connect(), clients.connect()
    granted(watcher, entry(topic, at=BOX))
    ping_in = b"\xc4\x15" + location(54.5, 8.5)
    ping_out = b"\xc4\x15" + location(10.0, 8.5)
    walker.send(
        publish(topic, "nowhere")
        + ping_in
        + publish(topic, "inside")
        + ping_out
        + publish(topic, "outside")
    )
    walker.expect("d0 00 d0 00")
    tell(walker, "end", "x")
    assert received(watcher).payload == "inside"
    watcher.expect_nothing()
