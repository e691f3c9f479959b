"""The export: rows of the log that have not gone out yet, to Parquet, each exactly once.

    plan (manifest against segments) --> Spark writes to staging --> commit --> rename

The plan is a range of row ids per segment, from the mark of the last export to the row that is
last now. If another run commits an overlapping range first, this one plans again.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_export import staging
from spark_export.manifest import STAGING, Conflict, Entry, Manifest, Mark, State
from spark_export.segments import (
    ExportError,
    Range,
    Segment,
    SegmentError,
    is_sound,
    look_at,
    received_at,
    segment_paths,
)
from spark_export.target import open_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_ROWS_PER_TASK = 1_000_000
MIN_ROWS_PER_TASK = 50_000
ATTEMPTS = 5


@dataclass(slots=True)
class Outcome:
    """What an export did."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    segments: int = 0  # that had something new
    seen: int = 0  # segments of the days asked for
    bad: list[SegmentError] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """Which rows to read, and how far the marks move with them."""

    ranges: list[Range] = field(default_factory=list)
    marks: dict[str, Mark] = field(default_factory=dict)
    expects: dict[str, Mark | None] = field(default_factory=dict)
    seen: int = 0

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.ranges)


def quiet(_line: str) -> None:
    """Say nothing."""


def export(
    spark: "SparkSession",
    data: str,
    out: str,
    *,
    first_day: str = "0001-01-01",
    last_day: str = "9999-12-31",
    far_days: int = 366,
    staging_address: str | None = None,
    say: Callable[[str], None] = quiet,
) -> Outcome:
    """Bring the events received on these days, as far as they are new, to `out`."""
    target = open_target(out, spark)
    manifest = Manifest(target)
    target.make_folder("")
    if manifest.recover():
        say("finished an export that had been interrupted")
    bad: dict[str, SegmentError] = {}
    for _ in range(ATTEMPTS):
        plan = make_plan(data, manifest.load(), first_day, last_day, bad)
        outcome = Outcome(seen=plan.seen, segments=len(plan.ranges), bad=list(bad.values()))
        if not plan.ranges:
            return outcome
        say(f"reading {plan.rows:,} rows of {len(plan.ranges)} segments")
        try:
            return _run(spark, manifest, plan, far_days, staging_address, outcome)
        except Conflict:
            say("another export was quicker; planning again")
        except SegmentError as error:
            bad[error.path] = error
        except Exception as error:
            if not _blame(plan, bad, str(error)):
                raise ExportError(f"the export failed: {_cause(error)}") from error
    raise ExportError(f"gave up after {ATTEMPTS} attempts beside other exports to {out}")


def make_plan(
    data: str, state: State, first_day: str, last_day: str, bad: dict[str, SegmentError]
) -> Plan:
    """Find the rows of these days that are not exported; unreadable segments go to `bad`."""
    plan = Plan()
    for day, path in segment_paths(data):
        if not first_day <= day <= last_day:
            continue
        plan.seen += 1
        if path in bad:
            continue
        try:
            segment = look_at(day, path)
            mark = state.marks.get(day)
            piece = _new_rows(segment, mark)
        except SegmentError as error:
            bad[path] = error
            continue
        if piece is None:
            continue
        plan.ranges.append(piece)
        plan.expects[day] = mark
        known = mark.max_received_ms if mark else 0
        plan.marks[day] = Mark(segment.last_id, segment.last_received_ms, known)
    return plan


def _new_rows(segment: Segment, mark: Mark | None) -> Range | None:
    if segment.last_id == 0:
        return None
    if mark is None:
        return Range(segment.path, segment.day, segment.first_id, segment.last_id)
    if (segment.last_id, segment.last_received_ms) == (mark.id, mark.received_ms):
        return None
    if segment.last_id > mark.id and received_at(segment.path, mark.id) == mark.received_ms:
        return Range(segment.path, segment.day, mark.id + 1, segment.last_id)
    # The row we knew is gone: deleted, or the whole segment was made anew and counts from
    # one again. A row is new if its number is, or if it came after all that went out.
    return Range(
        segment.path, segment.day, segment.first_id, segment.last_id, mark.id, mark.max_received_ms
    )


def _run(
    spark: "SparkSession",
    manifest: Manifest,
    plan: Plan,
    far_days: int,
    staging_address: str | None,
    outcome: Outcome,
) -> Outcome:
    from spark_export import table

    with manifest.run() as run:
        ranges = plan.ranges
        staged = f"{staging_address.rstrip('/')}/{run}" if staging_address else None
        try:
            if staged:
                ranges = [_staged(piece, staged) for piece in ranges]
            log = (
                spark.read.format("geomqtt")
                .option("ranges", json.dumps([piece.fields() for piece in ranges]))
                .option("rowsPerTask", str(_rows_per_task(spark, plan.rows)))
                .load()
            )
            address = manifest.target.url(f"{STAGING}/{run}")
            table.write(table.convert(log, far_days), address)
        finally:
            if staged:
                staging.unstage(staged)
        added, latest = table.finish(manifest.target, run)
        marks = {
            day: Mark(mark.id, mark.received_ms, max(mark.max_received_ms, latest))
            for day, mark in plan.marks.items()
        }
        manifest.commit(Entry("export", run, marks, plan.expects, added, []))
    outcome.rows = sum(file.rows for _, file in added)
    outcome.bytes = sum(file.bytes for _, file in added)
    outcome.files = len(added)
    return outcome


def _staged(piece: Range, address: str) -> Range:
    return Range(staging.stage(piece.path, piece.day, address), *piece.fields()[1:])


def _rows_per_task(spark: "SparkSession", rows: int) -> int:
    """Keep every core busy, and files neither tiny nor huge."""
    share = -(-rows // max(1, spark.sparkContext.defaultParallelism))
    return min(MAX_ROWS_PER_TASK, max(MIN_ROWS_PER_TASK, share))


def _blame(plan: Plan, bad: dict[str, SegmentError], told: str) -> bool:
    """After Spark failed: find the segments it was about."""
    known = len(bad)
    for piece in plan.ranges:
        # By the day in its name: a task may have read a copy that lies elsewhere.
        said = re.search(rf"SegmentError: segment \S*{piece.day}\.sqlite: (.*)", told)
        if said:
            bad[piece.path] = SegmentError(piece.path, said[1].strip())
        elif not is_sound(piece.path):
            bad[piece.path] = SegmentError(piece.path, "damaged inside")
    return len(bad) > known


def _cause(error: Exception) -> str:
    """Find the line that says what happened in what Spark says about it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("spark_export.")]
    if ours:
        return ours[-1].partition(": ")[2]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1] if causes else lines[0]) if lines else type(error).__name__
