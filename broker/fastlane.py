"""The fast lane: the commonest traffic, forwarded as the bytes it came in.

Four kinds of frames pass here, each in runs, when nothing else could care:

    30  PUBLISH, QoS 0      runs with the same header go out in one piece
    32  PUBLISH, QoS 1      to connected sessions with room in their window
    40  PUBACK              of a session with nothing in its queue
    F6  GEOPUBLISH          of a point: see geolane.py

Nothing else could care when the topic's route is known and holds plain subscribers only,
nothing is retained, and no plugin must be asked, or all that are have settled it for this
client and topic (`link.settled`; routes hold only those who may receive). Whatever frame
does not qualify is left to the ordinary path, one frame at a time; the two deliver the
same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.delivery import Delivery
from broker.geolane import forward_geo
from plugins.api import FrameRun
from protocol.message import Message
from protocol.topic_fields import known_topics

if TYPE_CHECKING:
    from broker.link import Link
    from broker.session import InFlight

# A clean session never sends anything again, so its window needs no more than the id.
FORWARDED: InFlight = (Delivery(Message("", b"", 1), 1), 0)


def forward(link: Link, buffer: bytes, offset: int) -> int:
    """Forward the frames at `offset` that may pass, and tell where the first other one starts."""
    size = len(buffer)
    while offset + 4 <= size:
        first = buffer[offset]
        if first == 0x30:
            end = _forward_qos0(link, buffer, offset)
        elif first == 0x32:
            end = _forward_qos1(link, buffer, offset)
        elif first == 0x40:
            end = _take_pubacks(link, buffer, offset)
        elif first == 0xF6:
            end = forward_geo(link, buffer, offset)
        else:
            return offset
        if end == offset:
            return offset
        offset = end
    return offset


def _forward_qos0(link: Link, buffer: bytes, offset: int) -> int:
    broker = link.broker
    routes = broker.router.fast_routes
    max_packet_size = broker.max_packet_size
    unsent = broker.unsent
    settled = link.settled
    size = len(buffer)
    begin = offset
    received = sent = sent_bytes = 0
    while size - offset > 4 and buffer[offset] == 0x30:
        length = buffer[offset + 1]
        body = offset + 2
        if length > 0x7F:
            byte = buffer[body]
            if byte > 0x7F or not byte:
                break  # 16 KiB and more: the copy costs more than the lane saves; 0: malformed
            length = length & 0x7F | byte << 7
            body += 1
        end = body + length
        if end > size or end - offset > max_packet_size:
            break
        after_topic = body + 2 + (buffer[body] << 8 | buffer[body + 1])
        if after_topic > end:
            break
        topic = buffer[body + 2 : after_topic]
        receivers = routes.get(topic)
        if receivers is None or (settled is not None and topic not in settled):
            break
        # Frames with the same header (length and topic) have the same receivers.
        step = end - offset
        header = buffer[offset:after_topic]
        count = 1
        start, offset = offset, end
        while buffer.startswith(header, offset) and offset + step <= size:
            offset += step
            count += 1
        received += count
        piece = buffer[start:offset]
        for session, _ in receivers:
            to = session.link
            if to is None:
                continue
            if to.congested:
                to.drop(count)
                continue
            if not to.outbox:
                unsent.append(to)
            to.outbox.append(piece)
            sent += count
            sent_bytes += offset - start
    if received:
        _count(link, buffer[begin:offset], received, sent, sent_bytes)
    return offset


def _forward_qos1(link: Link, buffer: bytes, offset: int) -> int:
    broker = link.broker
    routes = broker.router.fast_routes
    max_packet_size = broker.max_packet_size
    max_inflight = broker.max_inflight
    unsent = broker.unsent
    settled = link.settled
    store = broker.store
    outbox = link.outbox
    size = len(buffer)
    begin = offset
    received = sent = sent_bytes = told = 0
    while size - offset > 6 and buffer[offset] == 0x32:
        length = buffer[offset + 1]
        body = offset + 2
        if length > 0x7F:
            byte = buffer[body]
            if byte > 0x7F or not byte:
                break
            length = length & 0x7F | byte << 7
            body += 1
        end = body + length
        if end > size or end - offset > max_packet_size:
            break
        after_topic = body + 2 + (buffer[body] << 8 | buffer[body + 1])
        after_id = after_topic + 2
        if after_id > end:
            break
        topic = buffer[body + 2 : after_topic]
        receivers = routes.get(topic)
        packet_id = buffer[after_topic:after_id]
        if receivers is None or packet_id == b"\0\0":
            break
        if settled is not None and topic not in settled:
            break
        delivery = None
        for session, qos in receivers:
            to = session.link
            if (
                not qos
                or to is None
                or to.congested
                or session.queue
                or len(session.in_flight) >= max_inflight
            ):
                break
            if not session.clean and delivery is None:
                if store.failing:
                    break
                told = store.told
                delivery = _delivery(link, topic, buffer[after_id:end])
        else:
            if not outbox:
                unsent.append(link)
            outbox.append(b"\x40\x02" + packet_id)
            received += 1
            for session, _ in receivers:
                to = session.link
                assert to is not None
                in_flight = session.in_flight
                number = session.next_id % 65_535 + 1
                if number in in_flight:
                    number = session.take_id()
                session.next_id = number
                if delivery is None or session.clean:
                    in_flight[number] = FORWARDED
                else:
                    row = 0
                    if session.row:
                        row = store.add_outgoing(session, delivery, number)
                        to.hold()
                    in_flight[number] = (delivery, row)
                if not to.outbox:
                    unsent.append(to)
                to.outbox.append(
                    buffer[offset:after_topic] + number.to_bytes(2, "big") + buffer[after_id:end]
                )
                sent += 1
                sent_bytes += end - offset
            if delivery is not None and store.told != told:
                link.hold()
                store.depends(link)
            offset = end
            continue
        break
    if received:
        broker.counters.control_sent += received
        _count(link, buffer[begin:offset], received, sent, sent_bytes)
    return offset


def _count(link: Link, frames: bytes, received: int, sent: int, sent_bytes: int) -> None:
    """Count what the lane has forwarded, and show it to plugins."""
    broker = link.broker
    broker.counters.count_publishes(received, len(frames), sent, sent_bytes)
    if broker.hooks.on_accepted and link.client is not None:
        broker.accepted(FrameRun(link.client.client_id, broker.read_ms, frames, received))


def _delivery(link: Link, topic: bytes, payload: bytes) -> Delivery:
    """Make what a session that outlives its link must keep of a message."""
    name = known_topics.get(topic) or topic.decode()
    session, read_ms = link.joined, link.broker.read_ms
    return Delivery(
        Message(name, payload, 1, False, session.client_id, read_ms, None, session.location), 1
    )


def _take_pubacks(link: Link, buffer: bytes, offset: int) -> int:
    session = link.joined
    if session.queue:
        return offset
    in_flight = session.in_flight
    size = len(buffer)
    begin = offset
    while size - offset >= 4 and buffer[offset] == 0x40 and buffer[offset + 1] == 2:
        number = buffer[offset + 2] << 8 | buffer[offset + 3]
        entry = in_flight.get(number)
        if entry is not FORWARDED:
            if entry is None or entry[0] is None or entry[0].qos != 1:
                break
            if entry[1]:
                link.broker.store.remove_outgoing(entry[1])
        del in_flight[number]
        offset += 4
    link.broker.counters.packets_received += (offset - begin) >> 2
    return offset
