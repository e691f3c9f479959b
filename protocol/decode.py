"""From the bytes of one packet to its value: `decode(first, body, dialect)`.

`first` is the first byte of the fixed header and `body` everything behind the remaining
length. Whatever the bytes, the result is a packet or a ProtocolError. Values that only the
broker can judge (may this client do that?) are not judged here.
"""

from collections.abc import Callable
from typing import Any

from protocol import packets as p
from protocol.envelope import decode_geo_from_client, decode_geo_from_server
from protocol.errors import ConnectRefused, MalformedPacket, OutOfOrder
from protocol.fields import read_binary, read_string, read_u8, read_u16
from protocol.geo import Location
from protocol.mqttg import GEO, LOCATION_FLAG, PLAIN, Dialect, read_location
from protocol.topic_fields import (
    known_topics,
    read_packet_id,
    read_topic,
    require_filter,
    require_topic,
)

_LEVELS = {"MQIsdp": (3,), "MQTT": (4,), "GeoMQTT": (4,)}


def decode(first: int, body: bytes, dialect: Dialect = PLAIN) -> Any:
    """Decode a packet from a client, as a server reads it."""
    decoder = _FROM_CLIENT[first >> 4]
    if decoder is None:
        raise OutOfOrder(f"{p.NAMES[first >> 4]} is not for clients to send")
    return decoder(first, body, dialect)


def decode_from_server(first: int, body: bytes, dialect: Dialect = GEO) -> Any:
    """Decode a packet from a server, as a client reads it."""
    decoder = _FROM_SERVER[first >> 4]
    if decoder is None:
        raise OutOfOrder(f"{p.NAMES[first >> 4]} is not for servers to send")
    return decoder(first, body, dialect)


def _split_location(
    first: int, flags: int, body: bytes, header: int, dialect: Dialect
) -> tuple[bytes, Location | None]:
    """Check the flags of a packet and take a location out of its body.

    `header` is the size of the variable header that stands before the location.
    """
    if first & 0x0F == flags:  # [MQTT-2.2.2-2]
        return body, None
    if not dialect.geo or first & 0x0F != flags | LOCATION_FLAG:
        raise MalformedPacket(f"{p.NAMES[first >> 4]} with flags {first & 0x0F:#x}")
    start = 0 if dialect.location_after_fixed_header else header
    location, end = read_location(body, start, little_endian=dialect.little_endian)
    return body[:start] + body[end:], location


def _decode_connect(first: int, body: bytes, dialect: Dialect) -> p.Connect:
    location: Location | None = None
    if dialect.location_after_fixed_header or first & 0x0F == 0:
        body, location = _split_location(first, 0, body, 0, dialect)
    name, offset = read_string(body, 0)
    if name not in _LEVELS or (name == "GeoMQTT" and not dialect.geo):
        raise MalformedPacket(f"unknown protocol {name[:20]!r}")  # [MQTT-3.1.2-1]
    level, offset = read_u8(body, offset)
    bridge = bool(level & 0x80)
    if level & 0x7F not in _LEVELS[name]:  # [MQTT-3.1.2-2]
        raise ConnectRefused(p.UNACCEPTABLE_PROTOCOL, f"unsupported protocol level {level & 0x7F}")
    level &= 0x7F
    flags, offset = read_u8(body, offset)
    keep_alive_s, offset = read_u16(body, offset)
    if first & 0x0F and not dialect.location_after_fixed_header:
        body, location = _split_location(first, 0, body, offset, dialect)
    if flags & 0x01:
        raise MalformedPacket("CONNECT with its reserved flag set")  # [MQTT-3.1.2-3]
    client_id, offset = read_string(body, offset)
    will = None
    if flags & 0x04:
        topic, offset = read_string(body, offset)
        payload, offset = read_binary(body, offset)
        qos = flags >> 3 & 3
        if qos == 3:
            raise MalformedPacket("will with QoS 3")  # [MQTT-3.1.2-14]
        require_topic(topic, dialect)
        will = p.Will(topic, payload, qos, bool(flags & 0x20))
    elif flags & 0x38:
        raise MalformedPacket("will flags without a will")  # [MQTT-3.1.2-11], -13, -15
    username = password = None
    if flags & 0x80:
        username, offset = read_string(body, offset)
    if flags & 0x40:
        if username is None and level == 4:
            raise MalformedPacket("password without a user name")  # [MQTT-3.1.2-22]
        password, offset = read_binary(body, offset)
    if offset != len(body):
        raise MalformedPacket("CONNECT longer than its fields")
    clean_session = bool(flags & 0x02)
    if not client_id and (level == 3 or not clean_session):  # [MQTT-3.1.3-8]
        raise ConnectRefused(p.IDENTIFIER_REJECTED, "empty client id needs a clean session")
    return p.Connect(
        client_id, name, level, clean_session, keep_alive_s, username, password, will, bridge,
        location,
    )  # fmt: skip


