"""Messages as the store writes them, and back.

The column `geo` holds what a message carries of place and time: a byte that says what
follows, the publisher's location on arrival, and the fields of a GEOPUBLISH as published.
"""

from struct import Struct
from typing import Any

from protocol.envelope import geo_fields, read_geo
from protocol.geo import Location
from protocol.message import Message
from protocol.mqttg import ACCEPTED

_HAS_PUBLISHER, _HAS_GEO = 1, 2
_LOCATION = Struct(">ddd")


def message_values(message: Message) -> tuple[Any, ...]:
    """Give a message as the columns topic, payload, qos, retain, client_id, received_ms, geo."""
    return (
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.client_id,
        message.received_ms,
        _geo_column(message),
    )


def _geo_column(message: Message) -> bytes | None:
    geo, publisher = message.geo, message.publisher
    if geo is None and publisher is None:
        return None
    flags, column = 0, b""
    if publisher is not None:
        flags |= _HAS_PUBLISHER
        column = _LOCATION.pack(publisher.lat, publisher.lon, publisher.elev)
    if geo is not None:
        flags |= _HAS_GEO
        column += geo_fields(geo)
    return bytes((flags,)) + column


def message_from(values: tuple[Any, ...]) -> Message:
    """Make a message from its columns."""
    topic, payload, qos, retain, client_id, received_ms, column = values
    publisher = geo = None
    if column is not None:
        flags, offset = column[0], 1
        if flags & _HAS_PUBLISHER:
            publisher = Location(*_LOCATION.unpack_from(column, offset))
            offset += _LOCATION.size
        if flags & _HAS_GEO:
            geo, _, _ = read_geo(column, offset, ACCEPTED)
    return Message(topic, payload, qos, bool(retain), client_id, received_ms, geo, publisher)
