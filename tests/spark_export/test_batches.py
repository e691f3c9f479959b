"""What the log packs comes out of the batches whole."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
import shapely

from spark_export import batches
from spark_export.batches import read_batches
from spark_export.segments import Range, SegmentError

DAY = "2026-03-28"
NOON = 43_200
MIN_MS, MAX_MS = -(2**63), 2**63 - 1  # open intervals


def read(log: Any, where: str = "", values: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    rows = Range(str(log.path(DAY)), DAY, 1, 1_000_000)
    return [row for batch in read_batches(rows, where, values) for row in batch.to_pylist()]


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 28, hour, minute, tzinfo=UTC)


def test_a_point_gets_its_wkb(log: Any) -> None:
    log.add(DAY, [{"topic": "t", "at": (8.58, 54.51), "time": NOON, "payload": b"21.5"}])
    (row,) = read(log)
    assert row["wkb"] == shapely.to_wkb(shapely.Point(8.58, 54.51), byte_order=1)
    assert (row["min_x"], row["min_y"], row["max_x"], row["max_y"]) == (8.58, 54.51, 8.58, 54.51)
    assert row["geo"] is True
    assert row["time"] == at(12)
    assert row["payload"] == b"21.5"


def test_an_event_without_place_has_nulls_and_the_time_of_receipt(log: Any) -> None:
    log.add(DAY, [{"topic": "t", "received": NOON, "qos": 2, "retain": True}])
    (row,) = read(log)
    assert [row[name] for name in ("wkb", "min_x", "max_y", "cell", "sent")] == [None] * 5
    assert row["time"] == row["received"] == at(12)
    assert (row["has_time"], row["geo"], row["qos"], row["retain"]) == (False, False, 2, True)
    assert row["payload"] == b""


def test_an_interval_has_an_end_and_an_instant_has_none(log: Any) -> None:
    log.add(
        DAY,
        [
            {"topic": "t", "time": NOON, "end": NOON + 3600},
            {"topic": "t", "time": NOON, "end": NOON},
        ],
    )
    assert [row["end_time"] for row in read(log)] == [at(13), None]


def test_times_beyond_the_calendar_are_kept_as_numbers(log: Any) -> None:
    year_zero = -62_135_596_800_001
    log.add(
        DAY,
        [
            {"topic": "t", "time_ms": MIN_MS, "end_ms": MAX_MS},
            {"topic": "t", "time": NOON, "end_ms": MAX_MS},
            {"topic": "t", "time_ms": year_zero},
            {"topic": "t", "time_ms": year_zero + 1},
        ],
    )
    found = [[row[n] for n in ("time", "time_ms", "end_time", "end_ms")] for row in read(log)]
    assert found == [
        [None, MIN_MS, None, MAX_MS],
        [at(12), None, None, MAX_MS],
        [None, year_zero, None, None],
        [datetime(1, 1, 1, tzinfo=UTC), None, None, None],
    ]


def test_other_shapes_are_rewritten_in_the_iso_flavour(log: Any) -> None:
    line = shapely.from_wkt("LINESTRING Z (0 0 1, 2 3 4)")
    area = shapely.box(1, 2, 3, 4)
    log.add(
        DAY,
        [
            {"topic": "t", "at": (1.0, 2.0)},
            {"topic": "t", "wkb": shapely.to_wkb(line), "box": (0.0, 0.0, 2.0, 3.0)},
            {"topic": "t", "wkb": shapely.to_wkb(area, byte_order=0), "box": (1.0, 2.0, 3.0, 4.0)},
            {"topic": "t", "wkb": b"\x01nonsense", "box": (0.0, 0.0, 1.0, 1.0)},
            {"topic": "t"},
        ],
    )
    rows = read(log)
    assert rows[1]["wkb"] == shapely.to_wkb(line, flavor="iso", byte_order=1)
    assert rows[1]["wkb"][1:5] == bytes.fromhex("EA 03 00 00")  # 1002, LineString Z
    assert shapely.from_wkb(rows[2]["wkb"]) == area
    assert rows[3]["wkb"] is None
    assert rows[3]["max_x"] == 1.0
    assert rows[4]["wkb"] is None


def test_columns_that_begin_with_nulls_keep_their_type(log: Any) -> None:
    plain = [{"topic": "t", "received": n} for n in range(batches.BATCH_ROWS + 10)]
    log.add(DAY, [*plain, {"topic": "t", "at": (1.5, 2.5), "epsg": 25832, "sent": b"\x01\x02"}])
    last = read(log)[-1]
    assert (last["min_x"], last["epsg"], last["sent"]) == (1.5, 25832, b"\x01\x02")


def test_rows_can_be_narrowed_further(log: Any) -> None:
    log.add(DAY, [{"topic": f"t/{n}", "time": n} for n in range(10)])
    assert [row["topic"] for row in read(log, "received_ms = ?", (batches_ms(3),))] == ["t/3"]


def test_only_rows_that_are_new_come_out_of_a_segment_made_anew(log: Any) -> None:
    log.add(DAY, [{"topic": f"t/{n}", "received": n} for n in range(6)])
    rows = Range(str(log.path(DAY)), DAY, 1, 100, known_id=5, after_ms=batches_ms(3))
    found = [row["topic"] for batch in read_batches(rows) for row in batch.to_pylist()]
    assert found == ["t/4", "t/5"]


def batches_ms(second: int) -> int:
    return int(at(0).timestamp() + second) * 1000


def test_a_segment_damaged_inside_is_named(log: Any) -> None:
    log.add(DAY, [{"topic": "t", "payload": b"x" * 300}] * 500)
    data = bytearray(log.path(DAY).read_bytes())
    for page in range(8, len(data) // 4096):
        data[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    log.path(DAY).write_bytes(data)
    with pytest.raises(SegmentError, match=DAY):
        read(log)


def test_every_batch_has_the_one_schema(log: Any) -> None:
    log.add(DAY, [{"topic": "t"}, {"topic": "t", "at": (0.0, 0.0)}])
    rows = Range(str(log.path(DAY)), DAY, 1, 2)
    assert pa.Table.from_batches(read_batches(rows)).schema == batches.SCHEMA
