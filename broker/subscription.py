"""One subscription of one session, whatever packet it came in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.session import Session


class Subscription:
    """What a session asked for, under the key by which it can be taken back.

    `topic_filter` is the filter that topics are matched with; `group` is set for a shared
    subscription, `geo` for one with a spatial or temporal condition.
    """

    __slots__ = ("geo", "group", "key", "order", "qos", "session", "topic_filter")

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
        self.order = 0  # counts up with every SUBSCRIBE: the one made last decides the form
