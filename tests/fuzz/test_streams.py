"""Streams of good, damaged and meaningless packets against the real daemon.

Whatever a client sends ends its own connection at worst: a neighbour is served all the
while, and at the end the daemon has not written a traceback or an internal error, which
`RunningBroker.stop` checks. `make fuzz` runs the long form.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conformance.raw import (
    Clients,
    clients_of,
    connect,
    publish,
    publish_with,
    subscribe,
    unsubscribe,
)
from tests.conftest import RunningBroker

VECTORS = [
    bytes.fromhex(vector["hex"])
    for path in sorted((Path(__file__).parents[1] / "conformance" / "vectors").glob("*.json"))
    for vector in json.loads(path.read_text())
    if len(vector["hex"]) < 600
]
LIVELY = [
    subscribe(1, ("#", 2), ("$SYS/#", 0), ("$share/g/+/b", 1)),
    subscribe(2, ("a/b", 1)),
    unsubscribe(3, "#", "a/b"),
    publish("a/b", "x"),
    publish("a/b", "x" * 200, qos=1, packet_id=1),
    publish("a/b", "x", qos=2, packet_id=2),
    publish("a/b", "", retain=True),
    publish("$geo/at=POINT(8 54)/a/b", "x"),
    subscribe(4, ("$geo/covers=BBOX(0,0,90,90)/#", 1)),
    bytes.fromhex("62 02 00 02 40 02 00 01 50 02 00 01 70 02 00 01 c0 00"),
]

packets = st.sampled_from(VECTORS) | st.sampled_from(LIVELY)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(packets))
    for _ in range(draw(st.integers(1, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


chunks = st.lists(st.one_of(packets, packets, damaged(), st.binary(max_size=30)), max_size=12)

_numbers = count(1)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    folder = tmp_path_factory.mktemp("fuzz")
    command = [sys.executable, "-m", "geomqtt", "serve", "--host", "127.0.0.1", "--port", "0"]
    command += ["--http-port", "0", "--no-log", "--data", str(folder / "data")]
    with (folder / "stderr").open("wb") as sink:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, cwd=folder)
    running = RunningBroker(process, folder / "data", folder / "stderr")
    with clients_of(running.host, running.port) as made:
        yield made
    running.stop()


def misbehave(clients: Clients, pieces: list[bytes], *, greets: bool, clean: bool) -> None:
    raw = clients.raw()
    data = b"".join(pieces)
    if greets:
        data = connect(f"fuzz{next(_numbers) % 50}", clean=clean) + data
    with contextlib.suppress(ConnectionError):  # the broker may be the first to close
        raw.send(data)
        raw.socket.shutdown(socket.SHUT_WR)
        while raw.socket.recv(65_536):
            pass
    raw.drop()
    witness = clients.connect("witness")
    publish_with(witness, "witness", "still served")
    witness.disconnect()


def test_no_stream_harms_the_broker(clients: Clients) -> None:
    @given(chunks, st.booleans() | st.just(True), st.booleans())
    @settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def run(pieces: list[bytes], greets: bool, clean: bool) -> None:
        misbehave(clients, pieces, greets=greets, clean=clean)

    run()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_stream_harms_the_broker_for_a_long_time(clients: Clients) -> None:
    @given(chunks, st.booleans() | st.just(True), st.booleans())
    @settings(
        max_examples=20_000,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def run(pieces: list[bytes], greets: bool, clean: bool) -> None:
        misbehave(clients, pieces, greets=greets, clean=clean)

    run()
