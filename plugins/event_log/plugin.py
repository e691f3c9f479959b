"""The event log in the broker: takes what was accepted and hands it to the writer process.

    on_accepted → records → every FLUSH_MS or 256 KiB: a batch → pipe → writer process
                                          ↑                                   |
                                    kept until acknowledged ←─────────────────┘

Nothing here waits: the pipe is written when it has room, and what waits is bounded by
`buffer_bytes`. Beyond that events are dropped and counted, or, with `on_overload =
"throttle"`, the broker stops reading from publishers until the writer has caught up. A
writer that dies is started again and gets every batch that it had not acknowledged; it
knows which of them it had written.

Counters: event_log_events_total (committed), event_log_dropped_total (no room),
event_log_lost_total (the writer could not take them), event_log_writer_restarts_total.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from plugins.api import Accepted, Broker, FrameRun, Plugin, PluginError
from plugins.event_log.records import ACKNOWLEDGEMENT, READY, encode_batch, message_record
from plugins.event_log.segments import folder_of
from plugins.event_log.writer import Options
from protocol.errors import BadTopic
from protocol.topics import check_filter

log = logging.getLogger("geomqtt.event_log")

FLUSH_MS = 20
BATCH_BYTES = 256 << 10
PIPE_BYTES = 1 << 20
RECORD_BYTES = 120  # what a message takes beside topic and payload
RESTART_S = (0.0, 0.1, 0.5, 2.0, 5.0)  # before the first, second … start without progress
DEATHS = 3  # of the writer without progress, until the batch it dies of is given up


class EventLogSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say."""

    include: tuple[str, ...] = ("#",)  # topic filters; `$`-topics only if one names them
    exclude: tuple[str, ...] = ()
    commit_ms: int = 100  # what is younger may be lost when a process is killed
    buffer_bytes: int = 64 << 20  # between the broker and the disk
    on_overload: Literal["drop", "throttle"] = "drop"
    max_age_days: float | None = None  # older days are deleted
    max_bytes: int | None = None  # the oldest days are deleted beyond it
    synchronous: Literal["normal", "off"] = "normal"  # "off": a power cut may damage a segment
    start_timeout_s: float = 30.0
    stop_timeout_s: float = 30.0


