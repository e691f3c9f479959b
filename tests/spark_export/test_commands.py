"""The commands as a user types them: what they print and which exit code they give."""

import argparse
import io
import os
import re
import runpy
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import make_log
import pytest
from rich.console import Console

from plugins.event_log.schema import SCHEMA_VERSION
from spark_export import commands, session
from spark_export.lock import Busy, locked
from spark_export.progress import Progress

pytestmark = pytest.mark.timeout(400)

RUN = """
import argparse, sys
from spark_export.commands import add_parsers
parser = argparse.ArgumentParser(prog="geomqtt")
add_parsers(parser.add_subparsers(required=True))
args = parser.parse_args()
sys.exit(args.run(args))
"""


def geomqtt(*argv: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *map(str, argv)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=380,
        check=False,
    )


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_importing_the_commands_does_not_import_spark() -> None:
    code = (
        "import sys, spark_export.commands\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'shapely', 'rich'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    result = geomqtt("export", "--data", tmp_path / "nowhere")
    assert result.returncode == 2
    assert re.fullmatch(r"geomqtt: data folder .*nowhere does not exist", one_line(result))


def test_no_java_is_one_line(tmp_path: Path, log: Any) -> None:
    log.add("2026-03-28", [{"topic": "a"}])
    result = geomqtt("export", "--data", log.data, JAVA_HOME=str(tmp_path))
    assert result.returncode == 2
    assert "geomqtt: Spark needs Java 17 or later, and none was found" in one_line(result)


def test_a_missing_pyspark_is_one_line(log: Any) -> None:
    log.add("2026-03-28", [{"topic": "a"}])
    without = "import sys; sys.modules['pyspark'] = None\n"
    result = subprocess.run(
        [sys.executable, "-c", without + RUN, "export", "--data", str(log.data)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert one_line(result) == (
        "geomqtt: Spark support is not installed (pyspark is missing): pip install 'geomqtt[spark]'"
    )


def test_progress_is_live_on_a_terminal_and_plain_elsewhere(spark: Any) -> None:
    for terminal in (True, False):
        written = io.StringIO()
        progress = Progress(
            Console(file=written, force_terminal=terminal, highlight=False, width=80)
        )
        progress.spark = spark
        with progress.step("counting"):
            spark.range(1000).repartition(3).count()
        progress.say("[brackets] stay")
        text = written.getvalue()
        assert "[brackets] stay" in text
        assert ("✓" in text) is terminal
        assert bool(re.match(r"\d{4}-\d\d-\d\dT[\d:]{8}Z counting\n", text)) is not terminal


def test_an_old_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(session.Unavailable, match=r"Java 17 or later, .*java is 11\.0\.2"):
        session.check_java()


def test_an_unwritable_target_is_one_line(tmp_path: Path, log: Any) -> None:
    log.add("2026-03-28", [{"topic": "a"}])
    (tmp_path / "file").write_text("")
    result = geomqtt("export", "--data", log.data, "--out", tmp_path / "file" / "out")
    assert result.returncode == 2
    assert re.fullmatch(r"geomqtt: cannot write to .*out: Not a directory", one_line(result))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["export", "--day", "yesterday"], "'yesterday' is no day like 2026-03-28"),
        (["export", "--day", "2026-03-28", "--from", "2026-03-27"], "not allowed with"),
        (["export", "--conf", "memory"], "'memory' is no KEY=VALUE"),
        (["export", "--day", "2026-03-28", "--to", "2026-03-29"], "exclude each other"),
        (["nightly", "--keep-days", "-1"], "'-1' is no number of days"),
    ],
)
def test_bad_arguments_are_told(argv: list[str], message: str) -> None:
    result = geomqtt(*argv)
    assert result.returncode == 2
    assert message in result.stderr


def test_a_day_range_must_run_forwards(log: Any) -> None:
    log.add("2026-03-28", [{"topic": "a"}])
    result = geomqtt("export", "--data", log.data, "--from", "2026-03-28", "--to", "2026-03-27")
    assert result.returncode == 2
    assert one_line(result).endswith("--from 2026-03-28 is after --to 2026-03-27")


