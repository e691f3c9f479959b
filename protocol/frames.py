"""Where one packet ends and the next begins.

`next_frame` looks at a buffer and finds the packet at an offset without copying it;
`FrameReader` keeps the unfinished rest between two reads.
"""

from collections.abc import Iterator

from protocol.errors import MalformedPacket, PacketTooLarge


def next_frame(buffer: bytes, offset: int, max_packet_size: int) -> tuple[int, int] | None:
    """Find where the body of the packet at `offset` starts and ends.

    None means that the packet is not complete yet. A length beyond the limit is refused as
    soon as it can be read, before its bytes are held.
    """
    size = len(buffer)
    if size - offset < 2:
        return None
    length = buffer[offset + 1]
    start = offset + 2
    if length > 0x7F:
        length &= 0x7F
        shift = 7
        while True:
            if shift > 21:
                raise MalformedPacket("remaining length of more than four bytes")
            if start >= size:
                return None
            byte = buffer[start]
            start += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                if not byte:
                    raise MalformedPacket("remaining length padded with zeros")
                break
            shift += 7
    end = start + length
    if end - offset > max_packet_size:
        raise PacketTooLarge(end - offset, max_packet_size)
    return (start, end) if end <= size else None


class FrameReader:
    """Cuts a stream of bytes into packets; used by clients, the broker inlines it."""

    def __init__(self, max_packet_size: int) -> None:
        self._rest = b""
        self._max_packet_size = max_packet_size

    def receive_data(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the first byte and the body of every packet that is complete."""
        buffer = self._rest + data
        offset = 0
        try:
            while (found := next_frame(buffer, offset, self._max_packet_size)) is not None:
                start, end = found
                first = buffer[offset]
                offset = end
                yield first, buffer[start:end]
        finally:
            self._rest = buffer[offset:]
