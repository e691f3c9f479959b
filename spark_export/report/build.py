"""Runs the analyses of one day and writes their results: Parquet each, and the page.

    OUT/2026-03-28/volume/…  density/…  tracks/…      every row, for other programs
    OUT/2026-03-28/report.html                        what a person reads
    OUT/index.html                                    the days there are

Each result is written first and then read back for the page, so that nothing
is computed twice and the page shows what the files say.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import shapely
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_export.analytics import density, dwell, series, silent, stops, tracks, trips, volume
from spark_export.analytics.events import by_time, days, of_day, places, read_events
from spark_export.report.findings import Findings, Row, Totals
from spark_export.report.page import index_page, report_page
from spark_export.segments import ExportError
from spark_export.target import Target, open_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_TILES = 4000
MAX_LINES = 40
MAX_LINE_POINTS = 300
MAX_SERIES = 12


def build_report(
    spark: "SparkSession",
    source: str,
    out: str,
    *,
    day: date | None = None,
    fences_path: str | None = None,
) -> str:
    """Analyse a day of an export; give the address of the page."""
    fences = dwell.read_fences(fences_path) if fences_path else []
    events = read_events(spark, source)
    known = days(events)
    if not known:
        raise ExportError(f"{source} holds no dated events")
    day = day or known[-1]
    if day not in known:
        raise ExportError(f"no events happened on {day}; the export has {known[0]} to {known[-1]}")
    target = open_target(out, spark)
    found = Findings(day, datetime.now(UTC), source)
    Build(target, events, found, fences).run()
    _write(target, f"{day}/report.html", report_page(found))
    reported = [name for name in target.names("") if target.exists(f"{name}/report.html")]
    _write(target, "index.html", index_page(sorted(reported, reverse=True)))
    return target.url(f"{day}/report.html")


def _write(target: Target, path: str, text: str) -> None:
    target.remove(path)
    target.create(path, text.encode())


class Build:
    """The analyses of one day, one method each."""

    def __init__(
        self, target: Target, events: DataFrame, found: Findings, fences: Sequence[dwell.Fence]
    ) -> None:
        self._target = target
        self._today = of_day(events, found.day)
        self._before = of_day(events, found.day - timedelta(days=1))
        self._found = found
        self._fences = fences
        self._moving = events.select("client_id").limit(0)

    def run(self) -> None:
        """Fill the findings."""
        self._target.make_folder(str(self._found.day))
        self._volume()
        self._density()
        self._movement()
        if self._fences:
            self._visits()
        self._series()
        self._silence()

    def _keep(self, name: str, result: DataFrame) -> DataFrame:
        """Write a result as Parquet and give it back as read from there."""
        address = self._target.url(f"{self._found.day}/{name}")
        result.coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(address)
        return result.sparkSession.read.schema(result.schema).parquet(address)

    def _volume(self) -> None:
        found = self._found
        now = self._keep("volume", volume.volume(self._today))
        before = volume.volume(self._before).cache()
        found.now = _totals(now)
        totals = _totals(before)
        found.before = totals if totals.events else None
        found.hours = _by_hour(now)
        found.hours_before = _by_hour(before) if found.before else None
        found.topics = _rows(volume.per_topic(now).limit(15))
        found.clients = _rows(volume.per_client(now).limit(15))
        found.topic_hours = _topic_hours(now, [row["topic"] for row in found.topics])
        if found.before:
            topics = self._keep("topic_changes", volume.changes(now, before, "topic"))
            clients = self._keep("client_changes", volume.changes(now, before, "client_id"))
            found.new_topics, found.gone_topics = _come_and_gone(topics)
            found.new_clients, found.gone_clients = _come_and_gone(clients)
            found.topic_changes = _rows(_greatest(topics, "topic"))
            found.client_changes = _rows(_greatest(clients, "client_id"))
        before.unpersist()

    def _density(self) -> None:
        found = self._found
        # Without the last hundredth on each side: one lost position must not shrink the map.
        parts = "array(0.01, 0.99)"
        row = (
            places(self._today)
            .agg(
                F.expr(f"percentile_approx(x, {parts})").alias("x"),
                F.expr(f"percentile_approx(y, {parts})").alias("y"),
            )
            .first()
        )
        if row is None or row["x"] is None:
            return
        found.view = (row["x"][0], row["y"][0], row["x"][1], row["y"][1])
        zooms = density.fitting_zooms(*found.view)
        counted = self._keep("density", density.density(self._today, zooms))
        for zoom in zooms:
            tiles = counted.where(F.col("zoom") == zoom).orderBy(F.desc("events")).limit(MAX_TILES)
            found.tiles[zoom] = [
                [tile["tile_x"], tile["tile_y"], tile["events"], tile["clients"]]
                for tile in tiles.collect()
            ]

    def _movement(self) -> None:
        found = self._found
        stepped = tracks.steps(self._today)
        tracked = self._keep("tracks", tracks.tracks(stepped))
        # A sensor that never moves is no vehicle that stopped, and visits nothing.
        moving = tracked.where("distance_m > 0")
        self._moving = moving.select("client_id")
        total = moving.agg(F.count("*").alias("n"), F.sum("distance_m").alias("m")).first()
        assert total is not None
        found.movers, found.distance_m = total["n"], total["m"] or 0.0
        found.tracks = _rows(moving.orderBy(F.desc("distance_m"), "client_id").limit(15))
        names = _rows(moving.orderBy(F.desc("distance_m"), "client_id").limit(MAX_LINES))
        found.lines = _lines(stepped, {row["client_id"]: row["positions"] for row in names})
        moved = stepped.join(self._moving, "client_id", "semi")
        stopped = self._keep("stops", stops.stops(moved))
        found.stop_count = stopped.count()
        found.stops = _rows(stopped.orderBy(F.desc("seconds"), "client_id").limit(10))

    def _visits(self) -> None:
        found = self._found
        moved = self._today.join(self._moving, "client_id", "semi")
        visited = self._keep("visits", dwell.visits(moved, self._fences))
        found.dwell = _rows(dwell.per_fence(visited).limit(20))
        found.visits = _rows(visited.orderBy(F.desc("dwell_s"), "client_id", "fence").limit(15))
        travelled = self._keep("trips", trips.trips(visited))
        pairs = self._keep("origin_destination", trips.origin_destination(travelled))
        found.pairs = _rows(pairs.orderBy(F.desc("trips"), "origin", "destination").limit(100))
        found.fences = [
            (fence.name, shapely.geometry.mapping(shapely.from_wkb(fence.wkb)))
            for fence in self._fences
        ]

    def _series(self) -> None:
        found = self._found
        values = series.numbers(self._today)
        described = self._keep("series", series.summary(values))
        profile = self._keep("profiles", series.daily_profile(values))
        strange = self._keep("outliers", series.outliers(values, described))
        found.series_count = described.count()
        found.outlier_count = strange.count()
        found.outliers = _rows(strange.orderBy(F.desc("ranges"), "topic", "time").limit(12))
        found.series = _rows(_telling(described, profile))
        profiles = _profiles(profile, {row["topic"] for row in found.series})
        for row in found.series:
            row["profile"] = profiles[row["topic"], row["member"]]

    def _silence(self) -> None:
        found = self._found
        end = datetime.combine(found.day + timedelta(days=1), time(), UTC)
        both = self._today.unionByName(self._before)
        result = self._keep("silent", silent.silent(both, min(end, found.made_at)))
        found.silent_count = result.count()
        found.silent = _rows(result.orderBy(F.desc("silent_s"), "client_id", "topic").limit(15))


def _rows(result: DataFrame) -> list[Row]:
    return [
        {name: _in_utc(item) for name, item in row.asDict().items()} for row in result.collect()
    ]


def _in_utc(item: Any) -> Any:
    # Spark hands times out in the zone of this machine, without saying so.
    return item.astimezone(UTC) if isinstance(item, datetime) else item


def _totals(volumes: DataFrame) -> Totals:
    row = volumes.agg(
        F.sum("events"),
        F.sum("bytes"),
        F.sum("placed"),
        F.countDistinct("topic"),
        F.countDistinct("client_id"),
    ).first()
    return Totals(*(number or 0 for number in row or ()))


def _by_hour(volumes: DataFrame) -> list[int]:
    hours = [0] * 24
    for row in volume.per_hour(volumes).select(F.hour("hour").alias("h"), "events").collect():
        hours[row["h"]] += row["events"]
    return hours


def _topic_hours(volumes: DataFrame, topics: list[str]) -> list[tuple[str, list[int]]]:
    table = {topic: [0] * 24 for topic in topics}
    counted = (
        volumes.where(F.col("topic").isin(topics))
        .groupBy("topic", F.hour("hour").alias("h"))
        .agg(F.sum("events").alias("n"))
    )
    for row in counted.collect():
        table[row["topic"]][row["h"]] = row["n"]
    return list(table.items())


def _come_and_gone(changed: DataFrame) -> tuple[int, int]:
    row = changed.agg(F.count_if(F.col("before") == 0), F.count_if(F.col("now") == 0)).first()
    return (row[0], row[1]) if row is not None else (0, 0)


def _greatest(changed: DataFrame, key: str) -> DataFrame:
    return changed.where("change != 0").orderBy(F.desc(F.abs("change")), key).limit(10)


def _lines(stepped: DataFrame, positions: dict[str, int]) -> list[tuple[str, list[list[float]]]]:
    """Give the ways of some clients, thinned to what a map can show."""
    if not positions:
        return []
    every = F.create_map(
        *(
            F.lit(item)
            for name, count in positions.items()
            for item in (name, max(1, count // MAX_LINE_POINTS))
        )
    )
    numbered = stepped.where(F.col("client_id").isin(list(positions))).withColumn(
        "n", F.row_number().over(by_time("client_id"))
    )
    thinned = numbered.where((F.col("n") - 1) % every[F.col("client_id")] == 0)
    lines: dict[str, list[list[float]]] = {name: [] for name in positions}
    for row in thinned.orderBy("client_id", "n").select("client_id", "x", "y").collect():
        lines[row["client_id"]].append([round(row["x"], 6), round(row["y"], 6)])
    return list(lines.items())


def _telling(described: DataFrame, profile: DataFrame) -> DataFrame:
    """Choose the series that say most: whose hours differ more than their values do.

    Few of each member, because a hundred vehicles tell much the same.
    """
    swing = profile.groupBy("topic", "member").agg(
        (F.max("mean") - F.min("mean")).alias("swing"), F.count("*").alias("hours")
    )
    of_member = Window.partitionBy("member").orderBy(F.desc("share"), "topic")
    return (
        described.where("max > min AND deviation > 0")
        .join(swing.where("hours >= 2"), ["topic", "member"])
        .withColumn("share", F.col("swing") / F.col("deviation"))
        .withColumn("place", F.row_number().over(of_member))
        .where(F.col("place") <= MAX_SERIES // 2)
        .orderBy(F.desc("share"), "topic", "member")
        .limit(MAX_SERIES)
    )


def _profiles(
    profile: DataFrame, topics: set[str]
) -> dict[tuple[str, str], list[tuple[float, float, float] | None]]:
    found: dict[tuple[str, str], list[Any]] = defaultdict(lambda: [None] * 24)
    for row in profile.where(F.col("topic").isin(list(topics))).collect():
        found[row["topic"], row["member"]][row["hour"]] = (row["mean"], row["min"], row["max"])
    return found
