"""Events as they happen: what a stream gives, how it resumes, and when it is cut off."""

import asyncio
import socket
import time

import httpx

import geomqtt
from tests.plugins.rest_bridge.conftest import watching


async def take(events, count):
    async with asyncio.timeout(20):
        return [await anext(events) for _ in range(count)]


def payload(event):
    return event.get("properties", event)["payload"]


async def test_a_stream_gives_what_is_published_and_only_what_matches(bridge, topic):
    path = f"/rest/geopublish/{topic}/%23?geometry=BBOX(8,54,9,55)"
    async with (
        watching(bridge, path) as events,
        geomqtt.Client(bridge.broker.host, bridge.broker.port) as client,
    ):
        await client.publish(f"{topic}/a", b"no place")
        await client.publish(f"{topic}/b", b"elsewhere", at="POINT(10 54)")
        await client.publish("other", b"another topic", at="POINT(8.5 54.5)")
        await client.publish(f"{topic}/c", b"here", qos=1, at="POINT(8.5 54.5)")
        bridge.put_at(f"{topic}/d", "POINT(9 55)", "on the edge")
        [(first_id, first), (_, second)] = await take(events, 2)
    assert (payload(first), payload(second)) == ("here", "on the edge")
    assert first["geometry"] == {"type": "Point", "coordinates": [8.5, 54.5]}
    assert first["id"] == first_id


async def test_a_plain_stream_has_the_events_without_a_place(bridge, topic):
    async with watching(bridge, f"/rest/publish/{topic}/+") as events:
        bridge.put_at(f"{topic}/a", "POINT(8 54)", "placed")
        bridge.put(f"/rest/publish/{topic}/b", "<b>plain</b>\n")
        [(_, event)] = await take(events, 1)
    assert payload(event) == "<b>plain</b>\n"


async def test_live_events_may_be_chosen_by_time_and_relation(bridge, topic):
    path = f"/rest/geopublish/{topic}?from=2026-03-28&to=2026-03-29"
    path += "&geometry=BBOX(8,54,9,55)&relation=disjoint"
    async with watching(bridge, path) as events:
        bridge.put_at(topic, "POINT(10 54)", "early", time="2026-03-27T23:59:59Z")
        bridge.put_at(topic, "POINT(8.5 54.5)", "inside")
        bridge.put_at(topic, "POINT(10 54)", "late", time="2026-03-29")
        bridge.put_at(topic, "POINT(10 54)", "right", time="2026-03-28T12:00:00Z")
        [(_, event)] = await take(events, 1)
    assert payload(event) == "right"


async def test_an_event_geofence_does_not_hide_an_event_from_observers(bridge, topic):
    async with (
        watching(bridge, f"/rest/geopublish/{topic}") as events,
        geomqtt.Client(bridge.broker.host, bridge.broker.port) as client,
    ):
        await client.publish(topic, b"x", at="POINT(8 54)", to="BUFFER(POINT(8 54),10)")
        await take(events, 1)


async def test_a_stream_resumes_without_gap_or_repetition(bridge, topic):
    path = f"/rest/publish/{topic}"
    async with watching(bridge, path) as events:
        for number in range(5):
            bridge.put(path, str(number))
        seen = await take(events, 3)
    last, _ = seen[-1]
    for number in range(5, 8):
        bridge.put(path, str(number))
    async with watching(bridge, path, last=last) as events:
        bridge.put(path, "8")
        rest = await take(events, 6)
    assert [payload(event) for _, event in seen + rest] == list("012345678")


async def test_equal_events_in_one_millisecond_are_all_there(bridge, topic):
    path = f"/rest/publish/{topic}"
    async with geomqtt.Client(bridge.broker.host, bridge.broker.port) as client:
        async with watching(bridge, path) as events:
            await asyncio.gather(*(client.publish(topic, b"same") for _ in range(20)))
            seen = await take(events, 7)
        await client.publish(topic, b"last", qos=1)
    assert len({event_id for event_id, _ in seen}) == 7
    async with watching(bridge, path, last=seen[-1][0]) as events:
        rest = await take(events, 14)
    assert [payload(event) for _, event in rest] == ["same"] * 13 + ["last"]


async def test_a_stream_resumes_behind_any_event_of_the_log(bridge, topic):
    path = f"/rest/publish/{topic}"
    for number in range(4):
        bridge.put(path, str(number))
    found = bridge.found(f"{path}?order=oldest", 4)
    async with watching(bridge, path, last=found[1]["id"]) as events:
        assert [payload(event) for _, event in await take(events, 2)] == ["2", "3"]
    async with watching(bridge, f"{path}?after={found[2]['id']}") as events:
        assert [payload(event) for _, event in await take(events, 1)] == ["3"]


