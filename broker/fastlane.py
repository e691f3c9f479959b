"""The fast lane: runs of plain QoS 0 PUBLISHes, forwarded as the bytes they came in.

A frame passes here only when nothing else could care: QoS 0, not retained, a topic whose
route is known and holds plain subscribers only, no plugin that must be asked. Every other
frame is left to the ordinary path, one frame at a time; the two deliver the same.

Frames behind each other with the same header (length and topic) have the same receivers,
so a run of them is found by comparing that header, and goes out in one piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.api import FrameRun

if TYPE_CHECKING:
    from broker.link import Link


def forward(link: Link, buffer: bytes, offset: int) -> int:
    """Forward the frames at `offset` that may pass, and tell where the first other one starts."""
    broker = link.broker
    routes = broker.router.fast_routes
    max_packet_size = broker.config.limits.max_packet_size
    unsent = broker.unsent
    size = len(buffer)
    begin = offset
    received = sent = sent_bytes = 0
    while size - offset > 4 and buffer[offset] == 0x30:
        length = buffer[offset + 1]
        body = offset + 2
        if length > 0x7F:
            byte = buffer[body]
            if byte > 0x7F:
                break  # 16 KiB and more: the copy costs more than the lane saves
            length = length & 0x7F | byte << 7
            body += 1
        end = body + length
        if end > size or end - offset > max_packet_size:
            break
        after_topic = body + 2 + (buffer[body] << 8 | buffer[body + 1])
        if after_topic > end:
            break
        receivers = routes.get(buffer[body + 2 : after_topic])
        if receivers is None:
            break
        step = end - offset
        header = buffer[offset:after_topic]
        count = 1
        start, offset = offset, end
        while buffer.startswith(header, offset) and offset + step <= size:
            offset += step
            count += 1
        received += count
        piece = buffer[start:offset]
        for session in receivers:
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
        counters = broker.counters
        counters.publish_received += received
        counters.packets_received += received
        counters.publish_bytes_received += offset - begin
        counters.publish_sent += sent
        counters.publish_bytes_sent += sent_bytes
        if broker.hooks.on_accepted and link.client is not None:
            frames = buffer[begin:offset]
            broker.accepted(FrameRun(link.client.client_id, broker.read_ms, frames, received))
    return offset
