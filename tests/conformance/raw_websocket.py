"""The client half of WebSocket (RFC 6455) for tests: handshake and frames, typed out."""

from __future__ import annotations

import base64
import hashlib
import os

from tests.conformance.raw import Raw, difference, octets

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def handshake(raw: Raw, path: str = "/mqtt", subprotocol: str | None = "mqtt") -> tuple[int, str]:
    """Ask for an upgrade; give the status and the subprotocol the server chose."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
    ]
    if subprotocol is not None:
        lines.append(f"Sec-WebSocket-Protocol: {subprotocol}")
    raw.send("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = raw.read(1)
        assert byte, head
        head += byte
    status, *rest = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in rest if line)
    code = int(status.split()[1])
    if code == 101:
        accepted = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode())
        assert (
            headers["sec-websocket-accept"] == base64.b64encode(accepted.digest()).decode().lower()
        )
    return code, headers.get("sec-websocket-protocol", "")


def frame(data: str | bytes, opcode: int = BINARY, *, final: bool = True) -> bytes:
    """Make a masked frame."""
    payload = octets(data) if isinstance(data, str) else data
    mask = os.urandom(4)
    first = bytes((opcode | (0x80 if final else 0),))
    if len(payload) < 126:
        length = bytes((0x80 | len(payload),))
    elif len(payload) < 65_536:
        length = b"\xfe" + len(payload).to_bytes(2, "big")
    else:
        length = b"\xff" + len(payload).to_bytes(8, "big")
    masked = bytes(byte ^ mask[position % 4] for position, byte in enumerate(payload))
    return first + length + mask + masked


def read_frame(raw: Raw) -> tuple[int, bytes]:
    """Read a frame of the server: unmasked, unfragmented."""
    head = raw.read(2)
    assert len(head) == 2, "the connection ended or is silent"
    assert head[0] & 0x80, "a fragment"
    assert not head[1] & 0x80, "a server must not mask"
    size = head[1]
    if size == 126:
        size = int.from_bytes(raw.read(2), "big")
    elif size == 127:
        size = int.from_bytes(raw.read(8), "big")
    data = raw.read(size)
    assert len(data) == size
    return head[0] & 0x0F, data


def expect_binary(raw: Raw, data: str | bytes) -> None:
    """Insist on bytes, however many binary frames bring them."""
    wanted = octets(data) if isinstance(data, str) else data
    got = b""
    while len(got) < len(wanted):
        opcode, payload = read_frame(raw)
        assert opcode == BINARY, f"opcode {opcode}: {payload!r}"
        got += payload
    assert got == wanted, difference(wanted, got)
