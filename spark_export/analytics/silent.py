"""Who should have spoken and did not.

Every (client, topic) has a rhythm: the median gap between its events. It is silent when, at a
given moment, its last event is longer ago than `factor` such gaps and than `min_seconds`.
"""

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_export.analytics.events import by_time, seconds_between

FACTOR = 10.0
MIN_SECONDS = 3600.0
MIN_EVENTS = 4  # three gaps: fewer make no rhythm


def silent(
    events: DataFrame, at: datetime, factor: float = FACTOR, min_seconds: float = MIN_SECONDS
) -> DataFrame:
    """Find the silent at a moment, the longest silent first. Events after it do not count."""
    moment = F.lit(at)
    last = F.lag("time").over(by_time("client_id", "topic"))
    return (
        events.where(F.col("time") <= moment)
        .withColumn("gap_s", seconds_between(last, F.col("time")))
        .groupBy("client_id", "topic")
        .agg(
            F.count("*").alias("events"),
            F.max("time").alias("last"),
            F.expr("percentile(gap_s, 0.5)").alias("median_gap_s"),
        )
        .withColumn("silent_s", seconds_between(F.col("last"), moment))
        .where(
            (F.col("events") >= MIN_EVENTS)
            & (F.col("silent_s") > min_seconds)
            & (F.col("silent_s") > factor * F.col("median_gap_s"))
        )
        .orderBy(F.desc("silent_s"), "client_id", "topic")
    )
