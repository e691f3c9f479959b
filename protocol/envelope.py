"""Type 15: PUBLISHg and the GeoMQTT envelope, from bytes to packets and back.

    F0–F5 FA–FD   PUBLISHg: a PUBLISH with a location behind its variable header
    F6            envelope: INNER u8 (an ordinary first byte), then
                  30–35 3A–3D GEOPUBLISH, 82 GEOSUBSCRIBE, 90 GEOSUBACK,
                  A2 GEOUNSUBSCRIBE, B0 GEOUNSUBACK

Framing that cannot be read is a ProtocolError. A place or time inside good framing that
cannot be used becomes the packet's `fault`; the entries of a GEOSUBSCRIBE are passed on
unjudged, because each of them is answered with a code of its own (`conditions`).
"""

from math import isnan
from typing import Any

from protocol.errors import BadGeometry, BadTime, BadValue, MalformedPacket, OutOfOrder
from protocol.fields import (
    F64,
    I64,
    U16,
    U32,
    decode_string,
    long_binary,
    read_binary,
    read_long_binary,
    read_string,
    read_u8,
    read_u32,
    read_varint,
    string,
    varint,
)
from protocol.geo import Geo, Location
from protocol.geometry_forms import FORM_TEXT, parse_form
from protocol.geometry_place import Limits, Place
from protocol.mqttg import GEO, UNUSABLE, Dialect, read_location
from protocol.packets import Publish
from protocol.temporal import parse_event_time
from protocol.topic_fields import known_topics, read_packet_id, read_topic
from protocol.topics import GEO_PREFIX
from protocol.values import value

ENVELOPE = 0xF6

TIME_INSTANT, TIME_INTERVAL, TIME_TEXT = 1, 2, 3
EPSG_FLAG = 0x40
EXTENSIONS_FLAG = 0x80
FENCE_EXTENSION = 1
WGS84 = 4326

_POINT_SIZES = {1: 16, 2: 24}


@value
class GeoEntry:
    """One subscription of a GEOSUBSCRIBE or GEOUNSUBSCRIBE, as it came."""

    topic_filter: str
    temporal_relation: int = 0
    temporal_filter: str = ""
    spatial_relation: int = 0
    form: int = 0
    epsg: int = 0
    geometry: bytes = b""
    qos: int = 0
    deliver: int = 0

    @property
    def identity(self) -> bytes:
        """The fields that make it this subscription and no other, as bytes."""
        return (
            string(self.topic_filter)
            + bytes((self.temporal_relation,))
            + string(self.temporal_filter)
            + bytes((self.spatial_relation, self.form))
            + U32.pack(self.epsg)
            + long_binary(self.geometry)
        )

    @property
    def names_all(self) -> bool:
        """Whether an unsubscription names every geo subscription on its topic filter."""
        return not (
            self.temporal_relation or self.temporal_filter or self.spatial_relation or self.form
        )


@value
class GeoSubscribe:
    """GEOSUBSCRIBE."""

    packet_id: int
    entries: tuple[GeoEntry, ...]


@value
class GeoSuback:
    """GEOSUBACK."""

    packet_id: int
    codes: tuple[int, ...]


@value
class GeoUnsubscribe:
    """GEOUNSUBSCRIBE."""

    packet_id: int
    entries: tuple[GeoEntry, ...]


@value
class GeoUnsuback:
    """GEOUNSUBACK."""

    packet_id: int
    codes: tuple[int, ...]


def decode_geo_from_client(first: int, body: bytes, dialect: Dialect) -> Any:
    """Decode a type-15 packet from a client."""
    if not dialect.geo:
        raise MalformedPacket("packet type 15 on a listener without geo extensions")
    if first == ENVELOPE:
        inner, start = read_u8(body, 0)
        if inner >> 4 == 3:
            return _decode_geopublish(inner, body, start, dialect)
        if inner == 0x82:
            return _decode_geosubscribe(body, start)
        if inner == 0xA2:
            return _decode_geounsubscribe(body, start)
        if inner in (0x90, 0xB0):
            raise OutOfOrder(f"envelope with {inner:#04x} is not for clients to send")
        raise MalformedPacket(f"envelope with unknown inner byte {inner:#04x}")
    return _decode_publishg(first, body, dialect)


