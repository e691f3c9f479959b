"""One run of the benchmark: every row against every broker, round by round, then the report.

Rounds are interleaved, so that a slow minute of the machine falls on every broker alike, and
each round begins with another broker. A row that a broker cannot do costs it twice at most.
"""

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench import brokers, report
from tests.bench.bars import OURS
from tests.bench.engines import available
from tests.bench.generator import Job, job_text
from tests.bench.peers import PrepareError, prepare
from tests.bench.rows import ROWS, Row

STALL_S = 3.0
SET_UP_S = 20.0
KNOWN = (OURS, *brokers.PEERS, *brokers.BASELINES)
FAILURES = 2  # of one broker in one row, before its further rounds are left out

Starter = brokers.Starter


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    names = ", ".join(row.name for row in ROWS)
    parser = argparse.ArgumentParser(prog="tests/bench/run.py", description=__doc__)
    parser.add_argument("--rows", nargs="+", metavar="ROW", help=f"some of: {names}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--brokers",
        nargs="+",
        metavar="BROKER",
        default=[*KNOWN],
        help=f"some of: {', '.join(KNOWN)}",
    )
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--seconds", type=float, default=1.2, help="length of a measurement")
    parser.add_argument("--engine", choices=list(available()), help="loop of the generator")
    parser.add_argument("--ours", default=brokers.OURS, help="our command, with {port} and {data}")
    parser.add_argument("--results", type=Path, default=brokers.ROOT / "bench-results")
    chosen = parser.parse_args(given)
    known = {row.name for row in ROWS}
    if unknown := [name for name in chosen.rows or () if name not in known]:
        parser.error(f"no row {', '.join(unknown)}; there are {names}")
    if unknown := [name for name in chosen.brokers if name not in KNOWN]:
        parser.error(f"no broker {', '.join(unknown)}")
    if chosen.rounds < 1:
        parser.error("--rounds must be at least 1")
    if chosen.quick:
        chosen.rounds, chosen.seconds = 1, min(chosen.seconds, 0.6)
    return chosen


def raise_file_limit(wanted: int) -> None:
    """Let this process and what it starts hold that many sockets, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted and os.geteuid() == 0:
        hard = wanted
    soft = wanted if hard == resource.RLIM_INFINITY else min(max(wanted, soft), hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def starters(chosen: argparse.Namespace) -> dict[str, Starter]:
    """Prepare the brokers that were asked for; one that cannot be had is named and left out."""
    found: dict[str, Starter] = {}
    for name in chosen.brokers:
        if name == OURS:
            found[name] = brokers.start_ours(chosen.ours)
            continue
        if name in brokers.BASELINES:
            found[name] = brokers.BASELINES[name]
            continue
        try:
            prepare(name)
            found[name] = brokers.PEERS[name]
        except PrepareError as error:
            print(f"{name}: not run: {error}", flush=True)
    return found


def generate(job: Job) -> dict[str, Any]:
    """Run the generator as a process of its own, within a time limit."""
    limit_s = job.set_up_s + job.warm_up_s + job.seconds + 3 * job.stall_s + 5
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.generator"],
        cwd=brokers.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, said = process.communicate(job_text(job), timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {limit_s:.0f} s"}
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode:
        return {"failed": (said.strip().splitlines() or ["generator failed"])[-1]}
    return dict(json.loads(output))


def measure(start: Starter, row: Row, seconds: float, engine: str | None) -> dict[str, Any]:
    try:
        with brokers.running(start) as (port, pid):
            return generate(
                Job(
                    asdict(row),
                    port,
                    pid,
                    seconds / 3,
                    seconds,
                    STALL_S,
                    row.set_up_s or SET_UP_S,
                    engine,
                )
            )
    except brokers.StartError as error:
        return {"failed": f"not started: {error}"}


def in_words(result: dict[str, Any]) -> str:
    if "failed" in result:
        return f"failed: {result['failed']}"
    if "rate" in result:
        return f"{result['rate']:,.0f}/s"
    return f"{result['kib']:.2f} KiB"


def machine() -> dict[str, Any]:
    model = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": os.cpu_count(),
        "processor": model[0] if model else platform.machine(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def takes_part(name: str, row: Row) -> bool:
    """Tell whether a broker is measured in a row."""
    if name in brokers.BASELINES:
        return name in row.beside
    return name == OURS or not row.only_ours


def run_rounds(
    rows: Sequence[Row],
    found: dict[str, Starter],
    rounds: int,
    seconds: float,
    engine: str | None,
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    results: dict[str, dict[str, list[dict[str, Any]]]] = {
        name: {row.name: [] for row in rows} for name in found
    }
    names = list(found)
    for number in range(rounds):
        order = names[number % len(names) :] + names[: number % len(names)]
        for row in rows:
            said = []
            for name in order:
                if not takes_part(name, row):
                    continue
                past = results[name][row.name]
                if sum("failed" in result for result in past) >= FAILURES:
                    continue
                start = found[name]
                if name == OURS and (row.flags or row.config):
                    start = brokers.with_settings(start, row.flags, row.config)
                long = row.seconds if rounds > 1 else seconds  # a quick round stays quick
                past.append(measure(start, row, long or seconds, engine))
                said.append(f"{name} {in_words(past[-1])}")
            if said:
                print(f"[{number + 1}/{rounds}] {row.title}: {'; '.join(said)}", flush=True)
    return results


def main(given: Sequence[str] | None = None) -> int:
    chosen = arguments(given)
    # An ordinary exit on SIGTERM too, so that no broker is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise_file_limit(max(max(2 * row.idle, row.subscribers) for row in ROWS) + 1000)
    rows = [row for row in ROWS if not chosen.rows or row.name in chosen.rows]
    found = starters(chosen)
    if not found:
        return 1
    started = time.monotonic()
    results = run_rounds(rows, found, chosen.rounds, chosen.seconds, chosen.engine)
    about = machine() | {"rounds": chosen.rounds, "seconds": chosen.seconds}
    print(f"\n{report.text(rows, results)}\n")
    chosen.results.mkdir(parents=True, exist_ok=True)
    path = chosen.results / f"bench-{time.strftime('%Y%m%d-%H%M%S')}"
    report.save_json(path.with_suffix(".json"), about, rows, results)
    pictures = [path.with_suffix(".png"), path.with_suffix(".svg")]
    drawn = ", .png, .svg" if report.save_plot(pictures, rows, results) else ""
    print(f"{time.monotonic() - started:.0f} s; results in {path}.json{drawn}")
    return 0
