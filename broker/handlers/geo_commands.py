"""What a client tells the broker by publishing: where it is, and its MQTT-G geofences.

    $/SYS/MQTT/location           POINT(lon lat) or {"lat": …, "lon": …}
    $/SYS/MQTT/geofence/<name>    a geometry, or JSON; empty: forget this fence
    $/SYS/MQTT/geofence           empty: forget all fences

These publishes are acknowledged like any other, and never forwarded or retained. What is
refused is told on `$/SYS/MQTT/error`, to this client alone and only if it listens there.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from broker.client_fences import parse_fence, parse_location
from broker.delivery import Delivery
from broker.subscription import Subscription
from protocol.errors import BadValue
from protocol.message import Message
from protocol.packets import Publish
from protocol.topics import matches

if TYPE_CHECKING:
    from broker.link import Link

log = logging.getLogger("geomqtt.geo")

LOCATION = "$/SYS/MQTT/location"
GEOFENCE = "$/SYS/MQTT/geofence"
GEOFENCE_ALIAS = "$SYS/MQTT/geofence"
ERROR = "$/SYS/MQTT/error"


def is_command(topic: str) -> bool:
    """Tell whether a publish to this topic speaks to the broker itself."""
    return topic == LOCATION or _fence_name(topic) is not None


def _fence_name(topic: str) -> str | None:
    """Give the name of the fence that a topic speaks of; "" for all of them."""
    for root in (GEOFENCE, GEOFENCE_ALIAS):
        if topic == root:
            return ""
        if topic.startswith(f"{root}/"):
            return topic[len(root) + 1 :]
    return None


def obey(link: Link, packet: Publish) -> None:
    """Do what a command says, or say why not."""
    try:
        if packet.topic == LOCATION:
            link.broker.note_location(link.joined, parse_location(packet.payload))
            if packet.qos:
                link.broker.store_locations()
        else:
            _change_fences(link, packet)
    except BadValue as error:
        refuse(link, packet.topic, str(error))


def _change_fences(link: Link, packet: Publish) -> None:
    broker, session = link.broker, link.joined
    name = _fence_name(packet.topic)
    fences = dict(session.fences or {})
    if not packet.payload:
        removed = list(fences) if not name else [each for each in (name,) if each in fences]
        for each in removed:
            del fences[each]
            broker.store.remove_fence(session, each)
    elif not name:
        raise BadValue("a geofence needs a name")
    else:
        limit = broker.config.limits.max_fences
        if name not in fences and 0 < limit <= len(fences):
            broker.counters.other["fences_exceeded"] += 1
            raise BadValue(f"limit of {limit} geofences")
        dialect = link.listener.dialect
        fences[name] = parse_fence(
            packet.payload, session.location, dialect.geometry, dialect.max_levels
        )
        broker.store.add_fence(session, name, fences[name])
    session.fences = fences or None
    broker.router.forget_all()  # who may be served by the fast lane has changed


def refuse(link: Link, topic: str, reason: str) -> None:
    """Count, log and tell what is wrong with a place or time."""
    broker, session = link.broker, link.joined
    broker.counters.geo_refused += 1
    log.info("client %s: publish to %r refused: %s", link.name, topic[:200], reason)
    qos = max(
        (
            each.qos
            for each in session.subscriptions.values()
            if type(each) is Subscription
            and each.group is None
            and matches(each.topic_filter, ERROR)
        ),
        default=None,
    )
    if qos is not None:
        report = {"topic": link.seen(topic), "reason": reason}
        payload = json.dumps(report, ensure_ascii=False).encode()
        told = Message(ERROR, payload, 1, received_ms=broker.read_ms)
        session.deliver(Delivery(told, min(qos, 1)))