def decode_geo_from_server(first: int, body: bytes, dialect: Dialect) -> Any:
    """Decode a type-15 packet from a server."""
    if first != ENVELOPE:
        raise MalformedPacket(f"first byte {first:#04x} from a server")
    inner, start = read_u8(body, 0)
    if inner >> 4 == 3:
        return _decode_geopublish(inner, body, start, dialect)
    if inner in (0x90, 0xB0):
        packet_id, offset = read_packet_id(body, start)
        kind = GeoSuback if inner == 0x90 else GeoUnsuback
        return kind(packet_id, tuple(body[offset:]))
    raise MalformedPacket(f"envelope with inner byte {inner:#04x} from a server")


def _decode_publishg(first: int, body: bytes, dialect: Dialect) -> Publish:
    qos = first >> 1 & 3
    if qos == 3 or (not qos and first & 8):
        raise MalformedPacket(f"first byte {first:#04x} is reserved")
    location: Location | None
    offset = 0
    if dialect.location_after_fixed_header:
        location, offset = read_location(body, 0, little_endian=dialect.little_endian)
    raw, offset = read_binary(body, offset)
    topic = read_topic(raw, dialect)
    packet_id = 0
    if qos:
        packet_id, offset = read_packet_id(body, offset)
    if not dialect.location_after_fixed_header:
        location, offset = read_location(body, offset, little_endian=dialect.little_endian)
    geo = geo_from_location(location) if location is not None else None
    return Publish(
        topic, body[offset:], qos, first & 1 == 1, first & 8 == 8, packet_id, geo, location
    )


def geo_from_location(location: Location) -> Geo | None:
    """Make the place of a PUBLISHg: a point, with its elevation if that is known."""
    if location is UNUSABLE:
        return None
    raw = F64.pack(location.lon) + F64.pack(location.lat)
    if isnan(location.elev):
        return Geo(geometry_form=1, geometry_raw=raw, place=Place(location.lon, location.lat))
    return Geo(
        geometry_form=2,
        geometry_raw=raw + F64.pack(location.elev),
        place=Place(location.lon, location.lat, location.elev),
    )


def _decode_geopublish(inner: int, body: bytes, offset: int, dialect: Dialect) -> Publish:
    qos = inner >> 1 & 3
    if qos == 3 or (not qos and inner & 8):
        raise MalformedPacket(f"GEOPUBLISH with flags {inner & 0x0F:#x}")
    raw, offset = read_binary(body, offset)
    topic = known_topics.get(raw) or read_topic(raw, dialect)
    packet_id = 0
    if qos:
        packet_id, offset = read_packet_id(body, offset)
    geo, fault, offset = read_geo(body, offset, dialect)
    if topic.startswith(GEO_PREFIX):
        fault = "a $geo/ topic in a GEOPUBLISH"
    return Publish(
        topic, body[offset:], qos, inner & 1 == 1, inner & 8 == 8, packet_id, geo, None, fault
    )


def read_geo(body: bytes, offset: int, dialect: Dialect = GEO) -> tuple[Geo, str | None, int]:
    """Read flags, time, EPSG, geometry and extensions; the second value says what is wrong."""
    flags, offset = read_u8(body, offset)
    time_form, geometry_form = flags & 7, flags >> 3 & 7
    # The commonest event of all: an instant, or none, and a point in degrees.
    if flags in (0x08, 0x09):
        end = offset + (24 if flags == 0x09 else 16)
        if end > len(body):
            raise MalformedPacket("packet ends inside a field")
        return _read_instant_and_point(body, flags, offset, end)
    time_raw, offset = _read_time(body, offset, time_form)
    epsg, epsg_sent = WGS84, None
    if flags & EPSG_FLAG:
        epsg, offset = read_u32(body, offset)
        epsg_sent = epsg
    geometry_raw, offset = _read_geometry(body, offset, geometry_form)
    extensions = b""
    fences: list[bytes] = []
    if flags & EXTENSIONS_FLAG:
        start = offset
        size, offset = read_varint(body, offset)
        fences, offset = _read_extensions(body, offset, offset + size)
        extensions = body[start:offset]
    try:
        limits = dialect.geometry
        time = parse_time(time_form, time_raw)
        place = fence = None
        if geometry_form:
            parsed = parse_form(geometry_form, geometry_raw, epsg, limits)
            place, epsg = parsed.place, parsed.epsg
        if fences:
            fence = _parse_fence(fences, limits)
    except BadValue as error:
        return Geo(), str(error), offset
    geo = Geo(
        time_form,
        time_raw,
        time,
        geometry_form,
        geometry_raw,
        epsg,
        place,
        extensions,
        fence,
        epsg_sent=epsg_sent,
    )
    return geo, None, offset


