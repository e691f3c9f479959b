"""Where geo brokers usually go wrong, one test each, through the door that shows it."""

from __future__ import annotations

import struct
import time

import pytest

from tests.conformance.raw import Clients, publish, subscribe, subscribe_with
from tests.integration.geo.wire import (
    answered,
    entry,
    geopublish,
    granted,
    move,
    payloads,
    received,
    settle,
)

DAY_MS = 86_400_000


def arrived(clients: Clients, topic: str, wish: object, *events: tuple[str, object]) -> list[str]:
    """The names of the events that a subscription gets."""
    client, sensor = clients.connect(), clients.connect()
    granted(client, wish)  # type: ignore[arg-type]
    settle(sensor, *(geopublish(topic, name, at=at, time=0) for name, at in events))
    client.send("c0 00")
    found = []
    while True:
        first, body = client.packet()
        if first == 0xD0:
            return found
        found.append(next(name for name, _ in events if body.endswith(name.encode())))


def at_times(clients: Clients, topic: str, text: str, *moments_ms: int) -> list[int]:
    """The moments that a temporal filter lets through."""
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(topic, time=text))
    settle(sensor, *(geopublish(topic, str(ms), time=ms) for ms in moments_ms))
    client.send("c0 00")
    found = []
    while True:
        first, body = client.packet()
        if first == 0xD0:
            return found
        found.append(struct.unpack_from(">q", body, 1 + 2 + len(topic) + 1)[0])


@pytest.mark.parametrize(
    "fence", ["BBOX(170,-10,-170,10)", "POLYGON((170 -10,-170 -10,-170 10,170 10,170 -10))"]
)
def test_a_fence_over_the_antimeridian(clients: Clients, topic: str, fence: str) -> None:
    """A BBOX with minx > maxx, and a polygon whose edge is longer than 180 degrees."""
    events = [
        (f"[{x}]", (x, 0.0)) for x in (175.0, 180.0, -180.0, -175.0, 170.0, -170.0, 0.0, 169.0)
    ]
    assert arrived(clients, topic, entry(topic, at=fence), *events) == [
        name for name, (x, _) in events if abs(x) >= 170
    ]


def test_a_fence_at_the_pole(clients: Clients, topic: str) -> None:
    """All longitudes of a BBOX to the pole; a ring round the pole is refused."""
    events = [(f"[{x} {y}]", (x, y)) for x in (-179.0, 0.0, 120.0) for y in (90.0, 85.0, 79.0)]
    wish = entry(topic, at="BBOX(-180,80,180,90)")
    assert arrived(clients, topic, wish, *events) == [name for name, (_, y) in events if y >= 80]
    ring = entry(topic, at="POLYGON((0 80,90 80,180 80,-90 80,0 80))")
    assert answered(clients.connect(), ring) == [0xC1]


def test_a_shared_border_belongs_to_both(clients: Clients, topic: str) -> None:
    for number, fence in enumerate(("BBOX(0,0,1,1)", "BBOX(1,0,2,1)")):
        name = f"{topic}/{number}"
        assert arrived(clients, name, entry(name, at=fence), ("border", (1.0, 0.5))) == ["border"]
        wish = entry(name, relation="contains", at=fence)
        assert arrived(clients, name, wish, ("border", (1.0, 0.5))) == []


def test_a_hole_is_outside(clients: Clients, topic: str) -> None:
    fence = "POLYGON((0 0,8 0,8 8,0 8,0 0),(2 2,6 2,6 6,2 6,2 2))"
    events = ("hole", (4.0, 4.0)), ("rim", (2.0, 4.0)), ("ring", (1.0, 1.0))
    assert arrived(clients, topic, entry(topic, at=fence), *events) == ["rim", "ring"]


@pytest.mark.parametrize(
    "fence",
    [
        "POLYGON((0 0,1 1,1 0,0 1,0 0))",  # a bowtie
        "POLYGON((0 0,1 0,1 1,0 1))",  # not closed
        "POLYGON((0 0,1 0,0 0))",
        "POINT(nan 1)",
        "POINT(1 inf)",
        "POINT(54.5 108.5)",  # latitude and longitude swapped, out of range
        "POLYGON EMPTY",
        "BBOX(1,1,1,2)",
        "GEOMETRYCOLLECTION(" * 60 + "POINT(1 2)" + ")" * 60,
        "LINESTRING(" + ",".join(["1 2", "2 1"] * 50_000) + ")",
    ],
)
def test_bad_geometry_is_a_code_for_the_subscriber_and_silence_for_the_rest(
    clients: Clients, topic: str, fence: str
) -> None:
    client, watcher = clients.connect(), clients.subscribed(topic)
    assert answered(client, entry(topic, at=fence)) == [0xC1]
    settle(client, geopublish(topic, at=fence), geopublish(topic, to=fence))
    watcher.expect_nothing()
    client.expect_nothing()


