"""A store with something of everything in it, and what a broker reads back from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.broker import Broker
from broker.config import Config, Storage
from broker.session import Session
from broker.store.restore import restore
from broker.store.sqlite import SqliteStore
from broker.subscription import from_filter
from protocol.message import Message


def open_broker(folder: Path) -> tuple[Broker, SqliteStore]:
    """Open a store as the daemon does."""
    store = SqliteStore(folder, Storage())
    broker = Broker(Config(), [], store)
    restore(broker, store)
    return broker, store


def add_session(broker: Broker, client_id: str, *filters: str, qos: int = 1) -> Session:
    """Add a persistent session whose client is away."""
    session = Session(broker, client_id, clean=False)
    session.username = f"user of {client_id}"
    broker.sessions.restore(session)
    broker.store.add_session(session)
    for topic_filter in filters:
        subscription = from_filter(session, topic_filter, qos)
        broker.router.subscribe(subscription)
        broker.store.add_subscription(subscription)
    return session


def fill(folder: Path, sessions: int = 5, messages: int = 40, size: int = 200) -> None:
    """Make a store."""
    broker, store = open_broker(folder)
    for number in range(sessions):
        session = add_session(broker, f"client{number}", "t/#", f"own/{number}", qos=2)
        for packet_id in range(1, number + 2):
            store.add_incoming(session, packet_id)
        will = Message(f"will/{number}", b"gone", 1, False, session.client_id)
        store.add_will(session.client_id, session.username, will)
    for number in range(messages):
        payload = b"%06d" % number + bytes(size)
        broker.publish(Message(f"t/{number % 7}", payload, number % 2 + 1, False, "p", number))
        broker.publish(Message(f"state/{number}", payload, 1, True, "p", number))
        store.commit()
    store.commit()
    store.close()


def contents(broker: Broker) -> dict[str, set[Any]]:
    """Say what a broker knows, in single facts that can be compared as sets."""
    facts: dict[str, set[Any]] = {"session": set(), "subscription": set(), "queued": set()}
    facts |= {"in_flight": set(), "incoming": set(), "retained": set(), "will": set()}
    for session in broker.sessions:
        name = session.client_id
        facts["session"].add((name, session.username))
        facts["subscription"] |= {
            (name, key, each.qos) for key, each in session.subscriptions.items()
        }
        facts["queued"] |= {
            (name, delivery.message.topic, bytes(delivery.message.payload), delivery.qos)
            for delivery, _ in session.queue or ()
        }
        facts["in_flight"] |= {
            (name, packet_id, None if delivery is None else bytes(delivery.message.payload))
            for packet_id, (delivery, _) in session.in_flight.items()
        }
        facts["incoming"] |= {(name, packet_id) for packet_id in session.incoming or ()}
    facts["retained"] = {
        (message.topic, bytes(message.payload)) for message in broker.retained.match("#")
    }
    facts["will"] = {
        (name, username, will.topic, bytes(will.payload))
        for name, (username, will) in broker.orphaned_wills.items()
    }
    return facts


def count(facts: dict[str, set[Any]]) -> int:
    """Count all facts."""
    return sum(len(each) for each in facts.values())
