"""The event log as a Spark data source: `spark.read.format("geomqtt").load(data_dir)`.

    segments --> ranges of rows, one per task --> Arrow batches

Planning looks only at the first and last row of each segment. A segment that
is still being written is read up to the row that was last when the query was planned, so a
query sees one moment of the log however long it runs. Nothing is ever written.

Options of the batch reader, applied inside the segments:

    topic               an MQTT topic filter
    from, to            ISO 8601 bounds of the event's time, `to` exclusive
    receivedFrom, receivedTo    the same for the time of receipt; other segments are not opened
    badSegments         fail (default) or skip
    rowsPerTask         how far a segment is cut into tasks
    ranges              from the exporter: exactly these rows (JSON)

and of the stream: `maxRowsPerBatch`.

Conditions of a query (`where` on `time`, `received`, `topic`, `client_id`, `segment`) are pushed
down with the option `pushFilters` = true. It is not the default, because in Spark up to 4.3 all
uses of one `load()` share what was pushed last, so that `events.where(…)` changes what a
later `events.count()` sees. Asked so, call `load()` anew for every query. The options above
have no such trap.
"""

import json
from collections.abc import Iterable, Iterator, MutableMapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from protocol.topics import check_filter, matches
from spark_export import staging
from spark_export.filters import Pushed
from spark_export.segments import (
    ExportError,
    Range,
    SegmentError,
    look_at,
    segment_paths,
    segment_topics,
    split,
)

ROWS_PER_TASK = 250_000

# Spelled in Spark's words so that planning a query need not translate it each time; a test
# holds it to be the same as that of the batches.
SCHEMA = (
    "segment STRING, id BIGINT, received TIMESTAMP, time TIMESTAMP, end_time TIMESTAMP, "
    "has_time BOOLEAN, time_ms BIGINT, end_ms BIGINT, topic STRING, client_id STRING, "
    "qos TINYINT, retain BOOLEAN, geo BOOLEAN, epsg INT, sent BINARY, wkb BINARY, "
    "min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, cell BIGINT, payload BINARY"
)


def register(spark: SparkSession) -> None:
    """Make `geomqtt` known to a session."""
    # Only allows it: a reader that does not push is not changed by this.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(EventLogSource)


class EventLogSource(DataSource):
    """The data source `geomqtt`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        return "geomqtt"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        pushes = _lower(self.options).get("pushfilters", "false").lower() == "true"
        return PushingReader(self.options) if pushes else EventLogReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return EventLogStreamReader(self.options)


class Task(InputPartition):
    """The rows one task reads, and the filter it applies to them."""

    def __init__(self, rows: Range, where: str = "", values: tuple[Any, ...] = ()) -> None:
        super().__init__(None)
        self.rows = rows
        self.where = where
        self.values = values


def _read(task: Task) -> Iterator[pa.RecordBatch]:
    # Here and not above: only the Python that runs tasks needs the SQLite driver.
    from spark_export.batches import read_batches

    with staging.fetched(task.rows) as rows:
        yield from read_batches(rows, task.where, task.values)


class EventLogReader(DataSourceReader):
    """Reads the log as it is now."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = _lower(options)
        self._pushed = Pushed()
        for name, (column, bound) in _BOUNDS.items():
            if name in self._options:
                self._pushed.exact(bound((column,), _moment(name, self._options[name])))
        self._topic_filter = self._options.get("topic")
        if self._topic_filter is not None:
            check_filter(self._topic_filter)

    def partitions(self) -> list[Task]:
        ranges = self._ranges()
        where, values = self._pushed.where
        size = int(self._options.get("rowspertask", ROWS_PER_TASK))
        tasks = []
        for whole in ranges:
            narrowed, with_topics = self._narrow(whole, where, values)
            tasks += [Task(piece, narrowed, with_topics) for piece in split([whole], size)]
        return tasks

    def _narrow(
        self, rows: Range, where: str, values: tuple[Any, ...]
    ) -> tuple[str, tuple[Any, ...]]:
        """Turn the topic filter into the segment's own topics that match it."""
        if self._topic_filter is None:
            return where, values
        matching = [t for t in segment_topics(rows.path) if matches(self._topic_filter, t)]
        condition = "topic IN (SELECT id FROM topic WHERE name IN (SELECT value FROM json_each(?)))"
        return " AND ".join(filter(None, [where, condition])), (*values, json.dumps(matching))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark asks once with a partition of its own when there are none of ours.
        return _read(partition) if isinstance(partition, Task) else iter(())

    def _ranges(self) -> list[Range]:
        if "ranges" in self._options:
            return [Range(*fields) for fields in json.loads(self._options["ranges"])]
        found = []
        for day, path in segment_paths(_path(self._options)):
            if not self._pushed.wants(day):
                continue
            try:
                segment = look_at(day, path)
            except SegmentError:
                if self._options.get("badsegments") == "skip":
                    continue
                raise
            found.append(Range(path, day, segment.first_id, segment.last_id))
        return found


class PushingReader(EventLogReader):
    """Reads the log as it is now, and only what the conditions of the query may want."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for given in filters:
            self._pushed.push(given)
            yield given  # Spark tests it again: a pushed filter may let too much through


class EventLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log: an offset is the last row read of every segment, by day."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._options = _lower(options)
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.get("maxrowsperbatch")
        return ReadMaxRows(int(limit)) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._last_rows()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        target = self._last_rows() if self._target is None else self._target
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        offset = dict(start)
        for day in sorted(target):
            behind = target[day] - offset.get(day, 0)
            if behind <= 0:
                continue
            step = behind if room is None else min(behind, room)
            offset[day] = offset.get(day, 0) + step
            if room is not None:
                room -= step
                if room == 0:
                    break
        return offset

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Task]:
        paths = dict(segment_paths(_path(self._options)))
        ranges = []
        for day in sorted(end):
            if end[day] <= start.get(day, 0):
                continue
            if day not in paths:
                raise ExportError(f"the segment of {day} was deleted before the stream read it")
            ranges.append(Range(paths[day], day, start.get(day, 0) + 1, end[day]))
        size = int(self._options.get("rowspertask", ROWS_PER_TASK))
        return [Task(piece) for piece in split(ranges, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark asks once with a partition of its own when there are none of ours.
        return _read(partition) if isinstance(partition, Task) else iter(())

    def _last_rows(self) -> dict[str, int]:
        found = [look_at(day, path) for day, path in segment_paths(_path(self._options))]
        return {segment.day: segment.last_id for segment in found if segment.last_id}


_BOUNDS: dict[str, tuple[str, type[GreaterThanOrEqual | LessThan]]] = {
    "from": ("time", GreaterThanOrEqual),
    "to": ("time", LessThan),
    "receivedfrom": ("received", GreaterThanOrEqual),
    "receivedto": ("received", LessThan),
}


def _moment(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ExportError(f"option {name}: {text!r} is no ISO 8601 time") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _lower(options: MutableMapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _path(options: dict[str, str]) -> str:
    if "path" not in options:
        raise ExportError('the source needs the data folder: .format("geomqtt").load(DIR)')
    return options["path"]