def _read_instant_and_point(
    body: bytes, flags: int, offset: int, end: int
) -> tuple[Geo, str | None, int]:
    geometry_raw = body[end - 16 : end]
    try:
        place = parse_form(1, geometry_raw).place
    except BadGeometry as error:
        return Geo(), str(error), end
    if flags == 0x08:
        return Geo(0, b"", None, 1, geometry_raw, WGS84, place), None, end
    time_raw = body[offset : end - 16]
    ms = I64.unpack(time_raw)[0]
    return Geo(TIME_INSTANT, time_raw, (ms, ms), 1, geometry_raw, WGS84, place), None, end


def _read_time(body: bytes, offset: int, form: int) -> tuple[bytes, int]:
    if form == 0:
        return b"", offset
    if form == TIME_TEXT:
        return read_binary(body, offset)
    if form > TIME_TEXT:
        raise MalformedPacket(f"reserved time form {form}")
    end = offset + 8 * form
    if end > len(body):
        raise MalformedPacket("packet ends inside a field")
    return body[offset:end], end


def _read_geometry(body: bytes, offset: int, form: int) -> tuple[bytes, int]:
    if form == 0:
        return b"", offset
    if form > 5:
        raise MalformedPacket(f"reserved geometry form {form}")
    if form in _POINT_SIZES:
        end = offset + _POINT_SIZES[form]
        if end > len(body):
            raise MalformedPacket("packet ends inside a field")
        return body[offset:end], end
    return read_long_binary(body, offset)


def _read_extensions(body: bytes, offset: int, end: int) -> tuple[list[bytes], int]:
    """Walk over the TLVs and pick the event geofences."""
    if end > len(body):
        raise MalformedPacket("packet ends inside its extensions")
    fences = []
    while offset < end:
        kind, offset = read_u8(body, offset)
        data, offset = read_long_binary(body, offset)
        if kind == FENCE_EXTENSION:
            fences.append(data)
    if offset != end:
        raise MalformedPacket("extensions longer than their length")
    return fences, offset


def _parse_fence(fences: list[bytes], limits: Limits) -> Place:
    if len(fences) > 1:
        raise BadGeometry("more than one event geofence")
    if not fences[0]:
        raise BadGeometry("event geofence without a form")
    form = fences[0][0]
    if form not in (1, 3, 4, 5):
        raise BadGeometry(f"event geofence of form {form}")
    return parse_form(form, fences[0][1:], WGS84, limits).place


def parse_time(form: int, raw: bytes) -> tuple[int, int] | None:
    """Turn the bytes of a time into (start, end); None when the event has none."""
    if form == 0:
        return None
    if form == TIME_TEXT:
        try:
            return parse_event_time(raw.decode())
        except UnicodeDecodeError:
            raise BadTime("time is not UTF-8") from None
    start = I64.unpack_from(raw)[0]
    if form == TIME_INSTANT:
        return start, start
    end = I64.unpack_from(raw, 8)[0]
    if end < start:
        raise BadTime("interval ends before it starts")
    return start, end


def _decode_geosubscribe(body: bytes, offset: int) -> GeoSubscribe:
    packet_id, offset = read_packet_id(body, offset)
    entries = []
    while offset < len(body):
        topic_filter, offset = read_string(body, offset)
        qos, offset = read_u8(body, offset)
        fields, offset = _read_identity(body, offset)
        deliver, offset = read_u8(body, offset)
        entries.append(GeoEntry(topic_filter, *fields, qos, deliver))
    if not entries:
        raise MalformedPacket("GEOSUBSCRIBE without an entry")
    return GeoSubscribe(packet_id, tuple(entries))


def _decode_geounsubscribe(body: bytes, offset: int) -> GeoUnsubscribe:
    packet_id, offset = read_packet_id(body, offset)
    entries = []
    while offset < len(body):
        topic_filter, offset = read_string(body, offset)
        fields, offset = _read_identity(body, offset)
        entries.append(GeoEntry(topic_filter, *fields))
    if not entries:
        raise MalformedPacket("GEOUNSUBSCRIBE without an entry")
    return GeoUnsubscribe(packet_id, tuple(entries))


