"""Retention: deletes segments that are exported and old, and exported dates that are old.

A segment goes only when its last row is known to the manifest. What was exported stays when
its segment goes. Outliers have no date to go by, so they stay.
"""

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from spark_export.export import make_plan, quiet
from spark_export.manifest import Entry, Manifest
from spark_export.segments import SegmentError, segment_paths
from spark_export.target import open_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def prune_log(
    data: str,
    manifest: Manifest,
    today: date,
    keep_days: int,
    say: Callable[[str], None] = quiet,
) -> int:
    """Delete segments older than `keep_days` that have been exported to the last row."""
    before = (today - timedelta(days=keep_days)).isoformat()
    bad: dict[str, SegmentError] = {}
    state = manifest.load()
    waiting = {piece.day for piece in make_plan(data, state, "0001-01-01", before, bad).ranges}
    deleted = 0
    for day, path in segment_paths(data):
        if day >= before:
            continue
        if path in bad or day in waiting:
            say(f"kept segment {path}: it is not exported")
            continue
        # The main file last: what is left after a crash is still a segment, or nothing.
        for suffix in ("-wal", "-shm", ""):
            Path(path + suffix).unlink(missing_ok=True)
        deleted += 1
    return deleted


def prune_export(manifest: Manifest, today: date, keep_days: int) -> int:
    """Delete the files of event dates older than `keep_days`; give how many."""
    before = f"event_date={(today - timedelta(days=keep_days)).isoformat()}"
    old = [
        path
        for path in manifest.load().files
        if path[:12].startswith("event_date=") and path[11:12].isdigit() and path < before
    ]
    if old:
        with manifest.run() as run:
            manifest.commit(Entry("prune", run, {}, {}, [], old))
    return len(old)


def open_manifest(out: str, spark: "SparkSession | None" = None) -> Manifest:
    """Open the manifest of an export folder."""
    return Manifest(open_target(out, spark))
