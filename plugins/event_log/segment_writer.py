"""One segment, seen by the writer: rows go in by the group, and once per commit.

    open → begin → add_messages, add_frames … → commit → … → close

Ids are given out here and kept in the segment, so that a row deleted at the end never
gives its id to another one. Packets of one topic and one size, which is what fast
publishers send, are cut into rows by SQLite itself: all in all 0.6 µs an event, where
decoding them in Python and binding every value takes 2.1 (tests/bench/event_log_writer.py,
its first two lines).
"""

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from plugins.event_log.cells import cells_of
from plugins.event_log.frames import decode_frames, uniform
from plugins.event_log.index import RUN_ROWS, RunBuilder
from plugins.event_log.records import Extra, MessageRecord
from plugins.event_log.schema import APPLICATION_ID, INDEXES, SCHEMA, SCHEMA_VERSION
from plugins.event_log.segments import SegmentError, check, is_damage
from plugins.event_log.sent import sent_wkb, within_180
from protocol.errors import BadGeometry

log = logging.getLogger("geomqtt.event_log")

SKIPPED = -1  # the id of a topic that is not logged
MAX_NAMES = 200_000  # kept in memory; beyond it they are looked up again

_INSERT_FRAMES = (
    "INSERT INTO packed (id, received_ms, topic, client, flags, payload)"
    " SELECT ?1 + i, ?2, ?3, ?4, ?5, substr(?6, i * ?7 + ?8, ?9)"
    " FROM temp.number WHERE i < ?10"
)


class Names:
    """Topics or clients of a segment, by name: their ids, given out on first sight."""

    def __init__(
        self, connection: sqlite3.Connection, table: str, wanted: Callable[[str], bool]
    ) -> None:
        self._connection = connection
        self._select = f"SELECT id FROM {table} WHERE name = ?"
        self._insert = f"INSERT INTO {table} (name) VALUES (?)"
        self._wanted = wanted
        self._ids: dict[str | bytes, int] = {}

    def ids(self, names: Sequence[str | bytes]) -> list[int]:
        """Give the ids of many names, as text or as they came in a packet."""
        try:
            return list(map(self._ids.__getitem__, names))
        except KeyError:
            return [self.id(name) for name in names]

    def id(self, name: str | bytes) -> int:
        """Give the id of a name, `SKIPPED` for one that is not logged."""
        found = self._ids.get(name)
        if found is None:
            found = self._look_up(
                name if isinstance(name, str) else name.decode("utf-8", "replace")
            )
            if len(self._ids) >= MAX_NAMES:
                self._ids.clear()
            self._ids[name] = found
        return found

    def _look_up(self, name: str) -> int:
        if not self._wanted(name):
            return SKIPPED
        row = self._connection.execute(self._select, (name,)).fetchone()
        if row is not None:
            return int(row[0])
        return int(self._connection.execute(self._insert, (name,)).lastrowid or 0)


