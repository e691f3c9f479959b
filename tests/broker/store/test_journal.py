"""The journal of messages under way: played back, brought into the tables, checked."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker.broker import Broker
from broker.store.sqlite import FILE, JOURNAL_BYTES, SqliteStore
from protocol.message import Message
from tests.broker.store.stores import add_session, contents, open_broker


class Reader:
    """A link whose client takes everything."""

    congested = held = False
    passes_frames = True
    client = None
    blamed: Any = None

    def hold(self) -> None:
        """Wait for nothing."""

    def send(self, packet: bytes) -> None:
        """Take an answer."""

    def send_publish(self, packet: bytes) -> None:
        """Take a message."""


def rows(store: SqliteStore, table: str) -> int:
    count: int = store.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return count


def killed(folder: Path, to: Path) -> tuple[Broker, SqliteStore]:
    """Open what a broker would leave if it died now."""
    to.mkdir()
    for name in (FILE, f"{FILE}-wal"):
        if (folder / name).exists():
            shutil.copy(folder / name, to / name)
    return open_broker(to)


def test_messages_under_way_go_into_the_journal_and_are_played_back(tmp_path: Path) -> None:
    broker, store = open_broker(tmp_path / "data")
    away = add_session(broker, "away", "t", qos=2)
    here = add_session(broker, "here", "t", qos=2)
    assert store.commit()
    here.link = Reader()  # type: ignore[assignment]
    for number in range(6):
        broker.publish(Message("t", b"%d" % number, number % 2 + 1, False, "p", number))
    store.add_incoming(away, 7)
    store.add_incoming(away, 8)
    assert store.commit()
    here.received(2)  # the QoS 2 message 1: only its id matters now
    here.acknowledged(1)
    store.remove_incoming(away, 7)
    away.incoming = {8}
    assert store.commit()
    assert rows(store, "journal") == 2
    assert rows(store, "message") == rows(store, "outgoing") == rows(store, "incoming") == 0

    expected = contents(broker)
    reopened, other = killed(tmp_path / "data", tmp_path / "copy")
    assert contents(reopened) == expected
    assert {p for _, p, _ in expected["in_flight"]} == {2, 3, 4, 5, 6}
    assert ("here", 2, None) in expected["in_flight"]
    assert expected["incoming"] == {("away", 8)}
    assert rows(other, "journal") == 0
    assert rows(other, "outgoing") == 6 + 5
    assert rows(other, "message") == 6
    other.close()
    store.close()


def test_what_is_delivered_soon_never_reaches_the_tables(tmp_path: Path) -> None:
    broker, store = open_broker(tmp_path)
    session = add_session(broker, "here", "t", qos=1)
    assert store.commit()
    session.link = Reader()  # type: ignore[assignment]
    payload = bytes(1_000)
    for _ in range(3 * JOURNAL_BYTES // len(payload) // 10):
        for _ in range(10):
            broker.publish(Message("t", payload, 1, False, "p", 1))
        assert store.commit()
        for packet_id in list(session.in_flight):
            session.acknowledged(packet_id)
    assert store.commit()
    size = store.connection.execute("SELECT sum(length(data)) FROM journal").fetchone()[0] or 0
    assert size <= JOURNAL_BYTES + 20_000
    # Only those that were under way when the journal started anew.
    assert rows(store, "message") == rows(store, "outgoing") <= 10
    store.close()


def test_what_stays_is_written_into_the_tables_when_the_journal_has_grown(tmp_path: Path) -> None:
    broker, store = open_broker(tmp_path / "data")
    add_session(broker, "away", "t", qos=1)
    assert store.commit()
    payload = bytes(10_000)
    for _ in range(2 * JOURNAL_BYTES // len(payload)):
        broker.publish(Message("t", payload, 1, False, "p", 1))
        assert store.commit()
    assert rows(store, "outgoing") > 20
    queued = broker.sessions.get("away").queued  # type: ignore[union-attr]
    assert rows(store, "outgoing") < queued
    reopened, other = killed(tmp_path / "data", tmp_path / "copy")
    assert reopened.sessions.get("away").queued == queued  # type: ignore[union-attr]
    other.close()
    store.close()


def test_a_clean_end_leaves_no_journal(tmp_path: Path) -> None:
    broker, store = open_broker(tmp_path)
    add_session(broker, "away", "t", qos=1)
    assert store.commit()
    broker.publish(Message("t", b"x", 1, False, "p", 1))
    assert store.commit()
    assert rows(store, "journal") == 1
    store.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        assert db.execute("SELECT count(*) FROM journal").fetchone()[0] == 0
        assert db.execute("SELECT count(*) FROM outgoing").fetchone()[0] == 1


def test_a_damaged_record_is_left_out_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker, store = open_broker(tmp_path / "data")
    add_session(broker, "away", "t", qos=1)
    assert store.commit()
    for number in range(3):
        broker.publish(Message("t", b"payload %d" % number, 1, False, "p", 1))
        assert store.commit()
    data = store.connection.execute("SELECT data FROM journal WHERE id = 2").fetchone()[0]
    damaged = data.replace(b"payload 1", b"payload !")
    store.connection.execute("UPDATE journal SET data = ? WHERE id = 2", (damaged,))
    reopened, other = killed(tmp_path / "data", tmp_path / "copy")
    payloads = {payload for _, _, payload, _ in contents(reopened)["queued"]}
    assert payloads == {b"payload 0", b"payload 2"}
    assert "1 of 3 records of the journal are damaged: left out" in caplog.text
    other.close()
    store.close()


def test_a_store_of_the_first_version_is_upgraded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker, store = open_broker(tmp_path)
    add_session(broker, "away", "t", qos=1)
    broker.publish(Message("t", b"x", 1, False, "p", 1))
    store.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.executescript("DROP TABLE journal; PRAGMA user_version = 1;")
    broker, store = open_broker(tmp_path)
    assert broker.sessions.get("away").queued == 1  # type: ignore[union-attr]
    assert "upgrading from version 1" in caplog.text
    broker.publish(Message("t", b"y", 1, False, "p", 1))
    assert store.commit()
    assert rows(store, "journal") == 1
    store.close()
