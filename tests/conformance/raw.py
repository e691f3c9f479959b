"""A client made of a socket and nothing else: bytes out, bytes in, exactly.

It shares no code with the broker. Bytes are written as spaced hex with texts in quotes
between them, lengths and all, as the standard prints them:

    raw.send('82 08 00 01 00 03 "a/b" 01')
    raw.expect("90 03 00 01 01")

The routine packets that merely set a scene come from the small functions at the end, which
`test_raw.py` compares with typed bytes. Nobody sleeps here: `expect_nothing` asks for a
PINGRESP and shows that nothing stood before it.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from itertools import count
from typing import Any

TIMEOUT_S = 10.0

_TOKEN = re.compile(r'"([^"]*)"|([0-9a-fA-F]{2})(?![0-9a-fA-F])|(\S+)')
_numbers = count(1)


def octets(text: str) -> bytes:
    """Turn spaced hex and quoted texts into bytes."""
    made = b""
    for quoted, pair, wrong in _TOKEN.findall(text):
        if wrong:
            raise ValueError(f"{wrong!r} is neither a byte nor a quoted text")
        made += bytes.fromhex(pair) if pair else quoted.encode()
    return made


class Raw:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.client_id = ""
        sock.settimeout(TIMEOUT_S)

    def send(self, data: str | bytes) -> None:
        """Send hex, or bytes as they are."""
        self.socket.sendall(octets(data) if isinstance(data, str) else data)

    def expect(self, data: str | bytes) -> None:
        """Read as many bytes as are expected, and insist on them."""
        wanted = octets(data) if isinstance(data, str) else data
        got = self.read(len(wanted))
        assert got == wanted, difference(wanted, got)

    def read(self, size: int) -> bytes:
        """Read exactly so many bytes; less only when the connection ends or is silent."""
        got = b""
        with contextlib.suppress(TimeoutError, ConnectionResetError, ssl.SSLEOFError):
            while len(got) < size:
                chunk = self.socket.recv(size - len(got))
                if not chunk:
                    break
                got += chunk
        return got

    def packet(self) -> tuple[int, bytes]:
        """Read one packet: its first byte and its body."""
        first = self.read(1)
        assert first, "the connection ended or is silent"
        length = shift = 0
        while True:
            byte = self.read(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        body = self.read(length)
        assert len(body) == length
        return first[0], body

    def expect_nothing(self) -> None:
        """Show that nothing has been sent to us: the answer to a ping comes first."""
        self.send("c0 00")
        self.expect("d0 00")

    def expect_close(self) -> None:
        """Insist that the broker closes, without another byte."""
        got = self.read(1)
        assert got == b"", f"expected the end, got {got.hex(' ')}"
        assert self._ended(), "the connection is still open"

    def _ended(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
            return True
        except TimeoutError:
            return False

    def drop(self) -> None:
        """Go without a word."""
        self.socket.close()

    def disconnect(self) -> None:
        """Go with one, and see the broker close."""
        self.send("e0 00")
        self.expect_close()
        self.socket.close()


def difference(wanted: bytes, got: bytes) -> str:
    """Show where bytes part from what was expected."""
    pairs = enumerate(zip(wanted, got, strict=False))
    place = next((n for n, (one, other) in pairs if one != other), min(len(wanted), len(got)))
    start = max(0, place - 20)
    expected, found = wanted[start : start + 60], got[start : start + 60]
    return f"at byte {place}: expected {expected.hex(' ')}, got {found.hex(' ')}"


class Clients:
    """Opens connections to one broker, and closes those that a test left open."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._open: list[Raw] = []

    def raw(self) -> Raw:
        """Open a connection and send nothing."""
        return self.keep(socket.create_connection((self.host, self.port), TIMEOUT_S))

    def keep(self, sock: socket.socket) -> Raw:
        """Take care of a socket that a test opened in its own way."""
        # Packets that follow each other shall not wait for each other's acknowledgement.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Raw(sock)
        self._open.append(client)
        return client

    def connect(self, client_id: str | None = None, *, present: bool = False, **wish: Any) -> Raw:
        """Open a connection, and be let in; without an id, under one that nobody else has."""
        client = self.raw()
        client.client_id = f"client{next(_numbers)}" if client_id is None else client_id
        client.send(connect(client.client_id, **wish))
        client.expect("20 02 01 00" if present else "20 02 00 00")
        return client

    def subscribed(self, topic_filter: str, qos: int = 0, **wish: Any) -> Raw:
        """Open a connection and subscribe with it."""
        client = self.connect(**wish)
        subscribe_with(client, topic_filter, qos)
        return client

    def close(self) -> None:
        """Close everything that is open."""
        for client in self._open:
            client.socket.close()


