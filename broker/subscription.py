"""One subscription of one session, whatever packet it came in."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from broker.forms import AS_PUBLISHED, form_of
from protocol.conditions import BAD_FILTER, Conditions, Refused, from_text
from protocol.conditions import from_entry as conditions_from_entry
from protocol.envelope import GeoEntry, entry_from_identity
from protocol.errors import BadTopic
from protocol.mqttg import ACCEPTED, GEO, Dialect
from protocol.topics import GEO_PREFIX, parse_share

if TYPE_CHECKING:
    from broker.session import Session
    from protocol.geometry_place import Place

# The filter as sent, of a SUBSCRIBE; the identity of its fields, of a GEOSUBSCRIBE.
Key = str | bytes


class Subscription:
    """What a session asked for, under the key by which it can be taken back.

    `topic_filter` is the filter that topics are matched with; `group` is set for a shared
    subscription.
    """

    __slots__ = ("group", "key", "order", "qos", "session", "topic_filter")

    def __init__(
        self,
        session: Session,
        key: Key,
        topic_filter: str,
        qos: int,
        group: str | None = None,
    ) -> None:
        self.session = session
        self.key = key
        self.topic_filter = topic_filter
        self.qos = qos
        self.group = group
        self.order = 0  # counts up with every SUBSCRIBE: the one made last decides the form

    @property
    def deliver(self) -> int:
        """The form asked for, of a GEOSUBSCRIBE."""
        return 0

    @property
    def levels(self) -> int:
        """How deep the filter is, and with it what it costs to hold."""
        return self.topic_filter.count("/") + 1

    @property
    def stored_key(self) -> bytes:
        """The key as the store writes it."""
        return b"g" + self.key if isinstance(self.key, bytes) else b"p" + self.key.encode()


class GeoSubscription(Subscription):
    """A subscription with spatial or temporal conditions."""

    __slots__ = ("as_published", "form", "geo")

    def __init__(
        self,
        session: Session,
        key: Key,
        topic_filter: str,
        qos: int,
        geo: Conditions,
        group: str | None = None,
    ) -> None:
        super().__init__(session, key, topic_filter, qos, group)
        self.geo = geo
        self.form = form_of(geo)
        self.as_published = geo.envelope and geo.deliver == AS_PUBLISHED

    @property
    def here(self) -> Place | None:
        """Where the subscriber is."""
        return self.session.place

    @property
    def deliver(self) -> int:
        """The form asked for, of a GEOSUBSCRIBE."""
        return self.geo.deliver


def from_filter(
    session: Session, topic_filter: str, qos: int, dialect: Dialect = GEO
) -> Subscription:
    """Take a filter of a SUBSCRIBE apart; raises BadValue if it cannot be granted."""
    shared = parse_share(topic_filter)
    group = shared.group if shared is not None else None
    inner = shared.filter if shared is not None else topic_filter
    if not (dialect.geo and inner.startswith(GEO_PREFIX)):
        return Subscription(session, topic_filter, inner, qos, group)
    inner, conditions = from_text(inner, dialect.geometry, dialect.max_levels)
    return GeoSubscription(session, topic_filter, inner, qos, conditions, group)


def from_entry(session: Session, entry: GeoEntry, dialect: Dialect = GEO) -> Subscription:
    """Take an entry of a GEOSUBSCRIBE apart; raises Refused with its code."""
    try:
        shared = parse_share(entry.topic_filter)
    except BadTopic as error:
        raise Refused(BAD_FILTER, str(error)) from None
    group = shared.group if shared is not None else None
    inner = shared.filter if shared is not None else entry.topic_filter
    conditions = conditions_from_entry(
        dataclasses.replace(entry, topic_filter=inner), dialect.geometry, dialect.max_levels
    )
    return GeoSubscription(session, entry.identity, inner, entry.qos, conditions, group)


def from_stored_key(session: Session, key: bytes, qos: int, deliver: int) -> Subscription:
    """Make a subscription again from what the store wrote."""
    if key.startswith(b"g"):
        return from_entry(session, entry_from_identity(key[1:], qos, deliver), ACCEPTED)
    return from_filter(session, key[1:].decode(), qos, ACCEPTED)
