"""PUBLISH packets of QoS 0 and 1 as they came off the wire, taken apart in the writer process.

The broker has checked them; here they are only cut.
"""

from typing import NamedTuple

import numpy

from plugins.event_log.records import MessageRecord
from plugins.event_log.schema import QOS_MASK, RETAIN_FLAG

MIN_UNIFORM = 6  # below it, rows one by one are no slower than a statement of their own


class Uniform(NamedTuple):
    """Packets that differ in nothing but their payloads."""

    topic: bytes
    flags: int
    size: int  # of a packet
    payload_start: int


def uniform(frames: bytes, count: int) -> Uniform | None:
    """Tell whether packets have one size and one topic, and where the payload begins."""
    size, rest = divmod(len(frames), count)
    if rest or count < MIN_UNIFORM:
        return None
    start, end, topic_end = _cut(frames, 0)
    if end != size:
        return None
    bytes_of_all = numpy.frombuffer(frames, numpy.uint8).reshape(count, size)[:, :topic_end]
    # With the header of the first in front of each, every packet ends where the next begins.
    if not (bytes_of_all == bytes_of_all[0]).all():
        return None
    first_byte = frames[0]
    payload_start = topic_end + _packet_id_bytes(first_byte)
    return Uniform(frames[start + 2 : topic_end], _flags(first_byte), size, payload_start)


def decode_frames(received_ms: int, client_id: str, frames: bytes) -> list[MessageRecord]:
    """Make a record of every packet."""
    records: list[MessageRecord] = []
    append = records.append
    offset = 0
    while offset < len(frames):
        start, end, topic_end = _cut(frames, offset)
        first_byte = frames[offset]
        append(
            (
                received_ms,
                frames[start + 2 : topic_end],
                frames[topic_end + _packet_id_bytes(first_byte) : end],
                _flags(first_byte),
                client_id,
                None,
                None,
                None,
                None,
            )
        )
        offset = end
    return records


def _cut(frames: bytes, offset: int) -> tuple[int, int, int]:
    """Find where the body of a packet starts, where it ends and where its topic ends."""
    length = frames[offset + 1]
    start = offset + 2
    if length > 0x7F:
        length &= 0x7F
        shift = 7
        while (byte := frames[start]) > 0x7F:
            length |= (byte & 0x7F) << shift
            shift += 7
            start += 1
        length |= byte << shift
        start += 1
    return start, start + length, start + 2 + (frames[start] << 8 | frames[start + 1])


def _packet_id_bytes(first_byte: int) -> int:
    return 2 if first_byte & 0x06 else 0


def _flags(first_byte: int) -> int:
    qos = first_byte >> 1 & QOS_MASK
    return qos | RETAIN_FLAG if first_byte & 0x01 else qos
