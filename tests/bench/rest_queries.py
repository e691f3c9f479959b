"""How fast REST answers from a large log, and what its queries do to deliveries meanwhile.

    python -m tests.bench.rest_queries [--events 10000000] [--seconds 5] [--log DIR]

A daemon is started on a log of --events points. First the time to the whole answer of 1,000
events by topic, day and box; then the delivery latency of a paced publisher, in turns with
nobody asking and with two clients asking without a pause. `--log` names a data folder to
make the log in once and to use again.
"""

import argparse
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import uvloop

from tests.bench.event_log_writer import measure, points

ROUNDS = 3
PER_S = 500
CONNECT = bytes.fromhex("10 0c 0004 4d515454 04 02 0000 0000")
SUBSCRIBE = bytes.fromhex("82 06 0001 0001 70 00")  # "p", QoS 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def questions() -> list[tuple[str, str]]:
    chance = random.Random(1)
    x, y = chance.uniform(-170, 170), chance.uniform(-60, 70)
    town = f"BBOX({x - 0.05},{y - 0.05},{x + 0.05},{y + 0.05})"
    day = time.strftime("%Y-%m-%d", time.gmtime())
    more = f"from={day}&size=1000"
    return [
        ("one topic, day, town", f"vehicle/0/position?geometry={town}&{more}"),
        ("wildcard, day, town", f"vehicle/+/position?geometry={town}&{more}"),
        ("wildcard, day, region", f"vehicle/+/position?geometry=BBOX(-10,35,30,60)&{more}"),
        ("wildcard, oldest first", f"vehicle/+/position?geometry={town}&{more}&order=oldest"),
    ]


def ask(http: httpx.Client, path: str) -> int:
    answer = http.get(f"/rest/geopublish/{path}")
    answer.raise_for_status()
    return answer.content.count(b'"Feature"')


def measure_answers(url: str) -> None:
    with httpx.Client(base_url=url, timeout=60) as http:
        for name, path in questions():
            times = []
            for _ in range(12):
                started = time.perf_counter()
                hits = ask(http, path)
                times.append((time.perf_counter() - started) * 1000)
            warm = times[2:]
            print(
                f"{name:<26} {hits:>5} hits   first {times[0]:7.1f} ms   "
                f"warm {statistics.median(warm):6.1f} ms, at most {max(warm):6.1f}"
            )


class Deliveries:
    """A publisher and a subscriber that tell how long each message took."""

    def __init__(self, port: int) -> None:
        self._publisher = socket.create_connection(("127.0.0.1", port))
        self._subscriber = socket.create_connection(("127.0.0.1", port))
        for each in (self._publisher, self._subscriber):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.sendall(CONNECT)
            each.recv(4)
        self._subscriber.sendall(SUBSCRIBE)
        self._subscriber.recv(5)

    def latencies_ms(self, seconds: float) -> list[float]:
        took = []
        begin = time.perf_counter()
        frame = bytes.fromhex("30 43 0001 70") + bytes(64)
        for number in range(int(seconds * PER_S)):
            wait_s = begin + number / PER_S - time.perf_counter()
            if wait_s > 0:
                time.sleep(wait_s)
            started = time.perf_counter()
            self._publisher.sendall(frame)
            left = len(frame)
            while left:
                left -= len(self._subscriber.recv(left))
            took.append((time.perf_counter() - started) * 1000)
        return took


def measure_latency(url: str, port: int, seconds: float) -> None:
    deliveries = Deliveries(port)
    deliveries.latencies_ms(1.0)
    idle: list[float] = []
    busy: list[float] = []
    asked = 0
    for _ in range(ROUNDS):
        idle += deliveries.latencies_ms(seconds)
        process, counts = ask_elsewhere(url)
        busy += deliveries.latencies_ms(seconds)
        process.terminate()
        asked += sum(1 for _ in counts)
    for name, took in (("idle", idle), ("two clients asking", busy)):
        took.sort()
        print(
            f"{name:<26} p50 {took[len(took) // 2]:6.3f} ms   "
            f"p99 {took[len(took) * 99 // 100]:6.3f} ms   at most {took[-1]:7.3f} ms"
        )
    print(f"{asked / (ROUNDS * seconds):.1f} answers of 1,000 events a second meanwhile")


def ask_elsewhere(url: str) -> "tuple[subprocess.Popen[str], list[str]]":
    """Ask from another process, so that reading the answers does not delay the clock here."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.rest_queries", "--ask", url],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline()  # it has begun
    lines: list[str] = []
    threading.Thread(target=lambda: lines.extend(process.stdout or ()), daemon=True).start()
    return process, lines


def ask_for_ever(url: str) -> None:
    os.nice(10)  # it stands for clients on other machines

    def run() -> None:
        with httpx.Client(base_url=url, timeout=60) as http:
            while True:
                for _, path in questions():
                    ask(http, path)
                    print("answer", flush=True)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--ask", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ask:
        ask_for_ever(arguments.ask)
    folder = arguments.log or Path(tempfile.mkdtemp(prefix="rest-queries-"))
    try:
        if not (folder / "points" / "log").exists():
            uvloop.run(measure("points", folder, arguments.events, points))
        http_port, port = free_port(), free_port()
        flags = ["--port", str(port), "--http-port", str(http_port)]
        with subprocess.Popen(
            [sys.executable, "-m", "geomqtt", "serve", "--data", str(folder / "points"), *flags],
            stdout=subprocess.PIPE,
        ) as daemon:
            try:
                assert daemon.stdout is not None
                print(daemon.stdout.readline().decode().strip())
                url = f"http://127.0.0.1:{http_port}"
                measure_answers(url)
                measure_latency(url, port, arguments.seconds)
            finally:
                daemon.terminate()
    finally:
        if arguments.log is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