class EventLog(Plugin):
    """Logs every accepted event."""

    Settings: ClassVar[type[msgspec.Struct]] = EventLogSettings
    takes_frames = True

    def __init__(self, settings: EventLogSettings) -> None:
        super().__init__(settings)
        self._check(settings)
        self._throttles = settings.on_overload == "throttle"
        self._limit = settings.buffer_bytes
        self._pending: list[Any] = []  # records of no batch yet
        self._pending_events = 0
        self._pending_bytes = 0
        self._kept: deque[tuple[int, int, bytes]] = deque()  # sequence, events, bytes: not
        self._kept_bytes = 0  # acknowledged yet
        self._sequence = 0
        self._unsent: deque[bytes | memoryview] = deque()
        self._paused = False
        self._stopping = False
        self._process: _Process | None = None
        self._deaths = 0
        self._timer: asyncio.TimerHandle | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._ready = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # for a batch on disk

    @property
    def buffered_bytes(self) -> int:
        """What is on its way between the broker and the disk."""
        return self._kept_bytes + self._pending_bytes

    @property
    def writer_pid(self) -> int | None:
        """The process that writes, None between two of them."""
        return None if self._process is None else self._process.pid

    @staticmethod
    def _check(settings: EventLogSettings) -> None:
        for topic_filter in (*settings.include, *settings.exclude):
            try:
                check_filter(topic_filter)
            except BadTopic as error:
                raise PluginError(f"event log: {error}") from None
        for name in ("commit_ms", "buffer_bytes", "max_age_days", "max_bytes"):
            number = getattr(settings, name)
            if number is not None and number <= 0:
                raise PluginError(f"event log: {name} is {number}, it must be above 0")

    async def start(self, broker: Broker) -> None:
        if broker.data_dir is None:
            raise PluginError("event log: there is no data folder to write to")
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        settings = self.settings
        self._options = Options(
            data_dir=str(Path(broker.data_dir).absolute()),
            session=secrets.token_hex(8),
            commit_ms=max(1, settings.commit_ms - FLUSH_MS),
            include=settings.include,
            exclude=settings.exclude,
            max_age_days=settings.max_age_days,
            max_bytes=settings.max_bytes,
            synchronous=settings.synchronous,
        )
        self._check_folder(folder_of(broker.data_dir))
        self._start_writer()
        try:
            await asyncio.wait_for(self._ready.wait(), settings.start_timeout_s)
        except TimeoutError:
            await self._abort()
            raise PluginError(
                f"event log: the writer was not ready after {settings.start_timeout_s:g} s"
            ) from None

    @staticmethod
    def _check_folder(folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PluginError(f"event log: {error}") from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PluginError(f"event log: {folder} cannot be written to")

    def on_accepted(self, batch: list[Accepted]) -> None:
        if self._kept_bytes + self._pending_bytes > self._limit and not self._throttles:
            self._broker.count("event_log_dropped_total", _events(batch))
            return
        append = self._pending.append
        size = events = 0
        for item in batch:
            if type(item) is FrameRun:
                append((item.received_ms, item.client_id, item.frames, item.count))
                size += len(item.frames) + 32
                events += item.count
            else:
                record = message_record(item)  # type: ignore[arg-type]
                append(record)
                size += len(record[1]) + len(record[2]) + RECORD_BYTES
                events += 1
                if record[8] is not None:
                    size += len(record[8][1] or b"") + len(record[8][6])
        self._pending_bytes += size
        self._pending_events += events
        if self._pending_bytes >= BATCH_BYTES:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(FLUSH_MS / 1000, self._flush)
        if (
            self._throttles
            and not self._paused
            and self._kept_bytes + self._pending_bytes > self._limit
        ):
            self._paused = True
            self._broker.pause_publishers()

    def _flush(self) -> None:
        """Make a batch of what is pending and send what the pipe takes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending:
            return
        self._sequence += 1
        data = encode_batch(self._sequence, self._pending_events, self._pending)
        self._kept.append((self._sequence, self._pending_events, data))
        self._kept_bytes += len(data)
        self._pending = []
        self._pending_events = self._pending_bytes = 0
        self._unsent.append(data)
        if len(self._unsent) == 1:
            self._send()

    def _send(self) -> None:
        process = self._process
        if process is None or not process.ready:
            return
        unsent = self._unsent
        try:
            while unsent:
                data = unsent[0]
                written = os.write(process.pipe, data)
                if written == len(data):
                    unsent.popleft()
                else:
                    unsent[0] = memoryview(data)[written:]
        except BlockingIOError:
            if not process.waiting:
                process.waiting = True
                self._loop.add_writer(process.pipe, self._send)
            return
        except BrokenPipeError:
            return  # the end of its answers says that it has died
        if process.waiting:
            process.waiting = False
            self._loop.remove_writer(process.pipe)

    async def settled(self) -> None:
        """Wait until everything that was accepted so far is on disk, or given up."""
        await asyncio.sleep(0)  # what this turn of the loop accepted is shown at its end
        self._flush()
        if self._kept:
            done: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((self._sequence, done))
            await done

    # The writer process

    def _start_writer(self) -> None:
        self._restart = None
        self._process = _Process(self._options)
        self._loop.add_reader(self._process.answers, self._receive_answers)

    def _receive_answers(self) -> None:
        process = self._process
        assert process is not None
        try:
            data = os.read(process.answers, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._writer_ended()
            return
        process.buffer += data
        whole = len(process.buffer) // ACKNOWLEDGEMENT.size * ACKNOWLEDGEMENT.size
        for sequence, events, lost in ACKNOWLEDGEMENT.iter_unpack(process.buffer[:whole]):
            if sequence == READY:
                process.ready = True
                self._ready.set()
                self._send()
            else:
                self._acknowledged(sequence, events, lost)
        process.buffer = process.buffer[whole:]

    def _acknowledged(self, sequence: int, events: int, lost: int) -> None:
        self._deaths = 0
        kept = self._kept
        while kept and kept[0][0] <= sequence:
            self._kept_bytes -= len(kept.popleft()[2])
        if events:
            self._broker.count("event_log_events_total", events)
        if lost:
            self._broker.count("event_log_lost_total", lost)
        self._after_release()

    def _after_release(self) -> None:
        if self._paused and self._kept_bytes + self._pending_bytes <= self._limit // 2:
            self._paused = False
            self._broker.resume_publishers()
        first = self._kept[0][0] if self._kept else self._sequence + 1
        while self._waiting and self._waiting[0][0] < first:
            done = self._waiting.pop(0)[1]
            if not done.done():
                done.set_result(None)
        if not self._kept and not self._pending:
            self._idle.set()

    def _writer_ended(self) -> None:
        """Start another writer, unless this one ended because it was told to."""
        assert self._process is not None
        code = self._process.close(self._loop)
        self._process = None
        if self._stopping and not self._kept:
            self._idle.set()
            return
        log.error("writer process ended with %s, starting another", code)
        self._broker.count("event_log_writer_restarts_total")
        self._deaths += 1
        if self._deaths > DEATHS and self._kept:
            sequence, events, data = self._kept.popleft()
            self._kept_bytes -= len(data)
            log.error("batch %s of %s events given up", sequence, events)
            self._broker.count("event_log_lost_total", events)
            self._after_release()
        self._unsent = deque(data for _, _, data in self._kept)
        wait_s = RESTART_S[min(self._deaths, len(RESTART_S)) - 1]
        self._restart = self._loop.call_later(wait_s, self._start_writer)

    async def stop(self) -> None:
        """Hand everything over and wait until it is on disk."""
        if self._process is None and self._restart is None:
            return
        deadline = time.monotonic() + self.settings.stop_timeout_s
        self._flush()
        while self._kept and time.monotonic() < deadline:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), max(0.0, deadline - time.monotonic()))
        lost = sum(events for _, events, _ in self._kept)
        if lost:
            log.error("%s events could not be written before the stop", lost)
            self._broker.count("event_log_lost_total", lost)
            self._kept.clear()
        self._stopping = True
        if self._restart is not None:
            self._restart.cancel()
        if self._process is not None:
            self._idle.clear()
            self._process.end_input(self._loop)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), max(1.0, deadline - time.monotonic()))
        await self._abort()

    async def _abort(self) -> None:
        """Be sure that no process is left."""
        self._stopping = True
        if self._process is not None:
            self._process.kill()
            self._process.close(self._loop)
            self._process = None


class _Process:
    """The writer process and its two pipes."""

    def __init__(self, options: Options) -> None:
        source, self.pipe = os.pipe()
        self.answers, sink = os.pipe()
        os.set_blocking(self.pipe, False)
        os.set_blocking(self.answers, False)
        with contextlib.suppress(OSError):  # beyond what the system allows to users
            fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        # A process from scratch, not a fork: it has none of the broker's sockets. A session
        # of its own: Ctrl-C in the terminal is for the broker, which ends it in order.
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "plugins.event_log.writer",
                msgspec.json.encode(options).decode(),
            ],
            stdin=source,
            stdout=sink,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        os.close(source)
        os.close(sink)
        self.ready = False
        self.waiting = False  # the loop watches for room in the pipe
        self.buffer = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def end_input(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell the writer that nothing more will come."""
        if self.waiting:
            loop.remove_writer(self.pipe)
            self.waiting = False
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1

    def kill(self) -> None:
        self._process.kill()

    def close(self, loop: asyncio.AbstractEventLoop) -> int:
        """Give the descriptors back and reap; the process has ended or is about to."""
        self.end_input(loop)
        loop.remove_reader(self.answers)
        os.close(self.answers)
        return self._process.wait()


def _events(batch: list[Accepted]) -> int:
    return sum(item.count if isinstance(item, FrameRun) else 1 for item in batch)
