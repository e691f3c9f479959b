"""Make an event log straight from the schema, quickly: for the tests here and for the benchmark.

The traffic is a small world that a person can check: vehicles that drive round a town and
report JSON, sensors at fixed places that report bare numbers, and some talk without place.
"""

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from plugins.event_log.schema import (
    APPLICATION_ID,
    FOLDER,
    GEO_FLAG,
    INDEXES,
    RETAIN_FLAG,
    SCHEMA,
    SCHEMA_VERSION,
)

DAY_MS = 86_400_000
_INSERT = (
    "INSERT INTO packed (received_ms, start_ms, end_ms, topic, client, flags, epsg, sent, wkb,"
    " min_x, min_y, max_x, max_y, cell, payload) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)


def day_ms(day: str) -> int:
    """Give the Unix milliseconds at which a UTC day begins."""
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)


def cell_of(x: float, y: float) -> int:
    """Number a place along a Morton curve, 16 bits an axis."""
    column = min(65535, int((x + 180) / 360 * 65536))
    row = min(65535, int((y + 90) / 180 * 65536))
    return sum(((column >> n & 1) << 2 * n) | ((row >> n & 1) << 2 * n + 1) for n in range(16))


class LogMaker:
    """Writes segments below one data folder, as the broker's writer would."""

    def __init__(self, data: Path) -> None:
        self.data = data
        (data / FOLDER).mkdir(parents=True, exist_ok=True)

    def path(self, day: str) -> Path:
        return self.data / FOLDER / f"{day}.sqlite"

    def open(self, day: str) -> sqlite3.Connection:
        """Open a segment for writing, and make it first if it is not there."""
        fresh = not self.path(day).exists()
        connection = sqlite3.connect(self.path(day))
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        if fresh:
            connection.executescript(SCHEMA + INDEXES)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return connection

    def add(self, day: str, events: Iterable[dict[str, Any]]) -> None:
        """Append events given as dictionaries; only `topic` is needed.

        `at` is (x, y), or `wkb` with `box`; times are seconds after the day's midnight, or
        milliseconds in `time_ms` and `end_ms`.
        """
        midnight = day_ms(day)
        with closing(self.open(day)) as connection, connection:
            for event in events:
                x, y, far_x, far_y = (
                    (*event["at"], None, None)
                    if "at" in event
                    else event.get("box", (None, None, None, None))
                )
                start = event.get("time_ms")
                if "time" in event:
                    start = midnight + round(event["time"] * 1000)
                end = event.get("end_ms")
                if "end" in event:
                    end = midnight + round(event["end"] * 1000)
                connection.execute(
                    _INSERT,
                    (
                        midnight + round(event.get("received", event.get("time", 0)) * 1000),
                        start,
                        end,
                        self._intern(connection, "topic", event["topic"]),
                        self._intern(connection, "client", event.get("client", "c")),
                        event.get("qos", 0)
                        | (RETAIN_FLAG if event.get("retain") else 0)
                        | (GEO_FLAG if x is not None else 0),
                        event.get("epsg"),
                        event.get("sent"),
                        event.get("wkb"),
                        x,
                        y,
                        far_x,
                        far_y,
                        None if x is None else cell_of(x, y),
                        event.get("payload", b""),
                    ),
                )

    @staticmethod
    def _intern(connection: sqlite3.Connection, table: str, name: str) -> int:
        connection.execute(f"INSERT OR IGNORE INTO {table} (name) VALUES (?)", (name,))
        found = connection.execute(f"SELECT id FROM {table} WHERE name = ?", (name,)).fetchone()
        return int(found[0])


def make_traffic(
    data: Path, rows: int, *, first_day: str = "2026-03-28", days: int = 1, seed: int = 1
) -> LogMaker:
    """Fill `days` segments with about `rows` events of vehicles, sensors and talk."""
    maker = LogMaker(data)
    for n in range(days):
        day = (date.fromisoformat(first_day) + timedelta(days=n)).isoformat()
        count = rows * (n + 1) // days - rows * n // days
        with closing(maker.open(day)) as connection:
            for chunk in _traffic(connection, day, count, np.random.default_rng(seed + n)):
                with connection:
                    connection.executemany(_INSERT, chunk)
    return maker