def _read_identity(body: bytes, offset: int) -> tuple[tuple[int, str, int, int, int, bytes], int]:
    temporal_relation, offset = read_u8(body, offset)
    raw, offset = read_binary(body, offset)
    spatial_relation, offset = read_u8(body, offset)
    form, offset = read_u8(body, offset)
    epsg, offset = read_u32(body, offset)
    geometry, offset = read_long_binary(body, offset)
    temporal_filter = decode_string(raw)
    return (temporal_relation, temporal_filter, spatial_relation, form, epsg, geometry), offset


def entry_from_identity(identity: bytes, qos: int, deliver: int) -> GeoEntry:
    """Make an entry again from its identity."""
    topic_filter, offset = read_string(identity, 0)
    fields, _ = _read_identity(identity, offset)
    return GeoEntry(topic_filter, *fields, qos, deliver)


# From packets to bytes


def geo_fields(geo: Geo, received_ms: int | None = None) -> bytes:
    """Encode flags, time, EPSG, geometry and extensions, as published.

    An event without its own time goes out with the time of receipt, if that is given.
    """
    time_form, time_raw = geo.time_form, geo.time_raw
    if not time_form and received_ms is not None:
        time_form, time_raw = TIME_INSTANT, I64.pack(received_ms)
    return encode_fields(
        time_form, time_raw, geo.geometry_form, geo.geometry_raw, geo.epsg_sent, geo.extensions
    )


def encode_fields(
    time_form: int,
    time_raw: bytes,
    geometry_form: int,
    geometry_raw: bytes,
    epsg: int | None,
    extensions: bytes,
) -> bytes:
    """Encode the geo fields of a GEOPUBLISH; `extensions` come with their length."""
    flags = time_form | geometry_form << 3
    if time_form == TIME_TEXT:
        time_raw = U16.pack(len(time_raw)) + time_raw
    if geometry_form >= FORM_TEXT:
        geometry_raw = long_binary(geometry_raw)
    epsg_raw = b""
    if epsg is not None:
        flags |= EPSG_FLAG
        epsg_raw = U32.pack(epsg)
    if extensions:
        flags |= EXTENSIONS_FLAG
    return bytes((flags,)) + time_raw + epsg_raw + geometry_raw + extensions


def fence_extension(form: int, geometry: bytes) -> bytes:
    """Encode extensions that hold one event geofence, with their length."""
    tlv = bytes((FENCE_EXTENSION,)) + long_binary(bytes((form,)) + geometry)
    return varint(len(tlv)) + tlv


def geopublish_parts(
    flags: int, topic: bytes, fields: bytes, payload: bytes
) -> tuple[bytes, bytes]:
    """Encode a GEOPUBLISH up to the place of its packet id, and from there on."""
    tail = fields + payload
    size = 3 + len(topic) + (2 if flags & 6 else 0) + len(tail)
    head = bytes((ENVELOPE,)) + varint(size) + bytes((0x30 | flags,)) + U16.pack(len(topic)) + topic
    return head, tail


def geopublish(packet: Publish) -> bytes:
    """Encode a GEOPUBLISH."""
    assert packet.geo is not None
    flags = packet.dup << 3 | packet.qos << 1 | packet.retain
    head, tail = geopublish_parts(
        flags, packet.topic.encode(), geo_fields(packet.geo), packet.payload
    )
    return head + (U16.pack(packet.packet_id) if packet.qos else b"") + tail


def _envelope(inner: int, body: bytes) -> bytes:
    return bytes((ENVELOPE,)) + varint(1 + len(body)) + bytes((inner,)) + body


def geosubscribe(packet: GeoSubscribe) -> bytes:
    """Encode a GEOSUBSCRIBE."""
    entries = []
    for entry in packet.entries:
        topic_filter = string(entry.topic_filter)
        rest = entry.identity[len(topic_filter) :]
        entries.append(topic_filter + bytes((entry.qos,)) + rest + bytes((entry.deliver,)))
    return _envelope(0x82, U16.pack(packet.packet_id) + b"".join(entries))


def geounsubscribe(packet: GeoUnsubscribe) -> bytes:
    """Encode a GEOUNSUBSCRIBE."""
    entries = b"".join(entry.identity for entry in packet.entries)
    return _envelope(0xA2, U16.pack(packet.packet_id) + entries)


def geosuback(packet_id: int, codes: bytes) -> bytes:
    """Encode a GEOSUBACK."""
    return _envelope(0x90, U16.pack(packet_id) + codes)


def geounsuback(packet_id: int, codes: bytes) -> bytes:
    """Encode a GEOUNSUBACK."""
    return _envelope(0xB0, U16.pack(packet_id) + codes)
