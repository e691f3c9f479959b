"""Kill the broker again and again, and see whether it kept its word.

    python tests/integration/torture.py --kills 50 --seed 1

Several clients publish with QoS 1 and 2 while persistent subscribers come and go; the
daemon, in a process of its own, is killed with SIGKILL at random moments and started
again on the same data. In the end every subscriber must have every message that was
acknowledged to its publisher: QoS 2 exactly once, each topic in its order, and whatever
was retained last must still be retained.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.integration.honest import Publisher, Subscriber, frame, frames, text

SETTLE_TIMEOUT_S = 60.0
PAGE_BYTES = resource.getpagesize()


@dataclass
class Report:
    """What happened."""

    kills: int = 0
    stops: int = 0
    acknowledged: int = 0
    delivered: int = 0
    again: int = 0
    connections: int = 0
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.kills} kills, {self.stops} stops, {self.acknowledged} messages acknowledged, "
            f"{self.delivered} delivered, {self.again} of QoS 1 more than once, "
            f"{self.connections} connections, {len(self.broken)} broken promises",
            *self.broken,
        ]
        return "\n".join(lines)


class Daemon:
    """The real broker in its own process, on a port that stays the same."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._stderr = folder / "stderr"
        self._command = [
            *(sys.executable, "-m", "geomqtt", "serve", "--data", str(folder / "data")),
            *("--host", "127.0.0.1", "--port", str(self.port), "--http-port", "0", "--no-log"),
            *arguments,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        line = await asyncio.to_thread(self._start)
        if not line.startswith(b"geomqtt ready"):
            raise RuntimeError(f"the broker did not start:\n{self.log}")

    def _start(self) -> bytes:
        with self._stderr.open("ab") as sink:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=sink)
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    @property
    def resident_bytes(self) -> int:
        """How much memory it holds now."""
        assert self._process is not None
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * PAGE_BYTES

    def kill(self) -> None:
        """Kill it as a crash would."""
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def terminate(self) -> int:
        """Stop it as an operator does."""
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.terminate()
        code = self._process.wait(30)
        self._process.stdout.close()
        return code

    @property
    def log(self) -> str:
        """What all its lives have written to stderr."""
        return self._stderr.read_text(errors="replace")


async def torture(
    folder: Path,
    *,
    kills: int,
    seed: int,
    polite: float = 0.0,
    arguments: list[str] | None = None,
) -> Report:
    """Run the whole play; `polite` is the share of ends by SIGTERM instead of SIGKILL."""
    random = Random(seed)
    report = Report()
    daemon = Daemon(folder, arguments or [])
    publishers = [
        Publisher(f"p{number}", daemon.port, window=random.choice((1, 20, 200)), per_s=2_000)
        for number in range(4)
    ]
    subscribers = [
        Subscriber(f"s{number}", daemon.port, Random(seed * 100 + number), restless=restless)
        for number, restless in enumerate((0.0, 0.01, 0.1, 0.5))
    ]
    await daemon.start()
    # Whoever subscribes before the first message must get every one.
    tasks = [asyncio.create_task(each.run(), name=each.client_id) for each in subscribers]
    await until(lambda: all(each.subscribed for each in subscribers))
    tasks += [asyncio.create_task(each.run(), name=each.client_id) for each in publishers]
    producing = [asyncio.create_task(each.produce(), name="produce") for each in publishers]
    clients = [*publishers, *subscribers]
    try:
        for _ in range(kills):
            await asyncio.sleep(random.uniform(0.02, 0.7))
            if random.random() < polite:
                report.stops += 1
                report.broken += await asyncio.to_thread(_stop, daemon)
            else:
                report.kills += 1
                daemon.kill()
            retained = {each.client_id: each.retained for each in publishers}
            await daemon.start()
            report.broken += await _check_retained(daemon.port, retained)
            if any(each.broken for each in clients):
                break
        await asyncio.sleep(0.2)
        for publisher in publishers:
            publisher.producing = False
        await asyncio.gather(*producing)
        for subscriber in subscribers:
            subscriber.restless = 0.0
        await settle(publishers, subscribers)
    finally:
        for client in clients:
            client.done = True
        for task in [*tasks, *producing]:
            task.cancel()
        await asyncio.gather(*tasks, *producing, return_exceptions=True)
    report.broken += _stop(daemon)
    if "Traceback" in daemon.log or "internal error" in daemon.log:
        report.broken.append(f"the broker's log:\n{daemon.log}")
    compare(report, publishers, subscribers)
    return report


