"""The plugin in docs/plugins.md works as it is printed there, in the real daemon."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from broker.config import Config, Listener
from geomqtt.serve import shipped_plugins
from plugins.api import Broker, Plugin
from plugins.loader import find
from tests.conformance.raw import clients_of, publish, publish_with
from tests.conftest import StartBroker

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Save the plugin as the page says, in a folder on Python's path."""
    folder = tmp_path / "plugins-of-mine"
    folder.mkdir()
    (folder / "presence.py").write_text(block("python"))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


def test_the_example_tells_who_is_there_and_lets_nobody_lie(
    written: Path, start_broker: StartBroker
) -> None:
    broker = start_broker(config=block("toml"))
    with clients_of(broker.host, broker.port) as clients:
        early = clients.connect("early")
        watcher = clients.subscribed("who/#", client_id="watcher")
        watcher.expect(publish("who/early", "online", retain=True))
        watcher.expect(publish("who/watcher", "online", retain=True))
        clients.connect("late")
        watcher.expect(publish("who/late", "online"))
        publish_with(early, "who/late", "offline")
        publish_with(early, "elsewhere", "allowed")
        watcher.expect_nothing()
        early.disconnect()
        watcher.expect(publish("who/early", "offline"))
        clients.connect("a/b")
        watcher.expect_nothing()


def test_the_example_is_retained_only_if_it_is_told_to(
    written: Path, start_broker: StartBroker
) -> None:
    config = block("toml").replace("}", ", retain = false }")
    broker = start_broker(config=config)
    with clients_of(broker.host, broker.port) as clients:
        clients.connect("early")
        clients.subscribed("who/#").expect_nothing()


MISTAKES = {
    "prefix: Expected": 'use = "presence:Presence"\nsettings = { prefix = 3 }',
    "unknown field": 'use = "presence:Presence"\nsettings = { prefixx = "a" }',
    "holds a wildcard": 'use = "presence:Presence"\nsettings = { prefix = "a/#" }',
    "has no 'Nobody'": 'use = "presence:Nobody"',
    "nowhere": 'use = "nowhere:Class"',
}


@pytest.mark.parametrize("part", MISTAKES)
def test_a_mistake_is_the_line_that_the_page_prints(
    written: Path, tmp_path: Path, part: str
) -> None:
    (line,) = [each for each in PAGE.splitlines() if part in each]
    (tmp_path / "wrong.toml").write_text(f"[[plugin]]\n{MISTAKES[part]}\n")
    options = ("--config", "wrong.toml", "--port", "0", "--http-port", "0", "--no-log")
    done = subprocess.run(
        [sys.executable, "-m", "geomqtt", "serve", *options, "--data", "data"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"{line}\n"


def test_the_shipped_plugins_are_those_of_the_page() -> None:
    listed = set(re.findall(r"`(plugins\.[\w.]+:\w+)`", PAGE.split("## Shipped plugins")[1]))
    kinds = {find(use) for use in listed}
    config = Config(
        users_file="users",
        acl_file="rules",
        listener=[Listener(users_file="others", acl_file="other-rules")],
    )
    assert {entry.use for entry in shipped_plugins(config)} <= listed
    # Whatever else is a plugin in our modules is the base of one that is listed.
    modules = {sys.modules[kind.__module__] for kind in kinds}
    written = {each for module in modules for each in vars(module).values() if _is_plugin(each)}
    assert all(any(issubclass(kind, each) for kind in kinds) for each in written)


def _is_plugin(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, Plugin)


def test_the_hooks_and_members_are_those_of_the_interface() -> None:
    hooks = {name for name in vars(Plugin) if callable(getattr(Plugin, name)) and name[0] != "_"}
    members = {name for name in vars(Broker) if name[0] != "_"}
    missing = [name for name in hooks | members if not re.search(rf"`{name}\b", PAGE)]
    assert not sorted(missing)
