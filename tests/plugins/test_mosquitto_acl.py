"""Mosquitto's ACL files: the rights that Mosquitto gives, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.acl import AclSettings
from plugins.api import Client, PluginError, SubscribeRequest
from plugins.mosquitto_acl import MosquittoAcl, parse
from protocol.message import Message

FILE = """
# for clients without a user name
topic read public/#

user ann
topic fleet/#
topic deny fleet/secret
topic read $SYS/#

user bob
topic write from/bob
topic read to bob/with spaces

pattern readwrite home/%u/%c/#
pattern deny home/+/+/locked
"""


def acl(folder: Path, text: str) -> MosquittoAcl:
    path = folder / "acl"
    path.write_text(text)
    return MosquittoAcl(AclSettings(str(path)))


def rights(rules: MosquittoAcl, user: str | None, topic: str, client_id: str = "c1") -> str:
    client = Client(client_id, user, "127.0.0.1:1", "tcp:1883", user is None)
    message = Message(topic, b"")
    may_read = rules.authorise_receive(client, message)
    may_write = rules.authorise_publish(client, message)
    return ("r" if may_read else "-") + ("w" if may_write else "-")


@pytest.mark.parametrize(
    ("user", "topic", "expected"),
    [
        (None, "public/x", "r-"),
        (None, "fleet/x", "--"),
        (None, "$SYS/x", "--"),
        (None, "home/None/c1/x", "--"),
        ("ann", "fleet/x", "rw"),
        ("ann", "fleet/secret", "--"),
        ("ann", "public/x", "--"),
        ("ann", "$SYS/broker/uptime", "r-"),
        ("ann", "home/ann/c1/x", "rw"),
        ("ann", "home/ann/c1/locked", "--"),
        ("ann", "home/bob/c1/x", "--"),
        ("ann", "home/ann/c2/x", "--"),
        ("bob", "from/bob", "-w"),
        ("bob", "to bob/with spaces", "r-"),
        ("eve", "fleet/x", "--"),
        ("eve", "home/eve/c1/x", "rw"),
        ("+", "home/eve/c1/x", "--"),
        ("a/b", "home/a/b/c1", "--"),
    ],
)
def test_rights_are_those_of_mosquitto(
    tmp_path: Path, user: str | None, topic: str, expected: str
) -> None:
    assert rights(acl(tmp_path, FILE), user, topic) == expected


def test_a_users_own_lines_come_before_patterns(tmp_path: Path) -> None:
    rules = acl(tmp_path, "pattern deny a/%u\npattern read b/%u\nuser ann\ntopic a/ann\n")
    assert rights(rules, "ann", "a/ann") == "rw"
    assert rights(rules, "bob", "a/bob") == "--"


def test_what_denies_comes_before_what_allows(tmp_path: Path) -> None:
    rules = acl(tmp_path, "user ann\ntopic #\ntopic deny a/#\ntopic a/b\n")
    assert rights(rules, "ann", "a/b") == "--"


def test_everybody_may_subscribe_but_not_learn_where_publishers_are(tmp_path: Path) -> None:
    rules = acl(tmp_path, FILE)
    client = Client("c1", "eve", "127.0.0.1:1", "tcp:1883")
    assert rules.authorise_subscribe(client, SubscribeRequest("#", 0))
    assert rules.authorise_subscribe(client, SubscribeRequest("$SYS/#", 0))
    assert not rules.authorise_subscribe(client, SubscribeRequest("#", 0, sees_locations=True))


def test_an_empty_file_denies(tmp_path: Path) -> None:
    assert rights(acl(tmp_path, "# nothing\n"), "ann", "x") == "--"


def test_a_broken_file_at_reload_keeps_the_old_rules(tmp_path: Path) -> None:
    rules = acl(tmp_path, "user ann\ntopic a\n")
    (tmp_path / "acl").write_text("user ann\ntopic b\n")
    rules.reload()
    assert (rights(rules, "ann", "a"), rights(rules, "ann", "b")) == ("--", "rw")
    (tmp_path / "acl").write_text("nonsense\n")
    with pytest.raises(PluginError):
        rules.reload()
    assert rights(rules, "ann", "b") == "rw"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("topics a", "f:1: expected user, topic or pattern, not 'topics'"),
        ("\nuser", "f:2: expected user <name>"),
        ("topic", "f:1: expected topic [read|write|readwrite|deny] <topic>"),
        ("topic read a/#/b", "f:1: topic filter 'a/#/b' has '#' before its last level"),
        ("topic read a/%u", "f:1: %u and %c stand for names in pattern lines only"),
    ],
)
def test_a_mistake_is_answered_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(PluginError) as caught:
        parse(text, "f")
    assert str(caught.value) == f"ACL file {reason}"
