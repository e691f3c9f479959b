"""The export: what is in the files, and that every row is there exactly once."""

import glob
import json
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import geopandas
import pyarrow.dataset as arrow_dataset
import pyarrow.parquet as pq
import pytest
import shapely

from plugins.event_log.schema import SCHEMA_VERSION
from spark_export.analytics.events import read_events
from spark_export.compact import compact
from spark_export.export import export
from spark_export.segments import ExportError, NewerLog
from spark_export.target import HadoopTarget, open_target

DAY = "2026-03-28"


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def data_files(out: str) -> list[str]:
    return sorted(glob.glob(f"{out}/event_date=*/*.parquet"))


def contents(out: str) -> Counter[tuple[Any, ...]]:
    """Read what any other program would see: the files in the folders, not the manifest."""
    if not data_files(out):
        return Counter()
    columns = ["segment", "id", "topic", "payload"]
    table = arrow_dataset.dataset(out, partitioning="hive").to_table(columns=columns)
    return Counter(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def logged(log: Any, *days: str) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for day in days:
        with closing(sqlite3.connect(log.path(day))) as segment:
            rows = segment.execute("SELECT id, topic, payload FROM event").fetchall()
        found.update((day, *row) for row in rows)
    return found


def test_columns_are_converted(spark: Any, log: Any, out: str) -> None:
    area = shapely.box(8, 54, 9, 55)
    payloads = [
        b"21.5",
        b'{"t": 3, "ok": [true]}',
        b"\xff\xfe",
        b"",
        b" -3e2 ",
        b"12d",
        b"NaN",
        b"7",
    ]
    log.add(DAY, [{"topic": f"p/{n}", "payload": p, "time": n} for n, p in enumerate(payloads)])
    log.add(DAY, [{"topic": "area", "wkb": shapely.to_wkb(area), "box": area.bounds, "time": 1}])
    log.add(DAY, [{"topic": "point", "at": (8.58, 54.51), "time": 2, "end": 5, "qos": 1}])
    outcome = export(spark, str(log.data), out)
    assert (outcome.rows, outcome.bad) == (10, [])
    events = read_events(spark, out).selectExpr(
        "*", "to_json(json) AS text", "hex(ST_AsBinary(geometry)) AS wkb"
    )
    found = {row["topic"]: row for row in events.drop("geometry", "json").collect()}
    assert [found[f"p/{n}"]["payload"] for n in range(8)] == payloads
    assert [found[f"p/{n}"]["number"] for n in range(8)] == [
        21.5, None, None, None, -300.0, None, None, 7.0
    ]  # fmt: skip
    assert json.loads(found["p/1"]["text"]) == {"t": 3, "ok": [True]}
    assert found["p/2"]["text"] is None
    assert shapely.from_wkb(found["area"]["wkb"]) == area
    assert shapely.from_wkb(found["point"]["wkb"]) == shapely.Point(8.58, 54.51)
    assert found["area"]["bbox"].asDict() == {"xmin": 8, "ymin": 54, "xmax": 9, "ymax": 55}
    assert found["p/0"]["bbox"] is None
    assert found["point"]["event_date"] == date(2026, 3, 28)
    assert found["point"]["qos"] == 1


def test_files_are_sorted_by_cell_and_time_and_carry_their_version(
    spark: Any, log: Any, out: str
) -> None:
    log.add(DAY, [{"topic": "t", "at": (n * 37 % 11, n * 17 % 7), "time": n} for n in range(200)])
    export(spark, str(log.data), out)
    (path,) = data_files(out)
    rows = pq.ParquetFile(path).read(columns=["cell", "time"]).to_pylist()
    assert rows == sorted(rows, key=lambda row: (row["cell"], row["time"]))
    metadata = pq.read_metadata(path)
    assert metadata.metadata[b"geomqtt.schema_version"] == b"1"
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert "Geometry" in str(metadata.schema)


def test_late_events_go_to_their_own_date_and_hostile_ones_to_one_partition(
    spark: Any, log: Any, out: str
) -> None:
    day_ms = 86_400_000
    log.add(DAY, [{"topic": "today", "time": 5}])
    log.add(DAY, [{"topic": "late", "time": -86_400 * 366}])
    log.add(DAY, [{"topic": f"far/{n}", "time_ms": n * day_ms} for n in range(300)])
    log.add(DAY, [{"topic": "open", "time_ms": -(2**63)}, {"topic": "future", "time_ms": 2**62}])
    export(spark, str(log.data), out)
    folders = sorted(path.name for path in Path(out).glob("event_date=*"))
    assert folders == [
        "event_date=2025-03-27",
        "event_date=2026-03-28",
        "event_date=__HIVE_DEFAULT_PARTITION__",
    ]
    events = read_events(spark, out)
    assert events.where("event_date IS NULL").count() == 302
    assert events.where("event_date IS NULL AND time IS NULL").count() == 2
    assert {row["time_ms"] for row in events.where("time IS NULL").collect()} == {-(2**63), 2**62}


def test_running_again_adds_only_what_is_new(spark: Any, log: Any, out: str) -> None:
    log.add(DAY, [{"topic": f"a/{n}", "received": n} for n in range(20)])
    assert export(spark, str(log.data), out).rows == 20
    files = data_files(out)
    assert export(spark, str(log.data), out).rows == 0
    assert data_files(out) == files
    log.add(DAY, [{"topic": f"b/{n}", "received": 30 + n} for n in range(5)])
    log.add("2026-03-29", [{"topic": "c"}])
    assert export(spark, str(log.data), out, first_day=DAY, last_day=DAY).rows == 5
    assert export(spark, str(log.data), out).rows == 1
    assert contents(out) == logged(log, DAY, "2026-03-29")


def test_what_was_exported_stays_when_the_log_is_deleted(spark: Any, log: Any, out: str) -> None:
    log.add(DAY, [{"topic": f"a/{n}", "received": n} for n in range(10)])
    export(spark, str(log.data), out)
    before = contents(out)
    with closing(sqlite3.connect(log.path(DAY))) as segment, segment:
        segment.execute("DELETE FROM packed WHERE id > 4")
    assert export(spark, str(log.data), out).rows == 0
    assert contents(out) == before
    # The day starts over in a new file that counts from one again.
    for suffix in ("", "-wal", "-shm"):
        Path(f"{log.path(DAY)}{suffix}").unlink(missing_ok=True)
    log.add(DAY, [{"topic": f"new/{n}", "received": 100 + n} for n in range(3)])
    assert export(spark, str(log.data), out).rows == 3
    log.add(DAY, [{"topic": f"more/{n}", "received": 200 + n} for n in range(20)])
    assert export(spark, str(log.data), out).rows == 20
    assert sum(contents(out).values()) == 33
    assert {row[2] for row in contents(out)} == {
        *(f"a/{n}" for n in range(10)),
        *(f"new/{n}" for n in range(3)),
        *(f"more/{n}" for n in range(20)),
    }


def test_good_segments_are_exported_and_the_bad_ones_named(spark: Any, log: Any, out: str) -> None:
    log.add("2026-03-26", [{"topic": "good", "payload": b"x" * 300}] * 40)
    log.add("2026-03-27", [{"topic": "torn", "payload": b"x" * 300}] * 500)
    log.add("2026-03-28", [{"topic": "good", "payload": b"x" * 300}] * 40)
    log.path("2026-03-25").write_bytes(b"foreign" * 1000)
    data = bytearray(log.path("2026-03-27").read_bytes())
    for page in range(10, len(data) // 4096):
        data[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    log.path("2026-03-27").write_bytes(data)
    outcome = export(spark, str(log.data), out)
    assert sorted(Path(error.path).stem for error in outcome.bad) == ["2026-03-25", "2026-03-27"]
    assert contents(out) == logged(log, "2026-03-26", "2026-03-28")


def test_a_newer_log_is_refused_and_nothing_is_written(spark: Any, log: Any, out: str) -> None:
    log.add(DAY, [{"topic": "a"}])
    with closing(sqlite3.connect(log.path(DAY))) as segment:
        segment.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(NewerLog):
        export(spark, str(log.data), out)
    assert data_files(out) == []


def test_a_newer_export_is_refused(spark: Any, log: Any, out: str) -> None:
    log.add(DAY, [{"topic": "a"}])
    export(spark, str(log.data), out)
    entry = Path(out, "_manifest", "00000001.json")
    entry.write_text(entry.read_text().replace('"version":1', '"version":2'))
    with pytest.raises(ExportError, match="written by a newer geomqtt"):
        export(spark, str(log.data), out)


def test_compaction_keeps_every_row(spark: Any, log: Any, out: str) -> None:
    for n in range(3):
        dated = [
            {
                "topic": f"{n}/{m}",
                "at": (m, n),
                "time": 86_400 * (m % 3 - 1),
                "received": 10 * n + m,
            }
            for m in range(9)
        ]
        log.add(DAY, [*dated, {"topic": "far", "time_ms": 0, "received": 10 * n + 9}])
        export(spark, str(log.data), out)
    before = contents(out)
    assert len(data_files(out)) == 3 * 4
    assert compact(spark, out) == 12 - 4
    assert len(data_files(out)) == 4
    assert contents(out) == before == logged(log, DAY)
    assert compact(spark, out) == 0
    assert read_events(spark, out).count() == 30
    assert export(spark, str(log.data), out).rows == 0


def test_one_large_date_is_compacted_to_files_of_the_size_asked(
    spark: Any, log: Any, out: str
) -> None:
    for n in range(4):
        log.add(
            DAY, [{"topic": "t", "at": (m / 10, n), "received": n * 1000 + m} for m in range(900)]
        )
        export(spark, str(log.data), out)
    before = contents(out)
    sizes = [Path(path).stat().st_size for path in data_files(out)]
    compact(spark, out, target_bytes=2 * max(sizes) + 1)
    assert 1 < len(data_files(out)) < 4
    assert contents(out) == before


@pytest.fixture(scope="module")
def exported(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[shapely.Geometry]]:
    """Export one of each kind of geometry over two dates, for other programs to read."""
    import make_log

    log = make_log.LogMaker(tmp_path_factory.mktemp("interop") / "data")
    shapes = [
        shapely.Point(8.5, 54.5),
        shapely.Point(8.5, 54.5, 12.0),
        shapely.from_wkt("LINESTRING (8 54, 9 55)"),
        shapely.box(10, 50, 11, 51),
        shapely.from_wkt("MULTIPOINT (1 2, 3 4)"),
    ]
    events = [
        {"topic": "g", "wkb": shapely.to_wkb(shape), "box": shape.bounds, "payload": b'{"a": 1}'}
        for shape in shapes
    ]
    log.add("2026-03-28", [*events, {"topic": "plain", "payload": b"3.5"}])
    log.add("2026-03-29", [{"topic": "p", "at": (8.58, 54.51), "payload": b"x"}])
    out = str(log.data.parent / "out")
    export(spark, str(log.data), out)
    return out, [*shapes, shapely.Point(8.58, 54.51)]


def same(found: Any, expected: list[shapely.Geometry]) -> bool:
    def key(shape: shapely.Geometry) -> str:
        return shapely.to_wkt(shape)

    return sorted(map(key, found)) == sorted(map(key, expected))


def test_pyarrow_reads_the_export(exported: tuple[str, list[shapely.Geometry]]) -> None:
    out, shapes = exported
    table = arrow_dataset.dataset(out, partitioning="hive").to_table()
    assert table.num_rows == 7
    places = [value for value in table.column("geometry").to_pylist() if value is not None]
    assert same(shapely.from_wkb(places), shapes)
    assert set(table.column("event_date").to_pylist()) == {"2026-03-28", "2026-03-29"}
    assert table.schema.field("received").type.tz == "UTC"


def test_duckdb_reads_the_export_as_geometry(exported: tuple[str, list[shapely.Geometry]]) -> None:
    out, shapes = exported
    with duckdb.connect() as connection:
        files = f"read_parquet('{out}/event_date=*/*.parquet', hive_partitioning = true)"
        types = dict(
            connection.sql(f"DESCRIBE SELECT geometry, json FROM {files}").fetchall()[n][:2]
            for n in range(2)
        )
        assert types["geometry"].startswith("GEOMETRY")
        assert types["json"] == "VARIANT"
        rows = connection.sql(f"SELECT geometry::VARCHAR FROM {files} WHERE geometry IS NOT NULL")
        assert same(shapely.from_wkt([row[0] for row in rows.fetchall()]), shapes)
        found = connection.sql(f"SELECT json.a::INT FROM {files} WHERE topic = 'g'").fetchall()
        assert found == [(1,)] * 5


def test_geopandas_reads_the_export(exported: tuple[str, list[shapely.Geometry]]) -> None:
    out, shapes = exported
    frame = geopandas.read_parquet(out)
    assert len(frame) == 7
    assert frame.crs.to_authority() == ("OGC", "CRS84")
    assert same(frame.geometry.dropna(), shapes)
    inside = geopandas.read_parquet(out, bbox=(9.5, 49, 12, 52))
    assert same(inside.geometry, [shapely.box(10, 50, 11, 51)])


def test_the_export_goes_through_hadoops_file_systems_as_well(
    spark: Any, log: Any, tmp_path: Path
) -> None:
    # A view of a local folder under a scheme of Hadoop's own, as hdfs: or s3a: would be.
    (tmp_path / "far").mkdir()
    link = "fs.viewfs.mounttable.tests.link./far"
    spark.sparkContext._jsc.hadoopConfiguration().set(link, f"file://{tmp_path}/far")
    address, local = "viewfs://tests/far/out", str(tmp_path / "far" / "out")
    log.add(DAY, [{"topic": f"a/{n}", "at": (n, n), "received": n} for n in range(20)])
    assert export(spark, str(log.data), address).rows == 20
    log.add(DAY, [{"topic": "b", "received": 50}])
    assert export(spark, str(log.data), address).rows == 1
    assert export(spark, str(log.data), address).rows == 0
    assert contents(local) == logged(log, DAY)
    assert compact(spark, address) == 1
    assert contents(local) == logged(log, DAY)
    assert read_events(spark, address).count() == 21
    target = open_target(address, spark)
    assert isinstance(target, HadoopTarget)
    assert target.create("_manifest/00000002.json", b"{}") is False
    assert len(geopandas.read_parquet(local)) == 21
