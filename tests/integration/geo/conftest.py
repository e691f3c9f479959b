"""One daemon for all geo tests that need no settings of their own: they differ in topics."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count

import pytest

from tests.conformance.raw import Clients, clients_of
from tests.conftest import RunningBroker

_topics = count(1)


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Run the daemon with its defaults until the last test is done."""
    folder = tmp_path_factory.mktemp("geo-daemon")
    command = [sys.executable, "-m", "geomqtt", "serve", "--data", str(folder / "data")]
    command += ["--host", "127.0.0.1", "--port", "0", "--http-port", "0", "--no-log"]
    stderr = folder / "stderr"
    with stderr.open("wb") as sink:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, cwd=folder)
    running = RunningBroker(process, folder / "data", stderr)
    yield running
    running.stop()


@pytest.fixture
def clients(daemon: RunningBroker) -> Iterator[Clients]:
    """Open raw connections to the daemon."""
    with clients_of(daemon.host, daemon.port) as made:
        yield made


@pytest.fixture
def topic() -> str:
    """Give a topic that no other test uses."""
    return f"geo{next(_topics)}"
