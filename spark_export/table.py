"""The exported table: its columns, made from those of the log, and how its files are written.

`event_date` is NULL for events whose time is far from their receipt, so that they share one
folder (Hive's name for NULL) and a hostile clock cannot make a million of them.
"""

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_export import footer
from spark_export.manifest import STAGING, VERSION, DataFile

if TYPE_CHECKING:
    from spark_export.target import Target

FAR_DAYS = 366
# Small row groups, because places are found by skipping those whose box is elsewhere.
ROW_GROUP_BYTES = 32 << 20

_WRITE_SETTINGS = {
    # Spark's default is INT96, which has no statistics and no time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # One schema for every file: other readers cannot merge VARIANTs shredded in different ways.
    "spark.sql.variant.writeShredding.enabled": "false",
}

COLUMNS = (
    "segment",  # the UTC day of receipt; with `id` it names the row in the log
    "id",
    "received",
    "time",
    "end_time",
    "has_time",
    "time_ms",
    "end_ms",
    "topic",
    "client_id",
    "qos",
    "retain",
    "geo",
    "epsg",
    "sent",
    "geometry",
    "bbox",
    "cell",
    "payload",
    "number",
    "json",
    "event_date",
)

# The whole payload is a number: JSON's form, with the leading plus, point and spaces that
# sensors send. Java alone would also take "12d" and "0x1p3".
_NUMBER = r"^\\s*[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?\\s*$"


def convert(log: DataFrame, far_days: int = FAR_DAYS) -> DataFrame:
    """Make the table's columns from the log's."""
    text = "cast(payload AS STRING)"
    number = (
        f"CASE WHEN length(payload) <= 64 AND {text} RLIKE '{_NUMBER}' "
        f"THEN try_cast({text} AS DOUBLE) END"
    )
    # By the UTC day, whatever the session's time zone is.
    time, received = (
        f"cast(floor(unix_seconds({c}) / 86400) AS INT)" for c in ("time", "received")
    )
    near = f"abs({time} - {received}) <= {far_days}"
    return (
        log.withColumn("geometry", F.expr("ST_GeomFromWKB(wkb, 4326)"))
        .withColumn(
            "bbox",
            F.expr(
                "CASE WHEN min_x IS NOT NULL THEN named_struct("
                "'xmin', min_x, 'ymin', min_y, 'xmax', max_x, 'ymax', max_y) END"
            ),
        )
        .withColumn("number", F.expr(number))
        .withColumn("number", F.expr("CASE WHEN abs(number) < double('Infinity') THEN number END"))
        .withColumn("json", F.expr(f"try_parse_json(try_validate_utf8({text}))"))
        .withColumn("event_date", F.expr(f"CASE WHEN {near} THEN date_from_unix_date({time}) END"))
        .select(*COLUMNS)
    )


def write(table: DataFrame, address: str) -> None:
    """Write the table below an address: zstd, by event date, sorted by cell and time inside.

    Every task sorts and writes what it has read. Rows are not moved between tasks: the
    log is in order of receipt, so a task holds one stretch of one or two days anyway.
    """
    for key, setting in _WRITE_SETTINGS.items():
        table.sparkSession.conf.set(key, setting)
    (
        table.sortWithinPartitions("event_date", "cell", "time")
        .write.mode("overwrite")
        .option("compression", "zstd")
        .option("parquet.block.size", str(ROW_GROUP_BYTES))
        # Differences instead of whole integers: times and cells are sorted or nearly so.
        .option("parquet.writer.version", "v2")
        .partitionBy("event_date")
        .parquet(address)
    )


def finish(target: "Target", run: str) -> tuple[list[tuple[str, DataFile]], int]:
    """Add the keys Spark does not write to a run's files, and name the places they go to.

    Also gives the latest time of receipt in them, in milliseconds.
    """
    added, latest = [], 0
    for path, size in target.files(f"{STAGING}/{run}"):
        folder, name = path.split("/")[-2:]
        if not name.endswith(".parquet") or not folder.startswith("event_date="):
            continue
        length = footer.footer_length(target.read_end(path, footer.TAIL)) + footer.TAIL
        old = target.read_end(path, length)
        rows, box, received_ms = _summary(old)
        new = footer.add_metadata(old[: -footer.TAIL], _keys(box))
        target.replace_end(path, length, new)
        final = f"{folder}/{run}-{name.removeprefix('part-')}"
        added.append((path, DataFile(final, rows, size - length + len(new))))
        latest = max(latest, received_ms)
    return added, latest


def _keys(box: list[float] | None) -> dict[str, str]:
    column: dict[str, Any] = {
        "encoding": "WKB",
        "geometry_types": [],
        "covering": {"bbox": {name: ["bbox", name] for name in ("xmin", "ymin", "xmax", "ymax")}},
    }
    if box is not None:
        column["bbox"] = box
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    return {"geo": json.dumps(geo), "geomqtt.schema_version": str(VERSION)}


def _summary(end_of_file: bytes) -> tuple[int, list[float] | None, int]:
    """Read rows, bounding box and latest receipt from a footer's statistics."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(pa.BufferReader(end_of_file))
    columns = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]

    def extreme(path: str, bound: str) -> list[Any]:
        statistics = [group.column(columns[path]).statistics for group in groups]
        return [getattr(s, bound) for s in statistics if s is not None and s.has_min_max]

    low_x, low_y = extreme("bbox.xmin", "min"), extreme("bbox.ymin", "min")
    high_x, high_y = extreme("bbox.xmax", "max"), extreme("bbox.ymax", "max")
    box = None
    if low_x and low_y and high_x and high_y:
        box = [min(low_x), min(low_y), max(high_x), max(high_y)]
    received = [int(moment.timestamp() * 1000) for moment in extreme("received", "max")]
    return metadata.num_rows, box, max(received, default=0)
