"""Asking the event log, from any process, while the writer writes.

    query       events by topic, time, place and kind, in the order of receipt, page by page
    latest      the newest event with a place of every client or topic
    delete      what a query finds, gone from the log

Answers are iterators over one chunk of rows at a time, so the length of the answer costs
no memory. A segment that cannot be used raises `SegmentError`, or is told to `on_error`
and left out.

What narrows the search is, in this order: the day of the cursor; the times, topics and
boxes of each run (index.py); the exact test of each row that is left. An interval is
half-open, as everywhere: an event intersects `from_ms` to `to_ms` when it begins before
the end and has not ended at the start.
"""

import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal

import numpy
import shapely
from numpy.typing import NDArray

from plugins.event_log.index import RUN_ROWS, Box, Run, candidates, codes, first_id, runs
from plugins.event_log.segments import DAY_MS, Segment, SegmentError, list_segments, opened
from protocol.errors import BadValue
from protocol.geometry import Place, circle_boxes, to_place
from protocol.relations import ANY, COVERS, DE9IM, DISJOINT, DWITHIN, Operand, spatial
from protocol.temporal import MAX_MS, MIN_MS
from protocol.topics import matches
from protocol.values import value

HAIR = 1e-9  # degrees
CHUNK_ROWS = 1000
FIRST_CHUNK_ROWS = 100  # the first answers are wanted soon

OnError = Callable[[SegmentError], None]

_COLUMNS = (
    "id, received_ms, start_ms, end_ms, has_time, topic, client_id, qos, retain, geo, epsg,"
    " sent, wkb, min_x, min_y, max_x, max_y, cell, payload"
)


@value
class Event:
    """A row of the view `event`, and the day of its segment."""

    day: date
    id: int
    received_ms: int
    start_ms: int
    end_ms: int
    has_time: int
    topic: str
    client_id: str
    qos: int
    retain: int
    geo: int
    epsg: int
    sent: bytes | None
    wkb: bytes | None
    min_x: float | None
    min_y: float | None
    max_x: float | None
    max_y: float | None
    cell: int | None
    payload: bytes

    @property
    def cursor(self) -> "Cursor":
        """Where to go on behind this event."""
        return Cursor(self.day, self.id)

    @property
    def place(self) -> Place | None:
        """The place the event carried, in 4326."""
        if self.min_x is None or self.min_y is None:
            return None
        if self.wkb is None:
            return Place(self.min_x, self.min_y)
        return to_place(shapely.from_wkb(self.wkb))


@value
class Cursor:
    """A position in the log: the last event seen.

    >>> str(Cursor.parse("2026-03-28.17"))
    '2026-03-28.17'
    """

    day: date
    id: int

    def __str__(self) -> str:
        return f"{self.day.isoformat()}.{self.id}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Read the text form."""
        day, _, event_id = text.partition(".")
        try:
            if not (event_id.isascii() and event_id.isdigit() and len(event_id) <= 18):
                raise ValueError(event_id)
            return cls(date.fromisoformat(day), int(event_id))
        except ValueError:
            raise BadValue(f"{text[:60]!r} is no position in the log") from None


@value
class Query:
    """What is asked for; the defaults leave everything in."""

    topic_filter: str = "#"
    from_ms: int = MIN_MS
    to_ms: int = MAX_MS
    place: Place | None = None
    relation: int = COVERS
    operand: Operand = None
    geo: bool | None = None  # only events with a place, or only those without
    newest_first: bool = False
    limit: int | None = None
    after: Cursor | None = None  # in the direction of the query


def query(data_dir: str | Path, what: Query, on_error: OnError | None = None) -> Iterator[Event]:
    """Find events, in the order of receipt or against it."""
    return itertools.islice(_found(data_dir, what, on_error), what.limit)


def delete(data_dir: str | Path, what: Query, on_error: OnError | None = None) -> Iterator[Event]:
    """Delete what a query finds, and give it back; a chunk is gone when its first event comes.

    The iterator must be used up: what it has not reached is not deleted.
    """
    found = query(data_dir, what, on_error)
    for day, events in itertools.groupby(found, key=lambda event: event.day):
        segment = next(one for one in list_segments(data_dir) if one.day == day)
        while chunk := list(itertools.islice(events, CHUNK_ROWS)):
            with opened(segment, for_delete=True) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(
                    "DELETE FROM packed WHERE id = ?", ((event.id,) for event in chunk)
                )
                connection.execute("COMMIT")
            yield from chunk


