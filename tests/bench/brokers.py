"""The brokers of the benchmark: how each is configured, started on loopback, and stopped.

A broker is a function from (folder, port) to a command. All run with their defaults, except for
what is written beside each configuration. A fresh process and a fresh folder for every run.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.bench.peers import TOOLS, library_folders
from tests.bench.traffic import connect_packet

ROOT = Path(__file__).resolve().parents[2]
OURS = (
    f"{Path(sys.executable).with_name('geomqtt')} serve --host 127.0.0.1 --port {{port}}"
    " --ws-port 0 --http-port 0 --no-log --data {data}"
)

# Queues without a limit: the default of 1000 would drop QoS 1 messages in a window of 1000.
MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
{user}
"""

# MQTT needs JetStream and a server name; everything else is the default.
NATS = """\
server_name: bench
listen: "127.0.0.1:-1"
jetstream {{ store_dir: "{data}/jetstream" }}
mqtt {{ listen: "127.0.0.1:{port}" }}
"""

# The two logging plugins of its default configuration are left out.
AMQTT = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""


Starter = Callable[[Path, int], "Start"]


class StartError(Exception):
    """The broker did not accept a connection; the message has what it said."""


@dataclass(frozen=True)
class Start:
    """A command, and what its environment has beyond ours."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def start_mosquitto(folder: Path, port: int) -> Start:
    # As root it would change to a user that only an installed package has.
    user = "user root" if os.geteuid() == 0 else ""
    configuration = folder / "mosquitto.conf"
    configuration.write_text(MOSQUITTO.format(port=port, user=user))
    root = TOOLS / "mosquitto"
    return Start(
        [str(root / "usr/sbin/mosquitto"), "-c", str(configuration)],
        {"LD_LIBRARY_PATH": os.pathsep.join(map(str, library_folders(root)))},
    )


def start_nats(folder: Path, port: int) -> Start:
    configuration = folder / "nats.conf"
    configuration.write_text(NATS.format(port=port, data=folder))
    return Start([str(TOOLS / "nats/bin/nats-server"), "-c", str(configuration)])


def start_amqtt(folder: Path, port: int) -> Start:
    configuration = folder / "amqtt.yaml"
    configuration.write_text(AMQTT.format(port=port))
    return Start(
        [sys.executable, "-m", "amqtt.scripts.broker_script", "-c", str(configuration)],
        {"PYTHONPATH": str(TOOLS / "amqtt")},
    )


def start_ours(template: str) -> Starter:
    def start(folder: Path, port: int) -> Start:
        return Start(shlex.split(template.format(port=port, data=folder / "data")))

    return start


def with_settings(start: Starter, flags: Sequence[str], config: str) -> Starter:
    """Start our broker with what one row asks of it."""

    def start_with(folder: Path, port: int) -> Start:
        plain = start(folder, port)
        path = folder / "geomqtt.toml"
        path.write_text(config)
        return Start([*plain.command, "--config", str(path), *flags], plain.environment)

    return start_with


def start_rtree_loop(folder: Path, port: int) -> Start:
    script = [sys.executable, "-m", "tests.bench.rtree_loop", "serve"]
    flags = ["--host", "127.0.0.1", "--port", str(port), "--http-port", "0", "--no-log"]
    data = ["--data", str(folder / "data")]
    return Start([*script, *flags, *data], {"PYTHONPATH": str(ROOT)})


# What a user would build instead; measured in the rows that name it, and only there.
BASELINES: dict[str, Starter] = {"rtree-loop": start_rtree_loop}

PEERS: dict[str, Starter] = {
    "mosquitto": start_mosquitto,
    "nats": start_nats,
    "amqtt": start_amqtt,
}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def accepts(port: int) -> bool:
    """Tell whether a CONNECT is answered, which may come later than the open port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
            sock.sendall(connect_packet("bench-probe"))
            answer = sock.recv(4)
            sock.sendall(b"\xe0\x00")
            return answer[:1] == b"\x20" and answer[3:] == b"\x00"
    except OSError:
        return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the broker and what it started, by process id."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        children = []
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()


@contextmanager
def running(
    start: Callable[[Path, int], Start], *, limit_s: float = 20
) -> Iterator[tuple[int, int]]:
    """Run a broker; gives its port and process id."""
    with tempfile.TemporaryDirectory(prefix="geomqtt-bench-") as name:
        folder, port = Path(name), free_port()
        how = start(folder, port)
        said = folder / "output.txt"
        try:
            with said.open("wb") as output:
                process = subprocess.Popen(
                    how.command,
                    cwd=folder,
                    env={**os.environ, **how.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
        except OSError as error:
            raise StartError(f"{how.command[0]}: {error.strerror}") from error
        try:
            deadline = time.monotonic() + limit_s
            while not accepts(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    last = said.read_text(errors="replace").strip().splitlines()[-1:]
                    raise StartError(" ".join(last) or "said nothing")
                time.sleep(0.02)
            yield port, process.pid
        finally:
            stop(process)
