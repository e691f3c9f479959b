"""The pages in docs/ speak of things that exist: files, tests, settings, commands, each other."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from broker.config import Config
from geomqtt.cli import COMMANDS
from plugins.api import Plugin
from plugins.event_log.plugin import EventLogSettings

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]
SOURCES = (".py", ".toml", ".md", ".js", ".json", ".yaml")
ROOMS = (
    "protocol/",
    "broker/",
    "plugins/",
    "spark_export/",
    "geomqtt/",
    "tests/",
    "docker/",
    "docs/",
)

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def quoted(page: Path) -> list[str]:
    """Give everything between single backticks, code blocks left out."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def settings_of(kind: type[msgspec.Struct]) -> dict[str, type]:
    """Give the keys of a section and of those below it."""
    found: dict[str, type] = {}
    for each in msgspec.structs.fields(kind):
        found[each.name] = each.type
        for part in (each.type, *getattr(each.type, "__args__", ())):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                found |= settings_of(part)
    return found


@pages
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


@pages
def test_files_named_in_a_page_exist(page: Path) -> None:
    named = [text for text in quoted(page) if text.startswith(ROOMS) and text.endswith(SOURCES)]
    missing = [path for path in named if "<" not in path and not list(ROOT.glob(path))]
    assert not missing


@pages
def test_tests_named_in_a_page_exist(page: Path) -> None:
    named = [text for text in quoted(page) if re.fullmatch(r"test_\w+", text)]
    paths = list((ROOT / "tests").rglob("test_*.py"))
    written = "".join(path.read_text() for path in paths)
    modules = {path.stem for path in paths}
    assert not [name for name in named if f"def {name}(" not in written and name not in modules]


@pages
def test_settings_given_a_value_in_a_page_exist(page: Path) -> None:
    """`key = value` in running text names a setting, or an attribute of a plugin."""
    known = settings_of(Config) | settings_of(EventLogSettings) | dict(vars(Plugin))
    named = [
        text.partition(" = ")[0] for text in quoted(page) if re.fullmatch(r"[a-z_]+ = \S.*", text)
    ]
    assert not [key for key in named if key not in known]


def test_every_key_in_the_page_on_deviations_is_a_setting() -> None:
    words = [text for text in quoted(ROOT / "docs/deviations.md") if re.fullmatch(r"\w+_\w+", text)]
    assert len(words) > 20
    assert not [word for word in words if word not in settings_of(Config)]


@pages
def test_commands_named_in_a_page_exist(page: Path) -> None:
    named = re.findall(r"(?:^|[`$ /])geomqtt ([a-z]+)\b", "\n".join(quoted(page)))
    assert not [command for command in named if command not in {*COMMANDS, "ready", "version"}]
