"""What a load looks like on the wire: frames of one size each way, and who receives which.

A `Traffic` is all that the measured loop needs to know, so a new kind of load (another packet,
another pattern) is another function from a row to a `Plan`; the loop stays as it is.

Every payload begins with a stamp that comes back with each delivery:

    publisher uint32 | number uint64 | time of sending, ns, uint64      (little-endian)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Exchange = tuple[bytes, bytes]  # a request, and the only answer that will do

STAMP = np.dtype([("publisher", "<u4"), ("number", "<u8"), ("sent_ns", "<u8")])
PAYLOAD_SIZE = 64


@dataclass(frozen=True)
class Traffic:
    """Frames to publish, the shape of what comes back, and the pattern between them.

    Message n of publisher p is `frames[p, n % templates]`, stamped. It goes to the
    `subscriber_count[p]` subscribers from `first_subscriber[p]` on; where `steps` is given,
    only to some of them: after message n, subscriber s next gets n + steps[n % templates, s],
    and the first one it gets is `first_number[s]`.
    """

    frames: NDArray[np.uint8]  # publishers x templates x frame size
    out_stamp: int  # offset of the stamp in a published frame
    out_id: int  # offset of the packet id; -1 at QoS 0
    in_prefix: bytes  # how every delivery begins
    in_frame: int  # size of every delivery
    in_stamp: int
    in_id: int  # -1 when deliveries are not acknowledged
    window: int  # messages under way, for each publisher
    first_subscriber: NDArray[np.int32]
    subscriber_count: NDArray[np.int32]
    subscribers: int
    steps: NDArray[np.uint32] | None = None
    first_number: NDArray[np.uint64] | None = None

    @property
    def publishers(self) -> int:
        return int(self.frames.shape[0])

    @property
    def templates(self) -> int:
        return int(self.frames.shape[1])


@dataclass(frozen=True)
class Plan:
    """A whole load: what is published, and what each connection subscribes to before."""

    traffic: Traffic
    subscribers: list[list[Exchange]]
    others: list[list[Exchange]] = field(default_factory=list)  # connections that get nothing
    clean: bool = True  # whether the subscribers' sessions end with their connections
    # Subscriptions that one more connection makes when all others are there, and their number.
    late: list[Exchange] = field(default_factory=list)
    late_count: int = 0


def varint(number: int) -> bytes:
    """Encode a remaining length (section 2.2.3)."""
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        out.append(low | (128 if number else 0))
        if not number:
            return bytes(out)


def string(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint(len(body)) + body


def connect_packet(client_id: str, *, clean: bool = True) -> bytes:
    return packet(
        0x10,
        string("MQTT")
        + bytes([4, 2 if clean else 0])
        + (600).to_bytes(2, "big")
        + string(client_id),
    )


def subscribe(filters: Sequence[str], qos: int) -> Exchange:
    """Make a SUBSCRIBE, and the SUBACK that grants all of it."""
    wanted = b"".join(string(text) + bytes([qos]) for text in filters)
    granted = bytes([qos]) * len(filters)
    return packet(0x82, b"\0\1" + wanted), packet(0x90, b"\0\1" + granted)


def publish_packet(topic: str, qos: int, payload: bytes = bytes(PAYLOAD_SIZE)) -> bytes:
    packet_id = b"\0\1" if qos else b""
    return packet(0x30 | qos << 1, string(topic) + packet_id + payload)


def plain_traffic(
    topics: Sequence[Sequence[str]], *, qos: int, window: int, subscribers: int, paired: bool
) -> Traffic:
    """PUBLISH at QoS 0 or 1: publisher p walks through topics[p], all names of one length.

    Paired: publisher p's messages go to subscriber p alone; otherwise to every subscriber.
    """
    frames = np.array(
        [[np.frombuffer(publish_packet(t, qos), np.uint8) for t in names] for names in topics]
    )
    size = frames.shape[2]
    stamp = size - PAYLOAD_SIZE
    publishers = len(topics)
    # The delivery of a PUBLISH is the same packet: same topic, same size, same fixed header.
    prefix = frames[0, 0, :2].tobytes()
    return Traffic(
        frames=frames,
        out_stamp=stamp,
        out_id=stamp - 2 if qos else -1,
        in_prefix=prefix,
        in_frame=size,
        in_stamp=stamp,
        in_id=stamp - 2 if qos else -1,
        window=window,
        first_subscriber=np.arange(publishers, dtype=np.int32)
        if paired
        else np.zeros(publishers, np.int32),
        subscriber_count=np.full(publishers, 1 if paired else subscribers, np.int32),
        subscribers=subscribers,
    )
