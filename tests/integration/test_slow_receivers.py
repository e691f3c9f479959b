"""One receiver that never reads, among many: measured in the daemon's own processor time."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.conftest import RunningBroker, StartBroker
from tests.integration.honest import frame, text

RECEIVERS = 999
MESSAGES = 300
PACKET = frame(0x30, text("t") + bytes(100))


class Receiver(asyncio.BufferedProtocol):
    """Counts bytes and looks at none."""

    def __init__(self) -> None:
        self.count = 0
        self._buffer = bytearray(2**16)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Take everything into the same place."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Count."""
        self.count += nbytes


async def subscriber(
    broker: RunningBroker, name: str, *filters: str
) -> tuple[asyncio.Transport, Receiver]:
    """Subscribe; the answers are five bytes of CONNACK and SUBACK beside their headers."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (broker.host, broker.port))
    transport, receiver = await loop.create_connection(Receiver, sock=sock)
    transport.write(frame(0x10, text("MQTT") + bytes((4, 2, 0, 0)) + text(name)))
    for each in filters:
        transport.write(frame(0x82, b"\x00\x01" + text(each) + b"\x00"))
    await until(lambda: receiver.count == 4 + 5 * len(filters))
    receiver.count = 0
    return transport, receiver


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def cpu_s(broker: RunningBroker) -> float:
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _have(receivers: list[Receiver], size: int) -> bool:
    return all(each.count >= size for each in receivers)


async def deliver(
    broker: RunningBroker, source: asyncio.Transport, receivers: list[Receiver]
) -> float:
    """Publish to everybody, one message at a time; tell what that took the daemon."""
    for receiver in receivers:
        receiver.count = 0
    before = cpu_s(broker)
    for number in range(1, MESSAGES + 1):
        source.write(PACKET)
        await until(partial(_have, receivers, number * len(PACKET)))
    assert all(each.count == MESSAGES * len(PACKET) for each in receivers)
    return cpu_s(broker) - before


async def test_one_stuck_receiver_among_a_thousand_costs_the_others_nothing(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    connections = [await subscriber(broker, f"r{number}", "t") for number in range(RECEIVERS)]
    receivers = [receiver for _, receiver in connections]
    source, _ = await subscriber(broker, "source")
    await deliver(broker, source, receivers)  # so that both measurements find it warm
    alone = await deliver(broker, source, receivers)

    stuck, _ = await subscriber(broker, "stuck", "t", "fill")
    stuck.pause_reading()
    filling = frame(0x30, text("fill") + bytes(100_000))
    while "too slow, dropping QoS 0" not in broker.log:
        source.write(filling)
        await asyncio.sleep(0.001)

    beside = await deliver(broker, source, receivers)
    # One receiver more is a thousandth more work; the rest is what the machine does beside.
    assert beside < alone * 1.25 + 0.05, f"{alone:.2f} s of the processor alone, now {beside:.2f}"
    for transport in (*(each for each, _ in connections), source, stuck):
        transport.abort()
    await asyncio.sleep(0)