def _found(data_dir: str | Path, what: Query, on_error: OnError | None) -> Iterator[Event]:
    segments = list_segments(data_dir)
    if what.newest_first:
        segments.reverse()
    for segment in segments:
        after = what.after
        if after is not None and segment.day != after.day:
            if (segment.day > after.day) == what.newest_first:
                continue
            after = None
        try:
            with opened(segment) as connection:
                yield from _Search(connection, segment, what).events(after)
        except SegmentError as error:
            if on_error is None:
                raise
            on_error(error)


class _Search:
    """A query in one segment."""

    def __init__(self, connection: sqlite3.Connection, segment: Segment, what: Query) -> None:
        self._connection = connection
        self._day = segment.day
        self._what = what
        self._boxes = _boxes(what)
        self._geo = True if what.place is not None and what.relation != ANY else what.geo
        self._chunk_rows = FIRST_CHUNK_ROWS

    def events(self, after: Cursor | None) -> Iterator[Event]:
        """Give the events that match, all behind a cursor."""
        what = self._what
        self._topics = topic_ids(self._connection, what.topic_filter)
        if self._topics is not None and not len(self._topics):
            return
        if self._geo and what.geo is False:  # a place was asked of events that have none
            return
        parts = _parts(self._connection)
        if what.newest_first:
            parts.reverse()
        for part in parts:
            if isinstance(part, range):
                yield from self._unsummed(part, after)
            elif self._may_have(part, after):
                ids = candidates(self._connection, part, self._topics, self._boxes, self._geo)
                yield from self._looked_up(_behind(ids, after, newest_first=what.newest_first))

    def _may_have(self, run: Run, after: Cursor | None) -> bool:
        what = self._what
        if run.min_start_ms >= what.to_ms or run.max_end_ms < what.from_ms:
            return False
        if self._geo and not run.places:
            return False
        if after is None:
            return True
        return first_id(run.run) < after.id if what.newest_first else run.last_id > after.id

    def _looked_up(self, ids: NDArray[numpy.int64]) -> Iterator[Event]:
        if self._what.newest_first:
            ids = ids[::-1]
        done = 0
        while done < len(ids):
            chunk = ids[done : done + self._chunk_rows]
            done += self._chunk_rows
            rows = self._connection.execute(
                f"SELECT {_COLUMNS} FROM event WHERE {self._in_time()}"
                f" AND id IN ({_listed(chunk.tolist())}) ORDER BY id {self._order()}",
                self._times(),
            ).fetchall()
            yield from self._matching(rows)

    def _unsummed(self, ids: range, after: Cursor | None) -> Iterator[Event]:
        what = self._what
        low, high = ids[0], ids[-1]
        if after is not None:
            if what.newest_first:
                high = min(high, after.id - 1)
            else:
                low = max(low, after.id + 1)
        conditions = ["id BETWEEN ? AND ?", self._in_time()]
        values: list[Any] = [low, high, *self._times()]
        if self._geo is not None:
            conditions.append("flags & 8" if self._geo else "NOT flags & 8")
        if self._boxes is not None:
            boxes = []
            for min_x, min_y, max_x, max_y in self._boxes:
                boxes.append(
                    "(min_x <= ? AND min_y <= ? AND coalesce(max_x, min_x) >= ?"
                    " AND coalesce(max_y, min_y) >= ?)"
                )
                values += (max_x, max_y, min_x, min_y)
            conditions.append(f"({' OR '.join(boxes)})")
        topics = None if self._topics is None else set(self._topics.tolist())
        # First the ids alone, so that neither names nor payloads are read in vain.
        found = self._connection.execute(
            f"SELECT id, topic FROM packed WHERE {' AND '.join(conditions)} ORDER BY id", values
        )
        on_topic = [row[0] for row in found if topics is None or row[1] in topics]
        yield from self._looked_up(numpy.array(on_topic, numpy.int64))

    def _order(self) -> str:
        return "DESC" if self._what.newest_first else "ASC"

    def _in_time(self) -> str:
        if self._what.from_ms == MIN_MS and self._what.to_ms == MAX_MS:
            return "TRUE"
        start = "coalesce(start_ms, received_ms)"
        return f"{start} < ? AND ({start} >= ? OR coalesce(end_ms, {start}) > ?)"

    def _times(self) -> tuple[int, ...]:
        what = self._what
        if what.from_ms == MIN_MS and what.to_ms == MAX_MS:
            return ()
        return (what.to_ms, what.from_ms, what.from_ms)

    def _matching(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Event]:
        self._chunk_rows = CHUNK_ROWS
        place = self._what.place
        events = (Event(self._day, *row) for row in rows)
        if place is None or self._what.relation == ANY:
            yield from events
            return
        relation, operand = self._what.relation, self._what.operand
        for event in events:
            event_place = event.place
            if event_place is not None and spatial(relation, place, event_place, operand):
                yield event


