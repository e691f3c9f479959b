"""The fast lane for geo events: GEOPUBLISHes of QoS 0 with an instant and a point in degrees.

    F6 | length | 30 | topic | 09 | time i64 | x f64, y f64 | payload

Such a frame is what a subscriber gets "as published", to the byte. So place and time are
read straight from the buffer, all frames of a read are matched together, and each goes
into the outboxes of those who asked for it in that form. If a receiver asked for another
form, or filters by fences of its own, that one event is delivered as a message.

A frame passes here only on topics that nobody but geo subscribers listens to, and when no
plugin must be asked; every other frame is left to the ordinary path.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from broker.matching.probe import Probe
from protocol.envelope import read_geo
from protocol.geometry_place import Place
from protocol.message import Message
from protocol.topic_fields import known_topics

if TYPE_CHECKING:
    from broker.link import Link
    from broker.matching.fences import FenceIndex
    from broker.subscription import GeoSubscription

Indexes = tuple["FenceIndex[GeoSubscription]", ...]

_TIME_AND_POINT = Struct(">qdd")
INSTANT_AND_POINT = 0x09  # the flags byte


class Run:
    """Frames behind each other that the same indexes decide about."""

    __slots__ = ("indexes", "probes", "spans")

    def __init__(self, indexes: Indexes) -> None:
        self.indexes = indexes
        self.spans: list[tuple[int, int, int, int]] = []  # frame, topic, its end, frame's end
        self.probes: list[Probe] = []


def forward_geo(link: Link, buffer: bytes, offset: int) -> int:
    """Forward the geo frames at `offset` that may pass, and tell where the first other starts."""
    if not link.joined.geo_aware or link.settled is not None:
        return offset
    run, end = _read_run(link, buffer, offset)
    if run is not None:
        _deliver_run(link, buffer, run)
    return end


def _read_run(link: Link, buffer: bytes, offset: int) -> tuple[Run | None, int]:
    routes = link.broker.router.geo_routes
    max_packet_size = link.broker.max_packet_size
    publisher = link.joined.place
    size = len(buffer)
    run: Run | None = None
    while size - offset > 30 and buffer[offset] == 0xF6:
        length = buffer[offset + 1]
        body = offset + 2
        if length > 0x7F:
            byte = buffer[body]
            if byte > 0x7F or not byte:
                break
            length = length & 0x7F | byte << 7
            body += 1
        end = body + length
        if end > size or end - offset > max_packet_size or buffer[body] != 0x30:
            break
        after_topic = body + 3 + (buffer[body + 1] << 8 | buffer[body + 2])
        if after_topic + 25 > end or buffer[after_topic] != INSTANT_AND_POINT:
            break
        indexes = routes.get(buffer[body + 3 : after_topic])
        if indexes is None:
            break
        if run is None:
            run = Run(indexes)
        elif run.indexes != indexes:
            break
        ms, x, y = _TIME_AND_POINT.unpack_from(buffer, after_topic + 1)
        if not (-180.0 <= x < 180.0 and -90.0 <= y <= 90.0):
            break
        run.spans.append((offset, body + 3, after_topic, end))
        run.probes.append(Probe(Place(x, y), publisher, ms, ms))
        offset = end
    return run, offset


def _deliver_run(link: Link, buffer: bytes, run: Run) -> None:
    broker = link.broker
    unsent = broker.unsent
    sent = sent_bytes = 0
    matched = run.indexes[0].match_batch(run.probes)
    for index in run.indexes[1:]:
        for found, more in zip(matched, index.match_batch(run.probes), strict=True):
            found.extend(more)
    for span, probe, found in zip(run.spans, run.probes, matched, strict=True):
        message = _message(link, buffer, span) if broker.hooks.on_accepted else None
        if _as_they_came(found):
            frame = buffer[span[0] : span[3]]
            # Once for each client, whichever of its subscriptions match.
            for session in dict.fromkeys([each.session for each in found]):
                to = session.link
                if to is None:
                    continue
                if to.congested:
                    to.drop(1)
                    continue
                if not to.outbox:
                    unsent.append(to)
                to.outbox.append(frame)
                sent += 1
                sent_bytes += len(frame)
        else:
            message = message or _message(link, buffer, span)
            broker.router.deliver_found(message, probe, found, ())
        if message is not None and broker.hooks.on_accepted:
            broker.accepted(message)
    if run.spans:
        size = run.spans[-1][3] - run.spans[0][0]
        broker.counters.count_publishes(len(run.spans), size, sent, sent_bytes)


def _as_they_came(found: list[GeoSubscription]) -> bool:
    """Tell whether all receivers of an event get the very frame."""
    for each in found:
        session = each.session
        if not each.as_published or session.fences or not session.takes_frames:
            return False
    return True


def _message(link: Link, buffer: bytes, span: tuple[int, int, int, int]) -> Message:
    """Make the message that the ordinary path would have made."""
    _, topic_start, topic_end, end = span
    session = link.joined
    geo, _, payload_start = read_geo(buffer, topic_end)
    return Message(
        known_topics[buffer[topic_start:topic_end]],
        buffer[payload_start:end],
        0,
        False,
        session.client_id,
        link.broker.read_ms,
        geo,
        session.location,
    )
