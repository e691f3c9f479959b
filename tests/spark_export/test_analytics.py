"""Each analysis on data that can be checked by hand, and all against pandas and shapely."""

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import make_log
import numpy as np
import pandas as pd
import pytest
import shapely

from spark_export.analytics import density, dwell, series, silent, stops, tracks, trips, volume
from spark_export.analytics.events import days, of_day, read_events
from spark_export.export import export
from spark_export.segments import ExportError

MIDNIGHT = datetime(2026, 3, 28, tzinfo=UTC)
SCHEMA = (
    "segment STRING, id BIGINT, time TIMESTAMP, topic STRING, client_id STRING, "
    "bbox STRUCT<xmin: DOUBLE, ymin: DOUBLE, xmax: DOUBLE, ymax: DOUBLE>, payload BINARY"
)


def at(seconds: float) -> datetime:
    return MIDNIGHT + timedelta(seconds=seconds)


def utc(moment: datetime) -> datetime:
    """Spark gives times in the zone of this machine."""
    return moment.astimezone(UTC)


def frame(spark: Any, *events: tuple[float, str, str, Any, bytes]) -> Any:
    """Make events from (seconds, topic, client, place, payload)."""
    rows = []
    for n, (seconds, topic, client, place, payload) in enumerate(events):
        box = None if place is None else (*place, *place) if len(place) == 2 else place
        rows.append(("2026-03-28", n, at(seconds), topic, client, box, bytearray(payload)))
    made = spark.createDataFrame(rows, SCHEMA)
    return made.selectExpr(
        "*",
        "try_cast(cast(payload AS STRING) AS DOUBLE) AS number",
        "try_parse_json(cast(payload AS STRING)) AS json",
    )


def way(spark: Any, client: str, *places: tuple[float, float, float]) -> Any:
    return frame(spark, *((s, "t", client, (x, y), b"") for s, x, y in places))


def test_volume_counts_per_topic_client_and_hour(spark: Any) -> None:
    events = frame(
        spark,
        (10, "a", "x", None, b"123"),
        (20, "a", "x", (1.0, 1.0), b"4567"),
        (3600, "a", "y", None, b""),
        (3601, "b", "x", None, b"8"),
    )
    counted = volume.volume(events).cache()
    assert {
        (r["topic"], r["client_id"], utc(r["hour"]), r["events"], r["bytes"], r["placed"])
        for r in counted.collect()
    } == {
        ("a", "x", at(0), 2, 7, 1),
        ("a", "y", at(3600), 1, 0, 0),
        ("b", "x", at(3600), 1, 1, 0),
    }
    assert [tuple(row) for row in volume.per_topic(counted).collect()] == [
        ("a", 3, 7, 1, 2),
        ("b", 1, 1, 0, 1),
    ]
    assert [tuple(row) for row in volume.per_client(counted).collect()] == [
        ("x", 3, 8, 1, 2),
        ("y", 1, 0, 0, 1),
    ]
    assert [(utc(r[0]), r[1], r[2]) for r in volume.per_hour(counted).collect()] == [
        (at(0), 2, 7),
        (at(3600), 2, 1),
    ]


def test_changes_name_what_came_and_what_went(spark: Any) -> None:
    now = volume.volume(frame(spark, *[(1, "a", "x", None, b"")] * 3, (1, "new", "x", None, b"")))
    before = volume.volume(
        frame(spark, (1, "a", "x", None, b""), *[(1, "gone", "x", None, b"")] * 5)
    )
    changed = [tuple(row) for row in volume.changes(now, before, "topic").collect()]
    assert changed == [("gone", 0, 5, -5), ("a", 3, 1, 2), ("new", 1, 0, 1)]


def test_density_uses_the_tiles_of_web_maps(spark: Any) -> None:
    events = frame(
        spark,
        (1, "t", "x", (13.377, 52.516), b""),  # Brandenburg Gate: tile 10/550/335
        (2, "t", "y", (13.378, 52.517), b""),
        (3, "t", "x", (-180.0, 89.0), b""),  # beyond the map's end: its first row
        (4, "t", "x", (180.0, -89.0), b""),
        (5, "t", "x", (10.0, 50.0, 12.0, 52.0), b""),  # a box counts at its middle
        (6, "t", "x", None, b""),
    )
    found = {tuple(row) for row in density.density(events, [0, 10]).collect()}
    assert found == {
        (0, 0, 0, 5, 2),
        (10, 550, 335, 2, 2),
        (10, 0, 0, 1, 1),
        (10, 1023, 1023, 1, 1),
        (10, 543, 342, 1, 1),
    }
    west, south, east, north = density.tile_box(10, 550, 335)
    assert west < 13.377 < east
    assert south < 52.516 < north


