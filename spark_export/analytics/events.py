"""The exported events as a DataFrame, and the small views of them that the analyses share."""

from datetime import date

from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812

from spark_export.manifest import Manifest
from spark_export.segments import ExportError
from spark_export.target import open_target


def read_events(spark: SparkSession, address: str) -> DataFrame:
    """Read an export: exactly the files its manifest names."""
    target = open_target(address, spark)
    manifest = Manifest(target)
    manifest.recover()
    state = manifest.load()
    if state.number == 0:
        raise ExportError(f"{address} holds no export of events")
    files = [target.url(path) for path, file in state.files.items() if file.rows]
    if not files:
        raise ExportError(f"{address} holds no events")
    return spark.read.option("basePath", target.root).parquet(*files)


def of_day(events: DataFrame, day: date) -> DataFrame:
    """Keep the events that happened on a UTC day."""
    return events.where(F.col("event_date") == F.lit(day))


def days(events: DataFrame) -> list[date]:
    """List the days on which something happened."""
    rows = events.where("event_date IS NOT NULL").select("event_date").distinct().collect()
    return sorted(row["event_date"] for row in rows)


def places(events: DataFrame) -> DataFrame:
    """Keep events with a place, with the middle of its box as `x` and `y`."""
    return (
        events.where("bbox IS NOT NULL")
        .withColumn("x", F.expr("(bbox.xmin + bbox.xmax) / 2"))
        .withColumn("y", F.expr("(bbox.ymin + bbox.ymax) / 2"))
    )


def positions(events: DataFrame) -> DataFrame:
    """Keep events at a point in space and time: where a client was, and when."""
    return places(events).where(
        "bbox.xmin = bbox.xmax AND bbox.ymin = bbox.ymax AND time IS NOT NULL"
    )


def by_time(*keys: str) -> WindowSpec:
    """Order the events of one key, always in the same way."""
    return Window.partitionBy(*keys).orderBy("time", "segment", "id")


def seconds_between(start: Column, end: Column) -> Column:
    """Give the seconds from one time to another, with their fraction."""
    return (F.unix_micros(end) - F.unix_micros(start)) / 1e6
