"""The writer: days, names, what is sent twice, files it cannot use; and how segments end."""

import marshal
import os
import sqlite3
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from plugins.event_log import reader, segments
from plugins.event_log.reader import Query
from plugins.event_log.records import Batch
from plugins.event_log.schema import APPLICATION_ID
from plugins.event_log.segments import (
    DAY_MS,
    SegmentError,
    list_segments,
    opened,
    prune,
    segment_of,
)
from plugins.event_log.writer import Options, Writer
from protocol.message import Message

NOON = 1_774_699_200_000  # 2026-03-28T12:00Z
MIDNIGHT = NOON + DAY_MS // 2
WriteLog = Callable[..., None]

# PUBLISH of "f/0" … "f/9" with a payload of the same digit, and one topic ten times.
MIXED = b"".join(b"\x30\x06\x00\x03f/%d%d" % (n, n) for n in range(10))
SAME = b"".join(b"\x30\x06\x00\x03f/x%d" % n for n in range(10))


def message(topic: str, received_ms: int = NOON, client: str = "c") -> Message:
    return Message(topic, b"", 0, False, client, received_ms)


def topics(data: Path, **what: object) -> list[str]:
    return [event.topic for event in reader.query(data, Query(**what))]  # type: ignore[arg-type]


def test_the_day_of_receipt_decides_the_segment(write_log: WriteLog, tmp_path: Path) -> None:
    write_log(
        [
            message("before", MIDNIGHT - 1),
            message("after", MIDNIGHT),
            (MIDNIGHT - 1, "c", SAME, 10),
            message("late", MIDNIGHT - 1),
        ]
    )
    assert [segment.day.isoformat() for segment in list_segments(tmp_path)] == [
        "2026-03-28",
        "2026-03-29",
    ]
    assert topics(tmp_path) == ["before", *["f/x"] * 10, "late", "after"]


def test_frames_and_messages_keep_their_order(write_log: WriteLog, tmp_path: Path) -> None:
    write_log(
        [
            (NOON, "c", SAME, 10),
            message("between"),
            (NOON, "d", MIXED, 10),
            message("last"),
        ]
    )
    events = list(reader.query(tmp_path, Query()))
    names = [*["f/x"] * 10, "between", *[f"f/{n}" for n in range(10)], "last"]
    assert [event.topic for event in events] == names
    assert [event.payload for event in events[:10]] == [b"%d" % n for n in range(10)]
    assert [event.payload for event in events[11:21]] == [b"%d" % n for n in range(10)]
    assert [event.client_id for event in events[10:12]] == ["c", "d"]
    assert [event.id for event in events] == list(range(1, 23))


def test_a_run_of_frames_across_the_end_of_a_run_of_ids(
    write_log: WriteLog, tmp_path: Path
) -> None:
    frames = b"".join(b"\x30\x0a\x00\x03f/x%05d" % n for n in range(70_000))
    write_log([message("first"), (NOON, "c", frames, 70_000)], close=False)
    found = reader.query(tmp_path, Query("f/x"))
    assert [int(event.payload) for event in found] == list(range(70_000))


def test_names_are_kept_once_however_they_come(write_log: WriteLog, tmp_path: Path) -> None:
    write_log([(NOON, "c", SAME, 10), message("f/x"), message("f/x", client="d")])
    write_log([(NOON, "d", SAME, 10), message("f/x")])
    with opened(list_segments(tmp_path)[0]) as connection:
        assert connection.execute("SELECT name FROM topic").fetchall() == [("f/x",)]
        assert connection.execute("SELECT name FROM client").fetchall() == [("c",), ("d",)]
    assert len(topics(tmp_path)) == 23


def test_only_wanted_topics_are_logged(write_log: WriteLog, tmp_path: Path) -> None:
    write_log(
        [(NOON, "c", SAME, 10), (NOON, "c", MIXED, 10), message("g"), message("$SYS/x")],
        include=("f/+",),
        exclude=("f/x", "f/3"),
    )
    assert topics(tmp_path) == [f"f/{n}" for n in range(10) if n != 3]


def test_dollar_topics_are_logged_when_a_filter_names_them(
    write_log: WriteLog, tmp_path: Path
) -> None:
    write_log([message("$SYS/x"), message("a")])
    write_log([message("$SYS/y"), message("b")], include=("#", "$SYS/#"))
    assert topics(tmp_path) == ["a", "b"]
    assert topics(tmp_path, topic_filter="$SYS/#") == ["$SYS/y"]


