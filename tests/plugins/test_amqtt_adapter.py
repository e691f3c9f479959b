"""amqtt's own plugins, and one that we wrote as its users write theirs, in our daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pwdlib.hashers.argon2 import Argon2Hasher

from tests.conformance.raw import Clients, clients_of, connect, publish_with, subscribe
from tests.conftest import RunningBroker, StartBroker

USE = '[[plugin]]\nuse = "plugins.amqtt_adapter:AmqttPlugins"\n'
ANONYMOUS = "amqtt.plugins.authentication.AnonymousAuthPlugin"
FILE = "amqtt.plugins.authentication.FileAuthPlugin"
TABOO = "amqtt.plugins.topic_checking.TopicTabooPlugin"
TOPIC_ACL = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"

OWN = """
import asyncio
from dataclasses import dataclass

from amqtt.contexts import Action
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin


class Door(BaseAuthPlugin):
    async def authenticate(self, *, session):
        await asyncio.sleep(0)
        session.attributes["own.room"] = self.config.rooms.get(session.username)
        return session.password == session.username[::-1] if session.username else None

    @dataclass
    class Config:
        rooms: dict


class Rooms(BaseTopicPlugin):
    async def topic_filtering(self, *, session=None, topic=None, action=None):
        if action != Action.RECEIVE:
            await asyncio.sleep(0)
        elif topic.endswith("/slow"):
            await asyncio.sleep(0)
        return topic.split("/")[0] == session.attributes.get("own.room")
"""


def section(name: str, settings: str = "") -> str:
    return f'[plugin.settings.plugins."{name}"]\n{settings}\n'


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def of(stack: ExitStack, broker: RunningBroker) -> Clients:
    return stack.enter_context(clients_of(broker.host, broker.port))


def refused(clients: Clients, username: str | None, password: str | None) -> None:
    raw = clients.raw()
    raw.send(connect("refused", username=username, password=password))
    raw.expect("20 02 00 05")
    raw.expect_close()


def test_amqtts_anonymous_plugin_lets_everybody_in_or_only_who_has_a_name(
    start_broker: StartBroker, stack: ExitStack
) -> None:
    clients = of(stack, start_broker(config=USE + section(ANONYMOUS)))
    clients.connect("c1")
    clients.connect("c2", username="ann", password="x")
    broker = start_broker(config=USE + section(ANONYMOUS, "allow_anonymous = false"))
    clients = of(stack, broker)
    clients.connect("c2", username="ann", password="x")
    refused(clients, None, None)


def test_amqtts_file_plugin_checks_passwords(
    start_broker: StartBroker, stack: ExitStack, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text(f"# ours\nann:{Argon2Hasher().hash('secret')}\n")
    broker = start_broker(config=USE + section(FILE, f'password_file = "{users}"'))
    clients = of(stack, broker)
    clients.connect("c1", username="ann", password="secret")
    refused(clients, "ann", "wrong")
    refused(clients, "bob", "secret")
    refused(clients, None, None)


def test_all_plugins_of_amqtt_must_agree(
    start_broker: StartBroker, stack: ExitStack, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:{Argon2Hasher().hash('secret')}\n")
    config = USE + section(ANONYMOUS) + section(FILE, f'password_file = "{users}"')
    clients = of(stack, start_broker(config=config))
    clients.connect("c1")  # the file plugin has no opinion on who names no user
    clients.connect("c2", username="ann", password="secret")
    refused(clients, "ann", "wrong")


def test_amqtts_taboo_plugin_keeps_topics_from_all_but_the_admin(
    start_broker: StartBroker, stack: ExitStack
) -> None:
    clients = of(stack, start_broker(config=USE + section(ANONYMOUS) + section(TABOO)))
    reader = clients.connect("reader")
    reader.send(subscribe(1, ("prohibited", 0), ("allowed", 0), ("#", 0)))
    reader.expect("90 05 00 01 80 00 00")
    admin = clients.connect("admin", username="admin", password="x")
    admin.send(subscribe(1, ("prohibited", 0)))
    admin.expect("90 03 00 01 00")
    writer = clients.connect("writer")
    publish_with(writer, "prohibited", "no")
    publish_with(admin, "prohibited", "yes")
    admin.expect('30 0f 00 0a "prohibited" "yes"')
    publish_with(writer, "allowed", "yes")
    # The reader's # does not make a taboo topic reach it: receiving is asked for as well.
    reader.expect('30 0c 00 07 "allowed" "yes"')


def test_amqtts_topic_acl_judges_publish_and_subscribe(
    start_broker: StartBroker, stack: ExitStack
) -> None:
    acl = (
        'publish_acl = { ann = ["a/+"], anonymous = ["open"] }\n'
        'acl = { ann = ["a/#"], anonymous = ["a/b"] }'
    )
    clients = of(stack, start_broker(config=USE + section(ANONYMOUS) + section(TOPIC_ACL, acl)))
    ann = clients.connect("ann", username="ann", password="x")
    ann.send(subscribe(1, ("a/#", 0), ("b", 0)))
    ann.expect("90 04 00 01 00 80")
    nobody = clients.connect("nobody")
    nobody.send(subscribe(1, ("a/#", 0), ("a/b", 0)))
    nobody.expect("90 04 00 01 80 00")
    publish_with(nobody, "a/b", "no")
    publish_with(ann, "a/b", "yes")
    ann.expect('30 08 00 03 "a/b" "yes"')
    nobody.expect('30 08 00 03 "a/b" "yes"')


def test_a_plugin_written_for_amqtt_keeps_its_notes_on_the_session(
    start_broker: StartBroker, stack: ExitStack, tmp_path: Path
) -> None:
    (tmp_path / "own_amqtt_plugins.py").write_text(OWN)
    rooms = 'rooms = { ann = "kitchen", bob = "hall" }'
    config = USE + section("own_amqtt_plugins.Door", rooms) + section("own_amqtt_plugins.Rooms")
    broker = start_broker(config=config)
    clients = of(stack, broker)
    ann = clients.connect("ann", username="ann", password="nna")
    refused(clients, "ann", "ann")
    refused(clients, None, None)
    ann.send(subscribe(1, ("kitchen/#", 0), ("hall/#", 0)))
    ann.expect("90 04 00 01 00 80")
    publish_with(ann, "hall/x", "no")
    publish_with(ann, "kitchen/slow", "no")
    publish_with(ann, "kitchen/x", "yes")
    ann.expect('30 0e 00 09 "kitchen/x" "yes"')
    ann.expect_nothing()
    assert "a topic plugin waits before a delivery to 'ann': refused" in broker.log


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("no.such.Plugin", ""),
        (ANONYMOUS, "nonsense = 1"),
        (FILE, 'password_file = "nowhere"'),
        ("pathlib.Path", ""),
    ],
)
def test_a_plugin_that_amqtt_cannot_load_stops_the_start_with_one_line(
    start_broker: StartBroker, name: str, settings: str
) -> None:
    with pytest.raises(pytest.fail.Exception) as failure:
        start_broker(config=USE + section(name, settings))
    text = str(failure.value)
    assert "exit code 2" in text
    assert "geomqtt: amqtt plugins: " in text
    assert "Traceback" not in text