def test_steps_have_distance_time_and_speed(spark: Any) -> None:
    degree_m = math.pi * tracks.EARTH_RADIUS_M / 180
    events = way(spark, "car", (0, 0.0, 0.0), (100, 0.0, 1.0), (100, 0.0, 1.0), (300, 1.0, 1.0))
    rows = tracks.steps(events).orderBy("time", "id").collect()
    assert [rows[0][name] for name in ("distance_m", "seconds", "speed_m_s")] == [None] * 3
    assert rows[1]["distance_m"] == pytest.approx(degree_m, rel=1e-12)
    assert rows[1]["speed_m_s"] == pytest.approx(degree_m / 100, rel=1e-12)
    assert (rows[2]["distance_m"], rows[2]["seconds"], rows[2]["speed_m_s"]) == (0.0, 0.0, None)
    (track,) = tracks.tracks(tracks.steps(events)).collect()
    east_m = rows[3]["distance_m"]
    assert east_m == pytest.approx(degree_m * math.cos(math.radians(1)), rel=1e-4)
    assert track["distance_m"] == pytest.approx(degree_m + east_m, rel=1e-12)
    assert (track["positions"], track["seconds"]) == (4, 300.0)
    assert track["max_speed_m_s"] == pytest.approx(degree_m / 100, rel=1e-12)
    assert (utc(track["first"]), utc(track["last"])) == (at(0), at(300))


def test_a_single_position_is_a_track_of_no_length(spark: Any) -> None:
    (track,) = tracks.tracks(tracks.steps(way(spark, "car", (0, 8.0, 54.0)))).collect()
    assert (track["positions"], track["distance_m"], track["mean_speed_m_s"]) == (1, 0.0, None)


def test_the_way_round_the_world_to_the_antipode_is_half_its_girth(spark: Any) -> None:
    events = way(spark, "jump", (0, 0.0, 0.0), (1, 180.0, 0.0))
    (track,) = tracks.tracks(tracks.steps(events)).collect()
    assert track["distance_m"] == pytest.approx(math.pi * tracks.EARTH_RADIUS_M, rel=1e-12)


def test_stops_are_slow_runs_that_last(spark: Any) -> None:
    events = way(
        spark,
        "car",
        (0, 0.0, 0.0),
        (100, 0.0, 0.1),  # fast: arrives
        (250, 0.0, 0.1),
        (500, 0.0001, 0.1),  # 11 m in 250 s: stands
        (600, 0.0, 0.3),  # fast: leaves
        (700, 0.0, 0.3),  # stands for 100 s only
        (800, 0.0, 0.5),
    )
    (stop,) = stops.stops(tracks.steps(events)).collect()
    assert (utc(stop["start"]), utc(stop["stop"])) == (at(100), at(500))
    assert (stop["positions"], stop["seconds"]) == (3, 400.0)
    assert stop["x"] == pytest.approx(0.0001 / 3)
    short = stops.stops(tracks.steps(events), min_seconds=100.0).collect()
    assert [row["seconds"] for row in short] == [400.0, 100.0]


HOME = dwell.Fence("home", shapely.to_wkb(shapely.box(0, 0, 1, 1)))
WORK = dwell.Fence("work", shapely.to_wkb(shapely.box(5, 0, 6, 1)))
TOWN = dwell.Fence("town", shapely.to_wkb(shapely.box(-1, -1, 10, 10)))


def test_visits_have_enter_and_exit(spark: Any) -> None:
    events = way(
        spark,
        "car",
        (0, 0.5, 0.5),
        (60, 1.0, 0.5),  # on the edge: inside
        (120, 3.0, 0.5),
        (180, 5.5, 0.5),
        (300, 5.5, 0.6),
        (360, 3.0, 0.5),
        (420, 0.5, 0.5),
    ).unionByName(way(spark, "other", (10, 5.5, 0.5)))
    visited = dwell.visits(events, [HOME, WORK]).cache()
    assert [
        (
            r["client_id"],
            r["fence"],
            utc(r["entered"]),
            utc(r["last_inside"]),
            r["left"] and utc(r["left"]),
            r["positions"],
            r["dwell_s"],
        )
        for r in visited.collect()
    ] == [
        ("car", "home", at(0), at(60), at(120), 2, 60.0),
        ("car", "work", at(180), at(300), at(360), 2, 120.0),
        ("car", "home", at(420), at(420), None, 1, 0.0),
        ("other", "work", at(10), at(10), None, 1, 0.0),
    ]
    assert [tuple(row) for row in dwell.per_fence(visited).collect()] == [
        ("work", 2, 2, 120.0, 60.0, 1),
        ("home", 2, 1, 60.0, 30.0, 1),
    ]
    travelled = trips.trips(visited)
    assert [
        (r["client_id"], r["origin"], r["destination"], r["seconds"])
        for r in travelled.orderBy("departed").collect()
    ] == [("car", "home", "work", 120.0), ("car", "work", "home", 120.0)]
    assert [tuple(r) for r in trips.origin_destination(travelled).collect()] == [
        ("home", "work", 1, 1, 120.0),
        ("work", "home", 1, 1, 120.0),
    ]


