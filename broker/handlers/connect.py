"""CONNECT: who is it, may it come in, and which session does it continue?

limits -> authenticate (may wait) -> take over -> session -> CONNACK -> what was missed
"""

from __future__ import annotations

import inspect
import logging
import uuid
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from broker.handlers.geo_commands import is_command, refuse
from plugins.api import Client, Credentials
from protocol import packets as p
from protocol.conditions import geo_from_text
from protocol.encode import connack
from protocol.errors import BadValue, ConnectRefused
from protocol.machine import State
from protocol.message import Message
from protocol.packets import Connect
from protocol.topics import GEO_PREFIX, is_reserved

if TYPE_CHECKING:
    from broker.link import Link

log = logging.getLogger("geomqtt.connect")


def handle_connect(link: Link, packet: Connect) -> Awaitable[None] | None:
    """Let a client in, or tell it why not."""
    broker = link.broker
    client_id = packet.client_id
    if not client_id:
        if not broker.config.allow_zero_length_clientid:
            raise ConnectRefused(p.IDENTIFIER_REJECTED, "empty client ids are not allowed")
        client_id = f"auto-{uuid.uuid4().hex}"  # [MQTT-3.1.3-6]
    settings = link.listener.settings
    certificate_name = link.certificate_name()
    username = packet.username
    password = packet.password
    if settings.use_identity_as_username:
        if certificate_name is None:
            broker.counters.other["authentication_failures"] += 1
            raise ConnectRefused(p.NOT_AUTHORISED, "no certificate with a common name")
        username, password = certificate_name, None
    link.client = Client(client_id, username, link.address, settings.name, username is None)
    link.state = State.CONNECTING
    credentials = Credentials(link.client, password, certificate_name)
    verdict = broker.hooks.decide(broker.hooks.authenticate, "authenticate", credentials)
    if inspect.isawaitable(verdict):
        return _connect_later(link, packet, verdict)
    _connect(link, packet, verdict)
    return None


async def _connect_later(link: Link, packet: Connect, verdict: Awaitable[bool | None]) -> None:
    _connect(link, packet, await verdict)


def _connect(link: Link, packet: Connect, verdict: bool | None) -> None:
    broker = link.broker
    client = link.client
    assert client is not None
    settings = link.listener.settings
    if verdict is None:
        # Nobody has an opinion: a proven certificate, or a listener open to everybody.
        verdict = settings.use_identity_as_username or (
            link.listener.anonymous and (client.anonymous or not broker.hooks.authenticate)
        )
    if not verdict:
        broker.counters.other["authentication_failures"] += 1
        raise ConnectRefused(p.NOT_AUTHORISED, "not authorised")
    keep_alive_s = packet.keep_alive_s
    ceiling = broker.config.limits.max_keep_alive_s
    if ceiling and not 0 < keep_alive_s <= ceiling:
        broker.counters.other["keep_alive_refused"] += 1
        raise ConnectRefused(
            p.IDENTIFIER_REJECTED, f"keep-alive of {keep_alive_s} s, limit is {ceiling}"
        )
    session, present = broker.sessions.open(
        client.client_id, clean=packet.clean_session, link=link, username=client.username
    )
    if packet.protocol_name == "GeoMQTT":
        session.geo_aware = True
    link.session = session
    link.state = State.CONNECTED
    link.keep_alive_s = float(keep_alive_s)
    link.v31 = packet.level == 3
    link.fast = broker.fast_lane_open and link.passes_frames
    link.settled = set() if broker.hooks.authorise_publish else None
    link.note_location(packet.location)
    if packet.will is not None:
        _keep_will(link, packet.will)
    broker.deadlines.watch(link)
    # [MQTT-3.2.0-1]: CONNACK is the first packet; what was missed comes behind it. MQTT 3.1
    # has no session-present flag.
    link.send(connack(p.ACCEPTED, session_present=present and not link.v31))
    log.info(
        "client %r connected from %s on %s%s%s",
        client.client_id,
        link.address,
        settings.name,
        f" as {client.username!r}" if client.username else "",
        ", session resumed" if present else "",
    )
    broker.hooks.tell(broker.hooks.on_connect, "on_connect", client)
    session.resume(link)


def _keep_will(link: Link, will: p.Will) -> None:
    """Read a will as this listener reads a PUBLISH; one that cannot be used is dropped here."""
    broker = link.broker
    dialect = link.listener.dialect
    topic, geo = will.topic, None
    if dialect.geo and topic.startswith(GEO_PREFIX):
        try:
            topic, geo = geo_from_text(topic, dialect.geometry, dialect.max_levels)
        except BadValue as error:
            refuse(link, will.topic, str(error))
            return
    elif is_reserved(topic) or (dialect.geo and is_command(topic)):
        broker.counters.messages_denied += 1
        log.info("client %s: will on %r denied", link.name, topic)
        return
    message = Message(topic, will.payload, will.qos, will.retain, link.joined.client_id, geo=geo)
    broker.keep_will(link, message)