def _stop(daemon: Daemon) -> list[str]:
    code = daemon.terminate()
    return [f"the broker ended with {code}"] if code else []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def settle(publishers: list[Publisher], subscribers: list[Subscriber]) -> None:
    """Wait until everything acknowledged has arrived, as long as something still moves."""
    last, moved_at = -1, time.monotonic()
    while time.monotonic() < moved_at + 10:
        wanted = {key for each in publishers for key in each.acknowledged if key[0][0] == "t"}
        arrived = sum(r.last for each in subscribers for r in each.topics.values())
        pending = sum(len(each.pending) for each in publishers)
        if not pending and arrived >= len(wanted) * len(subscribers):
            return
        if arrived - pending != last:
            last, moved_at = arrived - pending, time.monotonic()
        await asyncio.sleep(0.05)


async def _check_retained(port: int, acknowledged: dict[str, int]) -> list[str]:
    """Ask as a new client what is retained: never older than what was acknowledged."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame(0x10, text("MQTT") + bytes((4, 2, 0, 60)) + text("probe")))
    writer.write(frame(0x82, b"\x00\x01" + text("state/+") + b"\x00") + b"\xc0\x00")
    found: dict[str, int] = {}
    buffer = bytearray()
    answered = False
    while not answered:
        data = await reader.read(65_536)
        if not data:
            return ["the probe for retained messages was cut off"]
        buffer += data
        for first, body in frames(buffer):
            if first == 0xD0:
                answered = True
            elif first == 0x31:
                end = 2 + int.from_bytes(body[:2], "big")
                found[body[8:end].decode()] = int(body[end:])
    writer.close()
    return [
        f"retained of {name}: {found.get(name, 0)} instead of {number} or later"
        for name, number in acknowledged.items()
        if found.get(name, 0) < number
    ]


def compare(report: Report, publishers: list[Publisher], subscribers: list[Subscriber]) -> None:
    for client in (*publishers, *subscribers):
        report.broken += client.broken
        report.connections += client.connections
    for publisher in publishers:
        report.acknowledged += len(publisher.acknowledged)
        if publisher.pending:
            report.broken.append(
                f"{publisher.client_id}: {len(publisher.pending)} never acknowledged"
            )
    for subscriber in subscribers:
        for received in subscriber.topics.values():
            report.delivered += received.last
            report.again += received.again
        for publisher in publishers:
            for topic, number in sorted(publisher.acknowledged):
                arrived = subscriber.topics.get(topic)
                if topic.startswith("t/") and (arrived is None or number > arrived.last):
                    report.broken.append(f"{subscriber.client_id}: {topic} {number} is lost")
                    break


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Kill the broker and see what it loses.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--polite", type=float, default=0.0, help="share of ends by SIGTERM")
    parser.add_argument("serve", nargs="*", help="further arguments of `geomqtt serve`")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        began = time.monotonic()
        report = asyncio.run(
            torture(
                Path(folder),
                kills=args.kills,
                seed=args.seed,
                polite=args.polite,
                arguments=args.serve,
            )
        )
        print(f"seed {args.seed}: {report}, {time.monotonic() - began:.0f} s")
        if report.broken:
            print((Path(folder) / "stderr").read_text(errors="replace")[-4000:], file=sys.stderr)
    return 1 if report.broken else 0
