"""The store in one SQLite file, `<data>/store.sqlite`, in WAL mode.

Changes wait in plain lists and dictionaries and are written in one transaction. If only
messages under way are concerned, the group becomes one record of the journal; now and then,
and whenever sessions or retained messages change, what has come of all groups since is
written into the tables, and the journal starts anew.

Row numbers are given out here and never used twice, so the order inside a group is free:
inserts, then updates, then deletes; and a message that is delivered before its group is
written into the tables never gets there. What is keyed by name (subscriptions, retained
messages, wills) keeps only its last state.

A commit without fsync survives the death of the broker, because the bytes are the
kernel's by then; `durability = "power"` adds the fsync that a power cut asks for.
Checkpoints run in a thread, outside the interpreter's lock.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.config import Storage
from broker.store import Store
from broker.store.files import lock, open_store
from broker.store.journal import CHANGE, Group
from broker.store.records import message_values

if TYPE_CHECKING:
    from broker.client_fences import ClientFence
    from broker.delivery import Delivery
    from broker.session import Session
    from broker.subscription import Subscription
    from protocol.geo import Location
    from protocol.message import Message

log = logging.getLogger("geomqtt.store")

FILE = "store.sqlite"
CHECKPOINT_BYTES = 8 * 1024 * 1024
JOURNAL_BYTES = 256 * 1024  # of records, before what is left of them goes into the tables

QUEUED, SENT, RELEASED = range(3)  # states of an outgoing message


class SqliteStore(Store):
    """Keeps everything that must survive."""

    keeps = True

    def __init__(self, data_dir: str | Path, settings: Storage) -> None:
        super().__init__()
        self.path = Path(data_dir) / FILE
        self.holds = settings.durability != "relaxed"
        self._lock = lock(self.path)
        self._db = open_store(self.path)
        full = settings.durability == "power"
        self._db.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        self._db.execute("PRAGMA wal_autocheckpoint = 0")
        # A counter for each table, so that rows that go together lie together.
        self._next_row = {
            table: 1 + self._db.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]
            for table in ("session", "message", "outgoing")
        }
        # message rows and how many outgoing rows need each
        self._references: dict[int, int] = {}
        self._message_of: dict[int, int] = {}  # outgoing row -> message row
        self._last: tuple[Message | None, int] = (None, 0)
        self._checkpoint: threading.Thread | None = None
        self._forget_pending()

    def _forget_pending(self) -> None:
        self._new_sessions: dict[int, tuple[Any, ...]] = {}
        self._old_sessions: list[int] = []
        self._new_messages: dict[int, tuple[Any, ...]] = {}
        self._old_messages: list[int] = []
        self._new_outgoing: dict[int, tuple[Any, ...]] = {}
        self._changed_outgoing: dict[int, tuple[int, int]] = {}  # row -> packet id, state
        self._old_outgoing: list[int] = []
        # keyed state: (table, key) -> values, or None to delete
        self._keyed: dict[tuple[str, Any], tuple[Any, ...] | None] = {}
        self._group = Group()
        self._journal_bytes = 0
        self._tables_due = False  # something has changed that the journal does not hold
        self.dirty = False

    def _keep(self, table: str, key: Any, values: tuple[Any, ...] | None) -> None:
        """Write, or delete, a row of a keyed table with the next commit."""
        self._keyed[table, key] = values
        self._tables_due = self.dirty = True

    def _row(self, table: str) -> int:
        row: int = self._next_row[table]
        self._next_row[table] = row + 1
        self.dirty = True
        return row

    # Sessions

    def add_session(self, session: Session) -> None:
        """Keep a persistent session: gives it a row."""
        session.row = self._row("session")
        self.update_session(session)

    def update_session(self, session: Session) -> None:
        """Keep what has changed about a session itself."""
        self._new_sessions[session.row] = (
            session.row,
            session.client_id,
            session.username,
            session.geo_aware,
        )
        self._tables_due = self.dirty = True

    def remove_session(self, session: Session) -> None:
        """Forget a session with all that is its own."""
        for _, row in session.in_flight.values():
            if row:
                self.remove_outgoing(row)
        for _, row in session.queue or ():
            if row:
                self.remove_outgoing(row)
        for subscription in session.subscriptions.values():
            self.remove_subscription(subscription)
        for packet_id in session.incoming or ():
            self.remove_incoming(session, packet_id)
        for name in session.fences or ():
            self.remove_fence(session, name)
        self._new_sessions.pop(session.row, None)
        self._old_sessions.append(session.row)
        self._tables_due = self.dirty = True

    def add_subscription(self, subscription: Subscription) -> None:
        """Keep a subscription, in place of the one with the same key."""
        row, key = subscription.session.row, subscription.stored_key
        values = (row, key, subscription.order, subscription.qos, subscription.deliver)
        self._keep("subscription", (row, key), values)

    def remove_subscription(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        self._keep("subscription", (subscription.session.row, subscription.stored_key), None)

    # Messages under way

    def add_outgoing(self, session: Session, delivery: Delivery, packet_id: int) -> int:
        """Keep a message for a session (packet id 0: queued), and give its row."""
        message = delivery.message
        last, message_row = self._last
        if last is not message:  # the receivers of one message follow each other
            message_row = self._row("message")
            values = (message_row, *message_values(message))
            self._new_messages[message_row] = values
            self._group.messages.append(values)
            self._last = (message, message_row)
            self._references[message_row] = 0
        self._references[message_row] += 1
        row = self._row("outgoing")
        self._message_of[row] = message_row
        outgoing = (
            row,
            session.row,
            message_row,
            delivery.qos,
            delivery.retain,
            delivery.form.key,
            packet_id,
            SENT if packet_id else QUEUED,
        )
        self._new_outgoing[row] = outgoing
        self._group.outgoing.append(outgoing)
        self.told += 1
        return row

    def mark_sent(self, row: int, packet_id: int) -> None:
        """A queued message has been given its packet id."""
        self._change_outgoing(row, packet_id, SENT)

    def mark_released(self, row: int) -> None:
        """A QoS 2 message has been received: only its packet id matters now."""
        self._change_outgoing(row, 0, RELEASED)

    def _change_outgoing(self, row: int, packet_id: int, state: int) -> None:
        new = self._new_outgoing.get(row)
        if new is not None:
            self._new_outgoing[row] = (*new[:6], packet_id or new[6], state)
        else:
            old = self._changed_outgoing.get(row)
            self._changed_outgoing[row] = (packet_id or (old[0] if old else 0), state)
        self._group.changed.append((packet_id, state, row))
        self.dirty = True

    def remove_outgoing(self, row: int) -> None:
        """A message has arrived, or will never be sent."""
        self._changed_outgoing.pop(row, None)
        if self._new_outgoing.pop(row, None) is None:
            self._old_outgoing.append(row)
        message_row = self._message_of.pop(row)
        left = self._references[message_row] - 1
        if left:
            self._references[message_row] = left
        else:
            del self._references[message_row]
            if self._last[1] == message_row:
                self._last = (None, 0)
            if self._new_messages.pop(message_row, None) is None:
                self._old_messages.append(message_row)
        self._group.removed.append(row)
        self.dirty = True

    def restored_outgoing(self, row: int, message_row: int) -> None:
        """Take note of an outgoing message that was read back at start."""
        self._message_of[row] = message_row
        self._references[message_row] = self._references.get(message_row, 0) + 1

    def add_incoming(self, session: Session, packet_id: int) -> None:
        """A QoS 2 message of this id has been taken and must not be taken again."""
        self._keyed["incoming", (session.row, packet_id)] = (session.row, packet_id)
        self._group.incoming.append((session.row, packet_id, True))
        self.told += 1
        self.dirty = True

    def remove_incoming(self, session: Session, packet_id: int) -> None:
        """The client has released the id."""
        self._keyed["incoming", (session.row, packet_id)] = None
        self._group.incoming.append((session.row, packet_id, False))
        self.dirty = True

    # Retained messages and wills

    def retain(self, message: Message) -> None:
        """Keep a retained message."""
        self._keep("retained", (message.topic,), message_values(message))
        self.told += 1

    def clear_retained(self, topic: str) -> None:
        """Forget the retained message of a topic."""
        self._keep("retained", (topic,), None)
        self.told += 1

    def add_will(self, client_id: str, username: str | None, will: Message) -> None:
        """Keep the will of a connected client, in case we go first."""
        self._keep("will", (client_id,), (*message_values(will), username))

    def remove_will(self, client_id: str) -> None:
        """The will has been published or torn up."""
        self._keep("will", (client_id,), None)

    # Places

    def note_location(self, client_id: str, location: Location | None) -> None:
        """Keep where a client is; None: nobody knows any more."""
        values = None
        if location is not None:
            values = (client_id, location.lat, location.lon, location.elev)
        self._keep("location", (client_id,), values)

    def add_fence(self, session: Session, name: str, fence: ClientFence) -> None:
        """Keep an MQTT-G geofence of a persistent session."""
        if session.row:
            anchor = fence.anchor
            lat, lon = (anchor.lat, anchor.lon) if anchor is not None else (None, None)
            values = (session.row, name, fence.payload, lat, lon)
            self._keep("fence", (session.row, name), values)

    def remove_fence(self, session: Session, name: str) -> None:
        """Forget a geofence."""
        if session.row:
            self._keep("fence", (session.row, name), None)

    # Writing

    def commit(self) -> bool:
        """Make everything told so far last; False if that failed.

        What could not be written is kept and tried again with the next commit: a QoS 2
        message whose fate is open must not be taken a second time.
        """
        if self.dirty:
            try:
                if self._tables_due or self._journal_bytes > JOURNAL_BYTES:
                    self._write_tables()
                    self._forget_pending()
                else:
                    self._journal_bytes += self._group.append_to(self._db)
                    self._group = Group()
                    self.dirty = False
            except sqlite3.Error as error:
                if self._db.in_transaction:
                    self._db.rollback()
                if not self.failing:
                    log.error("store %s: %s: messages cannot be kept", self.path, error)
                self.failing = True
                return False
            if self.failing:
                self.failing = False
                log.warning("store %s: writing again", self.path)
        self.unkept.clear()
        return True

    def _write_tables(self) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        many = db.executemany
        if self._new_sessions:
            many("INSERT OR REPLACE INTO session VALUES (?,?,?,?)", self._new_sessions.values())
        if self._new_messages:
            many("INSERT INTO message VALUES (?,?,?,?,?,?,?,?)", self._new_messages.values())
        if self._new_outgoing:
            many("INSERT INTO outgoing VALUES (?,?,?,?,?,?,?,?)", self._new_outgoing.values())
        if self._changed_outgoing:
            changed = self._changed_outgoing.items()
            many(CHANGE, [(packet, state, row) for row, (packet, state) in changed])
        for table, rows in (("outgoing", self._old_outgoing), ("message", self._old_messages)):
            if rows:
                many(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", runs(rows))
        if self._keyed:
            self._write_keyed()
        if self._old_sessions:
            many("DELETE FROM session WHERE id BETWEEN ? AND ?", runs(self._old_sessions))
        db.execute("DELETE FROM journal")
        db.execute("COMMIT")

    def _write_keyed(self) -> None:
        for (table, key), values in self._keyed.items():
            if values is None:
                self._db.execute(_DELETE[table], key)
            else:
                self._db.execute(_UPSERT[table], values)

    def tick(self) -> None:
        """Try again what failed, and keep the log of changes short; called once a second."""
        if self.failing or not self.holds:
            self.commit()
        if self._checkpoint is not None and not self._checkpoint.is_alive():
            self._checkpoint = None
            # The thread has moved all but the newest pages; starting the log over is quick now.
            self._try("PRAGMA wal_checkpoint(TRUNCATE)")
        elif self._checkpoint is None and self._wal_bytes() > CHECKPOINT_BYTES:
            self._checkpoint = threading.Thread(target=self._run_checkpoint, name="checkpoint")
            self._checkpoint.start()

    def _wal_bytes(self) -> int:
        try:
            return self.path.with_name(FILE + "-wal").stat().st_size
        except OSError:
            return 0

    def _run_checkpoint(self) -> None:
        try:
            db = sqlite3.connect(self.path, isolation_level=None)
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            db.close()
        except sqlite3.Error as error:
            log.warning("store %s: checkpoint: %s", self.path, error)

    def _try(self, statement: str) -> None:
        try:
            self._db.execute(statement)
        except sqlite3.Error as error:
            log.warning("store %s: %s", self.path, error)

    def close(self) -> None:
        """Let go of the files."""
        if self._checkpoint is not None:
            self._checkpoint.join()
        self._tables_due = self.dirty = True
        self.commit()
        self._try("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()
        self._lock.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """The open file, for reading it back at start."""
        return self._db


def runs(rows: list[int]) -> Iterator[tuple[int, int]]:
    """Put row numbers together that follow each other: a range costs a tenth of its rows.

    >>> list(runs([3, 1, 2, 7]))
    [(1, 3), (7, 7)]
    """
    rows.sort()
    first = last = rows[0]
    for row in rows:
        if row > last + 1:
            yield first, last
            first = row
        last = row
    yield first, last


_UPSERT = {
    "subscription": "INSERT OR REPLACE INTO subscription VALUES (?,?,?,?,?)",
    "incoming": "INSERT OR REPLACE INTO incoming VALUES (?,?)",
    "retained": "INSERT OR REPLACE INTO retained VALUES (?,?,?,?,?,?,?)",
    "will": "INSERT OR REPLACE INTO will VALUES (?,?,?,?,?,?,?,?)",
    "location": "INSERT OR REPLACE INTO location VALUES (?,?,?,?)",
    "fence": "INSERT OR REPLACE INTO fence VALUES (?,?,?,?,?)",
}
_DELETE = {
    "subscription": "DELETE FROM subscription WHERE session = ? AND key = ?",
    "incoming": "DELETE FROM incoming WHERE session = ? AND packet_id = ?",
    "retained": "DELETE FROM retained WHERE topic = ?",
    "will": "DELETE FROM will WHERE client_id = ?",
    "location": "DELETE FROM location WHERE client_id = ?",
    "fence": "DELETE FROM fence WHERE session = ? AND name = ?",
}
