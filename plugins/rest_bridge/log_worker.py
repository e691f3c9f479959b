"""The process that reads the log, so that no query ever holds the broker's interpreter.

Requests come in and answers go out as `length u32` and a pickle, both ends being this
interpreter: `(number, operation, arguments)` and `(number, value or exception)`. A query
stays open between requests and gives one chunk at a time, as often as it is asked for
one, so that a slow reader costs nothing and many queries share the process. It ends when
its input ends.
"""

import hashlib
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import BinaryIO, Literal

from plugins.event_log.reader import Cursor, Event, Query, latest, query, topic_ids
from plugins.event_log.segments import SegmentError, list_segments, opened, segment_of
from plugins.rest_bridge.shapes import Kind, shape_event
from protocol.geometry import Place
from protocol.values import value

LENGTH = Struct("<I")
CHUNK_ROWS = 1000
CHUNK_BYTES = 256 << 10  # more would hold up the broker while it passes through
NICENESS = 15  # the broker goes first


@value
class Subject:
    """What decides whether somebody may see an event."""

    topic: str
    client_id: str
    place: Place | None


@value
class Row:
    """An event as it is shown."""

    cursor: Cursor
    digest: str
    shown: bytes
    subject: Subject


@value
class Chunk:
    """Some events of an answer: joined as they are shown, or one by one."""

    joined: bytes
    rows: list[Row]
    count: int
    last: Cursor | None
    ended: bool
    faults: list[str]  # segments that could not be read


def digest_of(received_ms: int, topic: str, client_id: str, payload: bytes) -> str:
    """Make what tells an event from others, whether it is read from the log or happens now."""
    name = f"{received_ms}\0{topic}\0{client_id}\0".encode()
    return hashlib.blake2b(name + payload, digest_size=8).hexdigest()


def digest_of_event(event: Event) -> str:
    """Make the digest of an event of the log."""
    return digest_of(event.received_ms, event.topic, event.client_id, event.payload)


def _subject(event: Event) -> Subject:
    return Subject(event.topic, event.client_id, event.place)


class Worker:
    """Open queries, and the operations on them."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir
        self._open: dict[int, tuple[Iterator[Event], Kind, bytes | None]] = {}
        self._faults: list[str] = []

    def _fault(self, error: SegmentError) -> None:
        self._faults.append(str(error))

    def open(self, key: int, between: bytes | None, kind: Kind, what: Query) -> None:
        """Begin a query; its events are joined by `between`, or come one by one."""
        self._open[key] = (query(self._data_dir, what, self._fault), kind, between)

    def open_latest(
        self,
        key: int,
        between: bytes | None,
        kind: Kind,
        by: Literal["client", "topic"],
        topic_filter: str,
        since_ms: int,
    ) -> None:
        """Begin with the newest event with a place of every client or topic."""
        found = latest(self._data_dir, by, topic_filter, since_ms, self._fault)
        self._open[key] = (found, kind, between)

    def next(self, key: int, rows: int) -> Chunk:
        """Give the next events of a query, at most so many."""
        events, kind, between = self._open[key]
        shown: list[bytes] = []
        found: list[Row] = []
        last = None
        size = 0
        for event in islice(events, rows):
            last = event.cursor
            shown.append(shape_event(event, kind))
            if between is None:
                found.append(Row(last, digest_of_event(event), shown[-1], _subject(event)))
            size += len(shown[-1])
            if size >= CHUNK_BYTES:
                break
        ended = len(shown) < rows and size < CHUNK_BYTES
        joined = b"" if between is None else between.join(shown)
        faults, self._faults = self._faults, []
        return Chunk(joined, found, len(shown), last, ended, faults)

    def close(self, key: int) -> None:
        """End a query."""
        self._open.pop(key, None)

    def delete(self, cursors: list[Cursor]) -> set[str]:
        """Delete events, and tell which were still there."""
        deleted: set[str] = set()
        for day in {cursor.day for cursor in cursors}:
            ids = [cursor.id for cursor in cursors if cursor.day == day]
            with opened(segment_of(self._data_dir, day), for_delete=True) as connection:
                connection.execute("BEGIN IMMEDIATE")
                for event_id in ids:
                    gone = connection.execute("DELETE FROM packed WHERE id = ?", (event_id,))
                    if gone.rowcount:
                        deleted.add(str(Cursor(day, event_id)))
                connection.execute("COMMIT")
        return deleted

    def end(self) -> Cursor | None:
        """Tell where the log ends now."""
        for segment in reversed(list_segments(self._data_dir)):
            try:
                with opened(segment) as connection:
                    (last,) = connection.execute("SELECT max(id) FROM packed").fetchone()
            except SegmentError:
                continue
            if last is not None:
                return Cursor(segment.day, last)
        return None

    def locate(self, what: Query, digest: str, ordinal: int) -> Cursor | None:
        """Find the so-and-so-many-th event of a query that has this digest."""
        for event in query(self._data_dir, what, self._fault):
            if digest_of_event(event) == digest:
                ordinal -= 1
                if not ordinal:
                    return event.cursor
        return None

    def topics(self, topic_filter: str, limit: int) -> list[str]:
        """Give names of topics in the log, of the newest days first."""
        names: dict[str, None] = {}
        for segment in reversed(list_segments(self._data_dir)):
            try:
                with opened(segment) as connection:
                    wanted = topic_ids(connection, topic_filter)
                    known = None if wanted is None else set(wanted.tolist())
                    for topic_id, name in connection.execute("SELECT id, name FROM topic"):
                        if known is None or topic_id in known:
                            names[name] = None
            except SegmentError as error:
                self._fault(error)
            if len(names) >= limit:
                break
        return sorted(names)[:limit]


def serve(worker: Worker, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until there are no more."""
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        number, operation, arguments = pickle.loads(source.read(LENGTH.unpack(head)[0]))
        try:
            answer = getattr(worker, operation)(*arguments)
        except (SegmentError, OSError, KeyError) as error:
            answer = LogFault(str(error))
        data = pickle.dumps((number, answer), pickle.HIGHEST_PROTOCOL)
        sink.write(LENGTH.pack(len(data)) + data)
        sink.flush()


class LogFault(Exception):
    """The log could not be read."""


def main() -> None:
    """Run the process."""
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Worker(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
