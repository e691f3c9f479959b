"""The log as a Spark data source, batch and stream."""

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThanOrEqual,
    In,
    LessThan,
    StringContains,
    StringStartsWith,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import _parse_datatype_string

from spark_export import batches, source
from spark_export.source import EventLogStreamReader, PushingReader, Task

DAY = "2026-03-28"


def load(spark: Any, log: Any, **options: str) -> Any:
    return spark.read.format("geomqtt").options(**options).load(str(log.data))


def test_the_spelled_schema_is_that_of_the_batches(spark: Any) -> None:
    assert _parse_datatype_string(source.SCHEMA) == from_arrow_schema(batches.SCHEMA)


def test_all_segments_are_read_in_ranges(spark: Any, log: Any) -> None:
    log.add("2026-03-28", [{"topic": f"a/{n}"} for n in range(10)])
    log.add("2026-03-29", [{"topic": f"b/{n}"} for n in range(5)])
    events = load(spark, log, rowsPerTask="4")
    assert events.rdd.getNumPartitions() == 3 + 2
    assert sorted(row["topic"] for row in events.collect()) == sorted(
        [f"a/{n}" for n in range(10)] + [f"b/{n}" for n in range(5)]
    )


def test_a_segment_is_read_while_the_writer_is_in_a_transaction(spark: Any, log: Any) -> None:
    log.add(DAY, [{"topic": "done"}] * 3)
    with closing(log.open(DAY)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute(
            "INSERT INTO packed (received_ms, topic, client, flags, payload)"
            " VALUES (0, 1, 1, 0, x'')"
        )
        assert load(spark, log).count() == 3
        writer.rollback()


def test_an_empty_log_is_an_empty_table(spark: Any, log: Any) -> None:
    log.add(DAY, [])
    assert load(spark, log).count() == 0


def test_filters_on_time_and_topic_give_what_spark_alone_gives(spark: Any, log: Any) -> None:
    for day in ("2026-03-27", "2026-03-28", "2026-03-29"):
        log.add(
            day,
            [{"topic": f"t/{n % 3}/x", "client": f"c{n % 2}", "time": n * 3600} for n in range(24)],
        )
    everything = load(spark, log).toPandas()
    conditions = {
        "received >= timestamp'2026-03-28 12:00:00'": lambda f: f.received >= "2026-03-28 12:00",
        "received < timestamp'2026-03-28 00:00:00'": lambda f: f.received < "2026-03-28",
        "time = timestamp'2026-03-28 05:00:00'": lambda f: f.time == "2026-03-28 05:00",
        "topic = 't/1/x'": lambda f: f.topic == "t/1/x",
        "topic LIKE 't/2%'": lambda f: f.topic.str.startswith("t/2"),
        "topic IN ('t/0/x', 't/1/x') AND client_id = 'c1'": lambda f: (
            f.topic.isin(["t/0/x", "t/1/x"]) & (f.client_id == "c1")
        ),
        "topic LIKE '%2%' AND qos = 0": lambda f: f.topic.str.contains("2"),
        "segment = '2026-03-29'": lambda f: f.segment == "2026-03-29",
        "topic = 't/1/x' OR topic = 't/2/x'": lambda f: f.topic.isin(["t/1/x", "t/2/x"]),
    }
    for sql, same in conditions.items():
        found = load(spark, log, pushFilters="true").where(sql).select("segment", "id").collect()
        expected = everything[same(everything)]
        assert Counter(map(tuple, found)) == Counter(
            zip(expected["segment"], expected["id"], strict=True)
        ), sql
        assert found, sql


def test_pushed_filters_choose_segments_and_narrow_the_query(log: Any) -> None:
    from datetime import UTC, datetime

    for day in ("2026-03-27", "2026-03-28", "2026-03-29"):
        log.add(day, [{"topic": "t"}])
    reader = PushingReader({"path": str(log.data)})
    filters = [
        GreaterThanOrEqual(("received",), datetime(2026, 3, 28, 6, tzinfo=UTC)),
        LessThan(("received",), datetime(2026, 3, 28, 9, tzinfo=UTC)),
        In(("topic",), ("a", "b")),
        StringStartsWith(("topic",), "a"),
        EqualTo(("client_id",), "c"),
        StringContains(("topic",), "never pushed"),
    ]
    assert list(reader.pushFilters(filters)) == filters  # Spark tests all of them again
    (task,) = reader.partitions()
    assert task.rows.day == "2026-03-28"
    assert task.where.count("?") == len(task.values) == 2 + 2 + 2 + 1
    assert "never pushed" not in task.values


def test_one_load_can_be_asked_many_times(spark: Any, log: Any) -> None:
    log.add(DAY, [{"topic": "a"}] * 3 + [{"topic": "b"}] * 4)
    events = load(spark, log)
    some, others = events.where("topic = 'a'"), events.where("topic = 'b'")
    assert some.union(others).union(events).count() == 3 + 4 + 7
    assert [frame.count() for frame in (events, some, events, others)] == [7, 3, 7, 4]


@pytest.mark.parametrize(
    ("options", "hours"),
    [
        ({"topic": "t/+/x"}, {2, 3, 26, 27}),
        ({"topic": "t/#"}, {1, 2, 3, 4, 25, 26, 27, 28}),
        ({"topic": "t/1/x"}, {2, 26}),
        ({"topic": "none/#"}, set()),
        ({"from": "2026-03-28T02:00:00Z", "to": "2026-03-28T04:00:00Z"}, {2, 3}),
        ({"from": "2026-03-28T02:00:00.001Z", "to": "2026-03-29T02:00:00.001Z"}, {3, 4, 25, 26}),
        ({"receivedFrom": "2026-03-29"}, {25, 26, 27, 28}),
        ({"receivedTo": "2026-03-29T00:00:00+01:00"}, {1, 2, 3, 4}),
        ({"topic": "t/+/x", "receivedFrom": "2026-03-28T03:00", "to": "2026-03-29T03:00"}, {3, 26}),
    ],
)
def test_options_choose_rows_exactly(
    spark: Any, log: Any, options: dict[str, str], hours: set[int]
) -> None:
    for day in (0, 24):
        log.add(
            f"2026-03-{28 + day // 24}",
            [
                {"topic": topic, "time": 3600 * hour, "payload": str(hour + day).encode()}
                for hour, topic in enumerate(["t", "t/1/x", "t/2/x", "t/2/y"], 1)
            ],
        )
    found = load(spark, log, **options).collect()
    assert {int(row["payload"]) for row in found} == hours
    assert len(found) == len(hours)


def test_options_that_make_no_sense_are_told(spark: Any, log: Any) -> None:
    log.add(DAY, [{"topic": "a"}])
    with pytest.raises(PySparkException, match="'soon' is no ISO 8601 time"):
        load(spark, log, **{"from": "soon"}).count()
    with pytest.raises(PySparkException, match="wildcard inside a level"):
        load(spark, log, topic="a/b+").count()


def test_a_bad_segment_fails_the_query_unless_it_is_to_be_skipped(spark: Any, log: Any) -> None:
    log.add("2026-03-28", [{"topic": "good"}])
    log.path("2026-03-27").write_bytes(b"no database" * 500)
    with pytest.raises(PySparkException, match=r"2026-03-27\.sqlite"):
        load(spark, log).count()
    assert load(spark, log, badSegments="skip").count() == 1


def test_the_stream_gives_every_row_once_across_restarts(
    spark: Any, log: Any, tmp_path: Path
) -> None:
    def run() -> None:
        query = (
            spark.readStream.format("geomqtt")
            .option("maxRowsPerBatch", "7")
            .load(str(log.data))
            .select("segment", "id", "topic")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    log.add("2026-03-28", [{"topic": f"a/{n}"} for n in range(10)])
    run()
    log.add("2026-03-28", [{"topic": f"b/{n}"} for n in range(3)])
    log.add("2026-03-29", [{"topic": f"c/{n}"} for n in range(4)])
    run()
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row["topic"] for row in rows) == sorted(
        [f"a/{n}" for n in range(10)] + [f"b/{n}" for n in range(3)] + [f"c/{n}" for n in range(4)]
    )


def test_an_offset_is_the_last_row_of_every_day_and_respects_the_limit(log: Any) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    log.add("2026-03-28", [{"topic": "a"}] * 10)
    log.add("2026-03-29", [{"topic": "a"}] * 5)
    reader = EventLogStreamReader({"path": str(log.data)})
    assert reader.initialOffset() == {}
    assert reader.latestOffset({}, ReadAllAvailable()) == {"2026-03-28": 10, "2026-03-29": 5}
    first = reader.latestOffset({}, ReadMaxRows(12))
    assert json.loads(json.dumps(first)) == first == {"2026-03-28": 10, "2026-03-29": 2}
    tasks = reader.partitions({"2026-03-28": 4}, first)
    assert all(isinstance(task, Task) for task in tasks)
    assert [(t.rows.day, t.rows.first_id, t.rows.last_id) for t in tasks] == [
        ("2026-03-28", 5, 10),
        ("2026-03-29", 1, 2),
    ]
