"""The rooms stay rooms: imports run one way, and docs/architecture.md names the real path.

protocol <- plugins <- broker        spark_export -> protocol, plugins.event_log
protocol <- the geomqtt client       the command line starts the rest
"""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from types import FrameType

import pytest

from broker.broker import Broker, OpenListener
from broker.config import Config, Listener
from broker.link import Link
from tests.conformance.raw import connect, octets, publish, subscribe

ROOT = Path(__file__).parents[1]
ROOMS = ("protocol", "plugins", "broker", "spark_export", "geomqtt")
SOURCES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
WRITTEN = (".py", ".js", ".css", ".html", ".md", ".toml", ".yaml", ".c")

# What `geomqtt …` runs, beside the client library and the commands that use nothing else.
COMMAND_LINE = {"geomqtt.serve", "geomqtt.passwd", "geomqtt.convert_config"}
LONGEST = 600


def module_of(path: Path) -> str:
    """Give the dotted name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    """Give every module that a file imports, wherever in it, `from a import b` as `a.b` too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def is_in(module: str, *packages: str) -> bool:
    """Tell whether a module is one of these, or below one of them."""
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def strays(path: Path, *allowed: str) -> set[str]:
    """Give what a file imports of ours that it should not."""
    ours = {name for name in imports_of(path) if is_in(name, *ROOMS)}
    # `from plugins import api` says plugins and plugins.api: the first says nothing.
    return {name for name in ours if name not in ROOMS and not is_in(name, *allowed)}


def files(*rooms: str) -> list[Path]:
    return [path for path in SOURCES if path.relative_to(ROOT).parts[0] in rooms]


def by_name(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=[module_of(path) for path in paths])


@by_name(files("protocol"))
def test_protocol_imports_nothing_of_ours_and_nothing_that_acts(path: Path) -> None:
    assert not strays(path, "protocol")
    acting = ("asyncio", "socket", "threading", "subprocess", "sqlite3", "os", "time", "logging")
    assert not [name for name in imports_of(path) if is_in(name, *acting)]


@by_name(files("plugins"))
def test_plugins_see_protocol_and_each_other(path: Path) -> None:
    assert not strays(path, "protocol", "plugins")


@by_name(files("broker"))
def test_the_broker_sees_the_interface_of_plugins_and_no_concrete_one(path: Path) -> None:
    assert not strays(path, "protocol", "plugins.api", "plugins.loader", "broker")


@by_name([path for path in files("broker") if "matching" in path.parts])
def test_matching_knows_no_sockets_sessions_or_loops(path: Path) -> None:
    assert not strays(path, "protocol", "broker.matching")
    assert not [name for name in imports_of(path) if is_in(name, "asyncio", "socket")]


@by_name(files("spark_export"))
def test_spark_sees_protocol_and_the_event_log(path: Path) -> None:
    assert not strays(path, "protocol", "plugins.event_log", "spark_export")


@by_name([path for path in files("geomqtt") if module_of(path) not in COMMAND_LINE])
def test_the_client_uses_protocol_alone(path: Path) -> None:
    assert not strays(path, "protocol", "geomqtt")
    assert not imports_of(path) & COMMAND_LINE


def test_imports_are_absolute_everywhere() -> None:
    relative = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in [*SOURCES, *TESTS]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative


def test_no_package_file_lies_below_tests() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_other_distribution_owns_our_names() -> None:
    owners = packages_distributions()
    for room in ROOMS:
        assert set(owners.get(room, ())) == {"geomqtt"}


def test_files_are_short_enough_to_be_read() -> None:
    parts = [ROOT / "docs", ROOT / "docker", *(ROOT / room for room in ROOMS)]
    written = [path for part in parts for path in part.rglob("*") if path.suffix in WRITTEN]
    written += [path for path in ROOT.iterdir() if path.is_file()]
    assert len(written) > 100
    long = {
        str(path.relative_to(ROOT)): lines
        for path in written
        if (lines := len(path.read_text().splitlines())) > LONGEST
    }
    assert not long


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert not silent


# The page


def path_of_a_publish() -> list[tuple[str, str]]:
    """Give the steps of the page: the file, and the first name that it mentions there."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    return re.findall(r"^\d+\. \[`[^`]+`\]\(\.\./([^)]+)\)[^`]*`([\w.]+)`", page, re.MULTILINE)


def test_the_path_of_a_publish_is_a_path_through_the_files() -> None:
    """Each step names a file and something defined in it."""
    steps = path_of_a_publish()
    assert steps[0] == ("broker/link.py", "Link.data_received")
    assert len(steps) > 8
    for file, name in steps:
        tree = ast.parse((ROOT / file).read_text())
        defined = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        } | {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        assert set(name.split(".")) <= defined, f"{file} does not define {name}"


class Wire(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Never congested."""


async def test_a_publish_takes_the_path_of_the_page() -> None:
    broker = Broker(Config())
    listener = OpenListener(Listener(), broker.config.limits, anonymous=True)
    wire = Wire()
    link = Link(broker, listener)
    link.connection_made(wire)
    link.data_received(connect("c") + subscribe(1, ("$geo/covers=BBOX(0,0,2,2)/a", 1)))
    assert wire.written == octets("20 02 00 00 90 03 00 01 01")
    called: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(ROOT):
            called.append((str(file.relative_to(ROOT)), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        link.data_received(publish("$geo/at=POINT(1 1)/a", "x", qos=1, packet_id=9))
    finally:
        sys.setprofile(None)
    assert wire.written.endswith(octets('40 02 00 09 32 06 00 01 "a" 00 01 "x"'))
    left = iter(called)
    tables = ("protocol/machine.py", "LEGAL")
    missed = [step for step in path_of_a_publish() if step != tables and step not in left]
    assert not missed


def test_every_room_and_every_folder_in_it_is_on_the_page() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    folders = {path.parent for path in SOURCES}
    missing = [
        str(folder.relative_to(ROOT))
        for folder in folders
        if f"`{folder.relative_to(ROOT)}/`" not in page
    ]
    assert not sorted(missing)
