"""Puts many small files of one event date together into few, without a row coming or going.

Exports of an open day, late events and wild clocks leave small files. The new ones take
the place of the old in one entry of the manifest.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_export import table
from spark_export.export import quiet
from spark_export.manifest import STAGING, Conflict, DataFile, Entry, Manifest, State
from spark_export.segments import ExportError
from spark_export.target import open_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_BYTES = 128 << 20


def compact(
    spark: "SparkSession",
    address: str,
    *,
    target_bytes: int = TARGET_BYTES,
    say: Callable[[str], None] = quiet,
) -> int:
    """Compact every event date that has several small files; give how many files that saved."""
    manifest = Manifest(open_target(address, spark))
    manifest.recover()
    state = manifest.load()
    small, large = _choose(state, target_bytes)
    saved = 0
    # Dates that fit one file each go together in one job; a great one is a job of its own.
    jobs = ([small] if small else []) + [[files] for files in large]
    for dates in jobs:
        files = [file for files in dates for file in files]
        say(f"compacting {len(files)} files of {len(dates)} dates")
        try:
            saved += len(files) - _rewrite(spark, manifest, files, dates, target_bytes)
        except Conflict:
            say("another run was quicker; left as they are")
    return saved


def _choose(state: State, target_bytes: int) -> tuple[list[list[DataFile]], list[list[DataFile]]]:
    by_date: dict[str, list[DataFile]] = defaultdict(list)
    for file in state.files.values():
        if file.bytes < target_bytes // 2:
            by_date[file.path.partition("/")[0]].append(file)
    several = [files for _, files in sorted(by_date.items()) if len(files) > 1]
    small = [files for files in several if sum(file.bytes for file in files) <= target_bytes]
    return small, [files for files in several if files not in small]


def _rewrite(
    spark: "SparkSession",
    manifest: Manifest,
    files: list[DataFile],
    dates: list[list[DataFile]],
    target_bytes: int,
) -> int:
    target = manifest.target
    rows = (
        spark.read.option("basePath", target.root)
        .parquet(*(target.url(file.path) for file in files))
        # With nothing but the folder of outliers, Spark cannot tell the column's type.
        .withColumn("event_date", F.col("event_date").cast("date"))
        .select(*table.COLUMNS)
    )
    with manifest.run() as run:
        table.write(_spread(rows, files, dates, target_bytes), target.url(f"{STAGING}/{run}"))
        added, _ = table.finish(target, run)
        before = sum(file.rows for file in files)
        after = sum(file.rows for _, file in added)
        if before != after:
            raise ExportError(f"compacting read {before} rows and wrote {after}; nothing changed")
        manifest.commit(Entry("compact", run, {}, {}, added, [file.path for file in files]))
    return len(added)


def _spread(
    rows: DataFrame, files: list[DataFile], dates: list[list[DataFile]], target_bytes: int
) -> DataFrame:
    if len(dates) > 1:
        tasks = min(len(dates), 4 * rows.sparkSession.sparkContext.defaultParallelism)
        return rows.repartition(tasks, "event_date")
    pieces = -(-sum(file.bytes for file in files) // target_bytes)
    if pieces == 1:
        return rows.coalesce(1)
    return rows.repartitionByRange(pieces, "cell", "time")
