"""The writer process of the event log: batches in on stdin, segments on disk, answers on stdout.

    python -m plugins.event_log.writer '{"data_dir": …, "session": …, …}'

Batches are gathered for `commit_ms` and written in one burst, so that the lock on the
segment is free in between for whoever deletes. A batch is acknowledged when it is
committed, and each segment remembers the last batch it has of a session: what is sent
again after a crash of this process is written once. End of input means: write what came,
close the segment, go. So killing the broker loses only what it had not handed over, and
killing the writer loses nothing, because the broker hands it over again.

In the write-ahead log a commit survives the death of any process. With `synchronous =
"normal"` SQLite calls fsync when it moves the log into the segment: a power cut may take
the last seconds, but leaves every segment whole; "off" trusts the machine not to fail.
"""

import fcntl
import gc
import logging
import os
import select
import signal
import sqlite3
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from plugins.event_log.frames import decode_frames
from plugins.event_log.records import ACKNOWLEDGEMENT, READY, Batch, BatchReader, MessageRecord
from plugins.event_log.segment_writer import SegmentWriter
from plugins.event_log.segments import (
    DAY_MS,
    SegmentError,
    day_of,
    folder_of,
    is_damage,
    now_ms,
    prune,
    segment_of,
)
from protocol.topics import matches

log = logging.getLogger("geomqtt.event_log")

READ_BYTES = 1 << 20
BURST_BYTES = 16 << 20  # written at once at the latest
HOUSEKEEPING_S = 30.0
RETRY_S = 1.0
LOCK_NAME = ".writer.lock"
# What SQLite says against values, not against the file: trying again would not help.
UNSUITABLE = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


