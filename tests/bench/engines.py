"""The measured loop, twice: compiled from loop.c, and in numpy where there is no compiler.

Both publish within the window, check the number of every delivery, acknowledge at QoS 1, and
note the latency of each delivery in a histogram. They do not open connections and know no load.
"""

import ctypes
import hashlib
import os
import select
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tests.bench.traffic import STAMP, Traffic

SOURCE = Path(__file__).with_name("loop.c")
BUILT = Path(__file__).resolve().parents[2] / ".tools" / "bench"

SUB_BUCKETS = 32  # of each power of two: latencies are kept to 3 percent
BUCKETS = 64 * SUB_BUCKETS
READ_SIZE = 1 << 18


class Outcome(IntEnum):
    """How a run of the loop ended; the values are those of loop.c."""

    RAN = 0
    STALLED = 1
    CLOSED = 2
    MALFORMED = 3
    DRAINED = 4
    BROKEN = 5


class Engine(Protocol):
    """One load on open, non-blocking sockets; counts add up from run to run."""

    latency: NDArray[np.uint64]

    @property
    def deliveries(self) -> int: ...
    @property
    def gaps(self) -> int:
        """Deliveries that came before one that was due."""

    @property
    def stale(self) -> int:
        """Deliveries of a message already delivered or passed over."""

    @property
    def wrong_acks(self) -> int: ...

    def run(self, seconds: float, stall_s: float, *, publishing: bool) -> Outcome:
        """Run so long; without publishing, until everything under way has arrived."""


def percentile(latency: NDArray[np.uint64], share: float) -> float:
    """Return the latency, in µs, that this share of the deliveries did not exceed."""
    total = int(latency.sum())
    if not total:
        return 0.0
    bucket = int(np.searchsorted(np.cumsum(latency), share * total))
    high, low = divmod(bucket, SUB_BUCKETS)
    return float(2.0**high * (1 + (low + 0.5) / SUB_BUCKETS) / 1000)


def first_expected(traffic: Traffic) -> NDArray[np.uint64]:
    """Return the number that each subscriber awaits first from each publisher."""
    shape = (traffic.subscribers, traffic.publishers)
    if traffic.first_number is None:
        return np.zeros(shape, np.uint64)
    return np.repeat(traffic.first_number.astype(np.uint64)[:, None], shape[1], axis=1)


