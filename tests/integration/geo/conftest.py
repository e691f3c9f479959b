"""One daemon for all geo tests that need no settings of their own: they differ in topics."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.conformance.raw import Clients, clients_of
from tests.conftest import RunningBroker

_topics = count(1)


@contextlib.contextmanager
def run_daemon(folder: Path, config: str = "") -> Iterator[RunningBroker]:
    """Run a daemon on an ephemeral port for more than one test."""
    command = [sys.executable, "-m", "geomqtt", "serve", "--data", str(folder / "data")]
    command += ["--host", "127.0.0.1", "--port", "0", "--http-port", "0", "--no-log"]
    if config:
        (folder / "geomqtt.toml").write_text(config)
        command += ["--config", str(folder / "geomqtt.toml")]
    stderr = folder / "stderr"
    with stderr.open("wb") as sink:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, cwd=folder)
    running = RunningBroker(process, folder / "data", stderr)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Run the daemon with its defaults until the last test is done."""
    with run_daemon(tmp_path_factory.mktemp("geo-daemon")) as running:
        yield running


@pytest.fixture(scope="session")
def plain_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Open raw connections to a daemon whose listener has no geo extensions."""
    config = "[[listener]]\nport = 0\ngeo = false\n"
    with (
        run_daemon(tmp_path_factory.mktemp("plain-daemon"), config) as running,
        clients_of(running.host, running.port) as made,
    ):
        yield made


@pytest.fixture
def clients(daemon: RunningBroker) -> Iterator[Clients]:
    """Open raw connections to the daemon."""
    with clients_of(daemon.host, daemon.port) as made:
        yield made


@pytest.fixture
def topic() -> str:
    """Give a topic that no other test uses."""
    return f"geo{next(_topics)}"
