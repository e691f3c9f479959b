"""Runs that overlap, and runs that are killed: every row is there once, by count and by content."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import make_log
import pyarrow.dataset as arrow_dataset
import pytest

from spark_export.export import export
from spark_export.manifest import FOLDER, STAGING

pytestmark = pytest.mark.timeout(400)

COLUMNS = ["segment", "id", "topic", "client_id", "payload"]
RUN = """
import sys
from spark_export import session
from spark_export.export import export
spark = session.start("local[2]")
print(export(spark, sys.argv[1], sys.argv[2]).rows)
"""


def contents(out: Path) -> Counter[tuple[Any, ...]]:
    table = arrow_dataset.dataset(out, partitioning="hive").to_table(columns=COLUMNS)
    return Counter(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True))


def logged(data: Path) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for path in (data / "log").glob("*.sqlite"):
        with closing(sqlite3.connect(path)) as segment:
            rows = segment.execute("SELECT id, topic, client_id, payload FROM event").fetchall()
        found.update((path.stem, *row) for row in rows)
    return found


def test_runs_beside_one_another_export_every_row_once(spark: Any, tmp_path: Path) -> None:
    make_log.make_traffic(tmp_path / "data", 30_000, days=2)
    rows: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: rows.append(
                export(spark, str(tmp_path / "data"), str(tmp_path / "out")).rows
            )
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(rows) == 30_000
    assert contents(tmp_path / "out") == logged(tmp_path / "data")


def writing(out: Path) -> bool:
    return any(out.glob(f"{STAGING}/*/**/*.parquet"))


def committed(out: Path) -> bool:
    return any(out.glob(f"{FOLDER}/*.json"))


@pytest.mark.parametrize("moment", [writing, committed], ids=["while writing", "while renaming"])
def test_a_killed_run_is_finished_by_the_next(
    spark: Any, tmp_path: Path, moment: Callable[[Path], bool]
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    maker = make_log.make_traffic(data, 40_000)
    # Many dates make many files, so that the renames take a while.
    maker.add("2026-03-29", [{"topic": f"d/{n}", "time": -86_400 * n} for n in range(150)])
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(data), str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 100
    while not moment(out) and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    alive = run.poll() is None
    # The driver, its Java and its Python workers, all at once.
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert alive, "the run was over before it could be killed"
    assert not (out / FOLDER / "00000001.done").exists()
    export(spark, str(data), str(out))
    assert contents(out) == logged(data)
    assert export(spark, str(data), str(out)).rows == 0
    assert not any(out.glob(f"{STAGING}/*"))