def _parts(connection: sqlite3.Connection) -> list[Run | range]:
    """Take a segment apart into runs with a summary, and ids that are in none."""
    parts: list[Run | range] = []
    expected = 1
    for run in runs(connection):
        parts += _pieces(expected, first_id(run.run) - 1)
        parts.append(run)
        expected = run.last_id + 1
    (last,) = connection.execute("SELECT max(id) FROM packed").fetchone()
    return parts + _pieces(expected, last or 0)


def _pieces(first: int, last: int) -> list[Run | range]:
    return [
        range(start, min(start + RUN_ROWS, last + 1)) for start in range(first, last + 1, RUN_ROWS)
    ]


def _behind(
    ids: NDArray[numpy.int64], after: Cursor | None, *, newest_first: bool
) -> NDArray[numpy.int64]:
    if after is None:
        return ids
    return ids[ids < after.id] if newest_first else ids[ids > after.id]


def _boxes(what: Query) -> list[Box] | None:
    """Give boxes outside of which nothing can match; None when there is no such place."""
    if what.place is None or what.relation in (ANY, DISJOINT, DE9IM):
        return None
    # A hair wider: longitudes are rounded when a turn of the world is added to compare them.
    boxes = [
        (box[0] - HAIR, box[1] - HAIR, box[2] + HAIR, box[3] + HAIR) for box in what.place.boxes
    ]
    if what.relation == DWITHIN:
        boxes = [wide for box in boxes for wide in _widened(box, float(what.operand or 0.0))]
    # The meridian at 180 is the one at -180, and an event may lie on either.
    edges = [(180.0, box[1], 180.0, box[3]) for box in boxes if box[0] <= -180.0]
    edges += [(-180.0, box[1], -180.0, box[3]) for box in boxes if box[2] >= 180.0]
    return boxes + edges


def _widened(box: Box, metres: float) -> list[Box]:
    min_x, min_y, max_x, max_y = box
    # A degree of longitude is shortest at the edge that is nearest to a pole.
    _, _, east, _ = circle_boxes(0.0, max(min_y, max_y, key=abs), metres)[0]
    low, high = circle_boxes(0.0, min_y, metres)[0][1], circle_boxes(0.0, max_y, metres)[0][3]
    west, far_east = min_x - east, max_x + east
    if far_east - west >= 360.0 or east >= 180.0:
        return [(-180.0, low, 180.0, high)]
    wide: list[Box] = [(max(west, -180.0), low, min(far_east, 180.0), high)]
    if west < -180.0:
        wide.append((west + 360.0, low, 180.0, high))
    if far_east > 180.0:
        wide.append((-180.0, low, far_east - 360.0, high))
    return wide


def topic_ids(connection: sqlite3.Connection, topic_filter: str) -> NDArray[numpy.int64] | None:
    """Give the ids of the topics in a segment that a filter matches; None: all of them."""
    prefix = topic_filter.split("+", 1)[0].split("#", 1)[0]
    if prefix == topic_filter:
        exact = connection.execute("SELECT id FROM topic WHERE name = ?", (prefix,)).fetchall()
        return numpy.array([row[0] for row in exact], numpy.int64)
    if topic_filter == "#":
        (hidden,) = connection.execute(
            "SELECT count(*) FROM topic WHERE name >= '$' AND name < '%'"
        ).fetchone()
        if not hidden:
            return None
    # "a/#" matches "a" as well.
    rows = connection.execute(
        "SELECT id, name FROM topic WHERE name >= ? AND name < ? || char(1114111)",
        (prefix.removesuffix("/"), prefix.removesuffix("/")),
    )
    return numpy.array([row[0] for row in rows if matches(topic_filter, row[1])], numpy.int64)


