"""Granting subscriptions: what SUBSCRIBE and GEOSUBSCRIBE have in common.

Every entry of a packet gets its own verdict: can it be read, is there room, is it allowed.
The answer carries one code each, in order [MQTT-3.8.4-5], and precedes the retained
messages it grants.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from broker.delivery import Delivery
from broker.forms import choose
from broker.matching.probe import passes
from broker.subscription import GeoSubscription, Subscription
from plugins.api import SubscribeRequest, Verdict
from protocol.conditions import FAILURE, NOT_AUTHORISED, QUOTA, Conditions, Refused
from protocol.errors import BadValue, ProtocolError
from protocol.geometry import Place, buffer_metres
from protocol.machine import State
from protocol.relations import DE9IM, DISJOINT, DWITHIN

if TYPE_CHECKING:
    from broker.link import Link

log = logging.getLogger("geomqtt.subscribe")

LEVELS_EACH = 16  # levels that a subscription may have on average
PACKET_OVERHEAD = 100  # what a small message costs in an outbox, beside its topic and payload

Maker = Callable[[], Subscription]  # reads one entry; raises BadValue if it cannot be granted


class Grants:
    """The subscriptions of one packet on their way to being granted."""

    def __init__(
        self, link: Link, answer: Callable[[bytes], bytes], *, may_fail: bool = True
    ) -> None:
        self._link = link
        self._answer = answer
        self._may_fail = may_fail  # whether the answer can say so
        self._codes: list[int] = []
        self._granted: list[Subscription] = []
        self._levels = 0  # of those

    def settle(self, makers: Sequence[Maker]) -> Awaitable[None] | None:
        """Judge all entries and answer; wait only where a plugin must."""
        for position, maker in enumerate(makers):
            wanted = self._read(maker)
            verdict = self._ask(wanted)
            if inspect.isawaitable(verdict):
                return self._settle_later(wanted, verdict, makers[position + 1 :])
            self._decide(wanted, verdict is not False)
        return self._finish()

    async def _settle_later(
        self,
        wanted: Subscription | Refused,
        verdict: Awaitable[bool | None],
        makers: Sequence[Maker],
    ) -> None:
        self._decide(wanted, await verdict is not False)
        for maker in makers:
            wanted = self._read(maker)
            answer = self._ask(wanted)
            allowed = await answer if inspect.isawaitable(answer) else answer
            self._decide(wanted, allowed is not False)
        retained = self._finish()
        if retained is not None:
            await retained

    def _read(self, maker: Maker) -> Subscription | Refused:
        session = self._link.joined
        try:
            wanted = maker()
        except Refused as refused:
            return refused
        except BadValue as error:
            return Refused(FAILURE, str(error))
        limit = self._link.broker.config.limits.max_subscriptions
        if limit and wanted.key not in session.subscriptions:
            reason = ""
            if len(session.subscriptions) + len(self._granted) >= limit:
                reason = f"limit of {limit} subscriptions"
            elif session.levels + self._levels + wanted.levels > limit * LEVELS_EACH:
                reason = f"limit of {limit * LEVELS_EACH} levels in all subscriptions"
            if reason:
                self._link.broker.counters.other["subscriptions_exceeded"] += 1
                return Refused(QUOTA, reason)
        return wanted

    def _ask(self, wanted: Subscription | Refused) -> Verdict:
        hooks = self._link.broker.hooks
        if isinstance(wanted, Refused) or not hooks.authorise_subscribe:
            return None
        return hooks.decide(
            hooks.authorise_subscribe, "authorise_subscribe", self._link.client, request_of(wanted)
        )

    def _decide(self, wanted: Subscription | Refused, allowed: bool) -> None:
        if isinstance(wanted, Subscription) and allowed:
            self._codes.append(wanted.qos)
            self._granted.append(wanted)
            self._levels += wanted.levels
            return
        if isinstance(wanted, Subscription):
            wanted = Refused(NOT_AUTHORISED, "not authorised to subscribe")
        link = self._link
        log.info("client %s: subscription refused: %s", link.name, wanted)
        link.broker.counters.other["subscriptions_refused"] += 1
        if not self._may_fail:
            raise ProtocolError(f"subscription refused: {wanted}")
        self._codes.append(wanted.code)

    def _finish(self) -> Awaitable[None] | None:
        link = self._link
        broker = link.broker
        for subscription in self._granted:
            broker.router.subscribe(subscription)
            if subscription.session.row:
                broker.store.add_subscription(subscription)
                link.hold()
        link.send(self._answer(bytes(self._codes)))
        # A shared subscription gets no retained messages.
        granted = [each for each in self._granted if each.group is None]
        return send_in_portions(
            link, chain.from_iterable(retained_for(link, each) for each in granted)
        )


def request_of(subscription: Subscription) -> SubscribeRequest:
    """Say what a subscription asks for in the terms of an authoriser."""
    if not isinstance(subscription, GeoSubscription):
        return SubscribeRequest(subscription.topic_filter, subscription.qos)
    conditions = subscription.geo
    return SubscribeRequest(
        subscription.topic_filter,
        subscription.qos,
        bounds_of(conditions),
        any(test.of_publisher for test in conditions.spatial),
    )


def bounds_of(conditions: Conditions) -> tuple[Place, ...]:
    """Give the places in which a matching event must lie; () if it may lie anywhere."""
    places = []
    for test in conditions.spatial:
        if test.place is None or test.of_publisher or test.relation in (DISJOINT, DE9IM):
            continue
        reach = float(test.operand or 0) if test.relation == DWITHIN else 0.0
        places.append(buffer_metres(test.place, reach) if reach else test.place)
    return tuple(places)


def send_in_portions(link: Link, deliveries: Iterator[Delivery]) -> Awaitable[None] | None:
    """Send retained messages, waiting for the peer whenever it has a lot to read.

    Otherwise a few bytes from a client, subscribing to everything again and again, would
    fill our memory with what it never reads.
    """
    if _send_portion(link, deliveries):
        return _send_later(link, deliveries)
    return None


async def _send_later(link: Link, deliveries: Iterator[Delivery]) -> None:
    await link.drained()
    while link.state is State.CONNECTED and _send_portion(link, deliveries):
        await link.drained()


def _send_portion(link: Link, deliveries: Iterator[Delivery]) -> bool:
    """Send as much as an outbox should hold; tell whether there may be more."""
    session = link.joined
    room = link.broker.config.limits.max_outbox_bytes
    for delivery in deliveries:
        session.deliver(delivery)
        room -= delivery.size + PACKET_OVERHEAD
        if room <= 0:
            return True
    return False


def retained_for(link: Link, subscription: Subscription) -> Iterator[Delivery]:
    """Give the retained messages that a new subscription matches [MQTT-3.3.1-6].

    They are tested with the place and time they had on arrival, and go out in this
    subscription's form.
    """
    broker = link.broker
    session = subscription.session
    geo = [subscription] if isinstance(subscription, GeoSubscription) else []
    form = choose(geo, plain=False)
    for message in list(broker.retained.match(subscription.topic_filter)):
        if broker.retained.get(message.topic) is not message:
            continue  # replaced while the peer was reading: it had the new one already
        if geo and not passes(geo[0].geo, broker.router.probe(message), session.place):
            continue
        if broker.router.admitted(session, message) and broker.may_receive(session, message):
            qos = min(message.qos, subscription.qos)
            yield Delivery(message, qos, retain=True, form=form)
