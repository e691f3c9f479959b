"""Mount points: a prefix that clients of a listener live below and never see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.config import Listener
from tests.broker.live import Live, Peer, running
from tests.conformance.raw import connect, field, framed, publish, subscribe, unsubscribe

OUTSIDE, HOUSE, GARDEN = 0, 1, 2


@pytest.fixture
async def live() -> AsyncIterator[Live]:
    listeners = [
        Listener(port=0),
        Listener(port=0, mount_point="house/"),
        Listener(port=0, mount_point="garden/"),
    ]
    async with running(listener=listeners) as made:
        yield made


async def at(live: Live, number: int, name: str, *, present: bool = False, **wish: Any) -> Peer:
    peer = await live.open(number)
    peer.send(connect(name, **wish))
    await peer.expect("20 02 01 00" if present else "20 02 00 00")
    return peer


async def test_clients_inside_see_each_other_under_their_own_topics(live: Live) -> None:
    one, other = await at(live, HOUSE, "one"), await at(live, HOUSE, "other")
    foreign, outside = await at(live, GARDEN, "foreign"), await at(live, OUTSIDE, "outside")
    for peer in (one, foreign, outside):
        await peer.subscribe("#", 1)
    await other.publish("room/1", "warm")
    await one.expect(publish("room/1", "warm", qos=1, packet_id=1))
    await outside.expect(publish("house/room/1", "warm", qos=1, packet_id=1))
    await foreign.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_comes_from_outside_arrives_without_the_prefix(live: Live, qos: int) -> None:
    inside, outside = await at(live, HOUSE, "inside"), await at(live, OUTSIDE, "outside")
    await inside.subscribe("room/+", 2)
    for number in range(1, 4):  # the second and third would take the fast lane
        outside.send(publish("house/room/1", "x", qos=qos, packet_id=number if qos else 0))
        if qos:
            await outside.expect(f"{'40' if qos == 1 else '50'} 02 00 0{number}")
        await inside.expect(publish("room/1", "x", qos=qos, packet_id=number if qos else 0))
    outside.send(publish("room/1", "not in the house"))
    await outside.expect_nothing()
    await inside.expect_nothing()


async def test_plain_runs_from_inside_are_mounted_too(live: Live) -> None:
    inside, outside = await at(live, HOUSE, "inside"), await at(live, OUTSIDE, "outside")
    await outside.subscribe("+/t", 1)
    inside.send(publish("t", "a") * 3 + publish("t", "b", qos=1, packet_id=9) * 2)
    await inside.expect("40 02 00 09 40 02 00 09")
    await outside.expect(publish("house/t", "a") * 3)
    await outside.expect(publish("house/t", "b", qos=1, packet_id=1))
    await outside.expect(publish("house/t", "b", qos=1, packet_id=2))


async def test_unsubscribing_names_the_filter_as_the_client_knows_it(live: Live) -> None:
    inside, outside = await at(live, HOUSE, "inside"), await at(live, OUTSIDE, "outside")
    await inside.subscribe("a/#")
    inside.send(unsubscribe(5, "a/#"))
    await inside.expect("b0 02 00 05")
    await outside.publish("house/a/b", "x")
    await inside.expect_nothing()


async def test_retained_messages_and_wills_are_mounted(live: Live) -> None:
    leaving = await at(live, HOUSE, "leaving", will=("last/words", "bye", 1, True))
    await leaving.publish("state", "on", retain=True)
    outside = await at(live, OUTSIDE, "outside")
    await outside.subscribe("house/#", 1)
    await outside.expect(publish("house/state", "on", qos=1, packet_id=1, retain=True))
    leaving.close()
    await outside.expect(publish("house/last/words", "bye", qos=1, packet_id=2))
    late, foreign = await at(live, HOUSE, "late"), await at(live, GARDEN, "foreign")
    await late.subscribe("#", 0)
    await late.expect(publish("last/words", "bye", retain=True))
    await late.expect(publish("state", "on", retain=True))
    await foreign.subscribe("#")
    await foreign.expect_nothing()


async def test_shared_subscriptions_share_inside(live: Live) -> None:
    one, two = await at(live, HOUSE, "one"), await at(live, HOUSE, "two")
    foreign = await at(live, GARDEN, "foreign")
    for peer in (one, two, foreign):
        await peer.subscribe("$share/g/jobs/#", 1)
    inside = await at(live, HOUSE, "inside")
    for _ in range(2):
        await inside.publish("jobs/1", "work")
    for peer in (one, two):
        await peer.expect(publish("jobs/1", "work", qos=1, packet_id=1))
    await foreign.expect_nothing()


async def test_the_brokers_own_topics_lie_outside(live: Live) -> None:
    inside, outside = await at(live, HOUSE, "inside"), await at(live, OUTSIDE, "outside")
    await outside.publish("$SYS/spoof", "x", retain=True)
    await inside.publish("$SYS/spoof", "x", retain=True)
    await inside.subscribe("$SYS/#")
    await inside.expect_nothing()
    await outside.subscribe("$SYS/#")
    await outside.expect_nothing()


async def test_a_topic_that_has_no_name_inside_is_not_sent_and_holds_nothing_up(
    live: Live,
) -> None:
    """`house/#` matches `house` and `house/` as well."""
    inside, outside = await at(live, HOUSE, "inside"), await at(live, OUTSIDE, "outside")
    await inside.subscribe("#", 2)
    for topic in ("house", "house/"):
        for qos in (0, 1, 2):
            outside.send(publish(topic, "x", qos=qos, packet_id=10 + qos if qos else 0))
    await outside.expect("40 02 00 0b 50 02 00 0c 40 02 00 0b 50 02 00 0c")
    await inside.expect_nothing()
    session = live.broker.sessions.get("inside")
    assert session is not None
    assert not session.in_flight


async def test_place_and_time_ride_inside_the_mount_point(live: Live) -> None:
    inside, outside = await at(live, HOUSE, "inside"), await at(live, OUTSIDE, "outside")
    foreign = await at(live, GARDEN, "foreign")
    near = "$geo/covers=BBOX(0,0,9,9);prefix=keep/room/#"
    for peer in (inside, foreign):
        await peer.subscribe(near)
    await outside.subscribe("#")
    sender = await at(live, HOUSE, "sender")
    await sender.publish("$geo/at=POINT(1 1)/room/1", "here")
    await inside.expect(publish("$geo/covers=BBOX(0,0,9,9);prefix=keep/room/1", "here"))
    await outside.expect(publish("house/room/1", "here"))
    await foreign.expect_nothing()


async def test_envelopes_are_mounted_in_both_directions(live: Live) -> None:
    inside = await at(live, HOUSE, "inside")
    entry = field("room/#") + bytes.fromhex("00 01 00 00 01 03 00000000")
    geometry = b"BBOX(0,0,9,9)"
    entry += bytes((len(geometry),)) + geometry + b"\x00"
    inside.send(framed(0xF6, b"\x82\x00\x07" + entry))
    await inside.expect("f6 04 90 00 07 00")
    outside = await at(live, OUTSIDE, "outside")
    point = bytes.fromhex("08 3ff0000000000000 3ff0000000000000")
    outside.send(framed(0xF6, b"\x30" + field("house/room/1") + point + b"hi"))
    first, body = await inside.packet()
    assert first == 0xF6
    assert body[0] == 0x30
    assert body[1:].startswith(field("room/1"))
    assert body.endswith(b"hi")


async def test_fences_filter_the_topics_that_the_client_knows(live: Live) -> None:
    inside, outside = await at(live, HOUSE, "inside"), await at(live, OUTSIDE, "outside")
    fence = {"geometry": "BBOX(0,0,9,9)", "topics": ["room/#"]}
    await inside.publish("$/SYS/MQTT/geofence/here", json.dumps(fence))
    await inside.subscribe("#")
    await outside.publish("$geo/at=POINT(50 50)/house/room/1", "far")
    await outside.publish("$geo/at=POINT(50 50)/house/yard", "elsewhere")
    await outside.publish("$geo/at=POINT(5 5)/house/room/1", "near")
    await inside.expect(publish("yard", "elsewhere") + publish("room/1", "near"))


async def test_a_refused_place_is_told_with_the_topic_as_it_was_published(live: Live) -> None:
    inside = await at(live, HOUSE, "inside")
    await inside.subscribe("$/SYS/MQTT/error")
    inside.send(publish("$geo/at=POINT(1 91)/room/1", "x"))
    _, body = await inside.packet()
    size = int.from_bytes(body[:2], "big")
    assert body[2 : 2 + size] == b"$/SYS/MQTT/error"
    assert json.loads(body[2 + size :])["topic"] == "$geo/at=POINT(1 91)/room/1"


async def test_a_session_goes_on_inside_and_never_into_another_mount_point(live: Live) -> None:
    first = await at(live, HOUSE, "roamer", clean=False)
    await first.subscribe("room/#", 1)
    first.close()
    outside = await at(live, OUTSIDE, "outside")
    await outside.publish("house/room/1", "missed")
    again = await at(live, HOUSE, "roamer", clean=False, present=True)
    await again.expect(publish("room/1", "missed", qos=1, packet_id=1))
    again.send("40 02 00 01")
    for _ in range(3):
        outside.send(publish("house/room/1", "now"))
    await again.expect(publish("room/1", "now") * 3)
    again.close()
    elsewhere = await at(live, GARDEN, "roamer", clean=False, present=False)
    await outside.publish("house/room/1", "secret")
    await elsewhere.expect_nothing()


async def test_a_topic_that_is_too_long_with_its_prefix_closes(live: Live) -> None:
    inside = await at(live, HOUSE, "inside")
    inside.send(publish("x" * 65_530, "x"))
    await inside.expect_close()
    inside = await at(live, HOUSE, "inside")
    inside.send(subscribe(1, ("x" * 65_530, 0)))
    await inside.expect_close()
    assert live.counts["topics_beyond_limit"] == 2
