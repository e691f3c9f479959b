"""One daemon for all conformance tests: they differ in client ids and topics.

It has two listeners, one that reads geo extensions, as by default, and a plain one. A test
that needs another configuration starts its own daemon with `start_broker`.
"""

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
    """Run the daemon until the last conformance test is done."""
    folder = tmp_path_factory.mktemp("daemon")
    config = folder / "geomqtt.toml"
    config.write_text("[[listener]]\nport = 0\n[[listener]]\nport = 0\ngeo = false\n")
    command = [sys.executable, "-m", "geomqtt", "serve", "--data", str(folder / "data")]
    command += ["--config", str(config), "--http-port", "0", "--no-log"]
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
def plain_clients(daemon: RunningBroker) -> Iterator[Clients]:
    """Open raw connections to the listener without geo extensions."""
    host, _, port = daemon.addresses["mqtt"][1].rpartition(":")
    with clients_of(host, int(port)) as made:
        yield made


@pytest.fixture
def topic() -> str:
    """Give a topic that no other test uses."""
    return f"topic{next(_topics)}"
