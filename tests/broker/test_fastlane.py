"""The fast lane delivers what the ordinary path delivers.

Two daemons get the same random traffic. One has its fast lane open; the other has a rate
limit that nobody reaches, which sends every frame down the ordinary path. What every client
gets must be the same, byte for byte. A last test looks inside one broker to show that the
lane is really used where it may be, and only there.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.config import Config, Listener
from broker.fastlane import forward
from broker.server import Server
from protocol.frames import FrameReader
from tests.conformance.raw import (
    Clients,
    Raw,
    clients_of,
    connect,
    publish,
    subscribe,
    unsubscribe,
)
from tests.conftest import RunningBroker

UNREACHED = "[limits]\nmessages_per_s = 1e9\nmessages_burst = 1000000000\n"
SMALL = "max_inflight = 8\nmax_packet_size = 20000\n"

_runs = count(1)


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Clients, Clients]]:
    """Run one daemon with the fast lane and one without."""
    running = []
    for name, limits in (("fast", "[limits]\n" + SMALL), ("slow", UNREACHED + SMALL)):
        folder = tmp_path_factory.mktemp(name)
        (folder / "geomqtt.toml").write_text(f"persistence = false\nsys_interval_s = 0\n{limits}")
        command = [sys.executable, "-m", "geomqtt", "serve", "--host", "127.0.0.1", "--port", "0"]
        command += ["--http-port", "0", "--no-log", "--data", str(folder / "data")]
        command += ["--config", str(folder / "geomqtt.toml")]
        with (folder / "stderr").open("wb") as sink:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, cwd=folder)
        running.append(RunningBroker(process, folder / "data", folder / "stderr"))
    fast, slow = running
    with clients_of(fast.host, fast.port) as one, clients_of(slow.host, slow.port) as other:
        yield one, other
    for daemon in running:
        daemon.stop()


# The first of each are the likeliest, so that most messages find somebody.
FILTERS = ["a", "a", "a", "a/b", "a/+", "#", "b", "$share/g/a", "$share/g/#"]
TOPICS = ["a", "a", "a", "a/b", "b", "c", "$d"]

clients = st.integers(0, 3)
payloads = st.one_of(
    st.binary(max_size=4), st.sampled_from([b"x" * 120, b"y" * 130, b"z" * 17_000])
)
frames = st.tuples(
    st.sampled_from(TOPICS),
    payloads,
    st.sampled_from([0, 1, 1, 2]),
    st.sampled_from([False, False, False, False, True]),
    st.integers(1, 4),
)


@dataclass
class Run:
    """Frames of one client, each some times over, in reads cut at the given places."""

    client: int
    frames: list[tuple[str, bytes, int, bool, int]]
    cuts: list[int]

    def data(self) -> bytes:
        made = b""
        packet_ids = count(1)
        for topic, payload, qos, retain, times in self.frames:
            for _ in range(times):
                number = next(packet_ids) if qos else 0
                made += publish(topic, payload, qos=qos, packet_id=number, retain=retain)
        used = range(1, next(packet_ids))
        return made + b"".join(b"\x62\x02" + number.to_bytes(2, "big") for number in used)


@dataclass
class Subscribe:
    client: int
    topic_filter: str
    qos: int


@dataclass
class Unsubscribe:
    client: int
    topic_filter: str


@dataclass
class Acknowledge:
    """PUBACK, or PUBREC and PUBCOMP, for ids that may or may not be under way."""

    client: int
    ids: list[int]
    kind: int


@dataclass
class Reconnect:
    client: int


subscribes = st.builds(Subscribe, clients, st.sampled_from(FILTERS), st.sampled_from([1, 1, 0, 2]))
runs = st.builds(
    Run,
    clients,
    st.lists(frames, min_size=1, max_size=5),
    st.lists(st.integers(0, 400), max_size=3),
)
steps = st.lists(
    st.one_of(
        runs,
        runs,
        subscribes,
        st.builds(Unsubscribe, clients, st.sampled_from(FILTERS)),
        st.builds(
            Acknowledge,
            clients,
            st.lists(st.integers(1, 8), min_size=1, max_size=4),
            st.sampled_from([0x40, 0x50, 0x70]),
        ),
        st.builds(Reconnect, clients),
    ),
    min_size=1,
    max_size=12,
)


class World:
    """Four clients of one daemon, two of them persistent, and what each of them got."""

    def __init__(self, door: Clients, run: int) -> None:
        self._door = door
        self._run = run
        self._clients = [self._connect(number, present=False) for number in range(4)]

    def _connect(self, number: int, *, present: bool) -> Raw:
        clean = number < 2
        name = f"run{self._run}-{number}"
        return self._door.connect(name, clean=clean, present=present and not clean)

    def act(self, step: object) -> list[list[bytes]]:
        """Do one step and give every packet that every client got of it."""
        if isinstance(step, Run):
            self._send_cut(self._clients[step.client], step.data(), step.cuts)
        elif isinstance(step, Subscribe):
            packet = subscribe(9, (step.topic_filter, step.qos))
            self._clients[step.client].send(packet)
        elif isinstance(step, Unsubscribe):
            self._clients[step.client].send(unsubscribe(9, step.topic_filter))
        elif isinstance(step, Acknowledge):
            head = bytes((step.kind, 2))
            data = b"".join(head + number.to_bytes(2, "big") for number in step.ids)
            self._clients[step.client].send(data)
        elif isinstance(step, Reconnect):
            self._clients[step.client].disconnect()
            self._clients[step.client] = self._connect(step.client, present=True)
            actor = self._clients[step.client]
            return [self._until_ping(actor)]
        actor = self._clients[step.client]  # type: ignore[attr-defined]
        got = [self._until_ping(actor)]
        return got + [self._until_ping(each) for each in self._clients if each is not actor]

    @staticmethod
    def _send_cut(client: Raw, data: bytes, cuts: list[int]) -> None:
        start = 0
        for cut in sorted(cuts):
            client.send(data[start:cut])
            start = max(start, min(cut, len(data)))
        client.send(data[start:])

    @staticmethod
    def _until_ping(client: Raw) -> list[bytes]:
        client.send("c0 00")
        reader = FrameReader(1_000_000)
        got: list[bytes] = []
        while True:
            data = client.socket.recv(65_536)
            assert data, "the connection ended"
            got += (bytes((first,)) + body for first, body in reader.receive_data(data))
            if got and got[-1] == b"\xd0":
                return got[:-1]

    def leave(self) -> None:
        """End all sessions, and forget what was retained."""
        for number, client in enumerate(self._clients):
            for topic in TOPICS:
                client.send(publish(topic, "", retain=True))
            self._until_ping(client)
            client.disconnect()
            self._door.connect(f"run{self._run}-{number}").disconnect()


@given(st.lists(subscribes, max_size=5), steps)
@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_both_lanes_deliver_the_same(
    lanes: tuple[Clients, Clients], subscriptions: list[object], steps: list[object]
) -> None:
    run = next(_runs)
    worlds = [World(door, run) for door in lanes]
    for step in [*subscriptions, *steps, *map(Reconnect, range(4))]:
        fast, slow = (world.act(step) for world in worlds)
        assert fast == slow, step
    for world in worlds:
        world.leave()


async def test_the_lane_takes_what_it_may_and_nothing_else() -> None:
    config = Config(
        persistence=False, sys_interval_s=0, listener=[Listener(port=0)], event_log=False
    )
    config.http.port = 0
    server = Server(config)
    await server.start()
    try:
        port = config.listener[0].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        first = publish("plain", "x") + publish("shared", "x") + publish("$own", "x")
        writer.write(
            connect("both")
            + subscribe(1, ("plain", 1), ("$share/g/shared", 1), ("$own", 1))
            + first
            + b"\xc0\x00"
        )
        answer = bytes.fromhex("20 02 00 00 90 05 00 01 01 01 01") + first + b"\xd0\x00"
        assert await reader.readexactly(len(answer)) == answer
        (link,) = server.broker.links
        once = publish("plain", "1")
        for passes in (once, once * 3, once + publish("plain", "longer") + once):
            assert forward(link, passes, 0) == len(passes)
        assert forward(link, publish("plain", "x", qos=1, packet_id=7), 0) > 0
        for stops in (
            publish("plain", "x", retain=True),
            publish("plain", "x", qos=2, packet_id=7),
            publish("plain", "x", qos=1, packet_id=7, dup=True),
            publish("plain", "x", qos=1, packet_id=0),
            publish("never seen", "x"),
            publish("shared", "x"),
            publish("$own", "x"),
            once[:-1],
            b"\x30\x00\x00\x00\x00",
            b"\x30\x80\x00\x00\x00",
            b"\x30\x07\xff\xffplain",
            bytes.fromhex("40 02 00 63 c0 00"),
        ):
            assert forward(link, stops, 0) == 0, stops
            assert forward(link, once + stops, 0) == len(once), stops
        writer.close()
        await writer.wait_closed()
    finally:
        await server.stop()
