"""Make an event log straight from the schema, quickly: for the tests here and for the benchmark.

The traffic is a small world that a person can check: vehicles that drive round a town and
report JSON, sensors at fixed places that report bare numbers, and some talk without place.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from plugins.event_log.cells import cell_of, cells_of
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
        # Some days are busier than others, so that there is something to compare.
        weights = [20 + 3 * (m % 2) for m in range(days)]
        start, end = sum(weights[:n]), sum(weights[: n + 1])
        count = rows * end // sum(weights) - rows * start // sum(weights)
        with closing(maker.open(day)) as connection:
            for chunk in _traffic(connection, day, count, np.random.default_rng(seed + n)):
                with connection:
                    connection.executemany(_INSERT, chunk)
    return maker


VEHICLES, SENSORS = 200, 300


def _traffic(
    connection: sqlite3.Connection, day: str, rows: int, random: np.random.Generator
) -> Iterator[list[tuple[Any, ...]]]:
    topics = [f"fleet/{n}/position" for n in range(VEHICLES)]
    topics += [f"dike/{n // 10}/{n}/level" for n in range(SENSORS)] + ["talk/all"]
    clients = [f"vehicle-{n}" for n in range(VEHICLES)]
    clients += [f"sensor-{n}" for n in range(SENSORS)] + ["dispatcher"]
    with connection:
        connection.executemany("INSERT INTO topic VALUES (?, ?)", enumerate(topics, 1))
        connection.executemany("INSERT INTO client VALUES (?, ?)", enumerate(clients, 1))
    town = np.random.default_rng(7)  # the same on every day
    speed, radius = town.uniform(0.0005, 0.004, VEHICLES), town.uniform(0.01, 0.08, VEHICLES)
    home_x, home_y = town.normal(8.6, 0.1, VEHICLES), town.normal(54.5, 0.05, VEHICLES)
    sensor_x, sensor_y = town.normal(8.6, 0.15, SENSORS), town.normal(54.5, 0.08, SENSORS)
    midnight = day_ms(day)
    for done in range(0, rows, 50_000):
        count = min(50_000, rows - done)
        # Ids and receipt grow together; noon is busier than the night.
        share = np.arange(done, done + count) / rows
        share += 0.6 * np.sin(2 * np.pi * share) / (2 * np.pi)
        received = midnight + (share * DAY_MS).astype(np.int64)
        own = received - random.integers(5, 900, count)
        seconds = (own - midnight) / 1000
        kind = random.random(count)
        drives = kind < 0.7
        vehicle, sensor = random.integers(0, VEHICLES, count), random.integers(0, SENSORS, count)
        # Every eighth sensor falls silent in the afternoon; another one speaks in its turn.
        sensor -= (sensor % 8 == 3) & (seconds > 52_000)
        # Parked at night, and for half an hour at noon.
        driven = np.clip(seconds, 21_600, 43_200) + np.clip(seconds, 45_000, 72_000)
        angle = speed[vehicle] * driven + vehicle
        x = np.where(drives, home_x[vehicle] + radius[vehicle] * np.cos(angle), sensor_x[sensor])
        y = np.where(
            drives, home_y[vehicle] + radius[vehicle] * np.sin(angle) / 2, sensor_y[sensor]
        )
        x, y = np.round(x, 6), np.round(y, 6)
        level = 2 + 0.8 * np.sin(seconds / 7_120 + sensor / 50) + random.normal(0, 0.02, count)
        level[random.random(count) < 0.00005] = 99.9  # a sensor that stammers
        columns = (
            received,
            own,
            drives,
            kind < 0.97,
            np.where(drives, vehicle, sensor + VEHICLES) + 1,
            x,
            y,
            cells_of(x, y),
            np.round(np.abs(random.normal(45, 15, count)), 1),
            np.round(level, 3),
        )
        yield [
            _row(*fields, len(topics))
            for fields in zip(*(column.tolist() for column in columns), strict=True)
        ]


def _row(
    received: int,
    own: int,
    drives: bool,
    placed: bool,
    who: int,
    x: float,
    y: float,
    cell: int,
    kmh: float,
    level: float,
    talk: int,
) -> tuple[Any, ...]:
    if not placed:
        return (received, None, None, talk, talk, 1, *[None] * 8, b"on my way")
    if drives:
        payload = json.dumps({"speed": kmh, "vehicle": who, "status": "driving"}).encode()
    else:
        payload = str(level).encode()
    place = (None, None, None, x, y, None, None, cell)
    return (received, own, None, who, who, GEO_FLAG | (not drives), *place, payload)
