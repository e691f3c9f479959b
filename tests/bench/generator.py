"""The load generator, a process of its own: connect, subscribe, warm up, measure, drain.

    python -m tests.bench.generator < job.json > result.json

The job names the row, the port, the seconds and the broker's process, whose CPU time and
memory are read at both ends of the measured stretch. It never waits without a limit.
"""

import importlib
import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from tests.bench.engines import Outcome, engine_named, percentile
from tests.bench.rows import Row
from tests.bench.traffic import Exchange, Plan, connect_packet, subscribe

# Connections opened before the first answer is read: below every broker's listen backlog.
AT_ONCE = 50

CONNACK = b"\x20\x02\x00\x00"
DISCONNECT = b"\xe0\x00"


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
    engine: str | None = None  # None: the fastest that runs here


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


def busy_s() -> float:
    """Return the time that all cores together have been at work since the machine started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


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
        self.ready = 0  # connected, and everything granted

    def open(
        self, exchanges: Sequence[Sequence[Exchange]], *, clean: bool = True
    ) -> list[socket.socket]:
        """Open one connection for each list of exchanges, and go through them."""
        opened: list[socket.socket] = []
        for start in range(0, len(exchanges), AT_ONCE):
            group = exchanges[start : start + AT_ONCE]
            sockets = [self._connect(clean=clean) for _ in group]
            for sock in sockets:
                self.read(sock, CONNACK)
            for sock, wanted in zip(sockets, group, strict=True):
                sock.sendall(b"".join(request for request, _ in wanted))
            for sock, wanted in zip(sockets, group, strict=True):
                for _, answer in wanted:
                    self.read(sock, answer)
            opened += sockets
            self.ready += len(sockets)
        return opened

    def close(self) -> None:
        self._stack.close()

    def _connect(self, *, clean: bool) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=self._left())
        self._stack.enter_context(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(connect_packet(f"bench-{self._count}", clean=clean))
        self._count += 1
        return sock

    def read(self, sock: socket.socket, answer: bytes) -> None:
        sock.settimeout(self._left())
        data = read_exactly(sock, len(answer))
        if data != answer:
            raise MeasureError(f"answered {data[:8].hex(' ')}, not {answer[:8].hex(' ')}")

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def plan_of(row: Row) -> Plan:
    """Call the function that the row names, `module:function`."""
    plan: Plan = named(row.plan)(row)
    return plan


def named(text: str) -> Callable[..., Any]:
    """Find a function by `module:function`."""
    module, _, function = text.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def add_late(plan: Plan, job: Job, connections: Connections) -> dict[str, float]:
    """Add subscriptions on a connection of their own, and take them back by closing it."""
    if not plan.late:
        return {}
    broker = Broker(job.pid)
    (sock,) = connections.open([[]])
    before = broker.cpu_s()
    for request, answer in plan.late:
        sock.sendall(request)
        connections.read(sock, answer)
    taken_s = broker.cpu_s() - before
    sock.sendall(DISCONNECT)
    while sock.recv(4096):
        pass
    return {"add_us": taken_s / plan.late_count * 1e6}


def measure_load(row: Row, job: Job, connections: Connections) -> dict[str, Any]:
    plan = plan_of(row)
    connections.open(plan.others)
    subscribers = connections.open(plan.subscribers, clean=plan.clean)
    added = add_late(plan, job, connections)
    publishers = connections.open([[]] * plan.traffic.publishers)
    for sock in (*publishers, *subscribers):
        sock.setblocking(False)
    engine = engine_named(job.engine)(plan.traffic, publishers, subscribers)
    broker = Broker(job.pid)

    outcome = engine.run(job.warm_up_s, job.stall_s, publishing=True)
    if outcome is not Outcome.RAN:
        raise MeasureError(f"{outcome.name.lower()} while warming up")
    engine.latency[:] = 0
    before = engine.deliveries, time.monotonic(), broker.cpu_s(), time.process_time(), busy_s()
    outcome = engine.run(job.seconds, job.stall_s, publishing=True)
    after = engine.deliveries, time.monotonic(), broker.cpu_s(), time.process_time(), busy_s()
    deliveries, seconds, cpu_s, own_s, all_s = (b - a for a, b in zip(before, after, strict=True))
    if outcome is not Outcome.RAN:
        raise MeasureError(outcome.name.lower())
    result = {
        "rate": deliveries / seconds,
        "cpu_us": cpu_s / deliveries * 1e6 if deliveries else None,
        "p50_us": percentile(engine.latency, 0.5),
        "p99_us": percentile(engine.latency, 0.99),
        "broker_cores": cpu_s / seconds,
        "generator_cores": own_s / seconds,
        "other_cores": max(0.0, all_s - cpu_s - own_s) / seconds,
        **added,
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
        raise MeasureError("deliveries still outstanding at the end")
    return result


def measure_idle(row: Row, job: Job, connections: Connections) -> dict[str, Any]:
    """Take the broker's memory before and after so many subscribers have come."""
    connections.open([[subscribe([f"idle/first/{n}"], 0)] for n in range(AT_ONCE)])
    broker = Broker(job.pid)
    before, started = broker.resident_kib(), time.monotonic()
    connections.open([[subscribe([f"idle/{n:06}/state"], 0)] for n in range(row.idle)])
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
        if row.measure:
            return dict(named(row.measure)(row, job, connections))
        return measure_load(row, job, connections)
    except TimeoutError:
        return {"failed": f"{connections.ready} connections ready after {job.set_up_s:g} s"}
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
