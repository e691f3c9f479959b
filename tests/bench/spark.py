"""Measures the Spark export against its bars, on data made here.

    python tests/bench/spark.py                    the sizes of the bars (an hour, 25 GB)
    python tests/bench/spark.py --rows 500000 --small 200000 --large 2000000 --first 100000

Every measurement is a process of its own, so that none is warmed up by another:
    export     rows of the log to Parquet, from a started session to the commit
    json       the same events from JSON lines by Spark's own reader, with the same
               conversion, sort and partitioning
"""

import argparse
import base64
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "spark_export")]

JSON_SCHEMA = (
    "segment STRING, id BIGINT, received_ms BIGINT, start_ms BIGINT, end_ms BIGINT, "
    "has_time BOOLEAN, topic STRING, client_id STRING, qos TINYINT, retain BOOLEAN, geo BOOLEAN, "
    "epsg INT, sent STRING, wkb STRING, min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, "
    "cell BIGINT, payload STRING"
)


def make_log(folder: Path, rows: int) -> Path:
    """Make a log of so many rows, a day for every five million."""
    from make_log import make_traffic

    data = folder / f"log-{rows}"
    if not data.exists():
        print(f"making {rows:,} events …", file=sys.stderr, flush=True)
        make_traffic(data, rows, days=max(1, rows // 5_000_000))
    return data


def make_json(data: Path) -> Path:
    """Write the log's events as JSON lines, bytes as base64."""
    lines = data / "json"
    if lines.exists():
        return lines
    print("writing them as JSON …", file=sys.stderr, flush=True)
    passing = data / "json.passing"
    passing.mkdir()
    from spark_export.batches import read_batches
    from spark_export.segments import Range

    for path in sorted((data / "log").glob("*.sqlite")):
        with closing(sqlite3.connect(path)) as segment:
            last = segment.execute("SELECT max(id) FROM packed").fetchone()[0]
        with (passing / f"{path.stem}.json").open("w") as output:
            for batch in read_batches(Range(str(path), path.stem, 1, last)):
                for row in batch.to_pylist():
                    output.write(json.dumps(_plain(row)) + "\n")
    passing.rename(lines)
    return lines


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    for name, key in (("received", "received_ms"), ("time", "start_ms"), ("end_time", "end_ms")):
        moment = row.pop(name)
        row[key] = None if moment is None else round(moment.timestamp() * 1000)
    for name in ("sent", "wkb", "payload"):
        if row[name] is not None:
            row[name] = base64.b64encode(row[name]).decode()
    return {name: item for name, item in row.items() if item is not None}


def measure(kind: str, data: str, out: str) -> dict[str, float]:
    """Do one measurement in this process."""
    import psutil

    from spark_export import session, table
    from spark_export.export import export

    spark = session.start("local[2]")
    start = time.perf_counter()
    if kind == "export":
        rows = export(spark, data, out).rows
    else:
        read = spark.read.schema(JSON_SCHEMA).json(data)
        log = read.selectExpr(
            "segment", "id", "timestamp_millis(received_ms) AS received",
            "timestamp_millis(start_ms) AS time", "timestamp_millis(end_ms) AS end_time",
            "has_time", "cast(NULL AS BIGINT) AS time_ms", "cast(NULL AS BIGINT) AS end_ms",
            "topic", "client_id", "qos", "retain", "geo", "epsg", "unbase64(sent) AS sent",
            "unbase64(wkb) AS wkb", "min_x", "min_y", "max_x", "max_y", "cell",
            "unbase64(payload) AS payload",
        )  # fmt: skip
        table.write(table.convert(log), out)
        rows = 0
    seconds = time.perf_counter() - start
    here = psutil.Process()
    java = [child for child in here.children() if "java" in child.name()]
    peak = sum(_peak_kib(process.pid) for process in [here, *java]) * 1024
    size = sum(path.stat().st_size for path in Path(out).glob("event_date=*/*.parquet"))
    if not rows:
        rows = spark.read.parquet(out).count()
    spark.stop()
    return {"rows": rows, "seconds": seconds, "peak_bytes": peak, "parquet_bytes": size}


def _peak_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def run(kind: str, data: Path, folder: Path) -> dict[str, float]:
    """Do one measurement in a process of its own."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    answer = subprocess.run(
        [sys.executable, __file__, "--measure", kind, str(data), str(out)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    result: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    rate = result["rows"] / result["seconds"]
    print(
        f"  {kind:6} {result['rows']:>12,.0f} rows  {result['seconds']:7.1f} s  "
        f"{rate:>9,.0f} rows/s  peak {result['peak_bytes'] / 1e6:6,.0f} MB",
        flush=True,
    )
    shutil.rmtree(out, ignore_errors=True)
    return result


def bar(name: str, value: float, limit: float, *, at_most: bool) -> bool:
    """Print how one bar came out."""
    met = value <= limit if at_most else value >= limit
    sign = "at most" if at_most else "at least"
    print(f"{'met' if met else 'NOT MET':8} {name}: {value:.2f} ({sign} {limit:g})")
    return met


def main() -> int:
    """Run all measurements and compare them with the bars."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000, help="export against JSON")
    parser.add_argument("--small", type=int, default=2_000_000, help="cost per row, fewer")
    parser.add_argument("--large", type=int, default=20_000_000, help="cost per row, more")
    parser.add_argument("--first", type=int, default=1_000_000, help="memory, fewer")
    parser.add_argument("--folder", type=Path, help="where the data lie, and stay")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*args.measure)))
        return 0
    folder = args.folder or Path(tempfile.mkdtemp(prefix="geomqtt-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return 0 if compare(args, folder) else 1
    finally:
        if args.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def compare(args: argparse.Namespace, folder: Path) -> bool:
    """Measure, and tell whether every bar is met."""
    data = make_log(folder, args.rows)
    lines = make_json(data)
    ours, theirs = run("export", data, folder), run("json", lines, folder)
    log_bytes = sum(path.stat().st_size for path in (data / "log").glob("*.sqlite*"))
    first = run("export", make_log(folder, args.first), folder)
    small = run("export", make_log(folder, args.small), folder)
    large = run("export", make_log(folder, args.large), folder)

    def cost(result: dict[str, float]) -> float:
        return result["seconds"] / result["rows"]

    return all(
        [
            bar("export over JSON reader, rows/s", cost(theirs) / cost(ours), 1, at_most=False),
            bar(
                f"driver memory, {args.large:,} over {args.first:,} rows",
                large["peak_bytes"] / first["peak_bytes"],
                1.25,
                at_most=True,
            ),
            bar(
                f"cost per row, {args.large:,} over {args.small:,} rows",
                cost(large) / cost(small),
                1.3,
                at_most=True,
            ),
            bar("Parquet over log, bytes", ours["parquet_bytes"] / log_bytes, 0.5, at_most=True),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
