"""Clients that keep their side of MQTT's promises over any number of broken connections.

`Publisher` and `Subscriber` hold the session state that the standard asks of a client
(section 4.1): unacknowledged messages are sent again in their order, a QoS 2 message is
taken once. They share no code with the broker and write down everything that happens, so
that what the broker promised can be compared with what it did.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK = 3, 4, 5, 6, 7, 9


def frame(first: int, body: bytes) -> bytes:
    """Put first byte and remaining length before a body."""
    length, rest = b"", len(body)
    while True:
        rest, byte = divmod(rest, 128)
        length += bytes((byte | 0x80 if rest else byte,))
        if not rest:
            return bytes((first,)) + length + body


def text(data: str) -> bytes:
    """Put a two-byte length before a text."""
    raw = data.encode()
    return len(raw).to_bytes(2, "big") + raw


def short(first: int, packet_id: int) -> bytes:
    """Make a packet that is only its id."""
    return bytes((first, 2)) + packet_id.to_bytes(2, "big")


def frames(buffer: bytearray) -> Iterator[tuple[int, bytes]]:
    """Take the whole packets off the front of a buffer."""
    while len(buffer) >= 2:
        length = shift = 0
        position = 1
        while position < len(buffer):
            byte = buffer[position]
            length |= (byte & 0x7F) << shift
            shift += 7
            position += 1
            if byte < 0x80:
                break
        else:
            return
        if len(buffer) < position + length:
            return
        first, body = buffer[0], bytes(buffer[position : position + length])
        del buffer[: position + length]
        yield first, body


class Broken(Exception):
    """The broker broke a promise."""


class Client:
    """A persistent session that connects again whenever its connection ends."""

    def __init__(self, client_id: str, port: int) -> None:
        self.client_id = client_id
        self.port = port
        self.writer: asyncio.StreamWriter | None = None
        self.kept = False  # the broker has promised to keep the session
        self.connections = 0
        self.done = False
        self.broken: list[str] = []

    async def run(self) -> None:
        """Stay connected until told to stop."""
        while not self.done:
            try:
                await self._one_connection()
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.02)
            except Broken as error:
                self.broken.append(f"{self.client_id}: {error}")
                return
            finally:
                self._drop()

    def _drop(self) -> None:
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.transport.abort()

    async def _one_connection(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            body = text("MQTT") + bytes((4, 0, 0, 60)) + text(self.client_id)
            writer.write(frame(0x10, body))
            connack = await reader.readexactly(4)
            if connack[:2] != b"\x20\x02" or connack[3]:
                raise Broken(f"CONNACK {connack.hex(' ')}")
            if self.kept and not connack[2]:
                raise Broken("the session is gone")
            if self.connections == 0 and connack[2]:
                raise Broken("a session before the first connection")
            self.kept = True
            self.connections += 1
            self.writer = writer
            self.resume()
            buffer = bytearray()
            while not self.done:
                data = await reader.read(65_536)
                if not data:
                    return
                buffer += data
                for first, packet in frames(buffer):
                    self.take(first, packet)
                if not await self.after_read():
                    return
        finally:
            writer.transport.abort()

    def send(self, data: bytes) -> None:
        """Send if there is a connection; what matters is sent again anyway."""
        if self.writer is not None and not self.writer.is_closing():
            self.writer.write(data)

    def resume(self) -> None:
        """Do what a client does behind CONNACK."""

    def take(self, first: int, body: bytes) -> None:
        """Act on a packet."""

    async def after_read(self) -> bool:
        """Do what is due after a read; False ends the connection."""
        return True


@dataclass
class Pending:
    """A message without its last acknowledgement."""

    packet: bytes
    key: tuple[str, int]  # topic and number
    qos: int
    released: bool = False  # PUBREC has come


class Publisher(Client):
    """Publishes numbered messages on topics of its own, and one retained one."""

    def __init__(self, name: str, port: int, *, window: int, per_s: float) -> None:
        super().__init__(name, port)
        self.window = window
        self.per_s = per_s
        self.pending: dict[int, Pending] = {}
        self.acknowledged: set[tuple[str, int]] = set()
        self.retained = 0  # the last number of the retained topic that was acknowledged
        self.producing = True
        self._numbers = {f"t/{name}/q{qos}/{part}": 0 for qos in (1, 2) for part in "ab"}
        self._numbers[f"state/{name}"] = 0
        self._next_id = 0

    async def produce(self) -> None:
        """Publish on all topics in turn while there is room in the window."""
        while self.producing:
            for topic in self._numbers:
                if self.writer is not None and len(self.pending) < self.window:
                    self._publish(topic)
            await asyncio.sleep(len(self._numbers) / self.per_s)

    def _publish(self, topic: str) -> None:
        self._numbers[topic] += 1
        number = self._numbers[topic]
        while True:
            self._next_id = self._next_id % 65_535 + 1
            if self._next_id not in self.pending:
                break
        qos = 2 if "/q2/" in topic else 1
        retain = topic.startswith("state/")
        body = text(topic) + self._next_id.to_bytes(2, "big") + str(number).encode()
        packet = frame(0x30 | qos << 1 | retain, body)
        self.pending[self._next_id] = Pending(packet, (topic, number), qos)
        self.send(packet)

    def resume(self) -> None:
        """Send again what is unacknowledged, in its order [MQTT-4.4.0-1]."""
        for packet_id, pending in self.pending.items():
            if pending.released:
                self.send(short(0x62, packet_id))
            else:
                self.send(bytes((pending.packet[0] | 0x08,)) + pending.packet[1:])

    def take(self, first: int, body: bytes) -> None:
        """Act on an acknowledgement."""
        packet_id = int.from_bytes(body[:2], "big")
        pending = self.pending.get(packet_id)
        kind = first >> 4
        if kind not in (PUBACK, PUBREC, PUBCOMP):
            raise Broken(f"unexpected packet {first:02x}")
        if kind == PUBREC:
            self.send(short(0x62, packet_id))
        if pending is None:
            return
        self.acknowledged.add(pending.key)
        if pending.key[0].startswith("state/"):
            self.retained = max(self.retained, pending.key[1])
        if kind == PUBREC:
            pending.released = True
        elif (kind == PUBACK) != (pending.qos == 1):
            raise Broken(f"packet {first:02x} for a message of QoS {pending.qos}")
        else:
            del self.pending[packet_id]


@dataclass
class Received:
    """What arrived on one topic: all numbers from 1 to the last."""

    last: int = 0
    again: int = 0  # QoS 1 only: the same number more than once


class Subscriber(Client):
    """Takes everything under `t/`, comes and goes, and takes no QoS 2 message twice."""

    def __init__(self, name: str, port: int, random: Random, *, restless: float) -> None:
        super().__init__(name, port)
        self.random = random
        self.restless = restless  # how likely a read is the last one of its connection
        self.topics: dict[str, Received] = {}
        self.subscribed = False
        self._half: set[int] = set()  # QoS 2 ids that were received and not released

    def resume(self) -> None:
        """Subscribe once and for all."""
        if not self.subscribed:
            self.send(frame(0x82, b"\x00\x01" + text("t/#") + b"\x02"))

    def take(self, first: int, body: bytes) -> None:
        """Act on a packet."""
        kind = first >> 4
        if kind == SUBACK:
            if body != b"\x00\x01\x02":
                raise Broken(f"SUBACK {body.hex(' ')}")
            self.subscribed = True
        elif kind == PUBREL:
            packet_id = int.from_bytes(body, "big")
            self._half.discard(packet_id)
            self.send(short(0x70, packet_id))
        elif kind == PUBLISH:
            self._take_publish(first, body)
        else:
            raise Broken(f"unexpected packet {first:02x}")

    def _take_publish(self, first: int, body: bytes) -> None:
        end = 2 + int.from_bytes(body[:2], "big")
        topic = body[2:end].decode()
        packet_id = int.from_bytes(body[end : end + 2], "big")
        number = int(body[end + 2 :])
        qos = first >> 1 & 3
        if qos != (2 if "/q2/" in topic else 1):
            raise Broken(f"{topic} came with QoS {qos}")
        if qos == 1:
            self._note(topic, number, exactly_once=False)
            self.send(short(0x40, packet_id))
            return
        if packet_id not in self._half:
            self._half.add(packet_id)
            self._note(topic, number, exactly_once=True)
        self.send(short(0x50, packet_id))

    def _note(self, topic: str, number: int, *, exactly_once: bool) -> None:
        received = self.topics.setdefault(topic, Received())
        if number <= received.last:
            if exactly_once:
                raise Broken(f"{topic}: {number} came behind {received.last}")
            received.again += 1
            return
        if number != received.last + 1:
            # Later ones may not overtake: what is missing now can only come too late.
            raise Broken(f"{topic}: {number} came behind {received.last}: one is missing")
        received.last = number

    async def after_read(self) -> bool:
        """Now and then go, with or without a word, and stay away for a while."""
        if self.random.random() >= self.restless or not self.subscribed:
            return True
        if self.random.random() < 0.5:
            self.send(b"\xe0\x00")
            assert self.writer is not None
            with contextlib.suppress(ConnectionError):
                await self.writer.drain()
        self._drop()
        await asyncio.sleep(self.random.uniform(0.0, 0.5))
        return False
