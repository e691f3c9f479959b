"""How fast the event log takes events, what they weigh on disk, and how fast it answers.

    python tests/bench/event_log_writer.py [--events 10000000] [--keep DIR]

Events go through the plugin into its writer process, as in the broker, one load after
another and as fast as the writer takes them; `broker` and `writer` are processor time per
event on either side. The queries are asked of the log with --events points in it.
"""

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import uvloop

from plugins.api import Accepted, FrameRun
from plugins.event_log import reader, segments
from plugins.event_log.plugin import EventLog, EventLogSettings
from plugins.event_log.reader import Query
from protocol.geo import Geo
from protocol.geometry import Place, parse_text
from protocol.message import Message

PAYLOAD = bytes(range(64))
TOPICS = 1000
CLIENTS = 50


class Counting:
    """The part of a broker that the plugin asks for here."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = str(data_dir)
        self.counts: dict[str, int] = {}

    def count(self, name: str, amount: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount


def now_ms() -> int:
    return int(time.time() * 1000)


def frame(topic: bytes) -> bytes:
    return bytes((0x30, 2 + len(topic) + 64, 0, len(topic))) + topic + PAYLOAD


def one_topic(events: int) -> Iterator[tuple[list[Accepted], int]]:
    frames = frame(b"bench/topic") * 250
    for _ in range(events // 250):
        yield [FrameRun("publisher", now_ms(), frames, 250)], 250


def many_topics(events: int) -> Iterator[tuple[list[Accepted], int]]:
    all_frames = [
        b"".join(frame(b"bench/%04d" % ((start + i) % 10_000)) for i in range(250))
        for start in range(0, 10_000, 250)
    ]
    for number in range(events // 250):
        yield [FrameRun("publisher", now_ms(), all_frames[number % 40], 250)], 250


def points(events: int) -> Iterator[tuple[list[Accepted], int]]:
    """Vehicles all over the world, each in a town of its own."""
    chance = random.Random(1)
    towns = [(chance.uniform(-170, 170), chance.uniform(-60, 70)) for _ in range(TOPICS)]
    ready = []
    for number in range(100_000):
        x, y = towns[number % TOPICS]
        place = Place(x + chance.gauss(0, 0.05), y + chance.gauss(0, 0.05))
        ready.append((f"vehicle/{number % TOPICS}/position", f"client-{number % CLIENTS}", place))
    for start in range(0, events, 100):
        now = now_ms()
        batch: list[Accepted] = []
        for topic, client, place in ready[start % 100_000 : start % 100_000 + 100]:
            geo = Geo(1, b"", (now - 5, now - 5), 1, b"", 4326, place)
            batch.append(Message(topic, PAYLOAD, 0, False, client, now, geo))
        yield batch, 100


async def measure(
    name: str,
    folder: Path,
    events: int,
    load: Callable[[int], Iterable[tuple[list[Accepted], int]]],
) -> None:
    data = folder / name.replace(" ", "-")
    broker: Any = Counting(data)
    plugin = EventLog(EventLogSettings())
    await plugin.start(broker)
    assert plugin.writer_pid is not None
    writer = psutil.Process(plugin.writer_pid)
    before = sum(writer.cpu_times()[:2])
    in_hooks = 0.0
    done = 0
    started = time.perf_counter()
    for batch, count in load(events):
        entered = time.perf_counter()
        plugin.on_accepted(batch)
        in_hooks += time.perf_counter() - entered
        done += count
        if done % 5000 == 0:
            await asyncio.sleep(0)
            while plugin.buffered_bytes > 32 << 20:
                await asyncio.sleep(0.005)
    while plugin.buffered_bytes:
        await asyncio.sleep(0.005)
    took = time.perf_counter() - started
    used = sum(writer.cpu_times()[:2]) - before
    await plugin.stop()
    size = segments.size(data)
    assert size.events == done == broker.counts["event_log_events_total"]
    print(
        f"{name:<24} {done / took:>11,.0f} events/s   broker {in_hooks / done * 1e6:5.2f} µs   "
        f"writer {used / done * 1e6:5.2f} µs   {size.bytes / done:6.1f} bytes/event"
    )


def ask(name: str, data: Path, what: Query) -> None:
    times = []
    found = 0
    for _ in range(4):
        started = time.perf_counter()
        found = sum(1 for _ in reader.query(data, what))
        times.append(time.perf_counter() - started)
    print(
        f"{name:<48} {found:>6} hits   first {times[0] * 1e3:7.1f} ms   "
        f"warm {min(times[1:]) * 1e3:7.1f} ms"
    )


def ask_all(data: Path) -> None:
    day = {"from_ms": 0, "to_ms": 1 << 45}
    chance = random.Random(1)
    x, y = chance.uniform(-170, 170), chance.uniform(-60, 70)
    town = parse_text(f"BBOX({x - 0.05},{y - 0.05},{x + 0.05},{y + 0.05})").place
    region = parse_text("BBOX(-10,35,30,60)").place
    nowhere = parse_text("BBOX(0,-89,10,-88)").place
    for name, what in (
        ("one topic, day, town", Query("vehicle/0/position", **day, place=town, limit=1000)),
        ("wildcard, day, town", Query("vehicle/+/position", **day, place=town, limit=1000)),
        ("wildcard, day, region", Query("vehicle/+/position", **day, place=region, limit=1000)),
        ("wildcard, region, newest first", Query(place=region, newest_first=True, limit=1000)),
        ("other topic than the town's", Query("vehicle/1/position", place=town, limit=1000)),
        ("nowhere", Query("vehicle/#", **day, place=nowhere, limit=1000)),
        ("one topic", Query("vehicle/7/position", limit=1000)),
        ("unknown topic", Query("vehicle/x", limit=1000)),
    ):
        ask(name, data, what)
    started = time.perf_counter()
    found = sum(1 for _ in reader.latest(data))
    print(f"{'last positions of all clients':<48} {found:>6} hits   "
          f"{(time.perf_counter() - started) * 1e3:.1f} ms")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="event-log-"))
    try:
        uvloop.run(measure("plain one topic", folder, 3_000_000, one_topic))
        uvloop.run(measure("plain 10,000 topics", folder, 2_000_000, many_topics))
        uvloop.run(measure("points", folder, arguments.events, points))
        ask_all(folder / "points")
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
