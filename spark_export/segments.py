"""The event log's segments as the exporter sees them: which there are, and what can be read.

Everything here is plain SQLite, read-only, and cheap: headers, the first and last row.
Nothing here needs Spark, so that a missing folder or a foreign file is told before a
Java machine is started.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import quote

from plugins.event_log.schema import APPLICATION_ID, FOLDER, SCHEMA_VERSION
from protocol.values import value

SUFFIX = ".sqlite"


class ExportError(Exception):
    """Something the user must know about, in one line."""


class SegmentError(ExportError):
    """A segment that cannot be read; the others still can."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"segment {path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[type["SegmentError"], tuple[str, str]]:
        return SegmentError, (self.path, self.reason)


class NewerLog(ExportError):
    """The log was written by a later version than this one reads."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(
            f"segment {path} has schema version {version}, this geomqtt reads up to "
            f"{SCHEMA_VERSION}: update geomqtt to export it"
        )


@value
class Segment:
    """One readable segment and its extent when it was looked at."""

    path: str
    day: str  # the UTC day of receipt, as in the file's name
    first_id: int
    last_id: int  # 0: no row yet
    last_received_ms: int


@value
class Range:
    """Rows `first_id..last_id` of one segment: what one Spark task reads."""

    path: str
    day: str
    first_id: int
    last_id: int
    # If set, only rows with a higher id than the one known, or received after that time.
    known_id: int | None = None
    after_ms: int | None = None

    @property
    def rows(self) -> int:
        return max(0, self.last_id - self.first_id + 1)

    def fields(self) -> tuple[str, str, int, int, int | None, int | None]:
        """Give what makes an equal one, for JSON."""
        return (
            self.path, self.day, self.first_id, self.last_id, self.known_id, self.after_ms
        )  # fmt: skip


def segment_uri(path: str, *, immutable: bool = False) -> str:
    """Write the address under which SQLite opens a segment without ever changing it."""
    return f"file:{quote(path)}?mode=ro" + ("&immutable=1" if immutable else "")


def readable_uri(path: str) -> str:
    """Choose an address that opens: a folder we cannot write to needs `immutable`.

    SQLite keeps a shared-memory file beside a log in WAL mode, and a reader must be able to
    make it. Where it cannot, and no writer left a WAL, nobody is writing either.
    """
    uri = segment_uri(path)
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError:
        if not Path(path + "-wal").exists():
            return segment_uri(path, immutable=True)
        raise
    return uri


@contextmanager
def open_segment(path: str) -> Iterator[sqlite3.Connection]:
    """Open a segment read-only; whatever SQLite says of it becomes a `SegmentError`."""
    try:
        with closing(sqlite3.connect(readable_uri(path), uri=True, timeout=30)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise SegmentError(path, str(error)) from error


def log_folder(data: str) -> Path:
    """Find the folder with the segments, given the broker's data folder (or itself)."""
    root = Path(data)
    if not root.is_dir():
        raise ExportError(f"data folder {data} does not exist")
    if (root / FOLDER).is_dir():
        return root / FOLDER
    if any(root.glob("*" + SUFFIX)):
        return root
    raise ExportError(f"data folder {data} has no event log ({root / FOLDER} does not exist)")


def segment_paths(data: str) -> list[tuple[str, str]]:
    """List (day, path) of every file that is named like a segment, oldest first."""
    found = []
    for path in log_folder(data).glob("*" + SUFFIX):
        try:
            day = date.fromisoformat(path.stem).isoformat()
        except ValueError:
            continue
        found.append((day, str(path.resolve())))
    return sorted(found)


def look_at(day: str, path: str) -> Segment:
    """Check that a file is a segment of ours, and read its extent."""
    if not Path(path).exists():
        raise SegmentError(
            path, "no such file (on a cluster: --staging copies segments to storage all see)"
        )
    with open_segment(path) as connection:
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if tables == 0:
            # The writer makes today's file before it fills it; an older one never will be.
            if day >= datetime.now(UTC).date().isoformat():
                return Segment(path, day, 1, 0, 0)
            raise SegmentError(path, "the file is empty")
        if application_id != APPLICATION_ID:
            raise SegmentError(path, "not an event log of GeoMQTT")
        if version > SCHEMA_VERSION:
            raise NewerLog(path, version)
        _check_length(path)
        first = connection.execute("SELECT min(id) FROM packed").fetchone()[0]
        last = connection.execute(
            "SELECT id, received_ms FROM packed ORDER BY id DESC LIMIT 1"
        ).fetchone()
    if last is None:
        return Segment(path, day, 1, 0, 0)
    return Segment(path, day, first, last[0], last[1])


def _check_length(path: str) -> None:
    """Compare the file's length with what its header says; SQLite itself does not."""
    wal = Path(path + "-wal")
    if wal.exists() and wal.stat().st_size:
        return  # pages may still be there alone
    with open(path, "rb") as file:
        header = file.read(100)
    page_size = int.from_bytes(header[16:18], "big")
    said = (65536 if page_size == 1 else page_size) * int.from_bytes(header[28:32], "big")
    size = Path(path).stat().st_size
    if size < said:
        raise SegmentError(path, f"cut off: {size} bytes of {said}")


def received_at(path: str, row_id: int) -> int | None:
    """Read when one row was received; None if there is no such row."""
    with open_segment(path) as connection:
        row = connection.execute(
            "SELECT received_ms FROM packed WHERE id = ?", (row_id,)
        ).fetchone()
    return None if row is None else int(row[0])


def segment_topics(path: str) -> list[str]:
    """List the topics that occur in a segment."""
    with open_segment(path) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM topic")]


def is_sound(path: str) -> bool:
    """Read every page of a segment: costly, so only after a read has failed."""
    try:
        with open_segment(path) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except SegmentError:
        return False


def split(ranges: Iterable[Range], rows_per_task: int) -> list[Range]:
    """Cut ranges into pieces of at most `rows_per_task` ids, of about equal size."""
    pieces = []
    for whole in ranges:
        count = -(-whole.rows // rows_per_task)
        for n in range(count):
            first = whole.first_id + whole.rows * n // count
            last = whole.first_id + whole.rows * (n + 1) // count - 1
            pieces.append(Range(whole.path, whole.day, first, last, whole.known_id, whole.after_ms))
    return pieces