def latest(
    data_dir: str | Path,
    by: Literal["client", "topic"] = "client",
    topic_filter: str = "#",
    since_ms: int = MIN_MS,
    on_error: OnError | None = None,
) -> Iterator[Event]:
    """Give the newest event with a place of every client or topic, the newest first.

    `since_ms` is a time of receipt: older events are not looked at.
    """
    seen: set[str] = set()
    for segment in reversed(list_segments(data_dir)):
        if segment.start_ms + DAY_MS <= since_ms:
            return
        try:
            with opened(segment) as connection:
                for event in _latest_in(connection, segment, by, topic_filter, since_ms):
                    key = event.client_id if by == "client" else event.topic
                    if key not in seen:
                        seen.add(key)
                        yield event
        except SegmentError as error:
            if on_error is None:
                raise
            on_error(error)


def _latest_in(
    connection: sqlite3.Connection, segment: Segment, by: str, topic_filter: str, since_ms: int
) -> Iterator[Event]:
    topics = topic_ids(connection, topic_filter)
    if topics is not None and not len(topics):
        return
    newest: dict[int, int] = {}  # client or topic → id
    for part in reversed(_parts(connection)):
        if isinstance(part, range):
            pairs = _unsummed_pairs(connection, part, by, topics, since_ms)
        elif part.max_received_ms < since_ms or not part.places:
            continue
        else:
            pairs = _summed_pairs(connection, part, by, topics)
        while fresh := _first_ids(pairs, newest):
            there = _existing(connection, fresh.values(), since_ms)
            newest.update((key, found) for key, found in fresh.items() if found in there)
            # What was deleted since the summary makes room for the one before it.
            gone = numpy.array([found for found in fresh.values() if found not in there])
            if not len(gone):
                break
            keep = ~numpy.isin(pairs[1], gone)
            pairs = pairs[0][keep], pairs[1][keep]
    ids_found = sorted(newest.values(), reverse=True)
    for start in range(0, len(ids_found), CHUNK_ROWS):
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM event"
            f" WHERE id IN ({_listed(ids_found[start : start + CHUNK_ROWS])}) ORDER BY id DESC"
        ).fetchall()
        yield from (Event(segment.day, *row) for row in rows)


Pairs = tuple[NDArray[numpy.int64], NDArray[numpy.int64]]  # keys and ids, the newest first


def _unsummed_pairs(
    connection: sqlite3.Connection,
    ids: range,
    by: str,
    topics: NDArray[numpy.int64] | None,
    since_ms: int,
) -> Pairs:
    wanted = None if topics is None else set(topics.tolist())
    rows = connection.execute(
        f"SELECT {by}, id, topic FROM packed WHERE id BETWEEN ? AND ? AND flags & 8"
        " AND received_ms >= ? ORDER BY id DESC",
        (ids[0], ids[-1], since_ms),
    )
    found = [row[:2] for row in rows if wanted is None or row[2] in wanted]
    table = numpy.array(found, numpy.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _summed_pairs(
    connection: sqlite3.Connection, run: Run, by: str, topics: NDArray[numpy.int64] | None
) -> Pairs:
    ids = candidates(connection, run, topics, None, geo=True)[::-1]
    names, positions = codes(connection, run, by)
    return names[positions[ids - first_id(run.run)]], ids


def _first_ids(pairs: Pairs, known: dict[int, int]) -> dict[int, int]:
    keys, positions = numpy.unique(pairs[0], return_index=True)
    return {
        int(key): int(pairs[1][position])
        for key, position in zip(keys, positions, strict=True)
        if int(key) not in known
    }


def _existing(connection: sqlite3.Connection, ids: Iterable[int], since_ms: int) -> set[int]:
    rows = connection.execute(
        f"SELECT id FROM packed WHERE id IN ({_listed(ids)}) AND received_ms >= ?", (since_ms,)
    )
    return {row[0] for row in rows}


def _listed(ids: Iterable[int]) -> str:
    """Write ids into a statement: they are numbers of ours, and as parameters they cost more."""
    return ",".join(map(str, ids))
