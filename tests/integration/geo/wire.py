"""Geo packets for tests, put together from docs/protocol.md alone: no code of the broker's.

geopublish, geosubscribe, geounsubscribe, publishg    bytes to send
at_sea(client, lat, lon)                              a flagged PINGREQ, answered
granted(client, entry(...), ...)                      GEOSUBSCRIBE, and the codes it must get
received(client)                                      the next message, GEOPUBLISH or PUBLISH
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.conformance.raw import Raw, field, framed, publish

NAN = float("nan")
RELATIONS = [
    "any", "covers", "contains", "intersects", "equals", "touches", "crosses", "overlaps",
    "within", "covered_by", "disjoint", "de9im", "dwithin",
]  # fmt: skip
TIMES = [
    "any", "intersects", "before", "after", "meets", "met_by", "overlaps", "overlapped_by",
    "starts", "started_by", "during", "contains", "finishes", "finished_by", "equals",
]  # fmt: skip

Geometry = Any  # (x, y), (x, y, elevation), text, WKB as bytes, GeoJSON as a dict
_ids = count(1)


def varint(number: int) -> bytes:
    made = b""
    while True:
        number, low = divmod(number, 128)
        made += bytes((low | 0x80 if number else low,))
        if not number:
            return made


def long_field(data: bytes) -> bytes:
    return varint(len(data)) + data


def geometry_of(at: Geometry) -> tuple[int, bytes]:
    """The form of a geometry, and its bytes without a length."""
    if isinstance(at, tuple):
        return len(at) - 1, struct.pack(f">{len(at)}d", *at)
    if isinstance(at, str):
        return 3, at.encode()
    if isinstance(at, bytes):
        return 4, at
    return 5, json.dumps(at).encode()


def fence(text: str) -> bytes:
    """Extensions with one event geofence."""
    return long_field(b"\x01" + long_field(b"\x03" + text.encode()))


def geopublish(
    topic: str,
    payload: str = "hi",
    *,
    at: Geometry = None,
    time: int | tuple[int, int] | str | None = None,
    epsg: int | None = None,
    to: str = "",
    extensions: bytes = b"",
    qos: int = 0,
    packet_id: int = 0,
    retain: bool = False,
) -> bytes:
    """GEOPUBLISH."""
    flags, body = 0, b""
    if isinstance(time, int):
        flags, body = 1, struct.pack(">q", time)
    elif isinstance(time, tuple):
        flags, body = 2, struct.pack(">qq", *time)
    elif time is not None:
        flags, body = 3, field(time)
    if epsg is not None:
        flags |= 0x40
        body += struct.pack(">I", epsg)
    if at is not None:
        form, raw = geometry_of(at)
        flags |= form << 3
        body += long_field(raw) if form > 2 else raw
    extensions = fence(to) if to else extensions
    if extensions:
        flags |= 0x80
        body += extensions
    inner = bytes((0x30 | qos << 1 | retain,))
    packet = packet_id.to_bytes(2, "big") if qos else b""
    return framed(0xF6, inner + field(topic) + packet + bytes((flags,)) + body + payload.encode())


@dataclass
class Entry:
    """One subscription as it stands in GEOSUBSCRIBE and GEOUNSUBSCRIBE."""

    topic_filter: bytes
    qos: bytes
    identity: bytes  # what stands between QoS and deliver
    deliver: bytes


def entry(
    topic_filter: str,
    *,
    qos: int = 0,
    relation: str | int = "any",
    at: Geometry = None,
    near: float | None = None,
    publisher: bool = False,
    operand: bytes = b"",
    epsg: int = 0,
    temporal: str | int = "any",
    time: str = "",
    deliver: int = 0,
    form: int | None = None,
) -> Entry:
    """One entry; a geometry without a relation is covered, a time without one intersected."""
    if isinstance(relation, str):
        if relation == "any" and (at is not None or near is not None):
            relation = "covers"
        relation = RELATIONS.index(relation)
    if isinstance(temporal, str):
        temporal = TIMES.index("intersects" if temporal == "any" and time else temporal)
    kind, raw = 0, b""
    if near is not None:
        kind, raw = 7, struct.pack(">d", near)
    elif at is not None:
        kind, raw = geometry_of(at)
    identity = (
        bytes((temporal,))
        + field(time)
        + bytes((relation | (0x80 if publisher else 0), kind if form is None else form))
        + struct.pack(">I", epsg)
        + long_field(operand + raw)
    )
    return Entry(field(topic_filter), bytes((qos,)), identity, bytes((deliver,)))


def geosubscribe(packet_id: int, *entries: Entry) -> bytes:
    """GEOSUBSCRIBE."""
    body = b"".join(e.topic_filter + e.qos + e.identity + e.deliver for e in entries)
    return framed(0xF6, b"\x82" + packet_id.to_bytes(2, "big") + body)


def geounsubscribe(packet_id: int, *entries: Entry) -> bytes:
    """GEOUNSUBSCRIBE."""
    body = b"".join(e.topic_filter + e.identity for e in entries)
    return framed(0xF6, b"\xa2" + packet_id.to_bytes(2, "big") + body)


def answered(client: Raw, *entries: Entry) -> list[int]:
    """Subscribe, and give the codes of the GEOSUBACK."""
    number = next(_ids)
    client.send(geosubscribe(number, *entries))
    first, body = client.packet()
    assert first == 0xF6, f"{first:02x} {body.hex(' ')}"
    assert body[:3] == b"\x90" + number.to_bytes(2, "big"), body.hex(" ")
    return list(body[3:])


def granted(client: Raw, *entries: Entry) -> None:
    """Subscribe, and insist on what was asked."""
    assert answered(client, *entries) == [each.qos[0] for each in entries]


def removed(client: Raw, *entries: Entry) -> list[int]:
    """Unsubscribe, and give the codes of the GEOUNSUBACK."""
    number = next(_ids)
    client.send(geounsubscribe(number, *entries))
    first, body = client.packet()
    assert (first, body[:3]) == (0xF6, b"\xb0" + number.to_bytes(2, "big"))
    return list(body[3:])


def location(lat: float, lon: float, elev: float = NAN, *, version: int = 1) -> bytes:
    """MQTT-G's location block."""
    return struct.pack(">Bddf", version, lat, lon, elev)


