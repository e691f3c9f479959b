"""Place and time through the client library and the command line, against the real daemon."""

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from shapely import Point, box

import geomqtt

TIMEOUT_S = 20
HUSUM = box(8.5, 54.4, 8.7, 54.6)
INSIDE, OUTSIDE = Point(8.58, 54.51), Point(9.5, 54.51)
EVENT = datetime(2026, 3, 28, 11, 15, tzinfo=UTC)


async def take_until(client: geomqtt.Client, last: str) -> list[geomqtt.Message]:
    """Take messages up to the one under a topic that everybody gets."""
    messages = []
    async with asyncio.timeout(TIMEOUT_S):
        async for message in client.messages:
            if message.topic == last:
                return messages
            messages.append(message)
    raise AssertionError("the client ended")


@pytest.fixture
async def client(broker):
    async with geomqtt.Client(broker.host, broker.port, "c1") as client:
        await client.subscribe("end", qos=1)
        yield client


async def test_only_what_the_fence_covers_arrives_with_its_place_and_time(client):
    await client.subscribe("node/#", qos=1, covers=HUSUM)
    await client.publish("node/7/temperature", b"21", qos=1, at=INSIDE, time=EVENT)
    await client.publish("node/8/temperature", b"22", qos=1, at=OUTSIDE, time=EVENT)
    await client.publish("end", b"", qos=1)
    [message] = await take_until(client, "end")
    assert (message.topic, message.payload) == ("node/7/temperature", b"21")
    assert message.place == INSIDE
    assert message.time == EVENT


async def test_only_what_happens_during_the_filter_arrives(client):
    await client.subscribe("a", qos=1, during="0 0 8 ? * MON-FRI/PT2H")
    for day, hour in ((20, 9), (20, 11), (21, 9)):  # Friday, Friday too late, Saturday
        time = datetime(2026, 3, day, hour, tzinfo=UTC)
        await client.publish("a", f"{day} {hour}", qos=1, at=INSIDE, time=time)
    await client.publish("end", b"", qos=1)
    assert [message.payload for message in await take_until(client, "end")] == [b"20 9"]


async def test_a_plain_subscription_gets_plain_messages(client):
    await client.subscribe("a", qos=1)
    await client.publish("a", b"x", qos=1, at=INSIDE, time=EVENT)
    await client.publish("end", b"", qos=1)
    [message] = await take_until(client, "end")
    assert (message.payload, message.place, message.time) == (b"x", None, None)


async def test_any_place_as_a_geo_subscription_brings_the_place(client):
    await client.subscribe("a", qos=1, geo=True)
    await client.publish("a", b"x", qos=1, at="BBOX(170,-10,-170,10)")
    await client.publish("end", b"", qos=1)
    [message] = await take_until(client, "end")
    assert message.place is not None
    assert message.place.bounds == (170, -10, 190, 10)
    assert isinstance(message.time, datetime)  # the time of receipt


async def test_near_me_follows_the_client(client):
    await client.subscribe("a", qos=1, near=150)
    await client.publish("a", b"nowhere", qos=1, at=INSIDE)
    client.move(lat=54.51, lon=8.58)
    await client.publish("a", b"here", qos=1, at=INSIDE)
    client.move(lat=54.51, lon=9.5)
    await client.publish("a", b"no longer", qos=1, at=INSIDE)
    await client.publish("a", b"there", qos=1, at=OUTSIDE)
    await client.publish("end", b"", qos=1)
    assert [message.payload for message in await take_until(client, "end")] == [b"here", b"there"]


async def test_an_event_geofence_reaches_those_inside(client):
    await client.subscribe("warning", qos=1, geo=True)
    client.move(lat=54.51, lon=8.58)
    await client.publish("warning", b"for you", qos=1, to="BUFFER(POINT(8.58 54.51), 500)")
    await client.publish("warning", b"for others", qos=1, to=box(9, 54, 10, 55))
    await client.publish("end", b"", qos=1)
    [message] = await take_until(client, "end")
    assert message.payload == b"for you"
    assert message.fence is not None
    assert message.fence.covers(INSIDE)


async def test_the_place_is_delivered_in_the_asked_form_and_system(client):
    await client.subscribe("a", qos=1, geo=True, epsg=25832, deliver="geojson", reproject=True)
    await client.publish("a", b"", qos=1, at=INSIDE)
    await client.publish("end", b"", qos=1)
    [message] = await take_until(client, "end")
    assert message.epsg == 25832
    assert message.geometry is not None
    assert message.geometry.distance(Point(472785, 6040217)) < 1000
    assert message.place is not None
    assert message.place.distance(INSIDE) < 1e-6


async def test_one_of_two_fences_is_taken_back_and_then_all(client):
    near, far = HUSUM, box(9, 54, 10, 55)
    for fence in (near, far):
        await client.subscribe("a", qos=1, covers=fence)
    await client.unsubscribe("a", covers=near)
    await client.publish("a", b"near", qos=1, at=INSIDE)
    await client.publish("a", b"far", qos=1, at=OUTSIDE)
    await client.publish("end", b"", qos=1)
    assert [message.payload for message in await take_until(client, "end")] == [b"far"]
    await client.subscribe("a", qos=1, covers=near)
    await client.unsubscribe("a", all_geo=True)
    await client.publish("a", b"near", qos=1, at=INSIDE)
    await client.publish("end", b"", qos=1)
    assert await take_until(client, "end") == []


