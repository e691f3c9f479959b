"""Numbers over time: payloads that are numbers, and the numeric members of JSON objects.

A series is a topic and a member ("" for a bare number). Quartiles are exact, with linear
interpolation between neighbours; a value is out of line when it lies more than `reach`
interquartile ranges outside the quartiles of its series.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

REACH = 3.0


def numbers(events: DataFrame) -> DataFrame:
    """Give every number as a row: topic, member, client_id, time, value."""
    bare = events.where("number IS NOT NULL").select(
        "topic", F.lit("").alias("member"), "client_id", "time", F.col("number").alias("value")
    )
    members = (
        events.where("number IS NULL AND schema_of_variant(json) LIKE 'OBJECT<%'")
        .select(
            "topic", "client_id", "time", F.explode(F.expr("cast(json AS MAP<STRING, VARIANT>)"))
        )
        .where("schema_of_variant(value) RLIKE '^(BIGINT|DOUBLE|FLOAT|DECIMAL)'")
        .select(
            "topic",
            F.col("key").alias("member"),
            "client_id",
            "time",
            F.expr("try_variant_get(value, '$', 'double')").alias("value"),
        )
    )
    return bare.unionByName(members).where("value IS NOT NULL AND time IS NOT NULL")


def summary(values: DataFrame) -> DataFrame:
    """Describe each series: how many, extremes, quartiles, mean and deviation."""
    return (
        values.groupBy("topic", "member")
        .agg(
            F.count("*").alias("values"),
            F.min("value").alias("min"),
            F.expr("percentile(value, array(0.25, 0.5, 0.75))").alias("quartiles"),
            F.max("value").alias("max"),
            F.avg("value").alias("mean"),
            F.stddev_samp("value").alias("deviation"),
        )
        .withColumn("q1", F.col("quartiles")[0])
        .withColumn("median", F.col("quartiles")[1])
        .withColumn("q3", F.col("quartiles")[2])
        .drop("quartiles")
        .orderBy(F.desc("values"), "topic", "member")
    )


def daily_profile(values: DataFrame) -> DataFrame:
    """Describe each series per hour of the day."""
    hour = F.hour(F.col("time"))
    return (
        values.groupBy("topic", "member", hour.alias("hour"))
        .agg(
            F.count("*").alias("values"),
            F.avg("value").alias("mean"),
            F.min("value").alias("min"),
            F.max("value").alias("max"),
        )
        .orderBy("topic", "member", "hour")
    )


def outliers(values: DataFrame, described: DataFrame, reach: float = REACH) -> DataFrame:
    """Find the values out of line, the farthest first; `ranges` says how far."""
    spread = F.col("q3") - F.col("q1")
    beyond = F.greatest(F.col("q1") - F.col("value"), F.col("value") - F.col("q3"))
    return (
        values.join(
            described.where(spread > 0).select("topic", "member", "q1", "q3"), ["topic", "member"]
        )
        .withColumn("ranges", beyond / spread)
        .where(F.col("ranges") > reach)
        .orderBy(F.desc("ranges"), "topic", "member", "time")
    )
