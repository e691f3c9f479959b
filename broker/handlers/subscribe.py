"""SUBSCRIBE and UNSUBSCRIBE: rights, limits, the answer, and then retained messages.

Every filter gets its own verdict; the SUBACK carries one code each, in order
[MQTT-3.8.4-5], and precedes the retained messages it grants.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from broker.delivery import Delivery
from broker.subscription import Subscription, from_filter
from plugins.api import SubscribeRequest, Verdict
from protocol.encode import suback, unsuback
from protocol.errors import BadValue, ProtocolError
from protocol.packets import SUBSCRIBE_FAILURE, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from broker.link import Link

log = logging.getLogger("geomqtt.subscribe")


def handle_subscribe(link: Link, packet: Subscribe) -> Awaitable[None] | None:
    """Add subscriptions."""
    link.note_location(packet.location)
    codes: list[int] = []
    granted: list[Subscription] = []
    for position, (topic_filter, qos) in enumerate(packet.filters):
        wanted, verdict = _ask(link, topic_filter, qos, granted)
        if inspect.isawaitable(verdict):
            return _subscribe_later(link, packet, position, codes, granted, wanted, verdict)
        _settle(link, wanted, verdict is not False, codes, granted)
    _answer(link, packet, codes, granted)
    return None


async def _subscribe_later(
    link: Link,
    packet: Subscribe,
    position: int,
    codes: list[int],
    granted: list[Subscription],
    wanted: Subscription | str,
    verdict: Awaitable[bool | None],
) -> None:
    """Go on with the filters from `position` on, waiting wherever a plugin must."""
    _settle(link, wanted, await verdict is not False, codes, granted)
    for topic_filter, qos in packet.filters[position + 1 :]:
        wanted, answer = _ask(link, topic_filter, qos, granted)
        allowed = await answer if inspect.isawaitable(answer) else answer
        _settle(link, wanted, allowed is not False, codes, granted)
    _answer(link, packet, codes, granted)


def _ask(
    link: Link, topic_filter: str, qos: int, granted: list[Subscription]
) -> tuple[Subscription | str, Verdict]:
    """Take a filter apart and ask whether it may be subscribed to."""
    wanted = _wanted(link, topic_filter, qos, granted)
    hooks = link.broker.hooks
    if isinstance(wanted, str) or not hooks.authorise_subscribe:
        return wanted, None
    request = SubscribeRequest(wanted.topic_filter, wanted.qos)
    return wanted, hooks.decide(
        hooks.authorise_subscribe, "authorise_subscribe", link.client, request
    )


def _wanted(
    link: Link, topic_filter: str, qos: int, granted: list[Subscription]
) -> Subscription | str:
    """Take a filter apart; a string says why it cannot be granted."""
    session = link.joined
    limit = link.broker.config.limits.max_subscriptions
    held = len(session.subscriptions) + len(granted)
    if 0 < limit <= held and topic_filter not in session.subscriptions:
        link.broker.counters.other["subscriptions_exceeded"] += 1
        return f"limit of {limit} subscriptions"
    try:
        return from_filter(session, topic_filter, qos)
    except BadValue as error:
        return str(error)


def _settle(
    link: Link,
    wanted: Subscription | str,
    allowed: bool,
    codes: list[int],
    granted: list[Subscription],
) -> None:
    if isinstance(wanted, Subscription) and allowed:
        codes.append(wanted.qos)
        granted.append(wanted)
        return
    reason = wanted if isinstance(wanted, str) else "not authorised to subscribe"
    log.info("client %s: subscription refused: %s", link.name, reason)
    link.broker.counters.other["subscriptions_refused"] += 1
    if link.v31:
        raise ProtocolError(f"subscription refused: {reason}")  # MQTT 3.1 has no failure code
    codes.append(SUBSCRIBE_FAILURE)


def _answer(link: Link, packet: Subscribe, codes: list[int], granted: list[Subscription]) -> None:
    broker = link.broker
    for subscription in granted:
        broker.router.subscribe(subscription)
        if subscription.session.row:
            broker.store.add_subscription(subscription)
            link.hold()
    link.send(suback(packet.packet_id, bytes(codes)))
    for subscription in granted:
        if subscription.group is None:  # a shared subscription gets no retained messages
            send_retained(link, subscription)


def send_retained(link: Link, subscription: Subscription) -> None:
    """Send the retained messages that a new subscription matches [MQTT-3.3.1-6]."""
    broker = link.broker
    session = subscription.session
    for message in broker.retained.match(subscription.topic_filter):
        if broker.may_receive(session, message):
            session.deliver(Delivery(message, min(message.qos, subscription.qos), retain=True))


def handle_unsubscribe(link: Link, packet: Unsubscribe) -> None:
    """Take subscriptions back; the answer is the same whether they existed [MQTT-3.10.4-5]."""
    link.note_location(packet.location)
    broker = link.broker
    session = link.joined
    for topic_filter in packet.filters:
        subscription = session.subscriptions.get(topic_filter)
        if subscription is not None:
            broker.router.unsubscribe(session, topic_filter)
            if session.row:
                broker.store.remove_subscription(subscription)
                link.hold()
    link.send(unsuback(packet.packet_id))
