"""What tests of every room share: the real daemon, started as a user starts it.

    broker          one daemon with the defaults on an ephemeral port
    start_broker    makes as many as a test needs, with flags and a configuration

Every daemon is stopped with SIGTERM at the end of its test; it must then exit with 0 and
must not have written a traceback or an internal error.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

READY = "geomqtt ready: "

# What a test may say it needs: programs on the path, or files of this checkout.
ROOT = Path(__file__).resolve().parent.parent
TOOLS = {
    "mosquitto": ("mosquitto_pub", "mosquitto_sub"),
    "java": ("java",),
    "chromium": ("chromium", "chromedriver"),
    "mqttjs": ("node", ".tools/node/node_modules/mqtt"),
}
not_run = pytest.StashKey[dict[str, int]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set aside the tests whose tools are missing; they are named at the end."""
    missing = {
        name
        for name, parts in TOOLS.items()
        if not all(shutil.which(part) or (ROOT / part).exists() for part in parts)
    }
    kept, aside = [], []
    counts: dict[str, int] = {}
    for item in items:
        wanted = {name for mark in item.iter_markers("needs") for name in mark.args} & missing
        (aside if wanted else kept).append(item)
        for name in wanted:
            counts[name] = counts.get(name, 0) + 1
    # The longest first, so that no worker is left with them alone at the end.
    items[:] = sorted(kept, key=lambda item: "spark_export" not in item.nodeid)
    config.stash[not_run] = counts
    if aside:
        config.hook.pytest_deselected(items=aside)


def left_out(config: pytest.Config) -> list[str]:
    """Name what was not run: tests set aside for want of a tool, and tests that skipped."""
    lines = [f"{count} tests need {name}" for name, count in config.stash.get(not_run, {}).items()]
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped"):
        lines.append(f"{len(reporter.stats['skipped'])} tests skipped")
    return lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not run."""
    for line in left_out(terminalreporter.config):
        terminalreporter.write_line(f"NOT RUN: {line}", red=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Where nothing may be left out, what was not run is a failure."""
    demanded = os.environ.get("GEOMQTT_NOTHING_LEFT_OUT")
    if demanded and exitstatus == 0 and left_out(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


class RunningBroker:
    """A daemon that accepts connections.

    `addresses` holds what the ready line names, by kind: `{"mqtt": ["127.0.0.1:40123"],
    "ws": ["127.0.0.1:40125/mqtt"], "unix": ["/tmp/…/socket"]}`. `host` and `port` are those
    of the first plain listener.
    """

    def __init__(self, process: subprocess.Popen[bytes], data: Path, stderr: Path) -> None:
        self.process = process
        self.data = data
        self._stderr = stderr
        self._killed = False
        self.ready_line = self._wait_until_ready()
        self.addresses: dict[str, list[str]] = {}
        for entry in self.ready_line.removeprefix(READY).split(", "):
            kind, _, address = entry.partition(" ")
            self.addresses.setdefault(kind, []).append(address)
        self.host, self.port = "127.0.0.1", 0
        if "mqtt" in self.addresses:
            self.host, self.port = self.address("mqtt")

    @property
    def url(self) -> str:
        """Where plain MQTT is spoken, as a URL."""
        return f"mqtt://{self.host}:{self.port}"

    @property
    def log(self) -> str:
        """What the daemon has written to stderr so far."""
        return self._stderr.read_text(errors="replace")

    def address(self, kind: str) -> tuple[str, int]:
        """Host and port of the first listener of a kind: mqtt, tls, ws, wss, http."""
        address = self.addresses[kind][0].removeprefix("http://")
        host, _, port = address.split("/")[0].rpartition(":")
        return host.strip("[]"), int(port)

    def _wait_until_ready(self) -> str:
        assert self.process.stdout is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        output = b""
        while b"\n" not in output:
            left = deadline - time.monotonic()
            readable, _, _ = select.select([self.process.stdout], [], [], max(left, 0))
            chunk = os.read(self.process.stdout.fileno(), 65_536) if readable else b""
            if not chunk:
                self.process.kill()
                code = self.process.wait()
                pytest.fail(f"the broker did not start (exit code {code}):\n{self.log}")
            output += chunk
        line = output.decode().splitlines()[0]
        assert line.startswith(READY), line
        return line

    def stop(self) -> None:
        """Stop as an operator does, and check that it went well."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail(f"the broker did not stop within {STOP_TIMEOUT_S:g} s:\n{self.log}")
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
        log = self.log
        assert "Traceback" not in log, log
        assert "internal error" not in log, log
        assert self._killed or code == 0, f"exit code {code}:\n{log}"

    def kill(self) -> None:
        """Kill it as a crash would: no commit, no goodbye."""
        self._killed = True
        self.process.kill()
        self.process.wait()


StartBroker = Callable[..., RunningBroker]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start daemons: `start_broker("--ws-port", "0", config="[limits]\\n…", data=…, port=…)`.

    Every daemon has a data folder of its own unless `data` names one (to restart on it).
    Flags given here win over the ones that the fixture sets: loopback, an ephemeral port, no
    HTTP, no event log. With `listen=False` only the configuration says where to listen.
    """
    started: list[RunningBroker] = []

    def start(
        *arguments: str,
        config: str | None = None,
        data: Path | None = None,
        port: int = 0,
        listen: bool = True,
    ) -> RunningBroker:
        number = len(started)
        data = data or tmp_path / f"broker-{number}-data"
        command = [sys.executable, "-m", "geomqtt", "serve", "--data", str(data)]
        if listen:
            command += ["--host", "127.0.0.1", "--port", str(port)]
        command += ["--http-port", "0", "--no-log"]
        if config is not None:
            config_file = tmp_path / f"broker-{number}.toml"
            config_file.write_text(config)
            command += ["--config", str(config_file)]
        stderr = tmp_path / f"broker-{number}.stderr"
        with stderr.open("wb") as sink:
            process = subprocess.Popen(
                [*command, *arguments], stdout=subprocess.PIPE, stderr=sink, cwd=tmp_path
            )
        running = RunningBroker(process, data, stderr)
        started.append(running)
        return running

    with contextlib.ExitStack() as stops:  # stops all, even if one of them went wrong
        yield start
        for running in started:
            stops.callback(running.stop)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    """One daemon with the defaults."""
    return start_broker()
