"""What the Dockerfile does, without Docker: build the wheel, install it alone, start it.

The wheel is built from a copy of the checkout that leaves out what .dockerignore leaves out,
and installed with its dependencies into an environment of its own. Nothing here runs from
the checkout, so a file that the wheel lacks is missed.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import queue
import re
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
import yaml

from broker.config import load
from geomqtt.cli import build_parser

ROOT = Path(__file__).parents[2]
ROOMS = {"protocol", "broker", "plugins", "spark_export", "geomqtt"}
DOCKERFILES = [ROOT / "Dockerfile", ROOT / "docker" / "nightly.Dockerfile"]
TIMEOUT_S = 150
STOP_GRACE_S = 15  # as in docker/compose.yaml

pytestmark = pytest.mark.timeout(300)


def run(*command: str | Path, cwd: Path) -> str:
    """Run a step; what it wrote is shown when it fails."""
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the checkout as `COPY . .` does."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line.removeprefix("**/") for line in lines if line and not line.startswith("#")]

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if any(fnmatch.fnmatch(name, each) for each in patterns)}

    copy = tmp_path_factory.mktemp("image") / "src"
    shutil.copytree(ROOT, copy, ignore=left_out)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    """Build the wheel."""
    wheels = source.parent / "wheels"
    run(sys.executable, "-m", "build", "--wheel", "--outdir", wheels, cwd=source)
    (made,) = wheels.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """Install the wheel into an environment that has nothing else, and give its bin folder."""
    home = wheel.parent.parent
    run(sys.executable, "-m", "venv", home / "venv", cwd=home)
    run(home / "venv/bin/python", "-m", "pip", "install", "--quiet", wheel, cwd=home)
    return home / "venv" / "bin"


def test_the_wheel_has_every_file_of_our_rooms_and_no_others(source: Path, wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    wanted = {
        str(path.relative_to(source))
        for room in ROOMS
        for path in (source / room).rglob("*")
        if path.is_file() and path.suffix != ".md"
    }
    inside = {name for name in names if not name.startswith("geomqtt-")}
    assert inside == wanted
    assert {f"{room}/py.typed" for room in ROOMS} <= names


def test_the_wheel_brings_the_annotated_configuration(installed: Path) -> None:
    example = installed.parent / "share" / "geomqtt" / "geomqtt.toml"
    assert example.read_bytes() == (ROOT / "docker" / "geomqtt.toml").read_bytes()
    load(example)


def test_everything_comes_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    script = "import protocol, broker, plugins, geomqtt; print(broker.__file__, geomqtt.__file__)"
    paths = run(installed / "python", "-c", script, cwd=tmp_path).split()
    assert all(Path(path).is_relative_to(installed.parent) for path in paths)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(installed / "geomqtt", "--version", cwd=tmp_path) == f"geomqtt {version}\n"


def test_a_light_install_names_the_extra_that_spark_needs(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "log").mkdir(parents=True)
    done = subprocess.run(
        [installed / "geomqtt", "nightly", "--data", tmp_path / "data"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.endswith("pip install 'geomqtt[spark]'\n")
    assert "Traceback" not in done.stderr


# The daemon of the image


class Daemon:
    """The installed broker with the configuration of the image, on ports that are free."""

    def __init__(self, installed: Path, folder: Path) -> None:
        self.http_port = free_port()
        self.data = folder / "data"
        text = (ROOT / "docker" / "container.toml").read_text()
        text = text.replace("0.0.0.0", "127.0.0.1").replace('"/data"', json.dumps(str(self.data)))
        text = text.replace("port = 1883", "port = 0").replace("port = 8083", "port = 0")
        text = text.replace("port = 8080", f"port = {self.http_port}")
        config = folder / "geomqtt.toml"
        config.write_text(text)
        self.stderr = folder / "stderr"
        with self.stderr.open("wb") as sink:
            self.process = subprocess.Popen(
                [installed / "geomqtt", "serve", "--config", config],
                stdout=subprocess.PIPE,
                stderr=sink,
                cwd=folder,
                env={key: each for key, each in os.environ.items() if key != "PYTHONPATH"},
            )
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], 60)
        line = self.process.stdout.readline().decode() if readable else ""
        assert line.startswith("geomqtt ready: "), self.stderr.read_text()
        found = re.findall(r"(mqtt|ws) 127\.0\.0\.1:(\d+)", line)
        self.ports = {kind: int(port) for kind, port in found}

    def stop(self) -> int:
        """Stop it as Docker does, and give its exit code."""
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_GRACE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()

    def get(self, path: str) -> tuple[int, str, bytes]:
        """Ask the HTTP door: status, content type, body."""
        url = f"http://127.0.0.1:{self.http_port}{path}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.headers.get_content_type(), answer.read()


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def daemon(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    running = Daemon(installed, tmp_path_factory.mktemp("container"))
    yield running
    assert running.stop() == 0


@pytest.mark.parametrize("transport", ["mqtt", "ws"])
def test_a_client_publishes_and_receives(daemon: Daemon, transport: str) -> None:
    arrived: queue.Queue[tuple[str, bytes]] = queue.Queue()
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        transport="websockets" if transport == "ws" else "tcp",
    )
    client.ws_set_options(path="/mqtt")
    client.on_message = lambda _, __, message: arrived.put((message.topic, message.payload))
    client.on_subscribe = lambda *_: client.publish("$geo/at=POINT(8.58 54.51)/dike/7", b"21", 1)
    client.connect("127.0.0.1", daemon.ports[transport])
    client.loop_start()
    try:
        client.subscribe("$geo/covers=BBOX(8.5,54.4,8.7,54.6)/dike/#", 1)
        assert arrived.get(timeout=30) == ("dike/7", b"21")
    finally:
        client.disconnect()
        client.loop_stop()


def test_the_health_check_of_the_image_passes(daemon: Daemon, installed: Path) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    (check,) = re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])$", dockerfile, re.MULTILINE)
    program, *arguments = json.loads(check)
    arguments = [text.replace(":8080/", f":{daemon.http_port}/") for text in arguments]
    run(installed / program, *arguments, cwd=daemon.data)


def test_the_http_door_has_its_files(daemon: Daemon, source: Path) -> None:
    files = source / "plugins" / "rest_bridge" / "map"
    assert daemon.get("/health") == (200, "application/json", b'{"status":"ok"}')
    assert daemon.get("/metrics")[0] == 200
    for path in sorted(files.rglob("*")):
        if path.is_file():
            assert daemon.get(f"/{path.relative_to(files)}")[2] == path.read_bytes()
    assert daemon.get("/")[:2] == (200, "text/html")
    assert daemon.get("/leaflet/leaflet.js")[0] == 200


def test_sigterm_ends_it_with_0_and_what_was_published_is_on_disk(
    installed: Path, tmp_path: Path
) -> None:
    daemon = Daemon(installed, tmp_path)
    address = ("-p", str(daemon.ports["mqtt"]), "-t", "dike/7", "-q", "1")
    run(installed / "geomqtt", "pub", *address, "-m", "21", "-r", cwd=tmp_path)
    assert run(installed / "geomqtt", "sub", *address, "-C", "1", cwd=tmp_path) == "21\n"
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.stderr.read_text()
    (segment,) = (daemon.data / "log").glob("????-??-??.sqlite")
    with closing(sqlite3.connect(segment)) as log:
        assert log.execute("SELECT topic, payload FROM event").fetchall() == [("dike/7", b"21")]
    with closing(sqlite3.connect(daemon.data / "store.sqlite")) as store:
        assert store.execute("SELECT topic, payload FROM retained").fetchall() == [
            ("dike/7", b"21")
        ]


# What the files in docker/ say of each other


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_what_a_dockerfile_copies_is_there(dockerfile: Path) -> None:
    copied = re.findall(r"^COPY (?!--from)(\S+) ", dockerfile.read_text(), re.MULTILINE)
    assert copied
    assert not [each for each in copied if not (ROOT / each).exists()]


def compose() -> dict[str, Any]:
    document = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    assert isinstance(document, dict)
    return document


def test_compose_builds_from_files_that_exist_and_publishes_on_loopback() -> None:
    services = compose()["services"]
    here = ROOT / "docker"
    for service in services.values():
        build = service["build"]
        context = here / (build if isinstance(build, str) else build["context"])
        name = "Dockerfile" if isinstance(build, str) else build["dockerfile"]
        assert (context / name).is_file()
        for volume in service["volumes"]:
            outside = volume.partition(":")[0]
            assert outside in compose()["volumes"] or (here / outside).is_file()
    assert services["broker"]["stop_grace_period"] == f"{STOP_GRACE_S}s"
    ports = [port.split(":") for port in services["broker"]["ports"]]
    assert {host for host, _, _ in ports} == {"127.0.0.1"}
    config = load(here / "container.toml")
    inside = {listener.port for listener in config.listener} | {config.http.port}
    assert {int(port) for _, _, port in ports} == inside
    exposed = re.search(r"^EXPOSE (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert exposed is not None
    assert {int(port) for port in exposed[1].split()} == inside
    assert f"VOLUME {config.data_dir}\n" in (ROOT / "Dockerfile").read_text()


def commands() -> list[list[str]]:
    """Give every command line of ours in docker/ and in the Dockerfiles."""
    found = [compose()["services"]["nightly"]["command"]]
    for path in DOCKERFILES:
        found += map(json.loads, re.findall(r"^CMD (\[.*\])$", path.read_text(), re.MULTILINE))
    for path in (ROOT / "docker").glob("*.service"):
        lines = re.findall(r"^ExecStart=\S+/geomqtt (.*)$", path.read_text(), re.MULTILINE)
        found += [line.split() for line in lines]
    return found


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_the_command_lines_in_docker_are_understood(arguments: list[str]) -> None:
    with contextlib.suppress(SystemExit):
        args = build_parser(arguments[0]).parse_args(arguments)
        assert args.command == arguments[0]
        return
    pytest.fail(f"geomqtt {' '.join(arguments)} is no command")
