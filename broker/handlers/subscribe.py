"""SUBSCRIBE and UNSUBSCRIBE, GEOSUBSCRIBE and GEOUNSUBSCRIBE.

Plain filters (with `$share/` and `$geo/`) and geo subscriptions are separate sets: none
removes what another one made.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from broker.handlers.grant import Grants
from broker.subscription import Subscription, from_entry, from_filter
from protocol.encode import suback, unsuback
from protocol.envelope import GeoSubscribe, GeoUnsubscribe, geosuback, geounsuback
from protocol.fields import string
from protocol.packets import SUBSCRIBE_FAILURE, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from broker.link import Link

REMOVED, NONE_EXISTED = 0x00, 0x11


def handle_subscribe(link: Link, packet: Subscribe) -> Awaitable[None] | None:
    """Add subscriptions."""
    link.note_location(packet.location)

    def answer(codes: bytes) -> bytes:
        # MQTT 3.1.1 knows one way to fail.
        plain = bytes(code if code < 3 else SUBSCRIBE_FAILURE for code in codes)
        return suback(packet.packet_id, plain)

    makers = [
        partial(from_filter, link.joined, topic_filter, qos, link.listener.dialect)
        for topic_filter, qos in packet.filters
    ]
    # The SUBACK of MQTT 3.1 has no failure code.
    return Grants(link, answer, may_fail=not link.v31).settle(makers)


def handle_unsubscribe(link: Link, packet: Unsubscribe) -> None:
    """Take subscriptions back; the answer is the same whether they existed [MQTT-3.10.4-5]."""
    link.note_location(packet.location)
    for topic_filter in packet.filters:
        _remove(link, link.joined.subscriptions.get(topic_filter))
    link.send(unsuback(packet.packet_id))


def handle_geosubscribe(link: Link, packet: GeoSubscribe) -> Awaitable[None] | None:
    """Add geo subscriptions."""
    link.note_geo_aware()
    makers = [
        partial(from_entry, link.joined, entry, link.listener.dialect) for entry in packet.entries
    ]
    return Grants(link, partial(geosuback, packet.packet_id)).settle(makers)


def handle_geounsubscribe(link: Link, packet: GeoUnsubscribe) -> None:
    """Take geo subscriptions back: one by its identity, or all on a topic filter."""
    link.note_geo_aware()
    session = link.joined
    codes = []
    for entry in packet.entries:
        if entry.names_all:
            named = string(entry.topic_filter)  # an identity begins with its topic filter
            found = [
                each
                for each in session.subscriptions.values()
                if isinstance(each.key, bytes) and each.key.startswith(named)
            ]
        else:
            found = [each for each in (session.subscriptions.get(entry.identity),) if each]
        for subscription in found:
            _remove(link, subscription)
        codes.append(REMOVED if found else NONE_EXISTED)
    link.send(geounsuback(packet.packet_id, bytes(codes)))


def _remove(link: Link, subscription: Subscription | None) -> None:
    if subscription is None:
        return
    session = subscription.session
    link.broker.router.unsubscribe(session, subscription.key)
    if session.row:
        link.broker.store.remove_subscription(subscription)
        link.hold()