def test_wildcard_and_geo_together(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    subscribe_with(client, f"$geo/covers=BBOX(0,0,1,1)/{topic}/+/t/#")
    for name in ("1/t", "1/t/x", "1/h", "1/2/t"):
        settle(sensor, geopublish(f"{topic}/{name}", name, at=(0.5, 0.5)))
    client.expect(publish(f"{topic}/1/t", "1/t") + publish(f"{topic}/1/t/x", "1/t/x"))
    client.expect_nothing()


def test_geo_nested_or_over_sys_is_refused(clients: Clients) -> None:
    client = clients.connect()
    for name in ("$geo/near=1/$geo/near=1/a", "$geo/near=1/$SYS/#", "$geo/near=1/$share/g/a"):
        client.send(subscribe(1, (name, 0)))
        client.expect("90 03 00 01 80")


def test_a_leap_day_comes_every_four_years(clients: Clients, topic: str) -> None:
    leap_2024, leap_2028 = 1_709_164_800_000, 1_835_395_200_000  # midnights of 29 February
    march_2025 = 1_740_787_200_000
    text = "0 0 0 29 2 ?/P1D"
    assert at_times(clients, topic, text, leap_2024, leap_2028, march_2025, leap_2028 + DAY_MS) == [
        leap_2024, leap_2028,
    ]  # fmt: skip


def test_an_interval_of_no_length(clients: Clients, topic: str) -> None:
    """No filter; but an event may last no time at all, and is an instant then."""
    client, sensor = clients.connect(), clients.connect()
    assert answered(client, entry(topic, time="2026-01-01/PT0S")) == [0xC0]
    granted(client, entry(topic, time="10/20"))
    settle(sensor, *(geopublish(topic, str(ms), time=(ms, ms)) for ms in (9_999, 10_000, 20_000)))
    assert payloads(client, 1) == ["10000"]


def test_a_fire_time_in_the_gap_of_daylight_saving_is_skipped(clients: Clients, topic: str) -> None:
    """On 29 March 2026 Berlin's clocks go from 2 to 3; half past two never comes."""
    text = "0 30 2 * * ?/PT30M[Europe/Berlin]"
    the_day_before = 1_774_661_400_000  # 2026-03-28T01:30Z
    in_the_gap = 1_774_747_800_000  # 2026-03-29T01:30Z, 3:30 by the clock
    the_day_after = 1_774_830_600_000  # 2026-03-30T00:30Z
    moments = the_day_before, in_the_gap - 3_600_000, in_the_gap, the_day_after
    assert at_times(clients, topic, text, *moments) == [the_day_before, the_day_after]


def test_a_fire_time_in_the_overlap_of_daylight_saving_opens_once(
    clients: Clients, topic: str
) -> None:
    """On 25 October 2026 half past two comes twice; the earlier one counts."""
    text = "0 30 2 * * ?/PT30M[Europe/Berlin]"
    first, second = 1_792_888_200_000, 1_792_891_800_000  # 00:30Z and 01:30Z
    assert at_times(clients, topic, text, first, second) == [first]


def test_an_event_may_lie_in_the_future(clients: Clients, topic: str) -> None:
    """Its own time counts, not the clock: for intervals, cron and endless repeats alike."""
    future = (time.time_ns() // 1_000_000 // DAY_MS + 10_000) * DAY_MS
    for number, text in enumerate(("2026-01-01/..", "0 0 0 * * ?/PT1S", "R/2026-01-01/P1D")):
        assert at_times(clients, f"{topic}/{number}", text, future) == [future]
    assert at_times(clients, f"{topic}/past", "../2026-01-01", future) == []


def test_a_crowd_of_fences_finds_the_one(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    fences = [
        entry(topic, at=f"BBOX({x / 10},{y / 10},{x / 10 + 0.05},{y / 10 + 0.05})")
        for x in range(60)
        for y in range(50)
    ]
    for start in range(0, len(fences), 500):
        granted(client, *fences[start : start + 500])
    settle(sensor, geopublish(topic, "hit", at=(3.02, 2.02)), geopublish(topic, at=(3.07, 2.07)))
    assert payloads(client, 1) == ["hit"]


def test_a_collection_as_a_fence_in_a_crowd(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, *(entry(topic, at=f"BBOX({x},50,{x + 1},51)") for x in range(20)))
    mixed = "GEOMETRYCOLLECTION(POLYGON((0 0,8 0,8 8,0 8,0 0)),LINESTRING(9 0,20 0),POINT(30 30))"
    granted(client, entry(topic, at=mixed))
    for name, at in (("area", (4.0, 4.0)), ("line", (12.0, 0.0)), ("point", (30.0, 30.0))):
        settle(sensor, geopublish(topic, name, at=at))
    settle(sensor, geopublish(topic, "beside", at=(12.0, 0.1)))
    assert payloads(client, 3) == ["area", "line", "point"]


def test_a_walk_over_the_antimeridian_keeps_what_is_near(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, *(entry(topic, near=5000.0 + n) for n in range(20)))
    for lon in (179.99, 180.0, -179.99):
        move(client, 0.0, lon)
        settle(
            sensor,
            geopublish(topic, "west", at=(179.98, 0.0)),
            geopublish(topic, "far", at=(179.9, 0.0)),
        )
        assert received(client).payload == "west"
    client.expect_nothing()
