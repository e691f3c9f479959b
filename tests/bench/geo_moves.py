"""Near-me subscribers on the move: what it costs the broker to follow them.

Every subscriber asks for what happens within 150 m of it and tells its location once a second
with a flagged PINGREQ; the moves are spread evenly over the second. At the end somebody
publishes where some of the subscribers are, and exactly those must hear of it.
"""

import math
import select
import socket
import struct
import time
from typing import Any

import numpy as np

from tests.bench.generator import Broker, Connections, Job, MeasureError, busy_s
from tests.bench.geo_plan import EAST, NORTH, SOUTH, TOPIC, WEST, city_points
from tests.bench.rows import Row
from tests.bench.traffic import Exchange, packet, string

RADIUS_M = 150.0
STEP = 0.0001  # degrees a move: about ten metres
TICK_S = 0.01
CHECKED = 50
PINGRESP = b"\xd0\x00"


def near_me() -> Exchange:
    """GEOSUBSCRIBE to what happens near the subscriber, delivered as PUBLISH."""
    entry = string(TOPIC) + b"\0\0\0\0\1\7\0\0\0\0\x08" + struct.pack(">d", RADIUS_M) + b"\1"
    return packet(0xF6, b"\x82\0\1" + entry), packet(0xF6, b"\x90\0\1\0")


def ping(x: float, y: float) -> bytes:
    """PINGREQ with a location."""
    return b"\xc4\x15" + struct.pack(">Bddf", 1, y, x, math.nan)


class Walkers:
    """All subscribers, where they are, and the answers they have had."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self.sockets = sockets
        self.places = city_points(len(sockets), seed=5)
        self._steps = np.random.default_rng(6).uniform(-STEP, STEP, (64, len(sockets), 2))
        self._epoll = select.epoll()
        self._by_fd = {sock.fileno(): sock for sock in sockets}
        for sock in sockets:
            sock.setblocking(False)
            self._epoll.register(sock.fileno(), select.EPOLLIN)
        self._next = 0
        self.moved = 0
        self.answers = 0

    def walk(self, seconds: float) -> None:
        """Move everybody once a second."""
        started, done = time.monotonic(), 0
        while (now := time.monotonic()) < started + seconds:
            due = int((now - started) * len(self.sockets))
            self._move(due - done)
            done = due
            self._read()
            time.sleep(max(0.0, TICK_S - (time.monotonic() - now)))

    def _move(self, count: int) -> None:
        for _ in range(count):
            number = self._next % len(self.sockets)
            step = self._steps[self._next // len(self.sockets) % 64, number]
            self.places[number] = np.clip(self.places[number] + step, (WEST, SOUTH), (EAST, NORTH))
            self.sockets[number].send(ping(*self.places[number].tolist()))
            self._next += 1
        self.moved += count

    def _read(self) -> None:
        for fd, _ in self._epoll.poll(0):
            data = self._by_fd[fd].recv(4096)
            if not data:
                raise MeasureError("broker closed the connection")
            if data.replace(PINGRESP, b""):
                raise MeasureError(f"unexpected {data[:8].hex(' ')}")
            self.answers += len(data) // 2

    def settle(self, limit_s: float) -> None:
        """Wait for the last answers."""
        deadline = time.monotonic() + limit_s
        while self.answers < self.moved:
            if time.monotonic() > deadline:
                raise MeasureError(f"{self.moved - self.answers} moves never answered")
            self._read()


def check_deliveries(walkers: Walkers, publisher: socket.socket, limit_s: float) -> None:
    """Publish where some of them are: those within the radius must hear of it, and no others."""
    places = walkers.places
    metres = np.array((111_320 * math.cos(math.radians((SOUTH + NORTH) / 2)), 111_250))
    expected = 0
    for number in range(CHECKED):
        # Towards the middle of the city, so that no rounding of metres decides.
        away = np.linalg.norm((places - places[number]) * metres, axis=1)
        if ((away > RADIUS_M * 0.97) & (away < RADIUS_M * 1.03)).any():
            continue
        expected += int((away <= RADIUS_M).sum())
        place = places[number].astype(">f8").tobytes()
        publisher.sendall(packet(0xF6, b"\x30" + string(TOPIC) + b"\x08" + place + b"x"))
    publisher.sendall(b"\xc0\x00")
    publisher.settimeout(limit_s)
    if publisher.recv(2) != PINGRESP:
        raise MeasureError("the publisher was not answered")
    one = packet(0x30, string(TOPIC) + b"x")
    got = 0
    for sock in walkers.sockets:
        try:
            got += sock.recv(65_536).count(one)
        except BlockingIOError:
            continue
    if got != expected:
        raise MeasureError(f"{got} deliveries instead of {expected}")


def measure(row: Row, job: Job, connections: Connections) -> dict[str, Any]:
    """Measure the broker's share of a core while everybody walks."""
    walkers = Walkers(connections.open([[near_me()] for _ in range(row.subscribers)]))
    (publisher,) = connections.open([[]])
    broker = Broker(job.pid)
    seconds = max(2.0, job.seconds)
    walkers.walk(1.2)
    before = walkers.moved, time.monotonic(), broker.cpu_s(), time.process_time(), busy_s()
    walkers.walk(seconds)
    after = walkers.moved, time.monotonic(), broker.cpu_s(), time.process_time(), busy_s()
    moves, took_s, cpu_s, own_s, all_s = (b - a for a, b in zip(before, after, strict=True))
    walkers.settle(job.stall_s)
    check_deliveries(walkers, publisher, job.stall_s)
    return {
        "rate": moves / took_s,
        "cpu_us": cpu_s / moves * 1e6,
        "broker_cores": cpu_s / took_s,
        "generator_cores": own_s / took_s,
        "other_cores": max(0.0, all_s - cpu_s - own_s) / took_s,
    }