async def test_a_refusal_is_named(start_broker):
    broker = start_broker(config="[limits]\nmax_vertices = 10\n")
    async with geomqtt.Client(broker.host, broker.port) as client:
        with pytest.raises(geomqtt.SubscribeError, match="'a/#': bad geometry") as caught:
            await client.subscribe("a/#", covers=INSIDE.buffer(1))
        assert caught.value.code == 0xC1
        assert caught.value.filter == "a/#"
        assert client.connected


async def test_place_and_time_travel_over_websocket(start_broker):
    broker = start_broker(config='[[listener]]\nkind = "ws"\nhost = "127.0.0.1"\nport = 0\n')
    host, port = broker.address("ws")
    async with geomqtt.Client(host, port, transport="websocket") as client:
        await client.subscribe("#", qos=1, covers=HUSUM)
        await client.publish("a", b"x", qos=1, at=INSIDE)
        async with asyncio.timeout(TIMEOUT_S):
            assert (await anext(client.messages)).place == INSIDE


def run(command, broker, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "geomqtt", command, "-p", str(broker.port), *arguments],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_the_command_line_publishes_and_subscribes_with_place_and_time(broker):
    place = ("--at", "POINT(8.58 54.51)", "--time", "2026-03-28T11:15:00Z")
    assert run("pub", broker, "-t", "n/7", "-m", "21", "-q", "1", "-r", *place).returncode == 0
    outside = ("--at", "POINT(9.5 54.51)")
    assert run("pub", broker, "-t", "n/8", "-m", "22", "-q", "1", "-r", *outside).returncode == 0

    fence = ("--covers", "BBOX(8.5,54.4,8.7,54.6)", "--time-filter", "2026-03-28T11:00:00Z/PT1H")
    result = run("sub", broker, "-t", "n/#", *fence, "-C", "1", "-W", "10", "-F", "%t %p %g %T")
    assert result.stdout == b"n/7 21 POINT (8.58 54.51) 2026-03-28T11:15:00Z\n"

    result = run("sub", broker, "-t", "n/8", "--geo", "-C", "1", "-W", "10", "-F", "%j")
    described = json.loads(result.stdout)
    assert described["place"] == {"type": "Point", "coordinates": [9.5, 54.51]}

    near = ("--near", "150", "--here", "POINT(8.58 54.51)")
    assert run("sub", broker, "-t", "n/#", *near, "-C", "1", "-W", "10").stdout == b"21\n"
    within = ("--dwithin", "100000", "POINT(8.58 54.51)")
    assert run("sub", broker, "-t", "n/8", *within, "-C", "1", "-W", "10").stdout == b"22\n"


def test_a_geometry_may_come_from_a_file(broker, tmp_path):
    (tmp_path / "fence.json").write_text(json.dumps(HUSUM.__geo_interface__))
    run("pub", broker, "-t", "n", "-m", "in", "-q", "1", "-r", "--at", "POINT(8.58 54.51)")
    fence = ("--covers", f"@{tmp_path / 'fence.json'}")
    assert run("sub", broker, "-t", "n", *fence, "-C", "1", "-W", "10").stdout == b"in\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("pub", "-t", "a", "-m", "x", "--at", "POINT(8.58 94)"), "latitude 94"),
        (("pub", "-t", "a", "-m", "x", "--time", "soon"), "soon"),
        (("sub", "-t", "a", "--covers", "BBOX(1)"), "BBOX needs four numbers"),
        (("sub", "-t", "a", "--time-filter", "2026-03-28"), "2026-03-28"),
        (("sub", "-t", "a", "--near", "5", "--here", "BBOX(1,2,3,4)"), "--here is not a point"),
        (("sub", "-t", "a", "--dwithin", "far", "POINT(1 2)"), "'far' is no distance"),
        (("sub", "-t", "a", "--dwithin", "5", "@/nowhere"), "/nowhere: No such file"),
        (("sub", "-t", "a", "--covered_by", "nothing"), "nothing"),
    ],
)
def test_a_users_geo_mistake_is_one_line(broker, arguments, reason):
    result = run(arguments[0], broker, *arguments[1:])
    assert result.returncode == 1
    [line] = result.stderr.decode().splitlines()
    assert line.startswith(f"geomqtt {arguments[0]}: ")
    assert reason in line


@pytest.mark.needs("mosquitto")
def test_standard_tools_are_geo_clients_beside_ours(broker):
    topic = "$geo/at=POINT(8.58 54.51);time=2026-03-28T11:15:00Z/node/7/temperature"
    subprocess.run(
        ["mosquitto_pub", "-p", str(broker.port), "-t", topic, "-m", "21", "-r", "-q", "1"],
        check=True,
        timeout=TIMEOUT_S,
    )
    fence = ("--covers", "BBOX(8.5,54.4,8.7,54.6)")
    result = run("sub", broker, "-t", "node/#", *fence, "-C", "1", "-W", "10", "-F", "%t %p %g %T")
    assert result.stdout == b"node/7/temperature 21 POINT (8.58 54.51) 2026-03-28T11:15:00Z\n"
