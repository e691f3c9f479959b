"""What travels behind the handlers: one published message, whatever door it came through.

A `Message` is made once when it is accepted and shared by everybody who gets it, so
nobody changes one: `message.replace(...)` makes another. `geo` is what the event itself
carries of place and time; it is None for a plain PUBLISH.
"""

from typing import Any, Self

from protocol.geo import Geo, Location


class Message:
    """A published message with all that matching, delivery, logging and plugins need."""

    __slots__ = (
        "client_id",
        "geo",
        "payload",
        "publisher",
        "qos",
        "received_ms",
        "retain",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        client_id: str = "",
        received_ms: int = 0,
        geo: Geo | None = None,
        publisher: Location | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.client_id = client_id  # "" is the broker itself
        self.received_ms = received_ms  # Unix time of receipt
        self.geo = geo
        # Where the publisher was known to be on arrival: for matching, never shown to anybody.
        self.publisher = publisher

    def replace(self, **changes: Any) -> Self:
        """Make a copy with some fields changed."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        fields.update(changes)
        return type(self)(**fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Message({self.topic!r}, {len(self.payload)} bytes, qos={self.qos}, "
            f"retain={self.retain}, client_id={self.client_id!r}, geo={self.geo!r})"
        )