class NumpyEngine:
    """The loop for machines without a compiler: a read is checked as one array of frames."""

    def __init__(
        self,
        traffic: Traffic,
        publishers: Sequence[socket.socket],
        subscribers: Sequence[socket.socket],
    ) -> None:
        self.latency = np.zeros(BUCKETS, np.uint64)
        self.deliveries = self.gaps = self.stale = self.wrong_acks = 0
        self._traffic = traffic
        self._sockets = [*publishers, *subscribers]
        self._epoll = select.epoll()
        self._index = {}
        for index, sock in enumerate(self._sockets):
            self._epoll.register(sock.fileno(), select.EPOLLIN)
            self._index[sock.fileno()] = index
        self._rest = [b""] * len(self._sockets)
        self._out = [b""] * len(self._sockets)
        self._sent = [0] * len(publishers)
        self._acked = [0] * len(publishers)
        self._expected = first_expected(traffic)
        self._touched: set[int] = set()

    def run(self, seconds: float, stall_s: float, *, publishing: bool) -> Outcome:
        try:
            return self._run(seconds, stall_s, publishing)
        except (ConnectionError, EOFError):
            return Outcome.CLOSED
        except ValueError:
            return Outcome.MALFORMED

    def _run(self, seconds: float, stall_s: float, publishing: bool) -> Outcome:
        now = last_delivery = time.monotonic()
        end = now + seconds
        if publishing:
            for publisher in range(self._traffic.publishers):
                self._refill(publisher)
        while now < end:
            if not publishing and all(self._settled(p) >= n for p, n in enumerate(self._sent)):
                return Outcome.DRAINED
            events = self._epoll.poll(min(0.02, end - now))
            now = time.monotonic()
            for fd, what in events:
                if what & select.EPOLLOUT:
                    self._flush(self._index[fd])
                if what & ~select.EPOLLOUT and self._receive(self._index[fd]):
                    last_delivery = now
            if publishing:
                for publisher in self._touched:
                    self._refill(publisher)
            self._touched.clear()
            if now - last_delivery > stall_s:
                return Outcome.STALLED
        return Outcome.RAN

    def _settled(self, publisher: int) -> int:
        first = self._traffic.first_subscriber[publisher]
        last = first + self._traffic.subscriber_count[publisher]
        least = min(self._sent[publisher], int(self._expected[first:last, publisher].min()))
        return min(least, self._acked[publisher]) if self._traffic.out_id >= 0 else least

    def _refill(self, publisher: int) -> None:
        traffic, sent = self._traffic, self._sent[publisher]
        count = traffic.window - (sent - self._settled(publisher))
        if count <= 0:
            return
        numbers = np.arange(sent, sent + count, dtype=np.uint64)
        frames = traffic.frames[publisher, numbers % np.uint64(traffic.templates)]
        stamps = np.empty(count, STAMP)
        stamps["publisher"], stamps["number"] = publisher, numbers
        stamps["sent_ns"] = time.monotonic_ns()
        at = traffic.out_stamp
        frames[:, at : at + STAMP.itemsize] = stamps.view(np.uint8).reshape(count, -1)
        if traffic.out_id >= 0:
            ids = (numbers % np.uint64(65535) + np.uint64(1)).astype(">u2")
            at = traffic.out_id
            frames[:, at : at + 2] = ids.view(np.uint8).reshape(count, 2)
        self._sent[publisher] += count
        self._out[publisher] += frames.tobytes()
        self._flush(publisher)

    def _flush(self, index: int) -> None:
        try:
            sent = self._sockets[index].send(self._out[index]) if self._out[index] else 0
        except BlockingIOError:
            sent = 0
        self._out[index] = self._out[index][sent:]
        waits = select.EPOLLOUT if self._out[index] else 0
        self._epoll.modify(self._sockets[index].fileno(), select.EPOLLIN | waits)

    def _receive(self, index: int) -> bool:
        try:
            data = self._sockets[index].recv(READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            raise EOFError
        is_publisher = index < self._traffic.publishers
        size = 4 if is_publisher else self._traffic.in_frame
        data = self._rest[index] + data
        whole = len(data) // size * size
        self._rest[index] = data[whole:]
        if whole:
            frames = np.frombuffer(data, np.uint8, whole).reshape(-1, size)
            if is_publisher:
                self._receive_acks(index, frames)
            else:
                self._receive_deliveries(index - self._traffic.publishers, frames)
        return True

    def _receive_acks(self, publisher: int, frames: NDArray[np.uint8]) -> None:
        if (frames[:, :2] != (0x40, 2)).any():
            raise ValueError("not a PUBACK")
        ids = np.ascontiguousarray(frames[:, 2:]).view(">u2").ravel()
        due = np.arange(self._acked[publisher], self._acked[publisher] + len(ids)) % 65535 + 1
        self.wrong_acks += int((ids != due).sum())
        self._acked[publisher] += len(ids)
        self._touched.add(publisher)

    def _receive_deliveries(self, subscriber: int, frames: NDArray[np.uint8]) -> None:
        traffic = self._traffic
        prefix = np.frombuffer(traffic.in_prefix, np.uint8)
        if (frames[:, : len(prefix)] != prefix).any():
            raise ValueError("not the delivery that was due")
        at = traffic.in_stamp
        stamps = np.ascontiguousarray(frames[:, at : at + STAMP.itemsize]).view(STAMP).ravel()
        self.deliveries += len(stamps)
        self._note_latency(stamps["sent_ns"])
        for publisher in np.unique(stamps["publisher"]):
            if publisher >= traffic.publishers:
                raise ValueError("no such publisher")
            numbers = stamps["number"][stamps["publisher"] == publisher].astype(np.int64)
            self._check(subscriber, int(publisher), numbers)
            self._touched.add(int(publisher))
        if traffic.in_id >= 0:
            acks = np.empty((len(frames), 4), np.uint8)
            acks[:, :2] = (0x40, 2)
            acks[:, 2:] = frames[:, traffic.in_id : traffic.in_id + 2]
            index = traffic.publishers + subscriber
            self._out[index] += acks.tobytes()
            self._flush(index)

    def _check(self, subscriber: int, publisher: int, numbers: NDArray[np.int64]) -> None:
        """Compare the numbers that came with those that were due; the common case at once."""
        steps, expected = self._traffic.steps, int(self._expected[subscriber, publisher])
        if steps is None:
            after = numbers + 1
        else:
            after = numbers + steps[numbers % self._traffic.templates, subscriber]
        if numbers[0] == expected and (numbers[1:] == after[:-1]).all():
            expected = int(after[-1])
        else:
            for number, next_number in zip(numbers.tolist(), after.tolist(), strict=True):
                if number < expected:
                    self.stale += 1
                    continue
                self.gaps += number > expected
                expected = next_number
        self._expected[subscriber, publisher] = expected

    def _note_latency(self, sent_ns: NDArray[np.uint64]) -> None:
        taken = np.maximum(time.monotonic_ns() - sent_ns.astype(np.int64), SUB_BUCKETS)
        mantissa, exponent = np.frexp(taken.astype(np.float64))
        low = ((mantissa * 2 - 1) * SUB_BUCKETS).astype(np.int64)
        buckets = (exponent - 1) * SUB_BUCKETS + low
        self.latency += np.bincount(buckets, minlength=BUCKETS).astype(np.uint64)


def pointer(array: NDArray[np.generic] | None) -> int | None:
    return None if array is None else array.ctypes.data


# The fields of `struct load` by type, in its order.
NUMBERS = """publishers subscribers templates window out_frame out_stamp out_id
in_frame in_stamp in_id in_prefix_size acknowledged"""
ARRAYS = """fds frames in_prefix first_subscriber subscriber_count steps
sent acked expected latency"""
COUNTS = "deliveries gaps stale wrong_acks"


class LoadStruct(ctypes.Structure):
    """`struct load` of loop.c, field for field."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in NUMBERS.split()),
        *((name, ctypes.c_void_p) for name in ARRAYS.split()),
        *((name, ctypes.c_uint64) for name in COUNTS.split()),
        ("private", ctypes.c_uint64 * 8),
    )


class NativeEngine:
    """The loop of loop.c; every array it touches is held here."""

    def __init__(
        self,
        traffic: Traffic,
        publishers: Sequence[socket.socket],
        subscribers: Sequence[socket.socket],
    ) -> None:
        self.latency = np.zeros(BUCKETS, np.uint64)
        self._library = ctypes.CDLL(str(build()))
        frames = np.ascontiguousarray(traffic.frames)
        prefix = np.frombuffer(traffic.in_prefix, np.uint8)
        fds = np.array([s.fileno() for s in (*publishers, *subscribers)], np.int32)
        steps = None if traffic.steps is None else np.ascontiguousarray(traffic.steps, np.uint32)
        first = np.ascontiguousarray(traffic.first_subscriber, np.int32)
        count = np.ascontiguousarray(traffic.subscriber_count, np.int32)
        sent = np.zeros(len(publishers), np.uint64)
        acked = np.zeros(len(publishers), np.uint64)
        expected = first_expected(traffic)
        self._held = (frames, prefix, fds, steps, first, count, sent, acked, expected)
        self._load = LoadStruct(
            publishers=len(publishers),
            subscribers=len(subscribers),
            templates=traffic.templates,
            window=traffic.window,
            out_frame=frames.shape[2],
            out_stamp=traffic.out_stamp,
            out_id=traffic.out_id,
            in_frame=traffic.in_frame,
            in_stamp=traffic.in_stamp,
            in_id=traffic.in_id,
            in_prefix_size=len(prefix),
            acknowledged=int(traffic.out_id >= 0),
            fds=pointer(fds),
            frames=pointer(frames),
            in_prefix=pointer(prefix),
            first_subscriber=pointer(first),
            subscriber_count=pointer(count),
            steps=pointer(steps),
            sent=pointer(sent),
            acked=pointer(acked),
            expected=pointer(expected),
            latency=pointer(self.latency),
        )
        if self._library.load_open(ctypes.byref(self._load)):
            raise OSError("the native loop could not be set up")

    @property
    def deliveries(self) -> int:
        return int(self._load.deliveries)

    @property
    def gaps(self) -> int:
        return int(self._load.gaps)

    @property
    def stale(self) -> int:
        return int(self._load.stale)

    @property
    def wrong_acks(self) -> int:
        return int(self._load.wrong_acks)

    def run(self, seconds: float, stall_s: float, *, publishing: bool) -> Outcome:
        return Outcome(
            self._library.load_run(
                ctypes.byref(self._load),
                ctypes.c_uint64(int(seconds * 1e9)),
                ctypes.c_uint64(int(stall_s * 1e9)),
                ctypes.c_int(publishing),
            )
        )


def build() -> Path:
    """Compile loop.c once for this source, and return the library."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    library = BUILT / f"loop-{digest}.so"
    if not library.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT) as folder:
            made = Path(folder) / library.name
            compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
            subprocess.run(
                [compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE)],
                check=True,
                capture_output=True,
            )
            os.replace(made, library)
    return library


def available() -> dict[str, type[NativeEngine] | type[NumpyEngine]]:
    """Return the engines that run here, the fastest first."""
    if shutil.which("cc") or shutil.which("gcc"):
        return {"native": NativeEngine, "numpy": NumpyEngine}
    return {"numpy": NumpyEngine}


def engine_named(name: str | None) -> type[NativeEngine] | type[NumpyEngine]:
    """Return an engine by name, or the fastest one."""
    engines = available()
    return engines[name] if name else next(iter(engines.values()))
