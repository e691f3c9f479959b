"""A real standalone cluster: a master and two workers of the pyspark package, on this machine."""

import os
import re
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import make_log
import psutil
import pyarrow.dataset as arrow_dataset
import pyspark
import pytest

from spark_export import session, staging
from spark_export.segments import ExportError, Range

pytestmark = pytest.mark.timeout(400)

COLUMNS = ["segment", "id", "topic", "payload"]
DEADLINE_S = 100.0
RUN = """
import argparse, sys
from spark_export.commands import add_parsers
parser = argparse.ArgumentParser(prog="geomqtt")
add_parsers(parser.add_subparsers(required=True))
args = parser.parse_args()
sys.exit(args.run(args))
"""


def wait_for(what: str, found: Any) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.02)
    pytest.fail(f"{what} did not happen within {DEADLINE_S} s")


def stop(process: psutil.Process) -> None:
    """End a process we started, and those it started."""
    for child in [*process.children(recursive=True), process]:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[psutil.Process]]]:
    try:
        session.check_spark()
    except ExportError as error:
        pytest.fail(f"not run: {error}", pytrace=False)
    root = tmp_path_factory.mktemp("cluster")
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    started: list[psutil.Process] = []

    def launch(name: str, main: str, *arguments: str) -> psutil.Process:
        with (root / f"{name}.log").open("wb") as output:
            process = psutil.Popen(
                [str(spark_class), f"org.apache.spark.deploy.{main}", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=root,
                env=environment,
            )
        started.append(process)
        return process

    def said(name: str, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, (root / f"{name}.log").read_text(errors="replace"))

    try:
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        launch("master", "master.Master", *ports)
        master = wait_for("the master", lambda: said("master", r"spark://127\.0\.0\.1:\d+"))[0]
        workers = []
        for name in ("one", "two"):
            size = ("--cores", "1", "--memory", "700m", "--work-dir", str(root / name))
            workers.append(launch(name, "worker.Worker", *ports, *size, master))
        for name in ("one", "two"):
            wait_for("a worker", lambda name=name: said(name, "Successfully registered"))
        yield master, workers
    finally:
        for process in reversed(started):
            stop(process)


def contents(out: Path) -> Counter[tuple[Any, ...]]:
    table = arrow_dataset.dataset(out, partitioning="hive").to_table(columns=COLUMNS)
    return Counter(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True))


def logged(path: Path) -> Counter[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as segment:
        rows = segment.execute("SELECT id, topic, payload FROM event").fetchall()
    return Counter((path.stem, *row) for row in rows)


def executors(workers: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for worker in workers:
        for child in worker.children(recursive=True):
            try:
                if any("CoarseGrainedExecutorBackend" in part for part in child.cmdline()):
                    found.append(child)
            except psutil.NoSuchProcess:
                continue
    return found


def test_export_and_analytics_run_on_a_cluster_and_survive_a_killed_executor(
    cluster: tuple[str, list[psutil.Process]], tmp_path: Path
) -> None:
    master, workers = cluster
    maker = make_log.make_traffic(tmp_path / "data", 60_000)
    out, shared = tmp_path / "out", tmp_path / "shared"
    settings = {
        "spark.executor.memory": "600m",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
    }
    run = subprocess.Popen(
        [
            *(sys.executable, "-c", RUN, "nightly", "--master", master),
            *("--data", str(tmp_path / "data"), "--day", "2026-03-28"),
            *("--out", str(out), "--report", str(tmp_path / "report"), "--staging", str(shared)),
            *(part for key, text in settings.items() for part in ("--conf", f"{key}={text}")),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # Tasks write below `_temporary`: now an executor has something to lose.
        wait_for(
            "writing",
            lambda: any(out.glob("_staging/*/_temporary/**/*.parquet")) or run.poll() is not None,
        )
        killed = executors(workers)[:1] if run.poll() is None else []
        for executor in killed:
            executor.kill()
        _, told = run.communicate(timeout=300)
    finally:
        if run.poll() is None:
            stop(psutil.Process(run.pid))
    assert run.returncode == 0, told
    assert killed, "the export was over before an executor could be killed"
    assert contents(out) == logged(maker.path("2026-03-28"))
    assert (tmp_path / "report" / "2026-03-28" / "report.html").exists()
    tracks = arrow_dataset.dataset(tmp_path / "report" / "2026-03-28" / "tracks").to_table()
    assert tracks.num_rows == make_log.VEHICLES + make_log.SENSORS
    assert list(shared.iterdir()) == []  # nothing staged is left behind


def test_a_staged_segment_is_a_snapshot_that_needs_no_writer(log: Any, tmp_path: Path) -> None:
    log.add("2026-03-28", [{"topic": f"a/{n}"} for n in range(10)])
    with closing(log.open("2026-03-28")) as writer, writer:
        # Still in the WAL only, because the writer has not closed yet.
        writer.execute("INSERT INTO topic (name) VALUES ('late')")
        writer.commit()
        copy = staging.stage(str(log.path("2026-03-28")), "2026-03-28", str(tmp_path / "shared"))
    assert Path(copy).parent == tmp_path / "shared"
    with closing(sqlite3.connect(f"file:{copy}?mode=ro", uri=True)) as snapshot:
        assert snapshot.execute("SELECT count(*) FROM event").fetchone() == (10,)
        assert snapshot.execute("SELECT count(*) FROM topic").fetchone() == (11,)
    assert sorted(path.name for path in Path(copy).parent.iterdir()) == ["2026-03-28.sqlite"]
    staging.unstage(str(tmp_path / "shared"))
    assert not Path(copy).exists()


def test_a_segment_at_a_uri_is_fetched_for_the_task(log: Any) -> None:
    log.add("2026-03-28", [{"topic": "a"}])
    with closing(sqlite3.connect(log.path("2026-03-28"))) as segment:
        segment.execute("PRAGMA journal_mode = DELETE")
    rows = Range(f"file://{log.path('2026-03-28')}", "2026-03-28", 1, 1)
    with staging.fetched(rows) as local:
        assert local.path != rows.path
        assert Path(local.path).exists()
    assert not Path(local.path).exists()


def test_an_executor_that_does_not_see_a_segment_says_what_to_do(tmp_path: Path) -> None:
    rows = Range(str(tmp_path / "2026-03-28.sqlite"), "2026-03-28", 1, 1)
    expected = pytest.raises(ExportError, match="not seen by the executor; --staging")
    with expected, staging.fetched(rows):
        pass
