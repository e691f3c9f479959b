"""The load generator, a process of its own: connect, subscribe, warm up, measure, drain.

    python -m tests.bench.generator < job.json > result.json

The job names the row, the port, the seconds and the broker's process, whose CPU time and
memory are read at both ends of the measured stretch. It never waits without a limit.
"""

import json
import random
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from tests.bench.engines import Outcome, available, percentile
from tests.bench.rows import Row
from tests.bench.traffic import Traffic, connect_packet, plain_traffic, subscribe_packet

# Connections opened before the first answer is read: below every broker's listen backlog.
AT_ONCE = 50


class MeasureError(Exception):
    """The row could not be measured; the message is what the table shows."""


@dataclass(frozen=True)
class Job:
    """What one generator process is asked to do."""

    row: dict[str, Any]
    port: int
    pid: int
    warm_up_s: float
    seconds: float
    stall_s: float
    set_up_s: float


class Broker:
    """The processes of the broker under load, as the kernel accounts for them."""

    def __init__(self, pid: int) -> None:
        root = psutil.Process(pid)
        self._processes = [root, *root.children(recursive=True)]

    def cpu_s(self) -> float:
        times = [process.cpu_times() for process in self._processes]
        return sum(t.user + t.system for t in times)

    def resident_kib(self) -> float:
        return sum(float(process.memory_info().rss) for process in self._processes) / 1024


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise MeasureError("broker closed the connection")
        data += piece
    return data


class Connections:
    """Opens connections in step, so that thousands are up in the time of a few."""

    def __init__(self, port: int, limit_s: float) -> None:
        self._port = port
        self._deadline = time.monotonic() + limit_s
        self._stack = ExitStack()
        self._count = 0

    def open(self, filters: Sequence[Sequence[str]], qos: int) -> list[socket.socket]:
        """Open one connection for each list of filters; an empty list subscribes to nothing."""
        opened: list[socket.socket] = []
        for start in range(0, len(filters), AT_ONCE):
            group = filters[start : start + AT_ONCE]
            sockets = [self._connect() for _ in group]
            for sock in sockets:
                answer = self._read(sock, 4)
                if answer[:2] != b"\x20\x02" or answer[3]:
                    raise MeasureError(f"CONNECT answered with {answer.hex(' ')}")
            for sock, wanted in zip(sockets, group, strict=True):
                if wanted:
                    sock.sendall(subscribe_packet(wanted, qos))
            for sock, wanted in zip(sockets, group, strict=True):
                if wanted:
                    self._read_suback(sock, len(wanted), qos)
            opened += sockets
        return opened

    def close(self) -> None:
        self._stack.close()

    def _connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=self._left())
        self._stack.enter_context(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(connect_packet(f"bench-{self._count}"))
        self._count += 1
        return sock

    def _read_suback(self, sock: socket.socket, count: int, qos: int) -> None:
        answer = self._read(sock, 4 + count)
        if answer[0] != 0x90 or answer[4:] != bytes([qos]) * count:
            raise MeasureError(f"SUBSCRIBE answered with {answer.hex(' ')}")

    def _read(self, sock: socket.socket, size: int) -> bytes:
        sock.settimeout(self._left())
        return read_exactly(sock, size)

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def topics_of(row: Row) -> list[list[str]]:
    """Return the topics that each publisher walks through, in its own order."""
    if row.paired:
        return [[f"bench/pair/{p:05}"] for p in range(row.publishers)]
    names = [f"bench/{number:06}" for number in range(row.topics)]
    shuffled = []
    for publisher in range(row.publishers):
        random.Random(publisher).shuffle(names)
        shuffled.append(list(names))
    return shuffled


def filters_of(row: Row) -> list[list[str]]:
    if row.paired:
        return [[f"bench/pair/{s:05}"] for s in range(row.subscribers)]
    return [["bench/+" if row.topics > 1 else "bench/000000"]] * row.subscribers


def traffic_of(row: Row) -> Traffic:
    return plain_traffic(
        topics_of(row),
        qos=row.qos,
        window=max(1, row.window // row.publishers),
        subscribers=row.subscribers,
        paired=row.paired,
    )


def measure_load(row: Row, job: Job, connections: Connections) -> dict[str, Any]:
    traffic = traffic_of(row)
    subscribers = connections.open(filters_of(row), row.qos)
    publishers = connections.open([[]] * row.publishers, row.qos)
    for sock in (*publishers, *subscribers):
        sock.setblocking(False)
    engine = available()[0](traffic, publishers, subscribers)
    broker = Broker(job.pid)

    outcome = engine.run(job.warm_up_s, job.stall_s, publishing=True)
    if outcome is not Outcome.RAN:
        raise MeasureError(f"{outcome.name.lower()} while warming up")
    engine.latency[:] = 0
    own = psutil.Process()
    before = engine.deliveries, broker.cpu_s(), time.monotonic(), sum(own.cpu_times()[:2])
    outcome = engine.run(job.seconds, job.stall_s, publishing=True)
    after = engine.deliveries, broker.cpu_s(), time.monotonic(), sum(own.cpu_times()[:2])
    deliveries, cpu_s, seconds, own_s = (b - a for a, b in zip(before, after, strict=True))
    if outcome is not Outcome.RAN:
        raise MeasureError(outcome.name.lower())
    result = {
        "rate": deliveries / seconds,
        "cpu_us": cpu_s / deliveries * 1e6 if deliveries else None,
        "p50_us": percentile(engine.latency, 0.5),
        "p99_us": percentile(engine.latency, 0.99),
        "broker_cores": cpu_s / seconds,
        "generator_cores": own_s / seconds,
    }
    drained = engine.run(job.stall_s, job.stall_s, publishing=False)
    faults = {
        "out of order": engine.gaps,
        "repeated or late": engine.stale,
        "wrong acknowledgements": engine.wrong_acks,
    }
    if found := [f"{count} {what}" for what, count in faults.items() if count]:
        raise MeasureError(", ".join(found))
    if drained is not Outcome.DRAINED:
        raise MeasureError("lost deliveries")
    return result


def measure_idle(row: Row, job: Job, connections: Connections) -> dict[str, Any]:
    """Take the broker's memory before and after so many subscribers have come."""
    connections.open([[f"idle/first/{n}"] for n in range(AT_ONCE)], row.qos)
    broker = Broker(job.pid)
    before, started = broker.resident_kib(), time.monotonic()
    connections.open([[f"idle/{n:06}/state"] for n in range(row.idle)], row.qos)
    return {
        "kib": (broker.resident_kib() - before) / row.idle,
        "connects": row.idle / (time.monotonic() - started),
    }


def measure(job: Job) -> dict[str, Any]:
    row = Row(**job.row)
    connections = Connections(job.port, job.set_up_s)
    try:
        if row.idle:
            return measure_idle(row, job, connections)
        return measure_load(row, job, connections)
    except TimeoutError:
        return {"failed": f"not connected within {job.set_up_s:g} s"}
    except MeasureError as error:
        return {"failed": str(error)}
    except OSError as error:
        return {"failed": f"connection failed: {error.strerror or error}"}
    finally:
        connections.close()


def job_text(job: Job) -> str:
    return json.dumps(asdict(job))


if __name__ == "__main__":
    json.dump(measure(Job(**json.load(sys.stdin))), sys.stdout)
