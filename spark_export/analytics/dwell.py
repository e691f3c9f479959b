"""Who was inside which fence: one row per visit, with enter and exit.

A fence is a name and a geometry in EPSG:4326; its edge belongs to it. A visit begins with
the first position inside and ends with the last one; `left` is the time of the first position
outside after it, and NULL while the client is still inside.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import shapely
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from protocol.values import value
from spark_export.analytics.events import by_time, positions, seconds_between
from spark_export.segments import ExportError


@value
class Fence:
    """A named area."""

    name: str
    wkb: bytes


def read_fences(path: str) -> list[Fence]:
    """Read fences from a GeoJSON file; `name` or `id` of each feature is its name."""
    try:
        document = json.loads(Path(path).read_text("utf-8"))
        features = document.get("features", [document])
        return [_fence(feature, number) for number, feature in enumerate(features, 1)]
    except (OSError, ValueError, KeyError, TypeError, shapely.errors.ShapelyError) as error:
        raise ExportError(f"fences of {path} cannot be read: {error}") from error


def _fence(feature: dict[str, object], number: int) -> Fence:
    geometry = shapely.from_geojson(json.dumps(feature.get("geometry", feature)))
    properties = feature.get("properties")
    name = properties.get("name") if isinstance(properties, dict) else None
    return Fence(str(name or feature.get("id") or f"fence {number}"), shapely.to_wkb(geometry))


def visits(events: DataFrame, fences: Sequence[Fence]) -> DataFrame:
    """Find the visits of every client to every fence."""
    spotted = positions(events).select("client_id", "segment", "id", "time", "x", "y")
    order = by_time("client_id")
    numbered = spotted.withColumn("n", F.row_number().over(order)).withColumn(
        "next_time", F.lead("time").over(order)
    )
    inside = numbered.mapInPandas(
        _inside(list(fences)),
        "client_id STRING, time TIMESTAMP, n INT, next_time TIMESTAMP, fence STRING",
    )
    # Positions of one visit follow one another, so their number minus their rank is the same.
    rank = F.row_number().over(Window.partitionBy("client_id", "fence").orderBy("n"))
    return (
        inside.withColumn("visit", F.col("n") - rank)
        .groupBy("client_id", "fence", "visit")
        .agg(
            F.min("time").alias("entered"),
            F.max("time").alias("last_inside"),
            F.max_by("next_time", "n").alias("left"),
            F.count("*").alias("positions"),
        )
        .withColumn("dwell_s", seconds_between(F.col("entered"), F.col("last_inside")))
        .drop("visit")
        .orderBy("client_id", "entered", "fence")
    )


def _inside(fences: list[Fence]):  # type: ignore[no-untyped-def]
    """Make the task that names the fences each position is in."""

    def find(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        tree = shapely.STRtree([shapely.from_wkb(fence.wkb) for fence in fences])
        names = pd.Series([fence.name for fence in fences], dtype=object)
        for frame in frames:
            points = shapely.points(frame["x"].to_numpy(), frame["y"].to_numpy())
            row, fence = tree.query(points, predicate="covered_by")
            found = frame.iloc[row][["client_id", "time", "n", "next_time"]].reset_index(drop=True)
            found["fence"] = names.iloc[fence].to_numpy()
            yield found

    return find


def per_fence(visited: DataFrame) -> DataFrame:
    """Sum the visits of each fence, the longest dwelt in first."""
    return (
        visited.groupBy("fence")
        .agg(
            F.count("*").alias("visits"),
            F.countDistinct("client_id").alias("clients"),
            F.sum("dwell_s").alias("dwell_s"),
            F.expr("percentile(dwell_s, 0.5)").alias("median_dwell_s"),
            F.count_if(F.col("left").isNull()).alias("still_inside"),
        )
        .orderBy(F.desc("dwell_s"), "fence")
    )
