"""How much was said: events and bytes per topic, client and hour of event time."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812


def volume(events: DataFrame) -> DataFrame:
    """Count per (topic, client_id, hour); the tables below are sums of this one."""
    return events.groupBy("topic", "client_id", F.date_trunc("hour", "time").alias("hour")).agg(
        F.count("*").alias("events"),
        F.sum(F.coalesce(F.octet_length("payload"), F.lit(0))).alias("bytes"),
        F.count("bbox").alias("placed"),
    )


def per_topic(volumes: DataFrame) -> DataFrame:
    """Sum per topic, the busiest first."""
    return _summed(volumes, "topic", "client_id", "clients")


def per_client(volumes: DataFrame) -> DataFrame:
    """Sum per client, the busiest first."""
    return _summed(volumes, "client_id", "topic", "topics")


def per_hour(volumes: DataFrame) -> DataFrame:
    """Sum per hour, in order."""
    return (
        volumes.groupBy("hour")
        .agg(F.sum("events").alias("events"), F.sum("bytes").alias("bytes"))
        .orderBy("hour")
    )


def _summed(volumes: DataFrame, key: str, other: str, others: str) -> DataFrame:
    return (
        volumes.groupBy(key)
        .agg(
            F.sum("events").alias("events"),
            F.sum("bytes").alias("bytes"),
            F.sum("placed").alias("placed"),
            F.countDistinct(other).alias(others),
        )
        .orderBy(F.desc("events"), key)
    )


def changes(now: DataFrame, before: DataFrame, key: str) -> DataFrame:
    """Set two days' volumes side by side per topic or client, the greatest change first."""
    this = now.groupBy(key).agg(F.sum("events").alias("now"))
    last = before.groupBy(key).agg(F.sum("events").alias("before"))
    joined = this.join(last, key, "full").fillna(0, ["now", "before"])
    return joined.withColumn("change", F.col("now") - F.col("before")).orderBy(
        F.desc(F.abs("change")), key
    )
