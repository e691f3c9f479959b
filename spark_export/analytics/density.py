"""Where it was said: events and clients per tile of the web map's grid, at several zooms.

Tile (zoom, x, y) is the one every web map uses: x counts from 180° W, y from 85.05° N
southwards, 2^zoom tiles a side. A place that is no point counts at the middle of its box.
"""

import math
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_export.analytics.events import places

MAX_LATITUDE = 85.0511287798066


def density(events: DataFrame, zooms: Sequence[int]) -> DataFrame:
    """Count per (zoom, tile_x, tile_y)."""
    last = "cast(shiftleft(1L, zoom) - 1 AS BIGINT)"
    side = "shiftleft(1L, zoom)"
    latitude = f"radians(greatest(-{MAX_LATITUDE}D, least({MAX_LATITUDE}D, y)))"
    column = f"floor((x + 180) / 360 * {side})"
    row = f"floor((1 - asinh(tan({latitude})) / pi()) / 2 * {side})"
    return (
        places(events)
        .select("client_id", "x", "y", F.explode(F.lit(list(zooms))).alias("zoom"))
        .withColumn("tile_x", F.expr(f"greatest(0L, least({last}, {column}))"))
        .withColumn("tile_y", F.expr(f"greatest(0L, least({last}, {row}))"))
        .groupBy("zoom", "tile_x", "tile_y")
        .agg(F.count("*").alias("events"), F.countDistinct("client_id").alias("clients"))
    )


def tile_box(zoom: int, x: int, y: int) -> tuple[float, float, float, float]:
    """Give west, south, east, north of a tile.

    >>> tile_box(1, 0, 0)
    (-180.0, 0.0, 0.0, 85.0511287798066)
    """
    side = 1 << zoom
    return (
        x / side * 360 - 180,
        _latitude(y + 1, side),
        (x + 1) / side * 360 - 180,
        _latitude(y, side),
    )


def _latitude(row: int, side: int) -> float:
    return math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * row / side))))


def fitting_zooms(west: float, south: float, east: float, north: float) -> list[int]:
    """Choose three zooms at which a box is about 8, 32 and 128 tiles wide or high."""
    extent = max(east - west, (north - south) * 2, 1e-4)
    coarse = min(16, max(0, round(math.log2(360 / extent * 8))))
    return [coarse, coarse + 2, coarse + 4]
