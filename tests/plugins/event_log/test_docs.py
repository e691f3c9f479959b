"""docs/event-log.md is true: its settings, columns and examples are run as they are printed."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from plugins.event_log.plugin import EventLogSettings
from plugins.event_log.segments import list_segments
from tests.conformance.raw import clients_of, publish_with
from tests.conftest import StartBroker

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "event-log.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@pytest.fixture
def folder(start_broker: StartBroker, tmp_path: Path) -> Path:
    """Log a few events with the settings of the page; give the folder above the data."""
    broker = start_broker("--log", config=block("toml"), data=tmp_path / "geomqtt-data")
    with clients_of(broker.host, broker.port) as clients:
        sensor = clients.connect("sensor")
        publish_with(sensor, "$geo/at=POINT(8.58 54.51);time=2026-03-28T11:15:00Z/dike/7", "21")
        publish_with(sensor, "$geo/at=BBOX(170,-10,-170,10)/storm", "!")
        publish_with(sensor, "$/SYS/MQTT/location", "POINT(8.6 54.5)")
        publish_with(sensor, "dike/8", "22")
        publish_with(sensor, "$mine/x", "not logged")
    broker.stop()
    return tmp_path


def test_the_settings_of_the_page_are_the_defaults() -> None:
    told = tomllib.loads(block("toml"))["event_log_settings"]
    assert msgspec.convert(told, EventLogSettings) == EventLogSettings()
    commented = re.findall(r"^# (\w+) =", block("toml"), re.MULTILINE)
    assert {*told, *commented} == set(EventLogSettings.__struct_fields__)


def test_the_columns_of_the_page_are_those_of_the_view(folder: Path) -> None:
    rows = re.findall(r"^\| (`.*?`) \| .* \|$", PAGE.split("## What is logged")[0], re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    (segment,) = list_segments(folder / "geomqtt-data")
    with closing(sqlite3.connect(segment.path)) as log:
        columns = [row[1] for row in log.execute("PRAGMA table_info(event)")]
        assert sorted(told) == sorted(columns)
        rows = log.execute(
            "SELECT topic, client_id, qos, geo, has_time, start_ms, min_x, max_x FROM event"
        ).fetchall()
        (version,) = log.execute("PRAGMA user_version").fetchone()
    assert f"`PRAGMA user_version` is the version of the schema, {version}." in PAGE
    plain = rows.pop()
    assert rows[0] == ("dike/7", "sensor", 1, 1, 1, 1774696500000, 8.58, 8.58)
    assert rows[1][:5] + rows[1][6:] == ("storm", "sensor", 1, 1, 0, -180, 180)
    assert plain[:5] + plain[6:] == ("dike/8", "sensor", 1, 0, 0, None, None)


def test_the_queries_of_the_page_find_something(folder: Path) -> None:
    (segment,) = list_segments(folder / "geomqtt-data")
    with closing(sqlite3.connect(segment.path)) as log:
        last, hours, inside = [
            log.execute(each).fetchall() for each in block("sql").split(";") if each.strip()
        ]
    assert [row[1:] for row in last] == [
        ("dike/8", "sensor", "22"),
        ("storm", "sensor", "!"),
        ("dike/7", "sensor", "21"),
    ]
    assert sorted((topic, number) for topic, _, number in hours) == [
        ("dike/7", 1),
        ("dike/8", 1),
        ("storm", 1),
    ]
    assert inside == [("dike/7", 1774696500000, 8.58, 54.51)]


def test_the_program_of_the_page_prints_what_is_in_the_log(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("python")],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    first, last, *more = done.stdout.splitlines()
    assert first == "dike/7 Place(POINT (8.58 54.51)) 21"
    assert last.startswith("sensor was last at Place(POLYGON ((170 10")
    assert not more
