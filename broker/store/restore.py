"""Reading the store back at start: the broker stands as it stood when it was last committed."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from broker.client_fences import parse_fence
from broker.delivery import Delivery
from broker.forms import form_from_key
from broker.session import Session
from broker.store.records import message_from
from broker.store.sqlite import QUEUED, RELEASED, SqliteStore
from broker.subscription import from_stored_key
from protocol.errors import BadValue, ProtocolError
from protocol.geo import Location
from protocol.mqttg import ACCEPTED

if TYPE_CHECKING:
    from broker.broker import Broker
    from protocol.message import Message

log = logging.getLogger("geomqtt.store")


def restore(broker: Broker, store: SqliteStore) -> None:
    """Put sessions, subscriptions, messages under way, retained messages and wills back."""
    db = store.connection
    by_row: dict[int, Session] = {}
    for row, client_id, username, geo_aware in db.execute("SELECT * FROM session"):
        session = Session(broker, client_id, clean=False)
        session.row = row
        session.username = username
        session.geo_aware = bool(geo_aware)
        by_row[row] = session
        broker.sessions.restore(session)
    nan = float("nan")
    for client_id, lat, lon, elev in db.execute("SELECT * FROM location"):
        broker.restore_location(client_id, Location(lat, lon, nan if elev is None else elev))
    for session in by_row.values():
        broker.place_session(session)
    _restore_fences(store, by_row)
    _restore_subscriptions(broker, store, by_row)
    _restore_outgoing(store, by_row)
    for row, packet_id in db.execute("SELECT session, packet_id FROM incoming"):
        if row in by_row:
            session = by_row[row]
            if session.incoming is None:
                session.incoming = set()
            session.incoming.add(packet_id)
    for values in db.execute("SELECT * FROM retained"):
        broker.retained.keep(message_from(values))
    for *values, username in db.execute("SELECT * FROM will"):
        will = message_from(tuple(values))
        broker.orphaned_wills[will.client_id] = (username, will)
    if by_row or len(broker.retained):
        log.info(
            "restored %d sessions with %d messages under way, %d retained messages, %d wills",
            len(by_row),
            sum(len(session.in_flight) + session.queued for session in by_row.values()),
            len(broker.retained),
            len(broker.orphaned_wills),
        )


def _restore_subscriptions(broker: Broker, store: SqliteStore, by_row: dict[int, Session]) -> None:
    rows = store.connection.execute(
        "SELECT session, key, qos, deliver FROM subscription ORDER BY ordinal"
    )
    for row, key, qos, deliver in rows.fetchall():
        if row not in by_row:
            continue
        try:
            subscription = from_stored_key(by_row[row], bytes(key), qos, deliver)
        except (BadValue, ProtocolError) as error:
            log.error("client %r: subscription not restored: %s", by_row[row].client_id, error)
            continue
        broker.router.subscribe(subscription)


def _restore_fences(store: SqliteStore, by_row: dict[int, Session]) -> None:
    for row, name, payload, lat, lon in store.connection.execute("SELECT * FROM fence"):
        session = by_row.get(row)
        if session is None:
            continue
        anchor = Location(lat, lon, float("nan")) if lat is not None else None
        try:
            fence = parse_fence(bytes(payload), anchor, ACCEPTED.geometry, ACCEPTED.max_levels)
        except BadValue as error:
            log.error("client %r: geofence %r not restored: %s", session.client_id, name, error)
            continue
        if session.location is not None:
            fence.move(session.location)
        session.fences = {**(session.fences or {}), name: fence}


def _restore_outgoing(store: SqliteStore, by_row: dict[int, Session]) -> None:
    """Share one message object among its receivers, as it was before."""
    messages: dict[int, Message] = {}
    for row, *values in store.connection.execute("SELECT * FROM message"):
        messages[row] = message_from(tuple(values))
    rows = store.connection.execute("SELECT * FROM outgoing ORDER BY id")
    for row, session_row, message_row, qos, retain, form, packet_id, state in rows:
        session, message = by_row.get(session_row), messages.get(message_row)
        if session is None or message is None:
            continue
        store.restored_outgoing(row, message_row)
        delivery = Delivery(message, qos, bool(retain), form_from_key(bytes(form)))
        if state == QUEUED:
            if session.queue is None:
                session.queue = deque()
            session.queue.append((delivery, row))
            session.queued_bytes += delivery.size
        else:
            session.in_flight[packet_id] = (None if state == RELEASED else delivery, row)
            session.next_id = packet_id
