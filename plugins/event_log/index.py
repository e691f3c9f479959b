"""What is where in a run of 65,536 rows: summed up once by the writer, asked by the reader.

    RunBuilder      keeps the columns of the open run in memory and writes its summary
    candidates      the ids of a run that may match, exact in topic, never missing a place

A row's offset is its place in the run, `(id - 1) & 0xFFFF`. The blobs of the table `run`:

    topics, clients             u32, the distinct ids of the run, ascending
    topic_codes, client_codes   u16 for every offset, position in the above; NULL: only one
    placed                      a bit for every offset, NULL: all rows have a place or none

The table `place` has the rows with a place, sorted by cell and cut into blocks of 1,024:
offsets (u16), and their boxes column by column as f32 (x, y; with max_x, max_y behind them
if not all are points). The box of the block itself is exact; those of the rows are rounded
to f32, which `ROUNDING` makes good for. All numbers are little-endian.

A row that was deleted keeps its offset here: looking its id up finds nothing.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from plugins.event_log.cells import cells_of
from protocol.values import value

RUN_BITS = 16
RUN_ROWS = 1 << RUN_BITS
BLOCK_ROWS = 1024
ROUNDING = 2e-5  # more than f32 can be off at 180 degrees

Box = tuple[float, float, float, float]  # min_x, min_y, max_x, max_y

_U2 = numpy.dtype("<u2")
_U4 = numpy.dtype("<u4")
_F4 = numpy.dtype("<f4")


def run_of(event_id: int) -> int:
    """Give the run that an id lies in."""
    return (event_id - 1) >> RUN_BITS


def first_id(run: int) -> int:
    """Give the first id of a run."""
    return (run << RUN_BITS) + 1


class RunBuilder:
    """The columns of the run that is being written."""

    def __init__(self, run: int, size: int = 0) -> None:
        self.run = run
        self.size = size  # offsets used so far
        self._topics = numpy.zeros(RUN_ROWS, numpy.int32)
        self._clients = numpy.zeros(RUN_ROWS, numpy.int32)
        self._placed = numpy.zeros(RUN_ROWS, numpy.bool_)
        self._boxes: NDArray[numpy.float64] | None = None  # made when the first place comes
        self._received: list[int] = []  # lowest and highest of every group
        self._times: list[int] = []

    @classmethod
    def load(cls, connection: sqlite3.Connection, next_id: int) -> "RunBuilder":
        """Build again what a writer before us had in memory of the open run."""
        run = run_of(next_id)
        builder = cls(run)
        query = (
            "SELECT id, received_ms, coalesce(start_ms, received_ms),"
            " coalesce(end_ms, start_ms, received_ms), topic, client,"
            " min_x, min_y, coalesce(max_x, min_x), coalesce(max_y, min_y)"
            " FROM packed WHERE id >= ? ORDER BY id"
        )
        for row in connection.execute(query, (first_id(run),)):
            event_id, received, start, end, topic, client, *box = row
            builder.size = event_id - first_id(run)  # a deleted row leaves its offset empty
            boxes = None if box[0] is None else numpy.array([box])
            builder.extend(1, topic, client, (received, received), (start, end), boxes)
        builder.size = next_id - first_id(run)
        return builder

    @property
    def room(self) -> int:
        """How many rows the run still takes."""
        return RUN_ROWS - self.size

    def extend(
        self,
        count: int,
        topics: Any,
        clients: Any,
        received: tuple[int, int],
        times: tuple[int, int],
        boxes: NDArray[numpy.float64] | None,
    ) -> None:
        """Add rows: their topic and client ids, what times they span, boxes (NaN: no place)."""
        start, end = self.size, self.size + count
        self._topics[start:end] = topics
        self._clients[start:end] = clients
        if boxes is not None:
            if self._boxes is None:
                self._boxes = numpy.full((RUN_ROWS, 4), numpy.nan)
            self._boxes[start:end] = boxes
            self._placed[start:end] = ~numpy.isnan(boxes[:, 0])
        self._received += received
        self._times += times
        self.size = end

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the summary of the run, in place of an earlier one when the run has grown."""
        if not self._received:  # nothing but deleted rows
            return
        size = self.size
        topics, topic_codes = _coded(self._topics[:size])
        clients, client_codes = _coded(self._clients[:size])
        placed = self._placed[:size]
        places = int(placed.sum())
        connection.execute("DELETE FROM place WHERE run = ?", (self.run,))
        if places:
            connection.executemany(
                "INSERT INTO place VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._blocks(placed)
            )
        connection.execute(
            "INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self.run,
                first_id(self.run) + size - 1,
                min(self._received),
                max(self._received),
                min(self._times),
                max(self._times),
                places,
                topics,
                clients,
                topic_codes,
                client_codes,
                numpy.packbits(placed).tobytes() if 0 < places < size else None,
            ),
        )

    def _blocks(self, placed: NDArray[numpy.bool_]) -> list[tuple[Any, ...]]:
        assert self._boxes is not None
        offsets = numpy.flatnonzero(placed)
        boxes = self._boxes[offsets]
        order = numpy.argsort(
            cells_of((boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2)
        )
        offsets, boxes = offsets[order].astype(_U2), boxes[order]
        rows: list[tuple[Any, ...]] = []
        for block, start in enumerate(range(0, len(offsets), BLOCK_ROWS)):
            part = boxes[start : start + BLOCK_ROWS]
            columns = part.astype(_F4)
            if (part[:, :2] == part[:, 2:]).all():
                columns = columns[:, :2]
            rows.append(
                (
                    self.run,
                    block,
                    *part[:, :2].min(axis=0).tolist(),
                    *part[:, 2:].max(axis=0).tolist(),
                    offsets[start : start + BLOCK_ROWS].tobytes(),
                    columns.T.tobytes(),
                )
            )
        return rows


def _coded(ids: NDArray[numpy.int32]) -> tuple[bytes, bytes | None]:
    """Give the distinct ids and, unless there is but one, their position for every row."""
    if (ids == ids[0]).all():
        return ids[:1].astype(_U4).tobytes(), None
    distinct, codes = numpy.unique(ids, return_inverse=True)
    return distinct.astype(_U4).tobytes(), codes.astype(_U2).tobytes()


@value
class Run:
    """The summary of a run, as far as it is always wanted."""

    run: int
    last_id: int
    min_received_ms: int
    max_received_ms: int
    min_start_ms: int
    max_end_ms: int
    places: int

    @property
    def size(self) -> int:
        """How many offsets the summary knows."""
        return self.last_id - first_id(self.run) + 1


def runs(connection: sqlite3.Connection) -> list[Run]:
    """Read the summaries of a segment in the order of ids."""
    return [
        Run(*row)
        for row in connection.execute(
            "SELECT id, last_id, min_received_ms, max_received_ms, min_start_ms, max_end_ms,"
            " places FROM run ORDER BY id"
        )
    ]


def candidates(
    connection: sqlite3.Connection,
    run: Run,
    topics: NDArray[Any] | None = None,
    boxes: Sequence[Box] | None = None,
    geo: bool | None = None,
) -> NDArray[numpy.int64]:
    """Give the ids of a run, ascending, that are on these topics and may touch these boxes."""
    # A writer that goes on with a run sums it up again: what is read here may know more rows
    # than `run` does, and those are looked for elsewhere.
    on_topic = None
    if topics is not None:
        on_topic = _on_topic(connection, run, topics)
        if on_topic is None:
            return numpy.empty(0, numpy.int64)
    if boxes is not None:
        offsets = _in_boxes(connection, run.run, boxes)
        offsets = offsets[offsets < run.size]
        if on_topic is not None:
            offsets = offsets[on_topic[offsets]]
    else:
        keep = numpy.ones(run.size, numpy.bool_) if on_topic is None else on_topic
        if geo is not None:
            keep = keep & (_placed(connection, run) == geo)
        offsets = numpy.flatnonzero(keep)
    return offsets.astype(numpy.int64) + first_id(run.run)


def codes(
    connection: sqlite3.Connection, run: Run, column: str
) -> tuple[NDArray[numpy.int64], NDArray[numpy.uint16]]:
    """Give the distinct topics or clients of a run, and for every offset which of them it has."""
    names, positions = connection.execute(
        f"SELECT {column}s, {column}_codes FROM run WHERE id = ?", (run.run,)
    ).fetchone()
    distinct = numpy.frombuffer(names, _U4).astype(numpy.int64)
    if positions is None:
        return distinct, numpy.zeros(run.size, numpy.uint16)
    return distinct, numpy.frombuffer(positions, _U2, run.size)


def _on_topic(
    connection: sqlite3.Connection, run: Run, topics: NDArray[Any]
) -> NDArray[numpy.bool_] | None:
    """Mark the offsets on one of these topics; None when there are none."""
    distinct = numpy.frombuffer(
        connection.execute("SELECT topics FROM run WHERE id = ?", (run.run,)).fetchone()[0], _U4
    )
    if not numpy.isin(distinct, topics).any():
        return None
    names, positions = codes(connection, run, "topic")
    marks: NDArray[numpy.bool_] = numpy.isin(names, topics)[positions]
    return marks


def _placed(connection: sqlite3.Connection, run: Run) -> NDArray[numpy.bool_]:
    places, bits = connection.execute(
        "SELECT places, placed FROM run WHERE id = ?", (run.run,)
    ).fetchone()
    if bits is None:
        return numpy.full(run.size, places > 0)
    marks = numpy.unpackbits(numpy.frombuffer(bits, numpy.uint8), count=run.size)
    return marks.astype(numpy.bool_)


def _in_boxes(
    connection: sqlite3.Connection, run: int, boxes: Sequence[Box]
) -> NDArray[numpy.int64]:
    """Find the offsets whose box may touch one of these, ascending and each once."""
    found: list[NDArray[numpy.int64]] = []
    for min_x, min_y, max_x, max_y in boxes:
        for offset_bytes, box_bytes in connection.execute(
            "SELECT offsets, boxes FROM place WHERE run = ?"
            " AND min_x <= ? AND max_x >= ? AND min_y <= ? AND max_y >= ?",
            (run, max_x, min_x, max_y, min_y),
        ):
            offsets = numpy.frombuffer(offset_bytes, _U2)
            columns = numpy.frombuffer(box_bytes, _F4).reshape(-1, len(offsets))
            inside = (
                (columns[0] <= max_x + ROUNDING)
                & (columns[1] <= max_y + ROUNDING)
                & (columns[-2] >= min_x - ROUNDING)
                & (columns[-1] >= min_y - ROUNDING)
            )
            found.append(offsets[inside].astype(numpy.int64))
    if not found:
        return numpy.empty(0, numpy.int64)
    return numpy.unique(numpy.concatenate(found))
