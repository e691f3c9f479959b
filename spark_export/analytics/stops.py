"""Where clients stood still: runs of positions joined by slow steps, if they last long enough."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_export.analytics.events import by_time, seconds_between

MAX_SPEED_M_S = 0.5  # slower than walking; GPS noise stays below it
MIN_SECONDS = 300.0


def stops(
    stepped: DataFrame, max_speed_m_s: float = MAX_SPEED_M_S, min_seconds: float = MIN_SECONDS
) -> DataFrame:
    """Find the stops in `tracks.steps`: one row each, with the mean place and the duration."""
    slow = (F.col("distance_m") == 0) | (F.col("speed_m_s") <= max_speed_m_s)
    run = F.sum(F.when(slow, 0).otherwise(1)).over(
        by_time("client_id").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        stepped.withColumn("run", run)
        .groupBy("client_id", "run")
        .agg(
            F.min("time").alias("start"),
            F.max("time").alias("stop"),
            F.count("*").alias("positions"),
            F.avg("x").alias("x"),
            F.avg("y").alias("y"),
        )
        .withColumn("seconds", seconds_between(F.col("start"), F.col("stop")))
        .where((F.col("positions") > 1) & (F.col("seconds") >= min_seconds))
        .drop("run")
        .orderBy("client_id", "start")
    )
