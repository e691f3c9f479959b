"""From a packet's value to its bytes, for both sides.

The broker does not build a packet value for every delivery: `publish_parts` gives it the
bytes on both sides of the packet id, which is all that differs between two receivers.
"""

from typing import Any

from protocol import packets as p
from protocol.fields import U16, binary, string, varint
from protocol.mqttg import LOCATION_FLAG, location_block

PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"
DISCONNECT = b"\xe0\x00"


def encode(packet: Any) -> bytes:
    """Encode any packet."""
    return bytes(_ENCODERS[type(packet)](packet))


def frame(first: int, body: bytes) -> bytes:
    """Put the fixed header before a body."""
    return bytes((first,)) + varint(len(body)) + body


def publish_parts(first: int, topic: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """Encode a PUBLISH up to the place of its packet id, and from there on."""
    size = 2 + len(topic) + (2 if first & 6 else 0) + len(payload)
    return bytes((first,)) + varint(size) + binary(topic), payload


def puback(packet_id: int) -> bytes:
    """Encode a PUBACK."""
    return b"\x40\x02" + U16.pack(packet_id)


def pubrec(packet_id: int) -> bytes:
    """Encode a PUBREC."""
    return b"\x50\x02" + U16.pack(packet_id)


def pubrel(packet_id: int) -> bytes:
    """Encode a PUBREL."""
    return b"\x62\x02" + U16.pack(packet_id)


def pubcomp(packet_id: int) -> bytes:
    """Encode a PUBCOMP."""
    return b"\x70\x02" + U16.pack(packet_id)


def connack(code: int, *, session_present: bool = False) -> bytes:
    """Encode a CONNACK."""
    return bytes((0x20, 2, session_present, code))


def suback(packet_id: int, codes: bytes) -> bytes:
    """Encode a SUBACK."""
    return frame(0x90, U16.pack(packet_id) + codes)


def unsuback(packet_id: int) -> bytes:
    """Encode an UNSUBACK."""
    return b"\xb0\x02" + U16.pack(packet_id)


def _located(packet: Any) -> tuple[int, bytes]:
    """Give the flag and the bytes of a packet's location."""
    if packet.location is None:
        return 0, b""
    return LOCATION_FLAG, location_block(packet.location)


def _encode_connect(packet: p.Connect) -> bytes:
    flags = packet.clean_session << 1
    payload = string(packet.client_id)
    if packet.will is not None:
        will = packet.will
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        payload += string(will.topic) + binary(will.payload)
    if packet.username is not None:
        flags |= 0x80
        payload += string(packet.username)
    if packet.password is not None:
        flags |= 0x40
        payload += binary(packet.password)
    flag, location = _located(packet)
    level = packet.level | packet.bridge << 7
    header = string(packet.protocol_name) + bytes((level, flags)) + U16.pack(packet.keep_alive_s)
    return frame(0x10 | flag, header + location + payload)


def _encode_publish(packet: p.Publish) -> bytes:
    flags = packet.dup << 3 | packet.qos << 1 | packet.retain
    body = string(packet.topic)
    if packet.qos:
        body += U16.pack(packet.packet_id)
    if packet.location is not None:
        return frame(0xF0 | flags, body + location_block(packet.location) + packet.payload)
    return frame(0x30 | flags, body + packet.payload)


def _encode_acknowledgement(packet: Any) -> bytes:
    flag, location = _located(packet)
    return frame(_FIRST[type(packet)] | flag, U16.pack(packet.packet_id) + location)


def _encode_subscribe(packet: p.Subscribe) -> bytes:
    flag, location = _located(packet)
    filters = b"".join(string(name) + bytes((qos,)) for name, qos in packet.filters)
    return frame(0x82 | flag, U16.pack(packet.packet_id) + location + filters)


def _encode_unsubscribe(packet: p.Unsubscribe) -> bytes:
    flag, location = _located(packet)
    filters = b"".join(string(name) for name in packet.filters)
    return frame(0xA2 | flag, U16.pack(packet.packet_id) + location + filters)


def _encode_empty(packet: Any) -> bytes:
    flag, location = _located(packet)
    return frame(_FIRST[type(packet)] | flag, location)


_FIRST = {
    p.Puback: 0x40, p.Pubrec: 0x50, p.Pubrel: 0x62, p.Pubcomp: 0x70,
    p.Pingreq: 0xC0, p.Disconnect: 0xE0,
}  # fmt: skip

_ENCODERS: dict[type, Any] = {
    p.Connect: _encode_connect,
    p.Connack: lambda packet: connack(packet.code, session_present=packet.session_present),
    p.Publish: _encode_publish,
    p.Puback: _encode_acknowledgement,
    p.Pubrec: _encode_acknowledgement,
    p.Pubrel: _encode_acknowledgement,
    p.Pubcomp: _encode_acknowledgement,
    p.Subscribe: _encode_subscribe,
    p.Suback: lambda packet: suback(packet.packet_id, bytes(packet.codes)),
    p.Unsubscribe: _encode_unsubscribe,
    p.Unsuback: lambda packet: unsuback(packet.packet_id),
    p.Pingreq: _encode_empty,
    p.Pingresp: lambda packet: PINGRESP,
    p.Disconnect: _encode_empty,
}
