"""From a topic to those who get it.

`Route` is everything that depends on the topic alone: plain subscribers with their highest
QoS, shared groups, and the fence indexes of geo subscriptions. Routes are kept by topic and
forgotten when a subscription changes that could concern them; there are never more than
`ROUTES_KEPT`, however many topics clients invent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.client_fences import admits
from broker.delivery import Delivery
from broker.forms import choose
from broker.matching.fences import FenceIndex
from broker.matching.probe import Probe, passes
from broker.matching.trie import TopicTrie, has_wildcard
from broker.subscription import GeoSubscription, Key, Subscription
from protocol.geometry_place import Place
from protocol.message import Message
from protocol.relations import INTERSECTS, spatial

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.session import Session

ROUTES_KEPT = 50_000

Receivers = tuple[tuple["Session", int], ...]  # with the QoS that was granted


class Group:
    """The members of one `$share` group on one filter; each message goes to one of them."""

    __slots__ = ("_turn", "members")

    def __init__(self) -> None:
        self.members: list[Subscription] = []
        self._turn = 0

    def in_turn(self) -> list[Subscription]:
        """Give the members in the order in which they should be tried."""
        self._turn = (self._turn + 1) % len(self.members)
        members = self.members[self._turn :] + self.members[: self._turn]
        # Somebody who reads now before somebody who is stuck, before somebody who is away.
        return sorted(members, key=_reluctance)


def _reluctance(subscription: Subscription) -> int:
    link = subscription.session.link
    if link is None:
        return 2
    return 1 if link.congested else 0


class Leaf:
    """All subscriptions on one topic filter."""

    __slots__ = ("fences", "groups", "plain")

    def __init__(self) -> None:
        self.plain: dict[Session, int] = {}
        self.groups: dict[str, Group] | None = None
        self.fences: FenceIndex[GeoSubscription] | None = None

    @property
    def empty(self) -> bool:
        """Whether nobody is left."""
        return not self.plain and not self.groups and not self.fences


class Route:
    """Who gets what is published on one topic, as far as the topic decides."""

    __slots__ = ("fences", "groups", "place_matters", "plain")

    def __init__(
        self,
        plain: tuple[tuple[Session, int], ...],
        groups: tuple[Group, ...],
        fences: tuple[FenceIndex[GeoSubscription], ...],
    ) -> None:
        self.plain = plain
        self.groups = groups
        self.fences = fences
        # Whether anybody here looks at where and when, or filters by fences of its own.
        self.place_matters = bool(fences) or any(session.fences for session, _ in plain)


class Router:
    """All subscriptions, and the way from a message to its receivers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._leaves: TopicTrie[Leaf] = TopicTrie(Leaf)
        self._routes: dict[str, Route] = {}
        # The fast lane's view: topics whose messages go to these sessions and concern
        # nobody else. Keyed by the bytes of the topic as they stand in a frame.
        self.fast_routes: dict[bytes, tuple[tuple[Session, int], ...]] = {}
        # The same for geo events: topics on which geo subscriptions are all there is.
        self.geo_routes: dict[bytes, tuple[FenceIndex[GeoSubscription], ...]] = {}
        self._orders = 0
        self.subscriptions = 0

    def subscribe(self, subscription: Subscription) -> None:
        """Add a subscription, or replace the one with the same key."""
        session = subscription.session
        old = session.subscriptions.get(subscription.key)
        if old is not None:
            self._detach(old)
        self._orders += 1
        subscription.order = self._orders
        session.subscriptions[subscription.key] = subscription
        self.subscriptions += 1
        session.levels += subscription.levels
        leaf = self._leaves.ensure(subscription.topic_filter)
        if subscription.group is not None:
            if leaf.groups is None:
                leaf.groups = {}
            leaf.groups.setdefault(subscription.group, Group()).members.append(subscription)
        elif isinstance(subscription, GeoSubscription):
            self._add_fence(leaf, subscription)
        else:
            leaf.plain[session] = subscription.qos
        self.forget(subscription.topic_filter)

    def _add_fence(self, leaf: Leaf, subscription: GeoSubscription) -> None:
        if leaf.fences is None:
            leaf.fences = FenceIndex()
        leaf.fences.add(subscription)
        if any(test.near_m for test in subscription.geo.spatial):
            session = subscription.session
            if session.near is None:
                session.near = {}
            session.near[subscription] = leaf.fences

    def unsubscribe(self, session: Session, key: Key) -> bool:
        """Take a subscription back; tell whether there was one."""
        subscription = session.subscriptions.pop(key, None)
        if subscription is None:
            return False
        self._detach(subscription)
        return True

    def unsubscribe_all(self, session: Session) -> None:
        """Take back everything a session asked for."""
        for key in list(session.subscriptions):
            self.unsubscribe(session, key)

    def _detach(self, subscription: Subscription) -> None:
        self.subscriptions -= 1
        subscription.session.levels -= subscription.levels
        topic_filter = subscription.topic_filter
        leaf = self._leaves.get(topic_filter)
        if leaf is None:
            return
        if subscription.group is not None and leaf.groups is not None:
            group = leaf.groups[subscription.group]
            group.members.remove(subscription)
            if not group.members:
                del leaf.groups[subscription.group]
        elif isinstance(subscription, GeoSubscription) and leaf.fences is not None:
            leaf.fences.remove(subscription)
            if subscription.session.near is not None:
                subscription.session.near.pop(subscription, None)
        else:
            leaf.plain.pop(subscription.session, None)
        if leaf.empty:
            self._leaves.discard(topic_filter)
        self.forget(topic_filter)

    def forget(self, topic_filter: str) -> None:
        """Drop the kept routes that a change on this filter may concern."""
        if has_wildcard(topic_filter):
            self.forget_all()
        else:
            self._routes.pop(topic_filter, None)
            self.fast_routes.pop(topic_filter.encode(), None)
            self.geo_routes.pop(topic_filter.encode(), None)

    def forget_all(self) -> None:
        """Drop all kept routes."""
        self._routes.clear()
        self.fast_routes.clear()
        self.geo_routes.clear()

    def find(self, topic: str) -> Route:
        """Give the route of a topic, from memory if it is there."""
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= ROUTES_KEPT:
                self.forget_all()
            route = self._routes[topic] = self._build(topic)
            if topic.startswith("$") or route.groups:
                return route
            if route.fences and not route.plain and not self._broker.hooks.authorise_receive:
                self.geo_routes[topic.encode()] = route.fences
            elif not route.place_matters and all(
                session.takes_frames for session, _ in route.plain
            ):
                receivers = self._settled(topic, route.plain)
                if receivers is not None:
                    self.fast_routes[topic.encode()] = receivers
        return route

    def _settled(self, topic: str, plain: Receivers) -> Receivers | None:
        """Leave out who may receive nothing on a topic; None if it depends on the message."""
        broker = self._broker
        if not broker.hooks.authorise_receive:
            return plain
        receivers = []
        for session, qos in plain:
            settled = broker.hooks.may_receive_all(broker.client_of(session), topic)
            if settled is None:
                return None
            if settled:
                receivers.append((session, qos))
        return tuple(receivers)

    def _build(self, topic: str) -> Route:
        plain: dict[Session, int] = {}
        groups: list[Group] = []
        fences: list[FenceIndex[GeoSubscription]] = []
        for leaf in self._leaves.match(topic):
            # Overlapping subscriptions: once, with the highest QoS [MQTT-3.3.5-1].
            for session, qos in leaf.plain.items():
                plain[session] = max(qos, plain.get(session, 0))
            if leaf.groups:
                groups.extend(leaf.groups.values())
            if leaf.fences:
                fences.append(leaf.fences)
        return Route(tuple(plain.items()), tuple(groups), tuple(fences))

    def route(self, message: Message) -> None:
        """Deliver a message to everybody who subscribed to it."""
        route = self._routes.get(message.topic) or self.find(message.topic)
        geo = message.geo
        if route.place_matters or (geo is not None and geo.fence is not None):
            self._route_by_place(message, route)
            return
        # One encoded form per QoS, whoever gets it.
        deliveries: list[Delivery | None] = [None, None, None]
        checked = self._broker.hooks.authorise_receive
        published = message.qos
        for session, granted in route.plain:
            if checked and not self._broker.may_receive(session, message):
                continue
            qos = granted if granted < published else published
            delivery = deliveries[qos]
            if delivery is None:
                delivery = deliveries[qos] = Delivery(message, qos)
            session.deliver(delivery)
        for group in route.groups:
            self._deliver_to_group(group, message)

    def _route_by_place(self, message: Message, route: Route) -> None:
        """Deliver where place and time decide."""
        probe = self.probe(message)
        found: list[GeoSubscription] = []
        for fences in route.fences:
            found += fences.match(probe)
        self.deliver_found(message, probe, found, route.plain)
        for group in route.groups:
            self._deliver_to_group(group, message)

    def deliver_found(
        self, message: Message, probe: Probe, found: list[GeoSubscription], plain: Receivers
    ) -> None:
        """Deliver to each client once: to those whose geo subscriptions match, and to plain ones.

        Each gets the highest QoS that was granted, in the form it asked for.
        """
        matching: dict[Session, list[GeoSubscription]] = {}
        for subscription in found:
            session = subscription.session
            if session in matching:
                matching[session].append(subscription)
            else:
                matching[session] = [subscription]
        granted = dict(plain)
        checked = self._broker.hooks.authorise_receive
        guarded = message.geo is not None and message.geo.fence is not None
        # One encoded delivery per QoS and form, whoever gets it.
        deliveries: dict[tuple[int, bytes], Delivery] = {}
        for session in {**granted, **matching} if granted else matching:
            if (guarded or session.fences) and not self.admitted(session, message, probe):
                continue
            if checked and not self._broker.may_receive(session, message):
                continue
            geo = matching.get(session, ())
            if len(geo) == 1 and session not in granted:
                qos, form = geo[0].qos, geo[0].form
            else:
                plain_qos = granted.get(session)
                asked = [each.qos for each in geo]
                qos = max(asked if plain_qos is None else [*asked, plain_qos])
                form = choose(geo, plain=plain_qos is not None)
            qos = min(message.qos, qos)
            delivery = deliveries.get((qos, form.key))
            if delivery is None:
                delivery = deliveries[qos, form.key] = Delivery(message, qos, form=form)
            session.deliver(delivery)

    def _deliver_to_group(self, group: Group, message: Message) -> None:
        """Deliver to one member that passes every test."""
        probe = None
        for subscription in group.in_turn():
            session = subscription.session
            if session.link is None and session.clean:
                continue
            geo = [subscription] if isinstance(subscription, GeoSubscription) else []
            if geo or session.fences or message.geo is not None:
                probe = probe or self.probe(message)
                if not self.admitted(session, message, probe):
                    continue
                if geo and not passes(geo[0].geo, probe, session.place):
                    continue
            if not self._broker.may_receive(session, message):
                continue
            qos = min(subscription.qos, message.qos)
            session.deliver(Delivery(message, qos, form=choose(geo, plain=False)))
            return

    def probe(self, message: Message) -> Probe:
        """See a message as the matching room does."""
        geo = message.geo
        publisher = None
        if message.publisher is not None:
            publisher = Place(message.publisher.lon, message.publisher.lat)
        place = geo.place if geo is not None and geo.place is not None else publisher
        start_ms = end_ms = message.received_ms
        if geo is not None and geo.time is not None:
            start_ms, end_ms = geo.time
        return Probe(place, publisher, start_ms, end_ms)

    def admitted(self, session: Session, message: Message, probe: Probe | None = None) -> bool:
        """Ask the event's own geofence and the client's MQTT-G fences."""
        geo = message.geo
        if geo is not None and geo.fence is not None and not session.observes:
            here = session.place
            if here is None or not spatial(INTERSECTS, geo.fence, here):
                return False
        if not session.fences:
            return True
        settings = self._broker.config.geo
        if settings.fence_subject == "subscriber":
            place = session.place
        else:
            place = (probe or self.probe(message)).place
        unknown = settings.unknown_location == "pass"
        return admits(session.fences, message.topic, place, unknown=unknown)

    def moved(self, session: Session) -> None:
        """A client is somewhere else: so are its circles and its dynamic fences."""
        for subscription, fences in (session.near or {}).items():
            fences.move(subscription)
        if session.fences and session.location is not None:
            for fence in session.fences.values():
                fence.move(session.location)