def test_a_second_nightly_run_does_not_start(log: Any) -> None:
    log.add("2026-03-28", [{"topic": "a"}])
    with locked(str(log.data / "parquet" / "_nightly.lock"), "nightly run"):
        result = geomqtt("nightly", "--data", log.data)
        with pytest.raises(Busy), locked(str(log.data / "parquet" / "_nightly.lock"), "run"):
            pass
    assert result.returncode == 3
    pattern = rf"geomqtt: another nightly run is at work \(process {os.getpid()}, since .*Z\)"
    assert re.fullmatch(pattern, one_line(result))


def run_here(monkeypatch: pytest.MonkeyPatch, spark: Any, *argv: object) -> int:
    """Run a command in this process, in the session that is already there."""
    monkeypatch.setattr(session, "start", lambda *_, **__: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    parser = argparse.ArgumentParser(prog="geomqtt")
    commands.add_parsers(parser.add_subparsers(required=True))
    args = parser.parse_args([str(item) for item in argv])
    code = args.run(args)
    assert isinstance(code, int)
    return code


def test_nightly_exports_reports_and_prunes(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    today = datetime.now(UTC).date()
    data = tmp_path / "data"
    first = today - timedelta(days=3)
    maker = make_log.make_traffic(data, 3000, first_day=first.isoformat(), days=3)
    maker.add(today.isoformat(), [{"topic": "not yet"}])
    torn = maker.path((today - timedelta(days=4)).isoformat())
    torn.write_bytes(b"torn")
    argv = ("nightly", "--data", data, "--keep-log-days", "1", "--keep-days", "2")
    assert run_here(monkeypatch, spark, *argv) == 1
    told = capsys.readouterr().err
    assert f"not exported: segment {torn.resolve()}: " in told
    assert "exported 3,000 events" in told
    assert f"kept segment {torn.resolve()}: it is not exported" in told
    assert "pruned 2 segments of the log" in told
    yesterday = today - timedelta(days=1)
    assert (data / "report" / yesterday.isoformat() / "report.html").exists()
    left = sorted(path.stem for path in (data / "log").glob("*.sqlite"))
    assert left == [torn.stem, yesterday.isoformat(), today.isoformat()]
    dates = {path.parent.name for path in (data / "parquet").glob("event_date=*/*.parquet")}
    assert f"event_date={yesterday}" in dates
    assert f"event_date={first}" not in dates
    torn.unlink()
    assert run_here(monkeypatch, spark, "nightly", "--data", data) == 0
    assert "nothing new to export" in capsys.readouterr().err


def test_a_night_without_events_is_no_failure(
    spark: Any,
    log: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    today = datetime.now(UTC).date().isoformat()
    log.add(today, [{"topic": "a"}])
    assert run_here(monkeypatch, spark, "nightly", "--data", log.data) == 0
    told = capsys.readouterr().err
    assert "no events were received up to" in told
    assert "no report" in told
    assert run_here(monkeypatch, spark, "export", "--data", log.data, "--day", "2020-01-01") == 0
    assert "no events were received on 2020-01-01" in capsys.readouterr().err


def test_a_newer_log_is_refused_in_one_line(
    spark: Any,
    log: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.add("2026-03-28", [{"topic": "a"}])
    with closing(sqlite3.connect(log.path("2026-03-28"))) as segment:
        segment.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    assert run_here(monkeypatch, spark, "export", "--data", log.data) == 2
    told = capsys.readouterr().err
    assert told.count("geomqtt: ") == 1
    assert "update geomqtt to export it" in told


def test_the_example_runs(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_log.make_traffic(tmp_path / "data", 2000)
    monkeypatch.setattr(session, "start", lambda: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["example", str(tmp_path / "data")])
    example = Path(__file__).parents[2] / "examples" / "a_day_of_events.py"
    runpy.run_path(str(example))
    printed = capsys.readouterr().out
    assert "Outcome(rows=2000," in printed
    assert "Outcome(rows=0," in printed
    assert "|talk/all" in printed


def test_the_whole_command_works_alone_and_is_quiet(tmp_path: Path) -> None:
    make_log.make_traffic(tmp_path / "data", 2000)
    result = geomqtt("export", "--data", tmp_path / "data", "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines), lines
    assert lines[-1].partition(" ")[2].startswith("exported 2,000 events to ")
    assert any((tmp_path / "out").glob("event_date=*/*.parquet"))
