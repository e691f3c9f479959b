"""Mixed traffic with churn for a long time: does the broker end as it began?

    python tests/integration/soak.py --minutes 30

Persistent publishers and subscribers that come and go watch over QoS 1 and 2 as in the
torture; beside them clients without memory connect, subscribe, by place too, move, publish,
retain, leave wills and go, with and without a word, and one that never reads. In the end
the daemon must hold the memory it held after warming up, must have lost nothing and failed
nowhere.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

from tests.integration.honest import Publisher, Subscriber, frame, text
from tests.integration.killing import Daemon, Report, compare, settle, until

WARM_UP = 0.4  # of the time
SPARE = 1.05, 6 * 2**20  # how much more memory is no growth: the allocator's noise

FILL_TOPICS = 140_000

_numbers = count(1)


@dataclass
class Memory:
    """What the daemon held when it was warm, and in the end."""

    warm: int = 0
    end: int = 0

    @property
    def grown(self) -> bool:
        """Whether it is more than noise."""
        return self.end > self.warm * SPARE[0] + SPARE[1]


class Passers:
    """Clients that come once and never again."""

    def __init__(self, port: int, random: Random) -> None:
        self._port = port
        self._random = random
        self.visits = 0
        self.going = True

    async def run(self) -> None:
        """Send one after the other."""
        while self.going:
            with contextlib.suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(10):
                    await self._visit()
            self.visits += 1

    async def _visit(self) -> None:
        random = self._random
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            name = f"passer{next(_numbers)}"
            will = text(f"will/{random.randrange(50)}") + text("gone")
            flags = 0x02 | 0x04 | random.choice((0x00, 0x08, 0x28))
            body = text("MQTT") + bytes((4, flags, 0, 30)) + text(name) + will
            writer.write(frame(0x10, body))
            await reader.readexactly(4)
            for number in range(random.randrange(4)):
                topic_filter = random.choice(("churn/#", "churn/+/x", f"churn/{number}", "will/#"))
                writer.write(frame(0x82, b"\x00\x01" + text(topic_filter) + b"\x01"))
            if random.random() < 0.5:
                writer.write(b"".join(geo_packets(random)))
            for number in range(random.randrange(20)):
                topic = random.choice((f"churn/{random.randrange(200)}", f"once/{name}/{number}"))
                if random.random() < 0.2:
                    topic = f"$geo/at={point(random)}/churn/geo"
                qos, retain = random.randrange(3), topic.startswith("churn/1")
                packet_id = (number + 1).to_bytes(2, "big") if qos else b""
                payload = bytes(random.randrange(300))
                writer.write(frame(0x30 | qos << 1 | retain, text(topic) + packet_id + payload))
            writer.write(b"\xc0\x00")
            await writer.drain()
            await reader.read(random.choice((1, 65_536)))
            if random.random() < 0.5:
                writer.write(b"\xe0\x00")
                await writer.drain()
        finally:
            writer.transport.abort()


def point(random: Random) -> str:
    """Give a place in a small country."""
    return f"POINT({random.uniform(6, 15):.4f} {random.uniform(47, 55):.4f})"


def geo_packets(random: Random) -> Iterator[bytes]:
    """Say where a client is, what it wants to hear of by place, and move it about."""
    yield frame(0x30, text("$/SYS/MQTT/location") + point(random).encode())
    west, south = random.uniform(6, 14), random.uniform(47, 54)
    box = f"BBOX({west:.3f},{south:.3f},{west + 1:.3f},{south + 1:.3f})"
    for conditions in (f"covers={box}", "near=50000", f"publisher.intersects={box}"):
        yield frame(0x82, b"\x00\x02" + text(f"$geo/{conditions}/churn/#") + b"\x01")
    entry = text("churn/+") + bytes.fromhex("01 00 0000 01 03 00000000")
    yield frame(0xF6, b"\x82\x00\x03" + entry + bytes((len(box),)) + box.encode() + b"\x00")
    fence = f'{{"geometry": "{box}", "mode": "dynamic", "topics": ["churn/1/#"]}}'
    yield frame(0x30, text("$/SYS/MQTT/geofence/here") + fence.encode())
    for _ in range(random.randrange(10)):
        yield frame(0x30, text("$/SYS/MQTT/location") + point(random).encode())


async def fill(port: int) -> None:
    """Publish on more topics than the broker remembers, so that its memory of them is full."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame(0x10, text("MQTT") + bytes((4, 2, 0, 0)) + text("fill")))
    await reader.readexactly(4)
    for number in range(FILL_TOPICS):
        writer.write(frame(0x30, text(f"once/fill/the/memory/{number}")))
        if number % 1_000 == 0:
            await writer.drain()
    writer.write(b"\xc0\x00")
    await reader.readexactly(2)
    writer.transport.abort()