def _traffic(
    connection: sqlite3.Connection, day: str, rows: int, random: np.random.Generator
) -> Iterator[list[tuple[Any, ...]]]:
    vehicles, sensors = 200, 300
    topics = [f"fleet/{n}/position" for n in range(vehicles)]
    topics += [f"dike/{n // 10}/{n}/level" for n in range(sensors)] + ["talk/all"]
    clients = [f"vehicle-{n}" for n in range(vehicles)]
    clients += [f"sensor-{n}" for n in range(sensors)] + ["dispatcher"]
    with connection:
        connection.executemany("INSERT INTO topic VALUES (?, ?)", enumerate(topics, 1))
        connection.executemany("INSERT INTO client VALUES (?, ?)", enumerate(clients, 1))
    speed = random.uniform(0.00002, 0.0002, vehicles)
    centre_x, centre_y = random.normal(8.6, 0.1, vehicles), random.normal(54.5, 0.05, vehicles)
    radius = random.uniform(0.01, 0.08, vehicles)
    sensor_x = np.round(random.normal(8.6, 0.15, sensors), 6)
    sensor_y = np.round(random.normal(54.5, 0.08, sensors), 6)
    midnight, done = day_ms(day), 0
    while done < rows:
        count = min(50_000, rows - done)
        # Times of the day run on evenly, so that ids and receipt grow together.
        received = midnight + (np.arange(done, done + count) * DAY_MS // max(1, rows))
        own = received - random.integers(5, 900, count)
        kind = random.random(count)
        who = random.integers(0, vehicles, count)
        sensor = random.integers(0, sensors, count)
        seconds = (received - midnight) / 1000
        # The hours when people work are the busy ones: parked at night.
        angle = speed[who] * np.clip(seconds - 21_600, 0, 50_400) + who
        x = np.round(centre_x[who] + radius[who] * np.cos(angle), 6)
        y = np.round(centre_y[who] + radius[who] * np.sin(angle) * 0.6, 6)
        level = np.round(
            2 + 0.8 * np.sin(seconds / 7_120 + sensor / 50) + random.normal(0, 0.02, count), 3
        )
        kmh = np.round(np.abs(random.normal(45, 15, count)), 1)
        yield [
            _vehicle(r, o, w, px, py, v)
            if k < 0.7
            else _sensor(r, o, s, sensor_x, sensor_y, lv, vehicles)
            if k < 0.97
            else (r, None, None, len(topics), len(clients), 1, *[None] * 8, b"on my way")
            for r, o, k, w, s, px, py, v, lv in zip(
                received.tolist(),
                own.tolist(),
                kind.tolist(),
                who.tolist(),
                sensor.tolist(),
                x.tolist(),
                y.tolist(),
                kmh.tolist(),
                level.tolist(),
                strict=True,
            )
        ]
        done += count


def _vehicle(received: int, own: int, who: int, x: float, y: float, kmh: float) -> tuple[Any, ...]:
    payload = json.dumps({"speed": kmh, "vehicle": who, "status": "driving"}).encode()
    return (
        received, own, None, who + 1, who + 1, GEO_FLAG, None, None, None,
        x, y, None, None, cell_fast(x, y), payload,
    )  # fmt: skip


def _sensor(
    received: int, own: int, sensor: int, xs: Any, ys: Any, level: float, offset: int
) -> tuple[Any, ...]:
    x, y = float(xs[sensor]), float(ys[sensor])
    return (
        received, own, None, offset + sensor + 1, offset + sensor + 1, GEO_FLAG | 1, None, None,
        None, x, y, None, None, cell_fast(x, y), str(level).encode(),
    )  # fmt: skip


_SPREAD = [sum((n >> b & 1) << 2 * b for b in range(8)) for n in range(256)]


def cell_fast(x: float, y: float) -> int:
    """Give the same number as `cell_of`, by table."""
    column = min(65535, math.floor((x + 180) / 360 * 65536))
    row = min(65535, math.floor((y + 90) / 180 * 65536))
    return (
        _SPREAD[column & 255]
        | _SPREAD[column >> 8] << 16
        | (_SPREAD[row & 255] | _SPREAD[row >> 8] << 16) << 1
    )
