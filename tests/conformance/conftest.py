"""One daemon for all conformance tests: they differ in client ids and topics.

It has a listener for every way of reading that vectors know: with geo extensions, as by
default, plain, and the two other readings of MQTT-G. A test that needs another
configuration starts its own daemon with `start_broker`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count

import pytest

from tests.conformance.raw import Clients, clients_of
from tests.conftest import RunningBroker

LISTENERS = {
    "geo": "",
    "plain": "geo = false",
    "little": 'mqttg_byte_order = "little"',
    "after-fixed-header": 'mqttg_position = "after-fixed-header"',
}

_topics = count(1)


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Run the daemon until the last conformance test is done."""
    folder = tmp_path_factory.mktemp("daemon")
    config = folder / "geomqtt.toml"
    config.write_text("".join(f"[[listener]]\nport = 0\n{line}\n" for line in LISTENERS.values()))
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
def doors(daemon: RunningBroker) -> Iterator[dict[str, Clients]]:
    """Open raw connections to any of the listeners, by the name vectors give it."""
    made = {}
    for name, address in zip(LISTENERS, daemon.addresses["mqtt"], strict=True):
        host, _, port = address.rpartition(":")
        made[name] = Clients(host, int(port))
    yield made
    for door in made.values():
        door.close()


@pytest.fixture
def topic() -> str:
    """Give a topic that no other test uses."""
    return f"topic{next(_topics)}"
