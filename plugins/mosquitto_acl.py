"""Mosquitto's ACL files, read as they are: lines of `user`, `topic` and `pattern`.

    topic read $SYS/#                before any `user` line: for clients without a user name
    user ann
    topic readwrite fleet/#          for ann
    topic deny fleet/secret
    pattern write from/%u/%c/#       for everybody, with user name and client id put in

The lines become rules of `plugins.acl`, in the order in which Mosquitto asks them: what
denies before what allows, a user's own lines before patterns. As in Mosquitto everybody may
subscribe to anything, and gets of it what may be read; who tests where publishers are is
refused, because such a file has no word for that right.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from plugins.acl import Acl, AclSettings, FileText, Rule, Rules, RuleText
from plugins.api import Client, Plugin, PluginError, SubscribeRequest
from protocol.errors import BadValue
from protocol.topics import check_filter

ACCESS: dict[str, tuple[str, ...]] = {
    "read": ("receive",),
    "write": ("publish",),
    "readwrite": ("publish", "receive"),
    "deny": ("publish", "receive"),
}
EVERYTHING = ["#", "$SYS/#", "$/#"]  # no wildcard reaches topics that begin with a dollar sign


class Line(msgspec.Struct):
    """One right, or the lack of it."""

    access: str
    topic: str


class Lines(msgspec.Struct):
    """The file, sorted by whom it concerns."""

    anonymous: list[Line] = []
    users: dict[str, list[Line]] = {}
    patterns: list[Line] = []


def parse(text: str, source: str) -> Lines:
    """Read the lines of a file; raises PluginError with the line that is wrong."""
    lines = Lines([], {}, [])
    current = lines.anonymous
    for number, text_line in enumerate(text.splitlines(), 1):
        line = text_line.strip()
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        try:
            if word == "user":
                if not rest:
                    raise ValueError("expected user <name>")
                current = lines.users.setdefault(rest, [])
            elif word == "topic":
                if "%u" in rest or "%c" in rest:
                    # Mosquitto takes them literally there, and nobody means that.
                    raise ValueError("%u and %c stand for names in pattern lines only")
                current.append(_right(rest, word))
            elif word == "pattern":
                lines.patterns.append(_right(rest, word))
            else:
                raise ValueError(f"expected user, topic or pattern, not {word[:40]!r}")
        except (ValueError, BadValue) as error:
            raise PluginError(f"ACL file {source}:{number}: {error}") from None
    return lines


def _right(rest: str, word: str) -> Line:
    access, _, topic = rest.partition(" ")
    if access not in ACCESS or not topic.strip():
        access, topic = "readwrite", rest
    topic = topic.strip()
    if not topic:
        raise ValueError(f"expected {word} [read|write|readwrite|deny] <topic>")
    check_filter(topic)
    return Line(access, topic)


def translate(lines: Lines) -> FileText:
    """Say the same in rules of `plugins.acl`."""
    rules = _rules(lines.anonymous, anonymous=True)
    for user, rights in lines.users.items():
        rules += _rules(rights, users=[user])
    rules += _rules(lines.patterns)
    if rules:
        rules.append(RuleText(topics=list(EVERYTHING), allow=["subscribe"]))
    return FileText(rule=rules)


def _rules(
    rights: list[Line], *, users: list[str] | None = None, anonymous: bool = False
) -> list[RuleText]:
    rules = []
    for access in ("deny", "readwrite", "read", "write"):
        topics = list(dict.fromkeys(each.topic for each in rights if each.access == access))
        if not topics:
            continue
        made = {
            "topics": topics,
            "deny" if access == "deny" else "allow": ACCESS[access],
            "users": users or [],
            "anonymous": anonymous,
        }
        rules.append(msgspec.convert(made, RuleText))
    return rules


def read(path: str | Path) -> FileText:
    """Read a file of Mosquitto's as rules of ours."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PluginError(f"ACL file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PluginError(f"ACL file {path}: not UTF-8") from None
    return translate(parse(text, str(path)))


class MosquittoAcl(Acl):
    """Grants what an ACL file of Mosquitto's allows and nothing else."""

    def __init__(self, settings: AclSettings) -> None:
        Plugin.__init__(self, settings)
        self._rules = self._read()

    def _read(self) -> Rules:
        text = read(self.settings.file)
        return Rules([Rule(each, text.groups) for each in text.rule])

    def reload(self) -> None:
        """Read the file again; all answers are given anew."""
        self._rules = self._read()
        self._report()

    def authorise_subscribe(self, client: Client, request: SubscribeRequest) -> bool:
        """Let everybody subscribe; what they get of it is judged message by message."""
        return not request.sees_locations