class SegmentWriter:
    """The open segment. After any exception it is of no use but to be closed and reopened."""

    def __init__(
        self, path: Path, day: date, session: str, wanted: Callable[[str], bool], synchronous: str
    ) -> None:
        self.day = day
        self.path = path
        self._session = session
        self._connection = _open(path, synchronous)
        self._topics = Names(self._connection, "topic", wanted)
        self._clients = Names(self._connection, "client", lambda _name: True)
        try:
            self._resume(session)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise _refused(path, error) from error

    def _resume(self, session: str) -> None:
        execute = self._connection.execute
        row = execute("SELECT session, sequence, next_id FROM progress").fetchone()
        of_session, sequence, next_id = row or (session, 0, 1)
        (last_id,) = execute("SELECT max(id) FROM packed").fetchone()
        (summed_up,) = execute("SELECT max(last_id) FROM run").fetchone()
        self.sequence: int = sequence if of_session == session else 0  # last batch that is here
        self._next_id: int = max(next_id, (last_id or 0) + 1)
        self._summed_up_id = (summed_up or 0) + 1  # rows from here on are in no summary
        self._run = RunBuilder.load(self._connection, self._next_id)
        self._rows = 0

    def begin(self) -> None:
        """Start a group."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._rows = 0

    def commit(self, sequence: int) -> int:
        """End the group with the batch it goes up to; give the number of its rows."""
        self._connection.execute(
            "INSERT OR REPLACE INTO progress VALUES (1, ?, ?, ?)",
            (self._session, sequence, self._next_id),
        )
        self._connection.execute("COMMIT")
        self.sequence = sequence
        return self._rows

    def add_frames(
        self, received_ms: int, client_id: str, frames: bytes, count: int
    ) -> list[MessageRecord]:
        """Add packets of one topic and one size; give back as messages what is not that."""
        shape = uniform(frames, count)
        if shape is None:
            return decode_frames(received_ms, client_id, frames)
        topic = self._topics.id(shape.topic)
        if topic == SKIPPED:
            return []
        client = self._clients.id(client_id)
        done = 0
        while done < count:
            end = min(count, done + self._run.room)
            self._connection.execute(
                _INSERT_FRAMES,
                (
                    self._next_id,
                    received_ms,
                    topic,
                    client,
                    shape.flags,
                    frames,
                    shape.size,
                    done * shape.size + shape.payload_start + 1,  # substr counts from 1
                    shape.size - shape.payload_start,
                    end - done,
                ),
            )
            span = (received_ms, received_ms)
            self._extend(end - done, topic, client, span, span, None)
            done = end
        return []

    def add_messages(self, records: list[MessageRecord]) -> None:
        """Add messages in their order."""
        topics = self._topics.ids([record[1] for record in records])
        if SKIPPED in topics:
            records = [
                record for record, topic in zip(records, topics, strict=True) if topic != SKIPPED
            ]
            topics = [topic for topic in topics if topic != SKIPPED]
        done = 0
        while done < len(records):
            end = min(len(records), done + self._run.room)
            self._add(records[done:end], topics[done:end])
            done = end

    def _add(self, records: list[MessageRecord], topics: list[int]) -> None:
        received, _, payloads, flags, names, starts, x, y, extras = zip(*records, strict=True)
        clients = self._clients.ids(names)
        count = len(records)
        ids = range(self._next_id, self._next_id + count)
        span = (min(received), max(received))
        none = (None,) * count
        ends = epsg = sent = wkb = max_x = max_y = none
        if extras.count(None) != count:
            x, y, ends, epsg, sent, wkb, max_x, max_y = zip(
                *map(_spelled_out, x, y, extras), strict=True
            )
        boxes = _boxes(x, y, max_x, max_y)
        columns = {
            "id": ids, "received_ms": received, "start_ms": starts, "end_ms": ends,
            "topic": topics, "client": clients, "flags": flags, "epsg": epsg, "sent": sent,
            "wkb": wkb, "min_x": x, "min_y": y, "max_x": max_x, "max_y": max_y,
            "cell": none if boxes is None else _cells(boxes), "payload": payloads,
        }  # fmt: skip
        # To bind None costs 0.2 µs, more than any other value, so columns without one stay out.
        filled = {name: values for name, values in columns.items() if values != none}
        self._connection.executemany(
            f"INSERT INTO packed ({', '.join(filled)}) VALUES ({', '.join('?' * len(filled))})",
            zip(*filled.values(), strict=True),
        )
        times = span
        if starts != none:
            begun = [
                received_ms if start is None else start
                for received_ms, start in zip(received, starts, strict=True)
            ]
            times = (min(begun), max(end for end in (*ends, max(begun)) if end is not None))
        self._extend(count, topics, clients, span, times, boxes)

    def _extend(
        self,
        count: int,
        topics: list[int] | int,
        clients: list[int] | int,
        received: tuple[int, int],
        times: tuple[int, int],
        boxes: Any,
    ) -> None:
        self._run.extend(count, topics, clients, received, times, boxes)
        self._next_id += count
        self._rows += count
        if not self._run.room:
            self._run.write(self._connection)
            self._run = RunBuilder(self._run.run + 1)
            self._summed_up_id = self._next_id

    def close(self) -> None:
        """Sum up the open run, and leave one file that needs no write-ahead log."""
        if self._next_id != self._summed_up_id:
            self._connection.execute("BEGIN IMMEDIATE")
            self._run.write(self._connection)
            self._connection.execute("COMMIT")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # Readers of a write-ahead log need a place for its shared memory, and leave it behind.
        # Somebody who is reading just now keeps the journal as it is, which does no harm.
        with contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA busy_timeout = 100")
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()

    def abandon(self) -> None:
        """Let go of a segment after an error; what is not committed is undone."""
        self._connection.close()


def _spelled_out(x: Any, y: Any, extra: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """Give x, y, end, EPSG, geometry as sent, WKB and the far corner of the box."""
    if extra is None:
        return x, y, None, None, None, None, None, None
    more = Extra(*extra)
    wkb, max_x = more.wkb, more.max_x
    if wkb is not None and max_x is not None and max_x > 180.0:
        wkb = within_180(wkb)
        x, max_x = -180.0, 180.0
    sent = None
    if more.epsg is not None:
        try:
            sent = sent_wkb(more.form, more.raw, more.epsg)
        except BadGeometry as error:
            log.error("geometry in EPSG:%s is logged in 4326 only: %s", more.epsg, error)
    return x, y, more.end_ms, more.epsg, sent, wkb, max_x, more.max_y


def _boxes(x: Any, y: Any, max_x: Any, max_y: Any) -> NDArray[numpy.float64] | None:
    """Give the boxes of many rows, NaN where there is no place; None when there is none at all."""
    count = len(x)
    if x.count(None) == count:
        return None
    boxes = numpy.empty((count, 4))
    boxes[:, 0], boxes[:, 1] = x, y
    if max_x.count(None) == count:
        boxes[:, 2:] = boxes[:, :2]
        return boxes
    boxes[:, 2], boxes[:, 3] = max_x, max_y
    points = numpy.isnan(boxes[:, 2])
    boxes[points, 2:] = boxes[points, :2]
    return boxes


def _cells(boxes: NDArray[numpy.float64]) -> tuple[int | None, ...]:
    placed = ~numpy.isnan(boxes[:, 0])
    boxes = numpy.nan_to_num(boxes)
    cells = cells_of((boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2).tolist()
    if placed.all():
        return tuple(cells)
    return tuple(cell if has else None for cell, has in zip(cells, placed, strict=True))


def _refused(path: Path, error: sqlite3.DatabaseError) -> SegmentError:
    return SegmentError(path, str(error), damaged=is_damage(error, on_opening=True))


def _create(path: Path) -> None:
    """Make an empty segment beside its place and move it there: a reader sees all of it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    connection = sqlite3.connect(fresh, isolation_level=None)
    try:
        connection.executescript(
            f"BEGIN; PRAGMA application_id = {APPLICATION_ID};"
            f" PRAGMA user_version = {SCHEMA_VERSION}; {SCHEMA} {INDEXES} COMMIT;"
        )
    finally:
        connection.close()
    fresh.rename(path)


def _open(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open a segment for writing, or make it."""
    try:
        if not path.exists():
            _create(path)
        connection = sqlite3.connect(path, isolation_level=None, timeout=60.0)
    except sqlite3.DatabaseError as error:
        raise SegmentError(path, str(error), damaged=False) from error
    try:
        check(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint = 8000")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute("PRAGMA cache_size = -32768")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("CREATE TEMP TABLE number (i INTEGER PRIMARY KEY)")
        connection.executemany(
            "INSERT INTO temp.number VALUES (?)", ((i,) for i in range(RUN_ROWS))
        )
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _refused(path, error) from error
    except SegmentError:
        connection.close()
        raise
    return connection
