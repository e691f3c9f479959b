"""A message as it goes out: with the QoS, retain flag and form somebody gets it in.

One `Delivery` serves every receiver that gets the message in the same way; it is encoded
once, and only the packet id differs from one receiver to the next.
"""

from collections.abc import Callable

from protocol.encode import publish_parts
from protocol.message import Message

# Makes the bytes before and behind the packet id, given a message and the fixed header's
# low nibble; geo subscriptions bring their own.
Form = Callable[[Message, int], tuple[bytes, bytes]]

DUP = 0x08


def plain_form(message: Message, flags: int) -> tuple[bytes, bytes]:
    """Encode as an ordinary PUBLISH: place and time are dropped."""
    return publish_parts(0x30 | flags, message.topic.encode(), message.payload)


class Delivery:
    """One way in which one message goes out."""

    __slots__ = ("_head", "_tail", "form", "message", "qos", "retain")

    def __init__(
        self, message: Message, qos: int, retain: bool = False, form: Form = plain_form
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.form = form
        self._head = b""
        self._tail = b""

    @property
    def size(self) -> int:
        """What it counts against a queue's limit in bytes."""
        return len(self.message.topic) + len(self.message.payload)

    def packet(self, packet_id: int = 0) -> bytes:
        """Encode for one receiver; `packet_id` is 0 exactly for QoS 0."""
        head = self._head
        if not head:
            head, self._tail = self.form(self.message, self.qos << 1 | self.retain)
            if not self.qos:
                head += self._tail
            self._head = head
        if packet_id:
            return head + packet_id.to_bytes(2, "big") + self._tail
        return head

    def again(self, packet_id: int) -> bytes:
        """Encode for a receiver that may have had it before [MQTT-3.3.1-1]."""
        head, tail = self.form(self.message, DUP | self.qos << 1 | self.retain)
        return head + packet_id.to_bytes(2, "big") + tail