def batch(sequence: int, *records: object) -> Batch:
    return Batch(sequence, len(records), marshal.dumps(list(records)))


def record(topic: str, received_ms: int = NOON) -> tuple[object, ...]:
    return (received_ms, topic, b"", 0, "c", None, None, None, None)


def test_a_batch_that_comes_again_is_written_once(tmp_path: Path) -> None:
    segments.folder_of(tmp_path).mkdir()
    first = Writer(Options(data_dir=str(tmp_path), session="s"))
    assert first.write([batch(1, record("a")), batch(2, record("b", MIDNIGHT))]) == 2
    first.recover(RuntimeError("killed"))
    again = Writer(Options(data_dir=str(tmp_path), session="s"))
    batches = [
        batch(1, record("a")),
        batch(2, record("b", MIDNIGHT), record("lost with the crash of the first", NOON + 1)),
        batch(3, record("c", MIDNIGHT)),
    ]
    assert again.write(batches) == 2
    again.close()
    assert topics(tmp_path) == ["a", "lost with the crash of the first", "b", "c"]


def test_another_broker_run_begins_to_count_again(tmp_path: Path) -> None:
    segments.folder_of(tmp_path).mkdir()
    for session in ("one", "two"):
        writer = Writer(Options(data_dir=str(tmp_path), session=session))
        assert writer.write([batch(1, record(session))]) == 1
        writer.close()
    assert topics(tmp_path) == ["one", "two"]


def test_a_closed_segment_is_one_whole_file(write_log: WriteLog, tmp_path: Path) -> None:
    write_log([message("a")])
    (segment,) = list_segments(tmp_path)
    assert segment.files() == [segment.path]
    with opened(segment) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"this is no database, but long enough to be taken for one" * 99, "not a database"),
        ("application_id = 1", "not a segment of the event log"),
        (f"application_id = {APPLICATION_ID}; PRAGMA user_version = 99", "99 is newer than 1"),
    ],
)
def test_a_file_that_is_no_segment_is_named_and_set_aside(
    write_log: WriteLog, tmp_path: Path, content: bytes | str, reason: str
) -> None:
    path = segment_of(tmp_path, date(2026, 3, 28)).path
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        connection = sqlite3.connect(path)
        connection.executescript(f"PRAGMA {content}; CREATE TABLE t (x);")
        connection.close()
    write_log([message("next day", MIDNIGHT)])
    with pytest.raises(SegmentError, match=f"2026-03-28.sqlite: .*{reason}"):
        topics(tmp_path)
    told: list[SegmentError] = []
    assert [event.topic for event in reader.query(tmp_path, Query(), told.append)] == ["next day"]
    assert [error.path for error in told] == [path]
    write_log([message("same day")])
    assert topics(tmp_path) == ["same day", "next day"]
    (aside,) = path.parent.glob("2026-03-28.sqlite.unusable-*")
    assert aside.stat().st_size > 0


def test_a_torn_segment_is_named(write_log: WriteLog, tmp_path: Path) -> None:
    write_log([(NOON, "c", SAME * 10_000, 100_000)])
    (segment,) = list_segments(tmp_path)
    os.truncate(segment.path, segment.path.stat().st_size // 2)
    with pytest.raises(SegmentError, match=r"2026-03-28\.sqlite: database disk image is malformed"):
        list(reader.query(tmp_path, Query()))


def test_old_days_are_deleted_but_never_today(write_log: WriteLog, tmp_path: Path) -> None:
    for days in range(5):
        write_log([message("t", NOON + days * DAY_MS)])
    now = NOON + 4 * DAY_MS
    assert prune(tmp_path, 10, None, now) == []
    assert [segment.day.day for segment in prune(tmp_path, 2, None, now)] == [28, 29]
    assert [segment.day.day for segment in list_segments(tmp_path)] == [30, 31, 1]
    assert [segment.day.day for segment in prune(tmp_path, 0.1, None, now)] == [30, 31]
    assert prune(tmp_path, 0.001, 1, now) == []
    assert len(topics(tmp_path)) == 1


def test_the_oldest_days_go_until_the_rest_is_small_enough(
    write_log: WriteLog, tmp_path: Path
) -> None:
    for days in range(4):
        write_log([message("t", NOON + days * DAY_MS)])
    each = list_segments(tmp_path)[0].bytes
    deleted = prune(tmp_path, None, 2 * each, NOON + 4 * DAY_MS)
    assert [segment.day.day for segment in deleted] == [28, 29]
    size = segments.size(tmp_path)
    assert (size.segments, size.bytes, size.events) == (2, 2 * each, 2)
