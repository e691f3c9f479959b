"""Mount points: clients of a listener that live below a prefix and never see it.

    in     the prefix is put before every topic and filter: PUBLISH, SUBSCRIBE, UNSUBSCRIBE,
           wills, their geo forms, and inside `$share/<group>/…` and `$geo/<conditions>/…`
    out    it is taken off the topic of every message

Everything behind the handlers (ACL, event log, REST, `$SYS` counters) sees the whole topic.
What a client says to the broker itself (`$/SYS/MQTT/…`) is not mounted; `$SYS` lies outside
the mount point, so its topics are neither readable nor writable from inside. A session
never passes into a mount point that it does not lie in.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from broker.handlers import HANDLERS
from broker.handlers.geo_commands import is_command
from broker.link import Link
from protocol import packets as p
from protocol.envelope import GeoEntry, GeoSubscribe, GeoUnsubscribe
from protocol.errors import TopicBeyondLimit
from protocol.fields import string, varint
from protocol.topic_fields import require_limits
from protocol.topics import GEO_PREFIX, SHARE_PREFIX, is_reserved

if TYPE_CHECKING:
    from broker.session import Session
    from protocol.mqttg import Dialect

COMMANDS = "$/SYS/"  # what a client and the broker say to each other
ENVELOPE = 0xF6


class Mount:
    """The mapping between what clients of one listener see and what the broker knows."""

    def __init__(self, prefix: str, dialect: Dialect) -> None:
        self.prefix = prefix
        self._dialect = dialect

    def topic(self, topic: str) -> str:
        """Put the prefix before a topic, unless it is said to the broker itself."""
        if topic.startswith("$") and (is_command(topic) or is_reserved(topic)):
            return topic
        return self._checked(self._inside(topic))

    def filter(self, topic_filter: str) -> str:
        """Put the prefix before a filter, within `$share` and `$geo`."""
        if topic_filter.startswith(COMMANDS):
            return topic_filter
        if topic_filter.startswith(SHARE_PREFIX):
            group, slash, inner = topic_filter[len(SHARE_PREFIX) :].partition("/")
            if not slash:
                return topic_filter  # is refused
            return self._checked(f"{SHARE_PREFIX}{group}/{self._inside(inner)}")
        return self._checked(self._inside(topic_filter))

    def _inside(self, topic: str) -> str:
        if self._dialect.geo and topic.startswith(GEO_PREFIX):
            conditions, slash, inner = topic[len(GEO_PREFIX) :].partition("/")
            # What begins with a dollar sign in there stays what it is, and is refused.
            if slash and inner and not inner.startswith("$"):
                return f"{GEO_PREFIX}{conditions}/{self.prefix}{inner}"
            return topic
        return self.prefix + topic

    def _checked(self, topic: str) -> str:
        require_limits(topic, self._dialect)
        if len(topic.encode()) > 0xFFFF:
            raise TopicBeyondLimit(f"topic of {len(topic.encode())} bytes with its mount point")
        return topic

    def seen(self, topic: str) -> str | None:
        """Take the prefix off a topic; None if it lies elsewhere."""
        if topic.startswith(COMMANDS):
            return topic
        conditions = ""
        if topic.startswith(GEO_PREFIX):
            end = topic.find("/", len(GEO_PREFIX)) + 1
            conditions, topic = topic[:end], topic[end:]
        # "b/#" matches "b" as well, and somebody may publish to "b/": neither has a name here.
        if not topic.startswith(self.prefix) or topic == self.prefix:
            return None
        return conditions + topic[len(self.prefix) :]

    def payload(self, payload: bytes) -> bytes:
        """Put the prefix before the topics that a geofence names."""
        try:
            document = json.loads(payload)
            document["topics"] = [self.filter(str(each)) for each in document["topics"]]
        except (ValueError, TypeError, KeyError, RecursionError):
            return payload  # names none, or is refused
        return json.dumps(document).encode()

    def holds(self, session: Session) -> bool:
        """Tell whether everything that a session asked for or is owed lies inside."""
        filters = (each.topic_filter for each in session.subscriptions.values())
        owed = [delivery for delivery, _ in session.queue or ()]
        owed += [delivery for delivery, _ in session.in_flight.values() if delivery is not None]
        return all(
            each.startswith((self.prefix, COMMANDS))
            for each in (*filters, *(delivery.message.topic for delivery in owed))
        )


def _connect(link: MountedLink, packet: p.Connect) -> Awaitable[None] | None:
    will = packet.will
    if will is not None:
        will = dataclasses.replace(will, topic=link.mount.topic(will.topic))
        packet = dataclasses.replace(packet, will=will)
    return _handle(link, packet)


def _publish(link: MountedLink, packet: p.Publish) -> Awaitable[None] | None:
    mount = link.mount
    if link.listener.dialect.geo and is_command(packet.topic):
        return _handle(link, dataclasses.replace(packet, payload=mount.payload(packet.payload)))
    return _handle(link, dataclasses.replace(packet, topic=mount.topic(packet.topic)))


def _subscribe(link: MountedLink, packet: p.Subscribe) -> Awaitable[None] | None:
    mount = link.mount
    filters = tuple((mount.filter(each), qos) for each, qos in packet.filters)
    return _handle(link, dataclasses.replace(packet, filters=filters))


def _unsubscribe(link: MountedLink, packet: p.Unsubscribe) -> Awaitable[None] | None:
    filters = tuple(link.mount.filter(each) for each in packet.filters)
    return _handle(link, dataclasses.replace(packet, filters=filters))


def _entries(link: MountedLink, packet: GeoSubscribe | GeoUnsubscribe) -> Awaitable[None] | None:
    entries = tuple(_entry(link.mount, each) for each in packet.entries)
    return _handle(link, dataclasses.replace(packet, entries=entries))


def _entry(mount: Mount, entry: GeoEntry) -> GeoEntry:
    return dataclasses.replace(entry, topic_filter=mount.filter(entry.topic_filter))


def _handle(link: MountedLink, packet: Any) -> Awaitable[None] | None:
    waiting: Awaitable[None] | None = HANDLERS[type(packet)](link, packet)
    return waiting


MOUNTED: dict[type, Callable[[Any, Any], Any]] = {
    **HANDLERS,
    p.Connect: _connect,
    p.Publish: _publish,
    p.Subscribe: _subscribe,
    p.Unsubscribe: _unsubscribe,
    GeoSubscribe: _entries,
    GeoUnsubscribe: _entries,
}


class MountedLink(Link):
    """A connection whose client lives below a prefix."""

    __slots__ = ()
    handlers = MOUNTED
    passes_frames = False

    @property
    def mount(self) -> Mount:
        """The mapping of this link's listener, within the limits of now."""
        return Mount(self.listener.settings.mount_point, self.listener.dialect)

    def takes(self, session: Session) -> bool:
        """Tell whether a session may be continued here."""
        return self.mount.holds(session)

    def seen(self, topic: str) -> str:
        """Give a topic as this client knows it."""
        return self.mount.seen(topic) or topic

    def send_publish(self, packet: bytes) -> None:
        """Send a message under the topic that this client knows; if it has none, forget it."""
        made, packet_id = unmounted(packet, self.mount)
        if made:
            super().send_publish(made)
        elif packet_id:
            asyncio.get_running_loop().call_soon(self._give_up, packet_id)

    def _give_up(self, packet_id: int) -> None:
        if self.session is not None:
            self.session.give_up(packet_id)


def unmounted(packet: bytes, mount: Mount) -> tuple[bytes, int]:
    """Encode a PUBLISH or GEOPUBLISH again, with the prefix taken off its topic.

    Nothing comes back, and the packet id, when the topic does not lie below the prefix.
    """
    body = 1
    while packet[body] > 0x7F:
        body += 1
    body += 1
    inner = b""
    if packet[0] == ENVELOPE:
        inner = packet[body : body + 1]
        body += 1
    end = body + 2 + int.from_bytes(packet[body : body + 2], "big")
    topic = mount.seen(packet[body + 2 : end].decode())
    if topic is None:
        qos = (inner or packet)[0] & 0x06
        return b"", int.from_bytes(packet[end : end + 2], "big") if qos else 0
    rest = inner + string(topic) + packet[end:]
    return packet[:1] + varint(len(rest)) + rest, 0