def publishg(
    topic: str,
    payload: str,
    block: bytes,
    *,
    qos: int = 0,
    packet_id: int = 0,
    retain: bool = False,
) -> bytes:
    """PUBLISHg."""
    packet = packet_id.to_bytes(2, "big") if qos else b""
    first = 0xF0 | qos << 1 | retain
    return framed(first, field(topic) + packet + block + payload.encode())


def move(client: Raw, lat: float, lon: float) -> None:
    """Tell where the client is with a flagged PINGREQ, and wait until the broker knows."""
    client.send(framed(0xC4, location(lat, lon)))
    client.expect("d0 00")


def settle(client: Raw, *packets: bytes) -> None:
    """Send packets that are not answered, and wait until the broker has acted on them."""
    client.send(b"".join(packets) + b"\xc0\x00")
    client.expect("d0 00")


def tell(client: Raw, topic: str, payload: str) -> None:
    """Publish with QoS 1, and wait for the acknowledgement."""
    client.send(publish(topic, payload, qos=1, packet_id=999))
    client.expect("40 02 03 e7")


@dataclass
class Received:
    """A message as it came."""

    topic: str
    payload: str
    qos: int
    retain: bool
    dup: bool
    packet_id: int
    enveloped: bool
    time: int | tuple[int, int] | str | None = None
    epsg: int | None = None
    form: int = 0
    geometry: Any = None
    extensions: bytes = b""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        piece = self.data[self.at : self.at + size]
        assert len(piece) == size, "the packet ends too early"
        self.at += size
        return piece

    def unpack(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def long(self) -> bytes:
        size = shift = 0
        while True:
            (byte,) = self.take(1)
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return self.take(size)


def received(client: Raw) -> Received:
    """Read the next message; GEOPUBLISH is taken apart."""
    first, body = client.packet()
    reader = _Reader(body)
    enveloped = first == 0xF6
    if enveloped:
        (first,) = reader.take(1)
    assert first >> 4 == 3, f"{first:02x} {body.hex(' ')}"
    topic = reader.take(*reader.unpack(">H")).decode()
    qos = first >> 1 & 3
    packet_id = reader.unpack(">H")[0] if qos else 0
    made = Received(
        topic, "", qos, bool(first & 1), bool(first & 8), packet_id, enveloped=enveloped
    )
    if enveloped:
        _take_geo(made, reader)
    made.payload = body[reader.at :].decode()
    return made


def _take_geo(made: Received, reader: _Reader) -> None:
    (flags,) = reader.take(1)
    time, made.form = flags & 7, flags >> 3 & 7
    if time == 1:
        (made.time,) = reader.unpack(">q")
    elif time == 2:
        made.time = reader.unpack(">qq")  # type: ignore[assignment]
    elif time == 3:
        made.time = reader.take(*reader.unpack(">H")).decode()
    if flags & 0x40:
        (made.epsg,) = reader.unpack(">I")
    if made.form in (1, 2):
        made.geometry = reader.unpack(f">{made.form + 1}d")
    elif made.form:
        raw = reader.long()
        made.geometry = raw if made.form == 4 else raw.decode()
    if flags & 0x80:
        start = reader.at
        reader.long()
        made.extensions = reader.data[start : reader.at]


def payloads(client: Raw, number: int) -> list[str]:
    """The payloads of the next messages; nothing may come behind them."""
    found = [received(client).payload for _ in range(number)]
    client.expect_nothing()
    return found
