"""The broker: what all links share, and what happens to a message once it is accepted.

    publish: retain -> route -> show to plugins
    flush:   commit (at the end of the turn, if somebody waits for it) -> one write a link

Sockets and signals are the server's business (server.py); this object knows links only.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from broker.backlog import Backlog
from broker.config import Config, Limits
from broker.config import Listener as ListenerSettings
from broker.counters import Counters
from broker.deadlines import Deadlines
from broker.delivery import Delivery
from broker.hooks import Hooks
from broker.link import Link
from broker.locations import Locations
from broker.retained import Retained
from broker.router import Router
from broker.session import Session
from broker.sessions import Sessions
from broker.store import Store
from broker.subscription import GeoSubscription, Subscription, from_filter
from plugins.api import Accepted, Client, Credentials, Plugin, SubscribeRequest
from protocol.conditions import Spatial
from protocol.geo import Location
from protocol.geometry import Place, circle
from protocol.geometry_place import NO_LIMITS
from protocol.geometry_place import Limits as GeometryLimits
from protocol.machine import State
from protocol.message import Message
from protocol.mqttg import UNUSABLE, Dialect
from protocol.relations import RELATIONS
from protocol.topic_fields import known_topics

log = logging.getLogger("geomqtt.broker")

LOCATIONS_S = 0.1  # how long a move may take to reach the store

LARGEST_PACKET = 268_435_460  # that the standard can express
NO_LIMIT = 2**31 - 1
LEVELS_EACH = 16  # topic levels that a retained message may have on average
CLIENTS_COUNTED = 10_000  # that drops are counted by; all further ones count as one


class OpenListener:
    """A listener with what its links need to know."""

    def __init__(self, settings: ListenerSettings, limits: Limits, *, anonymous: bool) -> None:
        self.settings = settings
        self.anonymous = anonymous  # a client without user name is let in
        self.connections = 0
        self.set_limits(limits)

    def set_limits(self, limits: Limits) -> None:
        """Read packets within these limits."""
        settings = self.settings
        self.dialect = Dialect(
            geo=settings.geo,
            little_endian=settings.mqttg_byte_order == "little",
            location_after_fixed_header=settings.mqttg_position == "after-fixed-header",
            max_levels=limits.max_topic_levels or 65_536,
            max_topic_bytes=limits.max_topic_bytes or 65_535,
            geometry=GeometryLimits(
                limits.max_vertices or NO_LIMITS.max_vertices,
                limits.max_nesting or NO_LIMITS.max_nesting,
                limits.max_geometry_bytes or NO_LIMITS.max_bytes,
            ),
        )


class Tap(Session):
    """A plugin's own subscription: matched like a session's, delivered by a call."""

    __slots__ = ("_call", "client")
    takes_frames = False
    observes = True

    def __init__(
        self, broker: Broker, call: Callable[[Message], None], client: Client | None = None
    ) -> None:
        super().__init__(broker, "", clean=True)
        self._call = call
        self.client = client  # on whose behalf; None: the plugin's own

    def deliver(self, delivery: Delivery) -> None:
        """Call the plugin; what it does wrong is its own affair."""
        try:
            self._call(delivery.message)
        except Exception:
            self.broker.counters.other["plugin_errors"] += 1
            log.exception("a plugin's subscription failed")

    def close(self) -> None:
        """Stop the deliveries."""
        self.broker.router.unsubscribe_all(self)


class Broker:
    """Everything between the links."""

    def __init__(
        self, config: Config, plugins: Iterable[Plugin] = (), store: Store | None = None
    ) -> None:
        self.config = config
        self.counters = Counters()
        self.hooks = Hooks(tuple(plugins), self.counters, config.plugin_timeout_s)
        self.store = store if store is not None else Store()
        self.retained = Retained()
        self.router = Router(self)
        self.sessions = Sessions(self)
        self.deadlines = Deadlines(time.monotonic)
        self._locations = Locations(config.geo.location_ttl_s, config.geo.max_locations)
        self.links: set[Link] = set()
        self.unsent: list[Link] = []  # links with something in their outbox
        self.held: list[Link] = []  # links whose outbox waits for a commit
        self.read_ms = 0  # Unix time of the read that is being worked on
        self._will_grace_s = config.storage.will_grace_s
        self.started_at = time.monotonic()
        self.publishers_paused = False
        self._pauses: set[str] = set()  # why nothing is read
        self.backlog = Backlog(self)
        self.stopping = False
        self.clients_maximum = 0
        self.set_limits(config.limits)
        self._addresses: Counter[str] = Counter()
        self._connects: tuple[int, int] = (0, 0)  # this second, and how many came in it
        self._accepted: list[Accepted] = []
        self._committing = False
        # client id -> user name and will, of clients connected when the broker last ended
        self.orphaned_wills: dict[str, tuple[str | None, Message]] = {}
        self._tasks: set[asyncio.Future[None]] = set()

    def set_limits(self, limits: Limits) -> None:
        """Hold everybody to these limits from now on; connections that are open stay."""
        self.config.limits = limits
        # There are 65,535 packet ids, so that many messages at most can be under way.
        self.max_inflight = min(limits.max_inflight or 65_535, 65_535)
        self.max_packet_size = limits.max_packet_size or LARGEST_PACKET
        self.max_outbox_bytes = limits.max_outbox_bytes or NO_LIMIT
        self.paced = limits.messages_per_s > 0
        # The lanes wait for nobody, not even where QoS 0 is kept for those who are away.
        self.fast_lane_open = (
            self.hooks.frames_suffice and not self.paced and not self.config.queue_qos0_messages
        )
        # Topics that were within the old limits may be beyond the new ones.
        known_topics.clear()
        self.router.forget("#")
        for link in self.links:
            link.transport.set_write_buffer_limits(high=self.max_outbox_bytes)
            connected = link.state is State.CONNECTED
            link.fast = self.fast_lane_open and link.passes_frames and connected

    # Links

    def link_opened(self, link: Link) -> None:
        """Count a new connection, or refuse it at the door."""
        self.counters.connections_total += 1
        reason = self._full(link)
        self.links.add(link)
        link.listener.connections += 1
        self._addresses[link.host] += 1
        if reason:
            self.counters.connections_refused += 1
            self.counters.other["connection_limits_hit"] += 1
            log.warning("connection from %s refused: %s", link.address, reason)
            link.close(reason)
            return
        self.deadlines.watch(link)

    def _full(self, link: Link) -> str:
        limits = self.config.limits
        if self.stopping:
            return "stopping"
        if 0 < limits.max_connections <= len(self.links):
            return f"limit of {limits.max_connections} connections"
        listener = link.listener
        if 0 < listener.settings.max_connections <= listener.connections:
            return f"limit of {listener.settings.max_connections} connections on this listener"
        if 0 < limits.max_connections_per_address <= self._addresses[link.host]:
            return f"limit of {limits.max_connections_per_address} connections per address"
        if limits.connect_rate_per_s:
            second = int(time.monotonic())
            count = self._connects[1] + 1 if self._connects[0] == second else 1
            self._connects = (second, count)
            if count > limits.connect_rate_per_s:
                return f"limit of {limits.connect_rate_per_s} connections a second"
        return ""

    def link_lost(self, link: Link) -> None:
        """The socket of a link is gone: tell everybody whom that concerns."""
        self.links.discard(link)
        self.deadlines.forget(link)
        link.listener.connections -= 1
        self._addresses[link.host] -= 1
        if not self._addresses[link.host]:
            del self._addresses[link.host]
        self.part(link)

    def part(self, link: Link) -> None:
        """Separate a link from its session; send its will if it went without a word."""
        session, link.session = link.session, None
        if session is None:
            return
        will, link.will = link.will, None
        self.sessions.leave(session)
        assert link.client is not None
        if not link.blamed:
            log.info("client %s at %s gone: %s", link.name, link.address, link.reason or "cut off")
        self.hooks.tell(self.hooks.on_disconnect, "on_disconnect", link.client)
        if will is not None and not self.stopping:
            self.publish_will(link.client, will)

    def note_location(self, session: Session, location: Location) -> None:
        """Remember where a client says it is, and move what moves along."""
        if location is UNUSABLE:
            self.counters.locations_unusable += 1
            return
        if not self._locations.changed:
            asyncio.get_running_loop().call_later(LOCATIONS_S, self.store_locations)
        self._locations.note(session.client_id, location)
        session.location = location
        session.place = Place(location.lon, location.lat)
        if session.near or session.fences:
            self.router.moved(session)

    def tick(self) -> None:
        """Do what is due; called once a second."""
        self._locations.prune(time.monotonic())
        self.store_locations()
        self.store.tick()
        self.sessions.expire(self.config.storage.session_expiry_s)
        if self.orphaned_wills and time.monotonic() > self.started_at + self._will_grace_s:
            self._publish_orphaned_wills()
        self.flush()

    def store_locations(self) -> None:
        """Keep where clients are: not with every move, for they move more often than it matters."""
        changed, self._locations.changed = self._locations.changed, set()
        for client_id in changed:
            self.store.note_location(client_id, self._locations.get(client_id))
        if changed:
            self.flush()

    def place_session(self, session: Session) -> None:
        """Give a session the location that its client was last known to have."""
        self._locations.prune(time.monotonic())
        self._locations.stay(session.client_id)
        location = self._locations.get(session.client_id)
        if location is not None:
            session.location = location
            session.place = Place(location.lon, location.lat)

    def session_ended(self, session: Session) -> None:
        """Let the location of an ended session grow old."""
        self._locations.leave(session.client_id, time.monotonic())

    def restore_location(self, client_id: str, location: Location) -> None:
        """Put back a location that the store kept."""
        self._locations.note(client_id, location)
        if self.sessions.get(client_id) is None:
            self._locations.leave(client_id, time.monotonic())

    def _publish_orphaned_wills(self) -> None:
        """Publish the wills of clients that were cut off by our own end and did not return."""
        wills, self.orphaned_wills = self.orphaned_wills, {}
        for client_id, (username, will) in wills.items():
            self.publish_will(Client(client_id, username, "", ""), will)

    # Wills

    def keep_will(self, link: Link, will: Message) -> None:
        """Remember what to publish if the client goes without a word."""
        link.will = will
        if self.store.keeps:
            session = link.joined
            self.store.add_will(session.client_id, session.username, will)
            link.hold()

    def drop_will(self, link: Link) -> None:
        """The client said goodbye [MQTT-3.1.2-10]."""
        if link.will is not None:
            link.will = None
            if self.store.keeps:
                self.store.remove_will(link.joined.client_id)

    def publish_will(self, client: Client, will: Message) -> None:
        """Publish a will, if its client may still publish it [MQTT-3.1.2-8]."""
        if self.store.keeps:
            self.store.remove_will(client.client_id)
        will = will.replace(
            received_ms=time.time_ns() // 1_000_000,
            publisher=self._locations.get(client.client_id),
        )
        verdict = self.hooks.decide(self.hooks.authorise_publish, "authorise_publish", client, will)
        if inspect.isawaitable(verdict):
            task = asyncio.ensure_future(self._publish_will_later(verdict, will))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif verdict is not False:
            self.publish(will)

    async def _publish_will_later(self, verdict: Awaitable[bool | None], will: Message) -> None:
        if await verdict is not False:
            self.publish(will)
            self.flush()

    # Messages

    def publish(self, message: Message) -> None:
        """Retain, route and show a message that has been accepted."""
        if message.retain and self.config.retain_available:
            self._retain(message)
        self.router.route(message)
        if self.hooks.on_accepted:
            self.accepted(message)

    def _retain(self, message: Message) -> None:
        topic = message.topic
        if not message.payload:  # [MQTT-3.3.1-10], [MQTT-3.3.1-11]
            if self.retained.clear(topic) and self.store.keeps and not topic.startswith("$SYS/"):
                self.store.clear_retained(topic)
            return
        limits = self.config.limits
        old = self.retained.get(topic)
        more = len(message.payload) - (len(old.payload) if old is not None else 0)
        most = limits.max_retained_messages
        if (
            (old is None and 0 < most <= len(self.retained))
            or (old is None and 0 < most * LEVELS_EACH <= self.retained.nodes)
            or (0 < limits.max_retained_bytes < self.retained.total_bytes + more and more > 0)
        ):
            self.counters.other["retained_refused"] += 1
            log.warning("client %r: %r not retained: limit reached", message.client_id, topic)
            return
        self.retained.keep(message)
        if self.store.keeps and not topic.startswith("$SYS/"):
            self.store.retain(message)

    def must_be_kept(self, message: Message) -> bool:
        """Tell whether the store must hear of a message before it may be acknowledged."""
        if message.retain:
            return True
        route = self.router.find(message.topic)
        return (
            any(session.row for session, _ in route.plain)
            or bool(route.groups)
            or any(each.session.row for fences in route.fences for each in fences)
        )

    def may_receive(self, session: Session, message: Message) -> bool:
        """Ask whether a session may get a message now."""
        hooks = self.hooks
        if not hooks.authorise_receive:
            return True
        if isinstance(session, Tap):
            return session.client is None or self.authorise_receive(session.client, message)
        return self.authorise_receive(self.client_of(session), message)

    def client_of(self, session: Session) -> Client:
        """Say whose session it is, connected or not."""
        link = session.link
        if link is not None and link.client is not None:
            return link.client
        return Client(session.client_id, session.username, "", "", session.username is None)

    def forget_rights(self) -> None:
        """Ask plugins again, because they may answer otherwise now."""
        self.router.forget_all()
        for link in self.links:
            if link.settled is not None:
                link.settled.clear()

    def note_drop(self, session: Session, reason: str) -> None:
        """Count a QoS 1 or 2 message that a limit took from a session."""
        self.counters.messages_dropped += 1
        dropped = self.counters.dropped_by_client
        name = session.client_id
        if name not in dropped:
            log.warning("client %r: message dropped: %s", name, reason)
            if len(dropped) >= CLIENTS_COUNTED:
                name = "others"
        dropped[name] += 1

    def accepted(self, item: Accepted) -> None:
        """Show accepted messages to plugins, together at the end of the turn."""
        if not self._accepted:
            asyncio.get_running_loop().call_soon(self._show_accepted)
        self._accepted.append(item)

    def _show_accepted(self) -> None:
        batch, self._accepted = self._accepted, []
        self.hooks.accepted(batch)

    # Sending

    def flush(self) -> None:
        """Write every outbox that does not wait for the store."""
        unsent = self.unsent
        if unsent:
            self.unsent = []
            for link in unsent:
                if not link.held:
                    link.write()
        store = self.store
        if not self._committing and (
            self.held or (store.dirty and store.holds and not store.failing)
        ):
            # Everything this turn of the loop brings shares one commit.
            self._committing = True
            asyncio.get_running_loop().call_soon(self._commit)

    def finish(self) -> None:
        """Commit and write everything at once, because this is the end."""
        self.flush()
        self._commit()

    def _commit(self) -> None:
        self._committing = False
        held, self.held = self.held, []
        kept = self.store.commit()
        if not kept:
            self.counters.store_errors += 1
        unkept, self.store.unkept = self.store.unkept, set()
        for link in held:
            link.held = False
            if kept or link not in unkept:
                link.write()
            else:
                link.outbox = []
                link.close("its message could not be kept")

    async def later(self, delay_s: float, call: Callable[..., Any], *args: Any) -> None:
        """Call a handler's second half after a while."""
        await asyncio.sleep(delay_s)
        waiting = call(*args)
        if waiting is not None:
            await waiting

    # What plugins see (plugins.api.Broker)

    @property
    def data_dir(self) -> str | None:
        """The folder for everything that lasts."""
        return self.config.data_dir or None

    @property
    def plugins(self) -> Sequence[Plugin]:
        """All plugins that run."""
        return self.hooks.plugins

    async def authenticate(self, credentials: Credentials) -> bool:
        """Ask all plugins; without an opinion, what the HTTP door says of everybody."""
        verdict = self.hooks.decide(self.hooks.authenticate, "authenticate", credentials)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if verdict is None:
            return self.config.anonymous(self.config.http) and (
                credentials.client.anonymous or not self.hooks.authenticate
            )
        return verdict

    async def authorise_publish(self, client: Client, message: Message) -> bool:
        """Ask all plugins."""
        return await self._authorised("authorise_publish", client, message)

    async def authorise_subscribe(self, client: Client, request: SubscribeRequest) -> bool:
        """Ask all plugins."""
        return await self._authorised("authorise_subscribe", client, request)

    async def _authorised(self, name: str, client: Client, subject: Any) -> bool:
        verdict = self.hooks.decide(getattr(self.hooks, name), name, client, subject)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        return verdict is not False

    @property
    def restricts_receiving(self) -> bool:
        """Whether any plugin has a say in who gets which message."""
        return bool(self.hooks.authorise_receive)

    def authorise_receive(self, client: Client, message: Message) -> bool:
        """Ask all plugins."""
        hooks = self.hooks
        verdict = hooks.decide_now(hooks.authorise_receive, "authorise_receive", client, message)
        return verdict is not False

    def subscribe(
        self,
        topic_filter: str,
        deliver: Callable[[Message], None],
        client: Client | None = None,
    ) -> Tap:
        """Call `deliver` for every accepted message on a topic filter."""
        tap = Tap(self, deliver, client)
        self.router.subscribe(from_filter(tap, topic_filter, 2))
        return tap

    def locations(self) -> Mapping[str, Location]:
        """The last known locations by client id."""
        return self._locations

    def fences(self) -> Iterable[Mapping[str, Any]]:
        """The geofences in force: of geo subscriptions, and MQTT-G's."""
        for session in self.sessions:
            for subscription in session.subscriptions.values():
                for test in tests_of(subscription):
                    place = test.place
                    if test.near_m and session.place is not None:
                        place = circle(session.place.x, session.place.y, test.near_m)
                    if place is not None:
                        yield {
                            "client": session.client_id,
                            "name": None,
                            "kind": "near" if test.near_m else RELATIONS[test.relation],
                            "filter": subscription.topic_filter,
                            "place": place,
                        }
            for name, fence in (session.fences or {}).items():
                yield {
                    "client": session.client_id,
                    "name": name,
                    "kind": "dynamic" if fence.dynamic else "static",
                    "filter": ",".join(fence.topics) or "#",
                    "place": fence.place,
                }

    def status(self) -> Mapping[str, int | float]:
        """What is the case now, as opposed to what was counted."""
        return {
            "uptime_s": round(time.monotonic() - self.started_at, 1),
            "connections": len(self.links),
            "sessions": len(self.sessions),
            "subscriptions": self.router.subscriptions,
            "retained_messages": len(self.retained),
            "retained_bytes": self.retained.total_bytes,
            "queued_messages": sum(session.queued for session in self.sessions),
            "inflight_messages": sum(len(session.in_flight) for session in self.sessions),
            "unsent_bytes": self.backlog.unsent_bytes,
            "store_failing": int(self.store.failing),
        }

    def counts(self) -> Mapping[str, int]:
        """All counters, by their metric name."""
        return self.counters.snapshot()

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of a plugin's own."""
        self.counters.other[name] += amount

    def pause_publishers(self, reason: str = "plugin") -> None:
        """Stop reading from connections until `resume_publishers` for the same reason."""
        self._pauses.add(reason)
        self.publishers_paused = True
        for link in self.links:
            if link.state is State.CONNECTED:
                link.transport.pause_reading()

    def resume_publishers(self, reason: str = "plugin") -> None:
        """Read again, if nothing else is in the way."""
        self._pauses.discard(reason)
        if self.publishers_paused and not self._pauses:
            self.publishers_paused = False
            now = time.monotonic()
            for link in self.links:
                link.last_packet = now  # whoever was not read from has not been silent
                link.unpause()


def tests_of(subscription: Subscription) -> tuple[Spatial, ...]:
    """Give the spatial tests of a subscription, if it has any."""
    return subscription.geo.spatial if isinstance(subscription, GeoSubscription) else ()