async def test_resuming_under_load_misses_nothing(bridge, topic):
    """Readers come and go while somebody publishes: together they see every event once."""
    path = f"/rest/publish/{topic}"
    count = 3000
    seen: list[int] = []
    listening = asyncio.Event()

    async def publish():
        async with geomqtt.Client(bridge.broker.host, bridge.broker.port) as client:
            for number in range(count):
                await client.publish(topic, str(number))
                if number % 10 == 9:
                    await asyncio.sleep(0.002)
            await client.publish(topic, str(count), qos=1)

    async def read():
        last = ""
        while not seen or seen[-1] < count:
            async with watching(bridge, path, last=last) as events:
                listening.set()
                for _ in range(211):
                    if seen and seen[-1] == count:
                        break
                    [(last, event)] = await take(events, 1)
                    seen.append(int(payload(event)))

    reading = asyncio.create_task(read())
    await listening.wait()
    await publish()
    async with asyncio.timeout(60):
        await reading
    assert seen == list(range(count + 1))


async def test_a_stream_that_saw_nothing_can_be_resumed(bridge, topic):
    path = f"/rest/publish/{topic}"
    headers = {"Accept": "text/event-stream"}
    async with (
        httpx.AsyncClient(base_url=bridge.url, timeout=20) as client,
        client.stream("GET", path, headers=headers) as answer,
    ):
        lines = answer.aiter_lines()
        async for line in lines:
            if line.startswith("id: "):
                last = line[4:]
                break
    bridge.put(path, "meanwhile")
    async with watching(bridge, path, last=last) as events:
        [(_, event)] = await take(events, 1)
    assert payload(event) == "meanwhile"


async def test_an_event_that_was_deleted_leaves_no_gap(bridge, topic):
    path = f"/rest/publish/{topic}"
    async with watching(bridge, path) as events:
        bridge.put(path, "gone")
        [(last, _)] = await take(events, 1)
    assert len(bridge.http.delete(path).json()) == 1
    bridge.put(path, "next")
    async with watching(bridge, path, last=last) as events:
        [(_, event)] = await take(events, 1)
    assert payload(event) == "next"


async def test_a_long_poll_waits_for_the_next_event(bridge, topic):
    path = f"/rest/publish/{topic}"
    bridge.put(path, "before")
    async with httpx.AsyncClient(base_url=bridge.url, timeout=20) as client:
        asking = asyncio.create_task(client.get(f"{path}?wait=20"))
        while bridge.get("/rest/status").json()["live_streams"] == 0:
            await asyncio.sleep(0.01)
        bridge.put(path, "1")
        answer = await asking
        assert [payload(event) for event in answer.json()] == ["1"]
        bridge.put(path, "2")
        bridge.put(path, "3")
        last = answer.headers["last-event-id"]
        assert last == answer.json()[-1]["id"]
        answer = await client.get(path, params={"wait": "20", "after": last})
        assert [payload(event) for event in answer.json()] == ["2", "3"]
        last = answer.headers["last-event-id"]
        answer = await client.get(path, params={"wait": "0.1", "after": last})
        assert answer.json() == []
        last = answer.headers["last-event-id"]
        bridge.put(path, "4")
        answer = await client.get(path, params={"wait": "0", "after": last})
        assert [payload(event) for event in answer.json()] == ["4"]


async def test_a_stream_needs_no_log(start_bridge):
    bridge = start_bridge(log=False)
    async with watching(bridge, "/rest/publish/a") as events:
        bridge.put("/rest/publish/a", "1")
        [(event_id, event)] = await take(events, 1)
    assert (event_id, payload(event)) == ("", "1")
    assert bridge.get("/rest/publish/a?wait=0").json() == []
    answer = bridge.get(
        "/rest/publish/a", headers={"Accept": "text/event-stream", "Last-Event-ID": "2026-01-01.1"}
    )
    assert answer.status_code == 503


async def test_a_reader_that_stops_reading_is_cut_off(start_bridge):
    bridge = start_bridge(config="[http]\nstall_s = 0.5\n")
    request = b"GET /rest/publish/%23 HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"
    with socket.create_connection(bridge.address, timeout=20) as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.sendall(request)
        while bridge.get("/rest/status").json()["live_streams"] == 0:
            await asyncio.sleep(0.01)
        async with (
            asyncio.timeout(60),
            geomqtt.Client(bridge.broker.host, bridge.broker.port) as client,
            watching(bridge, "/rest/publish/%23") as events,
        ):
            reading = asyncio.create_task(take(events, 100))
            started = time.monotonic()
            for _ in range(100):
                await client.publish("a", b"x" * 200_000, qos=1)
            assert len(await reading) == 100  # who reads gets everything
            while bridge.get("/rest/status").json()["live_streams"] > 1:
                assert time.monotonic() < started + 20
                await asyncio.sleep(0.05)
    assert "cut off" in bridge.broker.log


def test_there_is_a_limit_to_streams(start_bridge):
    bridge = start_bridge(config="[http]\nmax_streams = 1\n")
    headers = {"Accept": "text/event-stream"}
    with bridge.http.stream("GET", "/rest/publish/a", headers=headers) as first:
        lines = first.iter_lines()  # held, because the answer ends with it
        assert next(lines).startswith("retry")
        assert bridge.get("/rest/publish/a", headers=headers).status_code == 503
        assert bridge.get("/rest/publish/a?wait=1").status_code == 503
