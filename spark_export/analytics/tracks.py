"""How far and how fast clients moved: the steps between their positions, and their sums.

Distances are on the sphere of the Earth's mean radius (within 0.5 % of the ellipsoid).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_export.analytics.events import by_time, positions, seconds_between

EARTH_RADIUS_M = 6_371_008.8


def steps(events: DataFrame) -> DataFrame:
    """Give every position with the distance, time and speed from the client's position before.

    The first position of a client has NULLs; two at the same time have no speed.
    """
    order = by_time("client_id")
    found = positions(events).select("client_id", "segment", "id", "time", "x", "y")
    for name in ("time", "x", "y"):
        found = found.withColumn(f"last_{name}", F.lag(name).over(order))
    return (
        found.withColumn("distance_m", distance_m("last_x", "last_y", "x", "y"))
        .withColumn("seconds", seconds_between(F.col("last_time"), F.col("time")))
        .withColumn(
            "speed_m_s", F.when(F.col("seconds") > 0, F.col("distance_m") / F.col("seconds"))
        )
    )


def tracks(stepped: DataFrame) -> DataFrame:
    """Sum the steps of each client, the longest way first."""
    return (
        stepped.groupBy("client_id")
        .agg(
            F.count("*").alias("positions"),
            F.min("time").alias("first"),
            F.max("time").alias("last"),
            F.coalesce(F.sum("distance_m"), F.lit(0.0)).alias("distance_m"),
            F.coalesce(F.sum("seconds"), F.lit(0.0)).alias("seconds"),
            F.max("speed_m_s").alias("max_speed_m_s"),
            F.min("x").alias("west"),
            F.min("y").alias("south"),
            F.max("x").alias("east"),
            F.max("y").alias("north"),
        )
        .withColumn(
            "mean_speed_m_s", F.when(F.col("seconds") > 0, F.col("distance_m") / F.col("seconds"))
        )
        .orderBy(F.desc("distance_m"), "client_id")
    )


def distance_m(x1: str, y1: str, x2: str, y2: str) -> Column:
    """Give the great-circle distance of two places in degrees (haversine)."""
    half_height = F.sin(F.radians(F.col(y2) - F.col(y1)) / 2)
    half_width = F.sin(F.radians(F.col(x2) - F.col(x1)) / 2)
    share = half_height * half_height + F.cos(F.radians(F.col(y1))) * F.cos(
        F.radians(F.col(y2))
    ) * (half_width * half_width)
    # Rounding can lift the share of two antipodes above one, where the arcsine ends. (`least`
    # would also make one of NULL.)
    return 2 * EARTH_RADIUS_M * F.asin(F.sqrt(F.when(share > 1, 1.0).otherwise(share)))