def test_a_fence_round_another_is_no_destination(spark: Any) -> None:
    events = way(spark, "car", (0, 3.0, 0.5), (60, 0.5, 0.5), (120, 3.0, 0.5))
    visited = dwell.visits(events, [HOME, TOWN])
    assert {(r["fence"], r["dwell_s"]) for r in visited.collect()} == {
        ("town", 120.0),
        ("home", 0.0),
    }
    assert trips.trips(visited).count() == 0


def test_fences_are_read_from_geojson(tmp_path: Path) -> None:
    path = tmp_path / "fences.json"
    path.write_text(
        '{"type": "FeatureCollection", "features": ['
        '{"type": "Feature", "properties": {"name": "Depot"}, "geometry":'
        ' {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}},'
        '{"type": "Feature", "id": 7, "properties": null, "geometry":'
        ' {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}}]}'
    )
    assert [fence.name for fence in dwell.read_fences(str(path))] == ["Depot", "7"]
    path.write_text("{")
    with pytest.raises(ExportError, match=r"fences of .*fences\.json cannot be read"):
        dwell.read_fences(str(path))


def test_numbers_come_bare_and_from_json(spark: Any) -> None:
    events = frame(
        spark,
        (1, "level", "s", None, b"2.5"),
        (
            2,
            "car",
            "c",
            None,
            b'{"kmh": 50, "fuel": 0.25, "name": "x", "ok": true, "at": {"x": 1}}',
        ),
        (3, "talk", "d", None, b"hello"),
        (4, "list", "d", None, b"[1, 2]"),
    )
    assert {(r["topic"], r["member"], r["value"]) for r in series.numbers(events).collect()} == {
        ("level", "", 2.5),
        ("car", "kmh", 50.0),
        ("car", "fuel", 0.25),
    }


def test_series_have_quartiles_a_profile_and_outliers(spark: Any) -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 100.0]
    events = frame(
        spark, *((3600 * n, "s", "c", None, str(v).encode()) for n, v in enumerate(values))
    )
    numbers = series.numbers(events)
    described = series.summary(numbers)
    (row,) = described.collect()
    assert [row[n] for n in ("values", "min", "q1", "median", "q3", "max", "mean")] == [
        8, 1.0, 2.75, 4.5, 6.25, 100.0, 16.0
    ]  # fmt: skip
    assert row["deviation"] == pytest.approx(np.std(values, ddof=1), rel=1e-12)
    profile = series.daily_profile(numbers).collect()
    assert [(r["hour"], r["mean"], r["values"]) for r in profile] == [
        (n, v, 1) for n, v in enumerate(values)
    ]
    (odd,) = series.outliers(numbers, described).collect()
    assert (odd["value"], odd["ranges"]) == (100.0, (100 - 6.25) / 3.5)


def test_the_silent_had_a_rhythm(spark: Any) -> None:
    events = frame(
        spark,
        *((60 * n, "t", "stopped", None, b"") for n in range(10)),
        *((60 * n, "t", "goes on", None, b"") for n in range(200)),
        *((7200 * n, "t", "slow", None, b"") for n in range(2)),
    )
    (row,) = silent.silent(events, at(12_000)).collect()
    assert (row["client_id"], row["events"], row["median_gap_s"]) == ("stopped", 10, 60.0)
    assert row["silent_s"] == 12_000 - 540
    assert silent.silent(events, at(600)).count() == 0


@pytest.fixture(scope="module")
def traffic(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, pd.DataFrame]:
    """Export a day's traffic; give it as Spark sees it and as pandas does."""
    root = tmp_path_factory.mktemp("traffic")
    make_log.make_traffic(root / "data", 20_000)
    export(spark, str(root / "data"), str(root / "out"))
    events = read_events(spark, str(root / "out"))
    assert len(days(events)) <= 2
    today = of_day(events, days(events)[-1])
    local = today.selectExpr(
        "segment", "id", "time", "topic", "client_id", "bbox.xmin AS x", "bbox.ymin AS y",
        "length(payload) AS octets", "number",
    ).toPandas()  # fmt: skip
    return today, local


