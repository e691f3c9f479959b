"""The demonstration: its streets and actors alone, and the command against the real daemon."""

import asyncio
import json
import signal
import subprocess
import sys

import pytest
import shapely

import geomqtt
from geomqtt.demo import cast, geo_topic
from geomqtt.demo_actors import ALARM_LEVEL_M, Ferry, Sensor, Vehicle, Walker
from geomqtt.demo_world import FERRY_LINE, HUSUM, PELLWORM_DIKE, Line, Spot, spots, street_map

REGION = shapely.box(8.5, 54.25, 9.2, 54.7)
TIMEOUT_S = 30


def start_demo(port: int, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "geomqtt", "demo", "-h", "127.0.0.1", "-p", str(port), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_every_street_can_be_reached_from_husum_but_those_of_the_island():
    streets = street_map()
    reached, left = {0}, [0]
    while left:
        for node in streets.streets[left.pop()]:
            if node not in reached:
                reached.add(node)
                left.append(node)
    apart = [place for node, place in enumerate(streets.places) if node not in reached]
    assert apart, "the island has no road to it"
    assert all(place.lon < 8.72 and place.lat > 54.48 for place in apart)
    assert all(streets.streets), "no node without a street"


def test_streets_are_the_same_at_every_start():
    assert street_map().places == street_map().places
    assert street_map().streets == street_map().streets


def test_a_line_is_measured_in_metres():
    line = Line(spots((9.0, 54.0), (9.0, 54.01), (9.0, 54.03)))
    assert line.length_m == pytest.approx(3339.6)
    assert line.at(1669.8).lat == pytest.approx(54.015)
    assert line.at(-5) == line.places[0]
    assert line.at(9999) == line.places[-1]
    assert [round(place.lat, 4) for place in line.evenly(4)] == [54.0, 54.01, 54.02, 54.03]


@pytest.mark.parametrize(
    ("there", "degrees"),
    [((9.0, 54.1), 0), ((9.1, 54.0), 90), ((9.0, 53.9), 180), ((8.9, 54), 270)],
)
def test_headings_are_those_of_a_compass(there, degrees):
    assert Spot(9.0, 54.0).heading_to(Spot(*there)) == pytest.approx(degrees)


def test_a_vehicle_drives_along_streets_at_plausible_speed():
    streets = street_map()
    vehicle = Vehicle("1", "car", streets, seed=3)
    before = vehicle.act(0)[0].at
    for second in range(1, 300):
        [event] = vehicle.act(second * 1000)
        told = json.loads(event.payload)
        # As the crow flies it may be less (round a corner), never more.
        assert before.metres_to(event.at) <= told["speed"] / 3.6 + 0.1
        assert 0 <= told["speed"] <= 110
        assert REGION.covers(shapely.Point(event.at))
        before = event.at


def test_a_walker_stays_at_walking_pace():
    walker = Walker(1, street_map(), seed=5)
    before = walker.act(0)[0].at
    assert HUSUM.centre.metres_to(before) < 3000
    for second in range(1, 60):
        [event] = walker.act(second * 1000)
        assert before.metres_to(event.at) < 3
        assert 30 < int(event.payload) < 220
        before = event.at


def test_the_ferry_comes_back_from_the_island():
    ferry = Ferry(start_ms=0)
    crossing_ms = int(FERRY_LINE.length_m / Ferry.SPEED * 1000)
    outward, back = ferry.act(crossing_ms // 2)[0], ferry.act(crossing_ms * 3 // 2)[0]
    assert [each.topic for each in ferry.act(crossing_ms * 2 + 10)] == [
        "ferry/pellworm",
        "ferry/pellworm/departed",  # once for every crossing
    ]
    assert [each.topic for each in ferry.act(crossing_ms * 2 + 20)] == ["ferry/pellworm"]
    assert json.loads(outward.payload)["bound"] == "Pellworm"
    assert json.loads(back.payload)["bound"] == "Nordstrand"
    assert outward.at.metres_to(back.at) < 20


def test_sensors_raise_an_alarm_for_those_near_at_high_water_only():
    sensor = Sensor(7, PELLWORM_DIKE.places[0], seed=1)
    alarms, high = [], 0
    for second in range(600):
        events = sensor.act(second * 1000)
        levels = [float(each.payload) for each in events if each.topic.endswith("waterlevel")]
        high += any(level > ALARM_LEVEL_M for level in levels)
        for alarm in events[1:]:
            assert alarm.topic == "alarm/dike/7"
            assert json.loads(alarm.payload)["level"] >= ALARM_LEVEL_M
            assert alarm.to is not None
            assert alarm.to.startswith("BUFFER(POINT(8.58925 54.51789),")
            alarms.append(second)
    assert alarms
    assert len(alarms) < high, "not at every measurement"


def test_everybody_has_a_client_id_of_its_own():
    ids = [actor.client_id for actor in cast(vehicles=40, now_ms=0)]
    assert len(ids) == len(set(ids)) == 26 + 1 + 40 + 20


def test_a_place_is_said_in_the_topic():
    assert geo_topic("a/b", Spot(9.05, 54.47)) == "$geo/at=POINT(9.05 54.47)/a/b"


async def test_the_demo_fills_a_running_broker_with_life(broker):
    async with geomqtt.Client(broker.host, broker.port) as watcher:
        await watcher.subscribe("#", covers=REGION)
        demo = start_demo(broker.port, "--seconds", "60", "--rate", "200", "--vehicles", "12")
        try:
            wanted = {"vehicle", "walker", "node", "ferry"}
            async with asyncio.timeout(10):  # what a user is promised
                async for message in watcher.messages:
                    assert REGION.covers(message.place)
                    wanted.discard(message.topic.partition("/")[0])
                    if not wanted:
                        break
        finally:
            demo.send_signal(signal.SIGINT)
            output, errors = demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 0
    assert errors == ""
    assert "events published in" in output


async def test_the_demo_goes_on_when_the_broker_comes_back(start_broker):
    first = start_broker()
    demo = start_demo(first.port, "--seconds", "120", "--vehicles", "2")
    try:
        async with geomqtt.Client(first.host, first.port) as watcher:
            await watcher.subscribe("vehicle/#")
            async with asyncio.timeout(TIMEOUT_S):
                await anext(watcher.messages)
        first.stop()
        second = start_broker(port=first.port)
        async with geomqtt.Client(second.host, second.port) as watcher:
            await watcher.subscribe("vehicle/#")
            async with asyncio.timeout(TIMEOUT_S):
                await anext(watcher.messages)
    finally:
        demo.send_signal(signal.SIGTERM)
        _, errors = demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 0
    assert errors == ""


def test_nobody_at_the_address_is_one_line_and_exit_code_1(broker):
    broker.stop()
    demo = start_demo(broker.port)
    _, errors = demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 1
    assert errors == f"geomqtt demo: 127.0.0.1:{broker.port}: connection refused\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--rate", "0"), "0 is not above 0"),
        (("--vehicles", "-1"), "-1 is not between 0 and 5000"),
        (("--seconds", "soon"), "invalid"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(arguments, complaint):
    demo = start_demo(1883, *arguments)
    _, errors = demo.communicate(timeout=TIMEOUT_S)
    assert demo.returncode == 2
    assert complaint in errors
    assert "Traceback" not in errors
