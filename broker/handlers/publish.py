"""PUBLISH: is it new, is it allowed, and then: keep, acknowledge, route, show.

The acknowledgement is put into the publisher's outbox before the message is routed, so
that it precedes an echo on the same connection; nothing leaves an outbox before the
message is routed and, where a persistent session must get it, committed.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from broker.handlers.geo_commands import is_command, obey, refuse
from protocol.conditions import geo_from_text
from protocol.encode import puback, pubrec
from protocol.errors import BadValue, ProtocolError
from protocol.geo import Geo
from protocol.message import Message
from protocol.packets import Publish
from protocol.topics import GEO_PREFIX, is_reserved

if TYPE_CHECKING:
    from broker.link import Link

log = logging.getLogger("geomqtt.publish")

SETTLED_KEPT = 1_000  # topics of one client that need no asking


def handle_publish(link: Link, packet: Publish) -> Awaitable[None] | None:
    """Accept a message from a client."""
    broker = link.broker
    session = link.joined
    counters = broker.counters
    counters.publish_received += 1
    counters.publish_bytes_received += len(packet.payload) + len(packet.topic) + 4
    qos = packet.qos
    if qos == 2:
        incoming = session.incoming
        if incoming is None:
            incoming = session.incoming = set()
        if packet.packet_id in incoming:  # [MQTT-4.3.3-2]: had it, once is enough
            if session.row and broker.store.dirty:  # had it, but perhaps not on disk yet
                link.hold()
                broker.store.depends(link)
            link.send(pubrec(packet.packet_id))
            return None
        if 0 < broker.config.limits.max_incoming_qos2 <= len(incoming):
            counters.other["incoming_qos2_exceeded"] += 1
            raise ProtocolError(f"{len(incoming)} QoS 2 messages unreleased")
    topic, geo, fault = packet.topic, packet.geo, packet.fault
    if packet.location is not None:
        link.note_location(packet.location)
    if geo is not None:
        link.note_geo_aware()
    if topic[0] == "$":
        if topic.startswith(GEO_PREFIX) and link.listener.dialect.geo and fault is None:
            topic, geo, fault = _unwrap(link, topic, geo)
        elif _taken(link, packet):
            return None
    if fault is not None:
        if qos:
            acknowledge(link, packet)
        refuse(link, packet.topic, fault)
        return None
    message = Message(
        topic,
        packet.payload,
        qos,
        packet.retain,
        session.client_id,
        broker.read_ms,
        geo,
        session.location,
    )
    if broker.paced:
        delay_s = _over_rate(link)
        if delay_s:
            return broker.later(delay_s, _judge, link, packet, message)
    return _judge(link, packet, message)


def _judge(link: Link, packet: Publish, message: Message) -> Awaitable[None] | None:
    hooks = link.broker.hooks
    if hooks.authorise_publish:
        verdict = hooks.decide(hooks.authorise_publish, "authorise_publish", link.client, message)
        if inspect.isawaitable(verdict):
            return _accept_later(link, packet, message, verdict)
        if verdict is False:
            deny(link, packet, "not authorised to publish")
            return None
        if link.fast:
            _settle(link, packet)
    accept(link, packet, message)
    return None


def _settle(link: Link, packet: Publish) -> None:
    """Remember that nobody needs to be asked about a topic again, for the fast lane."""
    settled, client = link.settled, link.client
    if settled is None or client is None or packet.topic[0] == "$":
        return
    topic = packet.topic.encode()
    if topic not in settled and link.broker.hooks.may_publish_all(client, packet.topic):
        if len(settled) >= SETTLED_KEPT:
            settled.clear()
        settled.add(topic)


async def _accept_later(
    link: Link, packet: Publish, message: Message, verdict: Awaitable[bool | None]
) -> None:
    if await verdict is False:
        deny(link, packet, "not authorised to publish")
    else:
        accept(link, packet, message)


def _unwrap(link: Link, topic: str, geo: Geo | None) -> tuple[str, Geo | None, str | None]:
    """Read a `$geo/` topic; what it says of the place wins over a PUBLISHg's location."""
    dialect = link.listener.dialect
    try:
        inner, said = geo_from_text(topic, dialect.geometry, dialect.max_levels)
    except BadValue as error:
        return topic, None, str(error)
    if geo is not None and said.place is None:
        said = dataclasses.replace(
            said,
            geometry_form=geo.geometry_form,
            geometry_raw=geo.geometry_raw,
            place=geo.place,
        )
    return inner, said, None


def _taken(link: Link, packet: Publish) -> bool:
    """Obey what is said to the broker itself; keep clients out of its own topics."""
    if link.listener.dialect.geo and is_command(packet.topic):
        if packet.qos:
            acknowledge(link, packet)
            link.hold()  # what is acknowledged must last
        obey(link, packet)
        return True
    if is_reserved(packet.topic):
        deny(link, packet, "topic is the broker's own")
        return True
    return False


def _over_rate(link: Link) -> float:
    """Take one token from the client's bucket; tell how long to wait when it is empty."""
    limits = link.broker.config.limits
    now = time.monotonic()
    tokens, since = link.allowance or (float(limits.messages_burst), now)
    tokens = min(limits.messages_burst, tokens + (now - since) * limits.messages_per_s) - 1
    link.allowance = (tokens, now)
    if tokens >= 0:
        return 0.0
    link.broker.counters.other["messages_throttled"] += 1
    return -tokens / limits.messages_per_s


def accept(link: Link, packet: Publish, message: Message) -> None:
    """Take responsibility for a message: acknowledge, keep, route."""
    broker = link.broker
    changed: Message | None = message
    if broker.hooks.on_publish and link.client is not None:
        changed = broker.hooks.change(link.client, message)
    if not packet.qos:
        if changed is not None:
            broker.publish(changed)
        return
    store = broker.store
    if store.failing and changed is not None and broker.must_be_kept(changed):
        counters = broker.counters
        counters.other["messages_unkept"] += 1
        log.warning("client %s: its message cannot be kept: closed", link.name)
        link.close("its message cannot be kept")
        return
    before = store.told
    acknowledge(link, packet)
    if changed is not None:
        broker.publish(changed)
    if store.told != before:
        # Somebody persistent gets it: no acknowledgement before that is on disk.
        link.hold()
        store.depends(link)


def acknowledge(link: Link, packet: Publish) -> None:
    """Answer as the QoS demands."""
    if packet.qos == 1:
        link.send(puback(packet.packet_id))
    elif packet.qos == 2:
        session = link.joined
        assert session.incoming is not None
        session.incoming.add(packet.packet_id)
        if session.row:
            link.broker.store.add_incoming(session, packet.packet_id)
        link.send(pubrec(packet.packet_id))


def deny(link: Link, packet: Publish, reason: str) -> None:
    """Acknowledge and forget, as MQTT 3.1.1 has no way to say no [MQTT-3.3.5-2]."""
    link.broker.counters.messages_denied += 1
    log.info("client %s: publish to %r denied: %s", link.name, packet.topic, reason)
    if packet.qos:
        acknowledge(link, packet)