def test_volume_equals_pandas(traffic: tuple[Any, pd.DataFrame]) -> None:
    today, local = traffic
    expected = local.groupby(["topic", "client_id", local["time"].dt.floor("h")])["octets"].agg(
        ["size", "sum"]
    )
    found = {
        (r["topic"], r["client_id"], r["hour"].hour): (r["events"], r["bytes"])
        for r in volume.volume(today).collect()
    }
    assert found == {
        (topic, client, hour.hour): (row["size"], row["sum"])
        for (topic, client, hour), row in expected.iterrows()
    }


def test_density_equals_a_plain_loop(traffic: tuple[Any, pd.DataFrame]) -> None:
    today, local = traffic
    placed = local.dropna(subset="x")
    expected: Counter[tuple[int, int, int]] = Counter()
    for zoom in (9, 13):
        for x, y in zip(placed["x"], placed["y"], strict=True):
            side = 2**zoom
            mercator = math.asinh(math.tan(math.radians(y)))
            row = math.floor((1 - mercator / math.pi) / 2 * side)
            expected[zoom, math.floor((x + 180) / 360 * side), row] += 1
    found = {tuple(r)[:3]: r["events"] for r in density.density(today, [9, 13]).collect()}
    assert found == expected


def test_tracks_equal_numpy(traffic: tuple[Any, pd.DataFrame]) -> None:
    today, local = traffic
    found = {r["client_id"]: r for r in tracks.tracks(tracks.steps(today)).collect()}
    ordered = local.dropna(subset="x").sort_values(["client_id", "time", "segment", "id"])
    for client, rows in ordered.groupby("client_id"):
        x, y = np.radians(rows["x"].to_numpy()), np.radians(rows["y"].to_numpy())
        share = np.sin(np.diff(y) / 2) ** 2
        share += np.cos(y[:-1]) * np.cos(y[1:]) * np.sin(np.diff(x) / 2) ** 2
        metres = 2 * tracks.EARTH_RADIUS_M * np.arcsin(np.sqrt(share))
        seconds = np.diff(rows["time"].to_numpy()) / np.timedelta64(1, "us") / 1e6
        row = found.pop(client)
        assert row["positions"] == len(rows)
        # Positions are rounded to millionths of a degree, so metres agree to nanometres.
        assert row["distance_m"] == pytest.approx(metres.sum(), rel=1e-9, abs=1e-6)
        assert row["seconds"] == pytest.approx(seconds.sum(), rel=1e-9)
    assert found == {}


def test_visits_equal_shapely(traffic: tuple[Any, pd.DataFrame]) -> None:
    today, local = traffic
    areas = [shapely.Point(8.6, 54.5).buffer(0.05), shapely.box(8.5, 54.4, 8.62, 54.52)]
    fences = [dwell.Fence(f"f{n}", shapely.to_wkb(area)) for n, area in enumerate(areas)]
    expected: Counter[tuple[str, str, int]] = Counter()
    ordered = local.dropna(subset="x").sort_values(["client_id", "time", "segment", "id"])
    for client, rows in ordered.groupby("client_id"):
        for n, area in enumerate(areas):
            inside = shapely.intersects_xy(area, rows["x"].to_numpy(), rows["y"].to_numpy())
            run = 0
            for here in [*inside, False]:
                if here:
                    run += 1
                elif run:
                    expected[str(client), f"f{n}", run] += 1
                    run = 0
    visited = dwell.visits(today, fences).collect()
    assert Counter((r["client_id"], r["fence"], r["positions"]) for r in visited) == expected


def test_series_equal_pandas(traffic: tuple[Any, pd.DataFrame]) -> None:
    today, local = traffic
    grouped = local.dropna(subset="number").groupby("topic")["number"]
    expected = grouped.describe()
    found = [r for r in series.summary(series.numbers(today)).collect() if r["member"] == ""]
    assert len(found) == len(expected)
    for row in found:
        same = expected.loc[row["topic"]]
        assert row["values"] == same["count"]
        for ours, theirs in {"q1": "25%", "median": "50%", "q3": "75%", "mean": "mean"}.items():
            assert row[ours] == pytest.approx(same[theirs], rel=1e-9)
        if row["values"] > 1:
            assert row["deviation"] == pytest.approx(same["std"], rel=1e-9, abs=1e-12)
