"""Hostile connections at the live broker: through every door, many at a time.

They send damaged streams, stop in the middle, never read, never say CONNECT, speak the wrong
protocol, take each other over. Meanwhile a neighbour is served, and in the end the daemon
holds the sockets and about the memory it held after the first of them. `RunningBroker.stop`
checks that it wrote no traceback and no internal error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from pathlib import Path
from random import Random

import psutil
import pytest

from tests.conformance.certificates import Certificates
from tests.conformance.raw import connect, publish, subscribe
from tests.conformance.raw_websocket import frame
from tests.conftest import RunningBroker, StartBroker
from tests.fuzz import seeds
from tests.fuzz.mutation import mutated

AT_A_TIME = 40
VISIT_S = 10.0
MIB = 2**20
VECTORS = seeds.of("packets")
HANDSHAKE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
# So that what is meant to be kept does not look like a leak.
LIMITS = """
sys_interval_s = 1
[limits]
connect_timeout_s = 1
max_retained_messages = 100
max_queued_messages = 100
max_outbox_bytes = 65536
[geo]
max_locations = 100
[storage]
session_expiry_s = 2
"""


class Doors:
    """Where the broker listens, and how to get in."""

    def __init__(self, broker: RunningBroker, certificates: Certificates) -> None:
        self.broker = broker
        self._context = certificates.context()

    async def open(self, kind: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a listener; through TLS if it speaks that."""
        host, port = self.broker.address(kind)
        secure: ssl.SSLContext | None = self._context if kind == "tls" else None
        name = "localhost" if secure else None
        return await asyncio.open_connection(host, port, ssl=secure, server_hostname=name)


def stream(random: Random) -> bytes:
    """Make a stream of good and damaged packets, with or without a CONNECT before it."""
    parts = []
    if random.random() < 0.8:
        name = f"hostile{random.randrange(30)}"
        clean = random.random() < 0.5
        will = ("will", "x", 1, False) if random.random() < 0.3 else None
        parts.append(connect(name, clean=clean, will=will, keep_alive=random.choice((0, 1, 60))))
        if random.random() < 0.5:
            parts.append(subscribe(1, ("#", 2), ("$geo/covers=BBOX(0,0,90,90)/#", 1)))
    for _ in range(random.randrange(8)):
        data = random.choice(VECTORS)
        if random.random() < 0.5:
            data = mutated(random, data, random.choice(VECTORS))
        parts.append(data)
    return b"".join(parts)


async def visit(doors: Doors, random: Random) -> None:
    """Be hostile once."""
    kind = random.choice(("mqtt", "mqtt", "mqtt", "ws", "ws", "tls"))
    misled = random.random() < 0.1  # speaks something else than the door does
    if misled and kind == "tls":
        host, port = doors.broker.address(kind)
        reader, writer = await asyncio.open_connection(host, port)
    else:
        reader, writer = await doors.open(kind)
    try:
        data = stream(random)
        if kind == "ws" and not misled:
            whole = frame(data[:60_000])
            if random.random() < 0.3:
                whole = mutated(random, whole, data)
            data = HANDSHAKE + whole
        for start in range(0, len(data), step := random.choice((1000, 1000, 50, 7)) * 10):
            writer.write(data[start : start + step])
            await asyncio.sleep(0)
        await leave(reader, writer, random)
    finally:
        writer.transport.abort()


async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, random: Random) -> None:
    """Go at once, after a look, after the last byte, or only when thrown out."""
    match random.randrange(4):
        case 0:
            pass
        case 1:
            await asyncio.wait_for(reader.read(10), 0.2)
        case 2 if writer.can_write_eof():
            writer.write_eof()
            while await asyncio.wait_for(reader.read(65_536), 2):
                pass
        case _:
            writer.write(bytes((random.randrange(256), 0xFF, 0xFF)))  # and no more
            await asyncio.wait_for(reader.read(65_536), 2)


async def neighbour(broker: RunningBroker, done: asyncio.Event) -> int:
    """Publish to oneself all the while; give how often that worked."""
    reader, writer = await asyncio.open_connection(broker.host, broker.port)
    writer.write(connect("neighbour") + subscribe(1, ("neighbour", 1)))
    await reader.readexactly(4 + 5)
    wanted = publish("neighbour", "hello", qos=1, packet_id=1)
    count = 0
    while not done.is_set():
        writer.write(wanted)
        async with asyncio.timeout(VISIT_S):
            got = await reader.readexactly(4 + len(wanted))
        assert got[:4] == b"\x40\x02\x00\x01"
        writer.write(b"\x40\x02" + got[-7:-5])
        count += 1
        await asyncio.sleep(0.02)
    writer.transport.abort()
    return count


async def visits(doors: Doors, count: int, seed: int) -> None:
    """Let so many hostile clients come, some at a time."""
    randoms = iter([Random(f"{seed}-{number}") for number in range(count)])

    async def one_after_another() -> None:
        for random in randoms:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(VISIT_S):
                    await visit(doors, random)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_A_TIME):
            group.create_task(one_after_another())


def sockets(broker: RunningBroker) -> int:
    folder = f"/proc/{broker.process.pid}/fd"
    count = 0
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed in between
            count += os.readlink(f"{folder}/{name}").startswith("socket:")
    return count


def memory(broker: RunningBroker) -> int:
    return int(psutil.Process(broker.process.pid).memory_info().rss)


async def endure(doors: Doors, *, warm_up: int, count: int) -> int:
    """Compare the broker after many hostile clients with the broker after some."""
    broker = doors.broker
    before = sockets(broker)
    done = asyncio.Event()
    served = asyncio.create_task(neighbour(broker, done), name="neighbour")
    await visits(doors, warm_up, 1)
    warm = memory(broker)
    await visits(doors, count, 2)
    done.set()
    assert await served > 10
    async with asyncio.timeout(30):
        while sockets(broker) > before:
            await asyncio.sleep(0.05)
    return memory(broker) - warm


@pytest.fixture
def doors(start_broker: StartBroker, tmp_path: Path) -> Doors:
    certificates = Certificates(tmp_path / "pki")
    listeners = '[[listener]]\nport = 0\n[[listener]]\nkind = "ws"\nport = 0\n'
    config = LIMITS.replace("[limits]", f"{listeners}{certificates.listener('tls')}[limits]")
    return Doors(start_broker(config=config, listen=False), certificates)


async def test_hostile_connections_harm_nobody_and_leave_nothing(doors: Doors) -> None:
    grown = await endure(doors, warm_up=300, count=500)
    assert grown < 15 * MIB


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_ten_thousand_hostile_connections_harm_nobody_and_leave_nothing(
    doors: Doors,
) -> None:
    grown = await endure(doors, warm_up=2000, count=10_000)
    assert grown < 15 * MIB
