"""From fence to fence: each client's visits in order, counted by origin and destination."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_export.analytics.events import seconds_between


def trips(visited: DataFrame) -> DataFrame:
    """Pair each visit of `dwell.visits` with the client's next one to another fence.

    Fences may overlap: a visit that began before this one ended is no journey from it.
    """
    order = Window.partitionBy("client_id").orderBy("entered", "last_inside", "fence")
    return (
        visited.withColumn("destination", F.lead("fence").over(order))
        .withColumn("arrived", F.lead("entered").over(order))
        .where((F.col("destination") != F.col("fence")) & (F.col("arrived") > F.col("last_inside")))
        .select(
            "client_id",
            F.col("fence").alias("origin"),
            "destination",
            F.col("last_inside").alias("departed"),
            "arrived",
        )
        .withColumn("seconds", seconds_between(F.col("departed"), F.col("arrived")))
    )


def origin_destination(travelled: DataFrame) -> DataFrame:
    """Count trips per pair of fences, the commonest first."""
    return (
        travelled.groupBy("origin", "destination")
        .agg(
            F.count("*").alias("trips"),
            F.countDistinct("client_id").alias("clients"),
            F.expr("percentile(seconds, 0.5)").alias("median_s"),
        )
        .orderBy(F.desc("trips"), "origin", "destination")
    )
