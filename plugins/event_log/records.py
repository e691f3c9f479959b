"""How the broker hands accepted events to the writer process.

A batch is `length u32, sequence u64, events u32` and `length` bytes of marshal: a list of
records, each a tuple that begins with the time of receipt.

    (received_ms, client_id, frames, count)              PUBLISH packets as they came
    (received_ms, topic, payload, flags, client_id,      one message
     start_ms, x, y, extra)

`start_ms` is None for an event without a time of its own, `x` and `y` are None for one
without a place, `extra` is None unless a point and an instant do not say all: see `Extra`.
Marshal is what the interpreter itself reads and writes compiled code with; both ends are
this interpreter, and the pipe between them is theirs alone.

The writer answers with acknowledgements of `sequence u64, events u64, lost u64`: everything
up to that batch is committed, so many events were written since the last one, and so many
could not be.
"""

import marshal
from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

import shapely

from plugins.event_log.schema import GEO_FLAG, RETAIN_FLAG
from protocol.geo import Geo
from protocol.geometry import Place
from protocol.message import Message

HEADER = Struct("<IQI")
ACKNOWLEDGEMENT = Struct("<QQQ")
READY = 0  # the sequence of the first acknowledgement of a writer; batches count from 1
_MARSHAL_VERSION = 2  # from 3 on every object is looked up in a table, for sharing

MessageRecord = tuple[
    int, str | bytes, bytes, int, str, int | None, float | None, float | None, Any
]


class Extra(NamedTuple):
    """What a point and an instant do not say."""

    end_ms: int | None = None  # None: an instant
    wkb: bytes | None = None  # None: a point without elevation, or no place
    max_x: float | None = None  # x and y are the other corner, 180 may lie between; None: a point
    max_y: float | None = None
    epsg: int | None = None  # None: sent in EPSG:4326
    form: int = 0  # of the geometry as sent, if that was not 4326
    raw: bytes = b""


def message_record(message: Message) -> MessageRecord:
    """Make the record of a message: its own place and time, never the publisher's."""
    flags = message.qos | RETAIN_FLAG if message.retain else message.qos
    geo = message.geo
    if geo is None:
        return (
            message.received_ms,
            message.topic,
            message.payload,
            flags,
            message.client_id,
            None,
            None,
            None,
            None,
        )
    start_ms = x = y = end_ms = extra = None
    if geo.time is not None:
        start_ms, end_ms = geo.time
        if end_ms == start_ms:
            end_ms = None
    place = geo.place
    if place is not None:
        flags |= GEO_FLAG
        x = place.x
        y = place.y
        if not place.is_point or place.z is not None or geo.epsg != 4326:
            extra = _extra(geo, place, end_ms)
    if extra is None and end_ms is not None:
        extra = Extra(end_ms)
    return (
        message.received_ms,
        message.topic,
        message.payload,
        flags,
        message.client_id,
        start_ms,
        x,
        y,
        None if extra is None else tuple(extra),
    )


def _extra(geo: Geo, place: Place, end_ms: int | None) -> Extra:
    extra = Extra(end_ms)
    if not place.is_point:
        _, _, max_x, max_y = place.bounds
        extra = extra._replace(wkb=shapely.to_wkb(place.geometry), max_x=max_x, max_y=max_y)
    elif place.z is not None:
        extra = extra._replace(wkb=shapely.to_wkb(place.geometry))
    if geo.epsg != 4326:
        extra = extra._replace(epsg=geo.epsg, form=geo.geometry_form, raw=geo.geometry_raw)
    return extra


def encode_batch(sequence: int, events: int, records: list[Any]) -> bytes:
    """Make the bytes of a batch."""
    body = marshal.dumps(records, _MARSHAL_VERSION)
    return HEADER.pack(len(body), sequence, events) + body


class Batch(NamedTuple):
    """A batch as the writer got it."""

    sequence: int
    events: int
    body: bytes

    def records(self) -> list[Any]:
        """Decode the records."""
        records: list[Any] = marshal.loads(self.body)
        return records


class BatchReader:
    """Cuts the stream from the broker into batches."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive_data(self, data: bytes) -> Iterator[Batch]:
        """Yield every batch that is complete."""
        buffer = self._buffer
        buffer += data
        offset = 0
        while len(buffer) - offset >= HEADER.size:
            length, sequence, events = HEADER.unpack_from(buffer, offset)
            end = offset + HEADER.size + length
            if end > len(buffer):
                break
            yield Batch(sequence, events, bytes(buffer[offset + HEADER.size : end]))
            offset = end
        del buffer[:offset]
