"""A message as it goes out: with the QoS, retain flag and form somebody gets it in.

One `Delivery` serves every receiver that gets the message in the same way; it is encoded
once, and only the packet id differs from one receiver to the next.
"""

from typing import Protocol

from protocol.encode import publish_parts
from protocol.message import Message

DUP = 0x08


class Form(Protocol):
    """A way to encode a message; geo subscriptions bring their own."""

    @property
    def key(self) -> bytes:
        """What the store writes to find the form again; no two forms have the same."""

    def parts(self, message: Message, flags: int) -> tuple[bytes, bytes]:
        """Make the bytes before and behind the packet id; `flags` is the header's low nibble."""


class PlainForm:
    """An ordinary PUBLISH: place and time are dropped."""

    key = b""

    def parts(self, message: Message, flags: int) -> tuple[bytes, bytes]:
        """Encode the whole message."""
        return publish_parts(0x30 | flags, message.topic.encode(), message.payload)


PLAIN: Form = PlainForm()


class Delivery:
    """One way in which one message goes out."""

    __slots__ = ("_head", "_tail", "form", "message", "qos", "retain")

    def __init__(
        self, message: Message, qos: int, retain: bool = False, form: Form = PLAIN
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
            head, self._tail = self.form.parts(self.message, self.qos << 1 | self.retain)
            if not self.qos:
                head += self._tail
            self._head = head
        if packet_id:
            return head + packet_id.to_bytes(2, "big") + self._tail
        return head

    def again(self, packet_id: int) -> bytes:
        """Encode for a receiver that may have had it before [MQTT-3.3.1-1]."""
        head, tail = self.form.parts(self.message, DUP | self.qos << 1 | self.retain)
        return head + packet_id.to_bytes(2, "big") + tail
