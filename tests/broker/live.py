"""A broker with its sockets inside the test, so that its counters and its log can be seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from broker.broker import Broker
from broker.config import Config, Limits, Listener
from broker.server import Server
from plugins.api import Plugin
from tests.conformance.raw import connect, octets, publish, subscribe

TIMEOUT_S = 10.0


class Peer:
    """The other end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: str | bytes) -> None:
        """Send hex, or bytes as they are."""
        self.writer.write(octets(data) if isinstance(data, str) else data)

    async def expect(self, data: str | bytes) -> None:
        """Read as many bytes as are expected, and insist on them."""
        wanted = octets(data) if isinstance(data, str) else data
        async with asyncio.timeout(TIMEOUT_S):
            got = await self.reader.readexactly(len(wanted))
        assert got == wanted, f"expected {wanted.hex(' ')}, got {got.hex(' ')}"

    async def expect_nothing(self) -> None:
        """Show that nothing has been sent to us: the answer to a ping comes first."""
        self.send("c0 00")
        await self.expect("d0 00")

    async def expect_close(self) -> None:
        """Insist that the broker closes, without another byte."""
        async with asyncio.timeout(TIMEOUT_S):
            with suppress(ConnectionResetError):
                assert await self.reader.read(1) == b""

    async def packet(self) -> tuple[int, bytes]:
        """Read one packet: its first byte and its body."""
        async with asyncio.timeout(TIMEOUT_S):
            first = (await self.reader.readexactly(1))[0]
            length = shift = 0
            while True:
                byte = (await self.reader.readexactly(1))[0]
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            return first, await self.reader.readexactly(length)

    async def publish(self, topic: str, payload: str | bytes = "", **wish: Any) -> None:
        """Publish with QoS 1 and wait until the broker has acted on it."""
        self.send(publish(topic, payload, qos=1, packet_id=2000, **wish))
        await self.expect("40 02 07 d0")

    async def subscribe(self, topic_filter: str, qos: int = 0) -> None:
        """Subscribe and be granted what was asked."""
        self.send(subscribe(1000, (topic_filter, qos)))
        await self.expect(f"90 03 03 e8 {qos:02x}")

    def close(self) -> None:
        """Go without a word."""
        self.writer.transport.abort()


class Live:
    """A running broker and the connections to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._peers: list[Peer] = []

    @property
    def broker(self) -> Broker:
        """The broker itself."""
        return self.server.broker

    @property
    def counts(self) -> dict[str, int]:
        """All counters; what was never counted is 0."""
        return dict(self.broker.counts())

    async def open(self, number: int = 0, limit: int = 2**16) -> Peer:
        """Connect to a listener and send nothing."""
        port = self.server.config.listener[number].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
        peer = Peer(reader, writer)
        self._peers.append(peer)
        return peer

    async def connect(
        self, client_id: str, *, present: bool = False, limit: int = 2**16, **wish: Any
    ) -> Peer:
        """Connect and be let in."""
        peer = await self.open(limit=limit)
        peer.send(connect(client_id, **wish))
        await peer.expect("20 02 01 00" if present else "20 02 00 00")
        return peer

    def close(self) -> None:
        """Close what a test left open."""
        for peer in self._peers:
            peer.close()


@asynccontextmanager
async def running(
    limits: dict[str, Any] | None = None, plugins: list[Plugin] | None = None, **settings: Any
) -> AsyncIterator[Live]:
    """Run a broker without persistence on a port of its own."""
    settings = {"persistence": False, "sys_interval_s": 0, "stop_timeout_s": 0.5} | settings
    settings.setdefault("listener", [Listener(port=0)])
    server = Server(Config(limits=Limits(**limits or {}), **settings), plugins)
    await server.start()
    live = Live(server)
    try:
        yield live
    finally:
        live.close()
        await server.stop()