async def stuck(port: int) -> asyncio.StreamWriter:
    """Subscribe to everything and never read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame(0x10, text("MQTT") + bytes((4, 2, 0, 0)) + text("stuck")))
    await reader.readexactly(4)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(frame(0x82, b"\x00\x01" + text("#") + b"\x01"))
    return writer


async def soak(folder: Path, *, seconds: float, seed: int) -> tuple[Report, Memory, int]:
    """Run it all; give what happened, the memory, and how many clients passed by."""
    # Queues that are full after seconds, not hours: the stuck one's is part of the memory.
    (folder / "geomqtt.toml").write_text("[limits]\nmax_queued_messages = 5000\n")
    daemon = Daemon(folder, ["--config", str(folder / "geomqtt.toml")])
    report, memory = Report(), Memory()
    publishers = [Publisher(f"p{n}", daemon.port, window=50, per_s=200) for n in range(3)]
    subscribers = [
        Subscriber(f"s{number}", daemon.port, Random(seed * 100 + number), restless=restless)
        for number, restless in enumerate((0.0, 0.02, 0.2))
    ]
    passers = [Passers(daemon.port, Random(seed * 1000 + number)) for number in range(4)]
    await daemon.start()
    tasks = [asyncio.create_task(each.run(), name=each.client_id) for each in subscribers]
    await until(lambda: all(each.subscribed for each in subscribers))
    await fill(daemon.port)
    sleeper = await stuck(daemon.port)
    tasks += [asyncio.create_task(each.run(), name=each.client_id) for each in publishers]
    producing = [asyncio.create_task(each.produce(), name="produce") for each in publishers]
    passing = [asyncio.create_task(each.run(), name="passers") for each in passers]
    try:
        await asyncio.sleep(seconds * WARM_UP)
        memory.warm = await _resident(daemon)
        await asyncio.sleep(seconds * (1 - WARM_UP))
        memory.end = await _resident(daemon)
        for each in (*publishers, *passers):
            each.producing = each.going = False  # type: ignore[union-attr]
        await asyncio.gather(*producing, *passing)
        for subscriber in subscribers:
            subscriber.restless = 0.0
        await settle(publishers, subscribers)
    finally:
        sleeper.transport.abort()
        for client in (*publishers, *subscribers):
            client.done = True
        for task in (*tasks, *producing, *passing):
            task.cancel()
        await asyncio.gather(*tasks, *producing, *passing, return_exceptions=True)
    if daemon.terminate():
        report.broken.append("the broker did not end well")
    if "Traceback" in daemon.log or "internal error" in daemon.log:
        report.broken.append(f"the broker's log:\n{daemon.log[-10_000:]}")
    compare(report, publishers, subscribers)
    return report, memory, sum(each.visits for each in passers)


async def _resident(daemon: Daemon) -> int:
    """Take the smallest of some looks: what is short-lived does not count."""
    looks = []
    for _ in range(20):
        looks.append(daemon.resident_bytes)
        await asyncio.sleep(0.1)
    return min(looks)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Mixed traffic for a long time.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        began = time.monotonic()
        report, memory, visits = asyncio.run(
            soak(Path(folder), seconds=args.minutes * 60, seed=args.seed)
        )
    print(f"seed {args.seed}: {report}")
    print(
        f"{visits} clients passed by; {memory.warm / 2**20:.1f} MiB when warm, "
        f"{memory.end / 2**20:.1f} in the end; {time.monotonic() - began:.0f} s"
    )
    return 1 if report.broken or memory.grown else 0
