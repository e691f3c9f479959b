"""Finding segments, and telling good ones from bad, without Spark."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.event_log.schema import SCHEMA_VERSION
from spark_export.segments import (
    ExportError,
    NewerLog,
    Range,
    SegmentError,
    look_at,
    segment_paths,
    split,
)

DAY = "2026-03-28"


def test_only_files_named_like_a_day_are_segments(log: Any) -> None:
    log.add("2026-03-29", [{"topic": "a"}])
    log.add("2026-03-28", [{"topic": "a"}])
    for name in ("notes.sqlite", "2026-02-30.sqlite", "2026-03-28.txt"):
        (log.data / "log" / name).write_bytes(b"?")
    assert [day for day, _ in segment_paths(str(log.data))] == ["2026-03-28", "2026-03-29"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="nowhere does not exist"):
        segment_paths(str(tmp_path / "nowhere"))
    with pytest.raises(ExportError, match="has no event log"):
        segment_paths(str(tmp_path))


def test_the_extent_is_read_while_the_writer_holds_the_segment(log: Any) -> None:
    log.add(DAY, [{"topic": "a", "received": n} for n in range(5)])
    with closing(log.open(DAY)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        found = look_at(DAY, str(log.path(DAY)))
    assert (found.first_id, found.last_id) == (1, 5)
    assert found.last_received_ms == datetime(2026, 3, 28, 0, 0, 4, tzinfo=UTC).timestamp() * 1000


def test_a_foreign_database_is_no_segment(log: Any) -> None:
    with closing(sqlite3.connect(log.path(DAY))) as other:
        other.execute("CREATE TABLE mine (x)")
    with pytest.raises(SegmentError, match=r"2026-03-28\.sqlite: not an event log"):
        look_at(DAY, str(log.path(DAY)))


def test_a_file_that_is_no_database_is_no_segment(log: Any) -> None:
    log.path(DAY).write_bytes(b"some text that is no database at all" * 100)
    with pytest.raises(SegmentError, match="not a database"):
        look_at(DAY, str(log.path(DAY)))


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
def test_a_segment_that_is_cut_off_is_told(log: Any, kept: float) -> None:
    log.add(DAY, [{"topic": "a", "payload": b"x" * 500}] * 300)
    whole = log.path(DAY).read_bytes()
    log.path(DAY).write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(SegmentError, match=DAY):
        look_at(DAY, str(log.path(DAY)))


def test_todays_segment_may_still_be_empty(log: Any) -> None:
    today = datetime.now(UTC).date().isoformat()
    log.path(today).touch()
    assert look_at(today, str(log.path(today))).last_id == 0


def test_a_newer_log_is_refused(log: Any) -> None:
    log.add(DAY, [{"topic": "a"}])
    with closing(sqlite3.connect(log.path(DAY))) as later:
        later.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(NewerLog, match=f"version {SCHEMA_VERSION + 1}, this geomqtt reads up to"):
        look_at(DAY, str(log.path(DAY)))


@settings(deadline=None)  # the machine may be busy
@given(first=st.integers(1, 10_000), rows=st.integers(0, 10_000), size=st.integers(1, 3_000))
def test_pieces_of_a_range_are_the_range(first: int, rows: int, size: int) -> None:
    whole = Range("p", DAY, first, first + rows - 1)
    pieces = split([whole], size)
    assert [i for p in pieces for i in range(p.first_id, p.last_id + 1)] == list(
        range(first, first + rows)
    )
    assert all(0 < piece.rows <= size for piece in pieces)
