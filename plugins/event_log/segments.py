"""The files of the event log: which there are, opening them, how old and large they may get.

A segment is one UTC day of receipt. Whatever is wrong with a file (torn, not ours, made by
a newer version) is a `SegmentError` that names it, so that one bad day never hides the
others.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from plugins.event_log.schema import APPLICATION_ID, FOLDER, SCHEMA_VERSION
from protocol.values import value

DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1)


class SegmentError(Exception):
    """A segment that cannot be used; the message begins with its path."""

    def __init__(self, path: Path, reason: str, *, damaged: bool = True) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
        self.damaged = damaged  # or foreign: the file itself, not the disk or a lock


def is_damage(error: Exception, *, on_opening: bool = False) -> bool:
    """Tell what is wrong with a file from what a lock, the disk or a permission did."""
    if isinstance(error, SegmentError):
        return error.damaged
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the details
    if on_opening and code == sqlite3.SQLITE_ERROR:  # tables that should be there are not
        return True
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@value
class Segment:
    """One day of the log."""

    day: date
    path: Path

    @property
    def start_ms(self) -> int:
        """The first millisecond of receipt that belongs here."""
        return (self.day - _EPOCH).days * DAY_MS

    @property
    def bytes(self) -> int:
        """What the segment takes on disk, write-ahead log included."""
        return sum(_size(path) for path in self.files())

    def files(self) -> list[Path]:
        """The database, its write-ahead log and its shared memory, as far as they exist."""
        names = (self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm")
        return [path for name in names if (path := self.path.with_name(name)).exists()]


def folder_of(data_dir: str | Path) -> Path:
    """Give the folder of the log below the broker's data folder."""
    return Path(data_dir) / FOLDER


def day_of(received_ms: int) -> date:
    """Give the UTC day of a time of receipt."""
    return _EPOCH + timedelta(days=received_ms // DAY_MS)


def segment_of(data_dir: str | Path, day: date) -> Segment:
    """Give the segment of a day, whether it exists or not."""
    return Segment(day, folder_of(data_dir) / f"{day.isoformat()}.sqlite")


def list_segments(data_dir: str | Path) -> list[Segment]:
    """List the segments there are, the oldest first."""
    found = []
    for path in folder_of(data_dir).glob("????-??-??.sqlite"):
        with contextlib.suppress(ValueError):
            found.append(Segment(date.fromisoformat(path.stem), path))
    return sorted(found, key=lambda segment: segment.day)


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what is no segment of a version we know."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise SegmentError(path, "not a segment of the event log")
    if version > SCHEMA_VERSION:
        raise SegmentError(
            path, f"schema version {version} is newer than {SCHEMA_VERSION}, the newest known here"
        )
    if version != SCHEMA_VERSION:
        raise SegmentError(path, f"schema version {version} is unknown")


@contextlib.contextmanager
def opened(segment: Segment, *, for_delete: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a segment, while the writer writes as well as afterwards.

    Everything SQLite has to say against the file until it is closed is a `SegmentError`.
    """
    path = segment.path
    try:
        connection = _connect(segment, "rw" if for_delete else "ro")
        try:
            check(connection, path)
            yield connection
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise SegmentError(path, str(error), damaged=is_damage(error, on_opening=True)) from error


def _connect(segment: Segment, mode: str) -> sqlite3.Connection:
    uri = f"{segment.path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, timeout=30.0, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA schema_version").fetchone()
        connection.execute("PRAGMA cache_size = -16384")
        return connection
    except sqlite3.OperationalError:
        connection.close()
        # A folder we may not write to has no room for the shared memory that even a reader
        # of a write-ahead log needs; a day that is closed has no such log.
        if mode != "ro" or segment.path.with_name(f"{segment.path.name}-wal").exists():
            raise
        return sqlite3.connect(
            f"{uri}&immutable=1", uri=True, isolation_level=None, check_same_thread=False
        )


def prune(
    data_dir: str | Path, max_age_days: float | None, max_bytes: int | None, now_ms: int
) -> list[Segment]:
    """Delete the oldest closed segments that are too old or too much, and say which.

    The age of a segment is that of its last possible event. The day of `now_ms` and
    later ones are never deleted, however large.
    """
    segments = list_segments(data_dir)
    today = day_of(now_ms)
    total = sum(segment.bytes for segment in segments) if max_bytes is not None else 0
    deleted = []
    for segment in segments:
        if segment.day >= today:
            break
        too_old = (
            max_age_days is not None and segment.start_ms + DAY_MS <= now_ms - max_age_days * DAY_MS
        )
        if not too_old and (max_bytes is None or total <= max_bytes):
            break
        total -= segment.bytes
        for path in reversed(segment.files()):
            path.unlink(missing_ok=True)
        deleted.append(segment)
    return deleted


@value
class LogSize:
    """How much there is."""

    segments: int
    bytes: int
    events: int  # written; what was deleted by a query still counts


def size(data_dir: str | Path) -> LogSize:
    """Measure the log; segments that cannot be read count with their bytes."""
    segments = list_segments(data_dir)
    events = 0
    for segment in segments:
        with contextlib.suppress(SegmentError), opened(segment) as connection:
            row = connection.execute("SELECT next_id - 1 FROM progress").fetchone()
            events += row[0] if row else 0
    return LogSize(len(segments), sum(segment.bytes for segment in segments), events)


def now_ms() -> int:
    """Read the clock."""
    return int(datetime.now(UTC).timestamp() * 1000)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # a write-ahead log goes when its segment is closed
        return 0
