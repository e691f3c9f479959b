"""One subscription of one session, whatever packet it came in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.topics import parse_share

if TYPE_CHECKING:
    from broker.session import Session


class Subscription:
    """What a session asked for, under the key by which it can be taken back.

    `topic_filter` is the filter that topics are matched with; `group` is set for a shared
    subscription, `geo` for one with a spatial or temporal condition.
    """

    __slots__ = ("deliver", "geo", "group", "key", "order", "qos", "session", "topic_filter")

    def __init__(
        self,
        session: Session,
        key: Any,
        topic_filter: str,
        qos: int,
        group: str | None = None,
        geo: Any = None,
    ) -> None:
        self.session = session
        self.key = key
        self.topic_filter = topic_filter
        self.qos = qos
        self.group = group
        self.geo = geo
        self.deliver = 0  # the form asked for, of a GEOSUBSCRIBE
        self.order = 0  # counts up with every SUBSCRIBE: the one made last decides the form

    @property
    def stored_key(self) -> bytes:
        """The key as the store writes it."""
        return b"p" + str(self.key).encode()


def from_filter(session: Session, topic_filter: str, qos: int) -> Subscription:
    """Take a filter of a SUBSCRIBE apart; raises BadValue if it cannot be granted."""
    shared = parse_share(topic_filter)
    if shared is None:
        return Subscription(session, topic_filter, topic_filter, qos)
    return Subscription(session, topic_filter, shared.filter, qos, shared.group)


def from_stored_key(session: Session, key: bytes, qos: int, deliver: int) -> Subscription:
    """Make a subscription again from what the store wrote."""
    return from_filter(session, key[1:].decode(), qos)