def _decode_publish(first: int, body: bytes, dialect: Dialect) -> p.Publish:
    qos = first >> 1 & 3
    if qos == 3:
        raise MalformedPacket("PUBLISH with QoS 3")  # [MQTT-3.3.1-4]
    raw, offset = read_binary(body, 0)
    topic = known_topics.get(raw) or read_topic(raw, dialect)
    packet_id = 0
    if qos:
        packet_id, offset = read_u16(body, offset)
        if packet_id == 0:
            raise MalformedPacket("PUBLISH with packet id 0")  # [MQTT-2.3.1-1]
    elif first & 8:
        raise MalformedPacket("PUBLISH with QoS 0 and DUP")  # [MQTT-3.3.1-2]
    return p.Publish(topic, body[offset:], qos, first & 1 == 1, first & 8 == 8, packet_id)


def _acknowledgement(kind: Any, flags: int) -> Callable[[int, bytes, Dialect], Any]:
    def decode_acknowledgement(first: int, body: bytes, dialect: Dialect) -> Any:
        location = None
        if first & 0x0F != flags:
            body, location = _split_location(first, flags, body, 2, dialect)
        if len(body) != 2:
            raise MalformedPacket(f"{kind.__name__.upper()} of {len(body)} bytes")
        packet_id = body[0] << 8 | body[1]
        if packet_id == 0:
            raise MalformedPacket(f"{kind.__name__.upper()} with packet id 0")
        return kind(packet_id, location)

    return decode_acknowledgement


def _decode_subscribe(first: int, body: bytes, dialect: Dialect) -> p.Subscribe:
    body, location = _split_location(first, 2, body, 2, dialect)  # [MQTT-3.8.1-1]
    packet_id, offset = read_packet_id(body)
    filters = []
    while offset < len(body):
        topic_filter, offset = read_string(body, offset)
        require_filter(topic_filter, dialect)
        qos, offset = read_u8(body, offset)
        if qos > 2:
            raise MalformedPacket(f"SUBSCRIBE asks for QoS {qos}")  # [MQTT-3.8.3-4]
        filters.append((topic_filter, qos))
    if not filters:
        raise MalformedPacket("SUBSCRIBE without a topic filter")  # [MQTT-3.8.3-3]
    return p.Subscribe(packet_id, tuple(filters), location)


def _decode_unsubscribe(first: int, body: bytes, dialect: Dialect) -> p.Unsubscribe:
    body, location = _split_location(first, 2, body, 2, dialect)  # [MQTT-3.10.1-1]
    packet_id, offset = read_packet_id(body)
    filters = []
    while offset < len(body):
        topic_filter, offset = read_string(body, offset)
        require_filter(topic_filter, dialect)
        filters.append(topic_filter)
    if not filters:
        raise MalformedPacket("UNSUBSCRIBE without a topic filter")  # [MQTT-3.10.3-2]
    return p.Unsubscribe(packet_id, tuple(filters), location)


def _empty(kind: Any) -> Callable[[int, bytes, Dialect], Any]:
    def decode_empty(first: int, body: bytes, dialect: Dialect) -> Any:
        body, location = _split_location(first, 0, body, 0, dialect)
        if body:
            raise MalformedPacket(f"{kind.__name__.upper()} of {len(body)} bytes")
        return kind(location)

    return decode_empty


def _decode_connack(first: int, body: bytes, dialect: Dialect) -> p.Connack:
    if first != 0x20 or len(body) != 2 or body[0] > 1:
        raise MalformedPacket("CONNACK that is none")
    return p.Connack(body[1], body[0] == 1)


def _decode_suback(first: int, body: bytes, dialect: Dialect) -> p.Suback:
    if first != 0x90 or len(body) < 3:
        raise MalformedPacket("SUBACK that is none")
    packet_id, offset = read_packet_id(body)
    codes = tuple(body[offset:])
    if not {0, 1, 2, p.SUBSCRIBE_FAILURE}.issuperset(codes):  # [MQTT-3.9.3-2]
        raise MalformedPacket("SUBACK with a reserved code")
    return p.Suback(packet_id, codes)


def _decode_unsuback(first: int, body: bytes, dialect: Dialect) -> p.Unsuback:
    if first != 0xB0 or len(body) != 2:
        raise MalformedPacket("UNSUBACK that is none")
    return p.Unsuback(read_packet_id(body)[0])


def _decode_pingresp(first: int, body: bytes, dialect: Dialect) -> p.Pingresp:
    if first != 0xD0 or body:
        raise MalformedPacket("PINGRESP that is none")
    return p.Pingresp()


Decoder = Callable[[int, bytes, Dialect], Any] | None

_PUBACK = _acknowledgement(p.Puback, 0)
_PUBREC = _acknowledgement(p.Pubrec, 0)
_PUBREL = _acknowledgement(p.Pubrel, 2)  # [MQTT-3.6.1-1]
_PUBCOMP = _acknowledgement(p.Pubcomp, 0)

_FROM_CLIENT: list[Decoder] = [
    None, _decode_connect, None, _decode_publish, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP,
    _decode_subscribe, None, _decode_unsubscribe, None, _empty(p.Pingreq), None,
    _empty(p.Disconnect), decode_geo_from_client,
]  # fmt: skip
_FROM_SERVER: list[Decoder] = [
    None, None, _decode_connack, _decode_publish, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP,
    None, _decode_suback, None, _decode_unsuback, None, _decode_pingresp, None,
    decode_geo_from_server,
]  # fmt: skip