class Options(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What the plugin tells its writer."""

    data_dir: str
    session: str
    commit_ms: int = 80
    include: tuple[str, ...] = ("#",)
    exclude: tuple[str, ...] = ()
    max_age_days: float | None = None
    max_bytes: int | None = None
    synchronous: str = "normal"

    def wanted(self, topic: str) -> bool:
        """Tell whether a topic is logged; `$`-topics are when a filter names them."""
        return any(matches(include, topic) for include in self.include) and not any(
            matches(exclude, topic) for exclude in self.exclude
        )


class Writer:
    """Writes bursts of batches into the segments of their days."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._segment: SegmentWriter | None = None

    def write(self, batches: list[Batch]) -> int:
        """Write what is new in batches, one commit a day; give the number of rows."""
        by_day: dict[date, list[tuple[int, list[Any]]]] = {}
        for batch in batches:
            for number, records in _by_day(batch.records()).items():
                by_day.setdefault(day_of(number * DAY_MS), []).append((batch.sequence, records))
        rows = 0
        for day in sorted(by_day):
            rows += self._write_day(self._open(day), by_day[day])
        return rows

    def _write_day(self, segment: SegmentWriter, groups: list[tuple[int, list[Any]]]) -> int:
        groups = [group for group in groups if group[0] > segment.sequence]
        if not groups:
            return 0
        segment.begin()
        waiting: list[MessageRecord] = []
        for _, records in groups:
            for record in records:
                if len(record) != 4:
                    waiting.append(record)
                    continue
                received_ms, client_id, frames, count = record
                if waiting and count >= 64:  # rows keep the order in which they were accepted
                    segment.add_messages(waiting)
                    waiting = []
                if waiting:
                    waiting += decode_frames(received_ms, client_id, frames)
                else:
                    waiting += segment.add_frames(received_ms, client_id, frames, count)
        if waiting:
            segment.add_messages(waiting)
        return segment.commit(groups[-1][0])

    def _open(self, day: date) -> SegmentWriter:
        if self._segment is not None and self._segment.day == day:
            return self._segment
        self.close()
        path = segment_of(self.options.data_dir, day).path
        try:
            self._segment = self._made(path, day)
        except SegmentError as error:
            if not error.damaged:
                raise
            _set_aside(path, error)
            self._segment = self._made(path, day)
        return self._segment

    def _made(self, path: Path, day: date) -> SegmentWriter:
        options = self.options
        return SegmentWriter(path, day, options.session, options.wanted, options.synchronous)

    def recover(self, error: Exception) -> None:
        """Let go of the segment after an error; the next burst opens it again."""
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.abandon()
            if is_damage(error):
                _set_aside(segment.path, error)

    def keep_house(self) -> None:
        """Close a day that is over, and delete what is too old or too much."""
        now = now_ms()
        if self._segment is not None and self._segment.day < day_of(now - 60_000):
            self.close()
        options = self.options
        for segment in prune(options.data_dir, options.max_age_days, options.max_bytes, now):
            log.info("deleted %s", segment.path)

    def close(self) -> None:
        """Close the segment for good or for now."""
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.close()


def _set_aside(path: Path, error: Exception) -> None:
    """Move a file out of the way: events of today must go somewhere, and it may be of use."""
    aside = f"{path.name}.unusable-{now_ms()}"
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(path.with_name(aside + suffix))
    log.error("%s; it was set aside as %s", error, aside)


def _by_day(records: list[Any]) -> dict[int, list[Any]]:
    days = {record[0] // DAY_MS for record in records}
    if len(days) == 1:
        return {days.pop(): records}
    return {
        day: [record for record in records if record[0] // DAY_MS == day] for day in sorted(days)
    }


class Process:
    """The loop between the pipe and the writer."""

    def __init__(self, options: Options, source: int, answers: int) -> None:
        self._writer = Writer(options)
        self._commit_s = options.commit_ms / 1000
        self._source = source
        self._answers = answers
        self._reader = BatchReader()
        self._batches: list[Batch] = []
        self._bytes = 0

    def run(self) -> None:
        """Work until the broker closes the pipe."""
        self._writer.keep_house()
        self._acknowledge(READY)
        poll = select.poll()
        poll.register(self._source, select.POLLIN | select.POLLHUP)
        due = housekeeping = time.monotonic() + HOUSEKEEPING_S
        while True:
            now = time.monotonic()
            if self._batches and (now >= due or self._bytes >= BURST_BYTES):
                self._burst()
                continue
            if now >= housekeeping:
                self._keep_house()
                gc.collect()
                housekeeping = now + HOUSEKEEPING_S
            wake = due if self._batches else housekeeping
            if not poll.poll(max(0.0, wake - now) * 1000 + 1):
                continue
            data = os.read(self._source, READ_BYTES)
            if not data:
                break
            had = bool(self._batches)
            self._bytes += len(data)
            self._batches += self._reader.receive_data(data)
            if self._batches and not had:
                due = now + self._commit_s
        if self._batches:
            self._burst()
        self._writer.close()

    def _burst(self) -> None:
        """Write what was gathered, and say so."""
        batches, self._batches, self._bytes = self._batches, [], 0
        lost = 0
        try:
            rows = self._written(batches)
        except Exception:
            # One bad batch must not take the others with it.
            log.exception("a batch cannot be written; trying them one by one")
            rows = 0
            for batch in batches:
                try:
                    rows += self._written([batch])
                except Exception:
                    log.exception("batch of %s events cannot be written", batch.events)
                    lost += batch.events
        self._acknowledge(batches[-1].sequence, rows, lost)

    def _written(self, batches: list[Batch]) -> int:
        """Write batches; as long as the disk refuses, try again."""
        while True:
            try:
                return self._writer.write(batches)
            except UNSUITABLE as error:
                self._writer.recover(error)
                raise
            except (sqlite3.DatabaseError, SegmentError, OSError) as error:
                log.error("cannot write: %s; trying again", error)
                self._writer.recover(error)
                time.sleep(RETRY_S)
            except Exception as error:
                self._writer.recover(error)
                raise

    def _keep_house(self) -> None:
        try:
            self._writer.keep_house()
        except (sqlite3.DatabaseError, OSError) as error:
            log.error("cannot tidy up: %s", error)
            self._writer.recover(error)

    def _acknowledge(self, sequence: int, rows: int = 0, lost: int = 0) -> None:
        try:
            os.write(self._answers, ACKNOWLEDGEMENT.pack(sequence, rows, lost))
        except BrokenPipeError:
            log.debug("the broker has gone; writing what it left")


def main() -> None:
    """Run the process."""
    # The broker ends us by closing the pipe, after its last batch; signals are for it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # Rows are tuples by the million and make no cycles: looking for some costs a seventh.
    gc.disable()
    options = msgspec.json.decode(sys.argv[1], type=Options)
    folder = folder_of(options.data_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # A writer whose broker was killed may still be writing what that one left.
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        sys.exit(f"event log: {error}")
    Process(options, sys.stdin.fileno(), sys.stdout.fileno()).run()


if __name__ == "__main__":
    main()
