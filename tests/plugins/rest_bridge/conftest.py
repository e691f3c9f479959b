"""What the tests of the REST bridge share: a daemon with REST and log, and ways to ask it.

Most tests share one daemon per module and keep to topics of their own (`topic`); a test
that needs a configuration starts its own with `start_bridge`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import RunningBroker

DEADLINE_S = 20.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class Bridge:
    """A daemon with a REST door."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        host, port = broker.address("http")
        self.url = f"http://{host}:{port}"
        self.address = (host, port)
        self.http = httpx.Client(base_url=self.url, timeout=DEADLINE_S)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.http.get(path, **more)

    def found(self, path: str, count: int, **more: Any) -> list[dict[str, Any]]:
        """Ask until the log has so many events, and give them."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self.get(path, **more)
            assert answer.status_code == 200, answer.text
            document = answer.json()
            events: list[dict[str, Any]] = (
                document if isinstance(document, list) else document["features"]
            )
            if len(events) >= count:
                assert len(events) == count, events
                return events
            assert time.monotonic() < deadline, f"{len(events)} of {count} events: {document}"

    def put(self, path: str, body: bytes | str = b"", **parameters: Any) -> None:
        answer = self.http.put(path, content=body, params=parameters or None)
        assert answer.status_code == 204, answer.text

    def put_at(
        self, topic: str, place: str, body: str = "", time: str = "2026-03-28T12:00Z"
    ) -> None:
        self.put(f"/rest/geopublish/{topic}", body, time=time, geometry=place)


@contextlib.asynccontextmanager
async def watching(
    bridge: Bridge, path: str, last: str = "", **more: Any
) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
    """Open a live stream; gives (id, event) once the broker listens."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
    async with (
        httpx.AsyncClient(base_url=bridge.url, timeout=DEADLINE_S) as client,
        client.stream("GET", path, headers=headers, **more) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        # The first line is sent when the stream is subscribed.
        assert (await anext(lines)).startswith("retry:")
        yield _events(lines)


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
    event_id, data = "", ""
    async for line in lines:
        if line.startswith("id: "):
            event_id = line[4:]
        elif line.startswith("data: "):
            data = line[6:]
        elif not line and data:
            yield event_id, json.loads(data)
            data = ""


StartBridge = Callable[..., Bridge]


@pytest.fixture
def start_bridge(start_broker: Callable[..., RunningBroker]) -> StartBridge:
    """Start daemons of a test's own, with the arguments of `start_broker`."""

    def start(*arguments: str, log: bool = True, **more: Any) -> Bridge:
        flags = ["--http-port", str(free_port()), "--log" if log else "--no-log"]
        return Bridge(start_broker(*flags, *arguments, **more))

    return start


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    """One daemon for all tests of a module."""
    folder: Path = tmp_path_factory.mktemp("bridge")
    command = [sys.executable, "-m", "geomqtt", "serve", "--data", str(folder / "data")]
    command += ["--host", "127.0.0.1", "--port", "0", "--http-port", str(free_port())]
    stderr = folder / "stderr"
    with stderr.open("wb") as sink:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, cwd=folder)
    running = RunningBroker(process, folder / "data", stderr)
    yield Bridge(running)
    running.stop()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses."""
    return "".join(each if each.isalnum() else "_" for each in request.node.name)