def subscribe_with(client: Raw, topic_filter: str, qos: int = 0) -> None:
    """Subscribe, with packet id 1000, and be granted what was asked."""
    client.send(subscribe(1000, (topic_filter, qos)))
    client.expect(f"90 03 03 e8 {qos:02x}")


def publish_with(client: Raw, topic: str, payload: str | bytes, **wish: Any) -> None:
    """Publish with QoS 1 and packet id 2000, and wait until the broker has acted on it."""
    client.send(publish(topic, payload, qos=1, packet_id=2000, **wish))
    client.expect("40 02 07 d0")


@contextlib.contextmanager
def clients_of(host: str, port: int) -> Iterator[Clients]:
    """Open connections to a broker for a while."""
    clients = Clients(host, port)
    try:
        yield clients
    finally:
        clients.close()


# Routine packets


def field(data: str | bytes) -> bytes:
    """Put a two-byte length before a text."""
    raw = data.encode() if isinstance(data, str) else data
    return len(raw).to_bytes(2, "big") + raw


def framed(first: int, body: bytes) -> bytes:
    """Put first byte and remaining length before a body."""
    length, rest = b"", len(body)
    while True:
        rest, byte = divmod(rest, 128)
        length += bytes((byte | 0x80 if rest else byte,))
        if not rest:
            return bytes((first,)) + length + body


def connect(
    client_id: str,
    *,
    clean: bool = True,
    keep_alive: int = 0,
    will: tuple[str, str | bytes, int, bool] | None = None,
    username: str | None = None,
    password: str | None = None,
) -> bytes:
    """CONNECT; a will is (topic, payload, QoS, retain)."""
    flags = 0x02 if clean else 0
    payload = field(client_id)
    if will is not None:
        topic, message, qos, retain = will
        flags |= 0x04 | qos << 3 | (0x20 if retain else 0)
        payload += field(topic) + field(message)
    if username is not None:
        flags |= 0x80
        payload += field(username)
    if password is not None:
        flags |= 0x40
        payload += field(password)
    header = field("MQTT") + bytes((4, flags)) + keep_alive.to_bytes(2, "big")
    return framed(0x10, header + payload)


def subscribe(packet_id: int, *filters: tuple[str, int]) -> bytes:
    """SUBSCRIBE to filters with their QoS."""
    body = packet_id.to_bytes(2, "big")
    return framed(0x82, body + b"".join(field(name) + bytes((qos,)) for name, qos in filters))


def unsubscribe(packet_id: int, *filters: str) -> bytes:
    """UNSUBSCRIBE from filters."""
    return framed(0xA2, packet_id.to_bytes(2, "big") + b"".join(map(field, filters)))


def publish(
    topic: str,
    payload: str | bytes,
    *,
    qos: int = 0,
    packet_id: int = 0,
    retain: bool = False,
    dup: bool = False,
) -> bytes:
    """PUBLISH."""
    raw = payload.encode() if isinstance(payload, str) else payload
    first = 0x30 | dup << 3 | qos << 1 | retain
    return framed(first, field(topic) + (packet_id.to_bytes(2, "big") if qos else b"") + raw)
