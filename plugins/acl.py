"""Who may do what: rights per topic filter and region, from a TOML file (`acl_file`).

    [groups]
    drivers = ["ann", "bob"]

    [[rule]]
    groups = ["drivers"]                 # users, groups, anonymous; none of them: everybody
    allow = ["publish"]                  # or deny; publish, subscribe, receive, locations
    topics = ["fleet/%u/#"]              # %u is the user name, %c the client id
    region = "BBOX(8.5,54.4,8.7,54.6)"   # only where this holds

Rules are read from the top and the first that applies decides; when none applies the
answer is no. `allow` applies only where it is certain to hold for all that was asked: a
filter is granted when one of the topics covers all of it, a place when it lies inside the
region. `deny` applies as soon as it concerns any part. docs/access.md has the whole story.
"""

from __future__ import annotations

import logging
import re
import tomllib
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from plugins.api import Broker, Client, Plugin, PluginError, SubscribeRequest
from protocol.errors import BadValue
from protocol.geometry import Place, parse_text
from protocol.message import Message
from protocol.relations import COVERS, INTERSECTS, spatial
from protocol.topics import check_filter, covers, matches, overlaps
from protocol.values import value

log = logging.getLogger("geomqtt.acl")

VERDICTS_KEPT = 100_000
CLIENTS_KEPT = 10_000

Action = Literal["publish", "subscribe", "receive", "locations"]
Word = Literal["publish", "subscribe", "receive", "locations", "read", "all"]

SHORTHANDS: dict[str, tuple[Action, ...]] = {
    "read": ("subscribe", "receive"),
    "all": ("publish", "subscribe", "receive", "locations"),
}
_PLACEHOLDER = re.compile("%[uc]")


class AclSettings(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of the ACL plugin."""

    file: str


class RuleText(msgspec.Struct, forbid_unknown_fields=True):
    """A rule as it stands in the file."""

    topics: list[str]
    allow: list[Word] = []
    deny: list[Word] = []
    users: list[str] = []
    groups: list[str] = []
    anonymous: bool = False
    region: str = ""


class FileText(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    groups: dict[str, list[str]] = {}
    rule: list[RuleText] = []


class Rule:
    """A rule for some clients, before their names are put into its topics."""

    __slots__ = ("actions", "allows", "anonymous", "everybody", "region", "topics", "users")

    def __init__(self, text: RuleText, groups: dict[str, list[str]]) -> None:
        if bool(text.allow) == bool(text.deny):
            raise ValueError("needs either allow or deny")
        self.allows = bool(text.allow)
        words = text.allow or text.deny
        self.actions = {a for word in words for a in SHORTHANDS.get(word, (word,))}
        if not text.topics:
            raise ValueError("topics: is empty")
        for topic in text.topics:
            check_filter(topic)
        self.topics = tuple(text.topics)
        self.users = set(text.users)
        for group in text.groups:
            if group not in groups:
                raise ValueError(f"groups: no group {group!r}")
            self.users.update(groups[group])
        self.anonymous = text.anonymous
        self.everybody = not (text.users or text.groups or text.anonymous)
        self.region: Place | None = None
        if text.region:
            self.region = parse_text(text.region).place
            if self.region.is_point:
                raise ValueError("region: a point has no inside")

    def concerns(self, username: str | None) -> bool:
        """Tell whether the rule speaks of this user."""
        if self.everybody:
            return True
        return self.anonymous if username is None else username in self.users

    def bind(self, client: Client) -> Bound | None:
        """Put the client's names into the topics; None when the rule does not concern it.

        A name that holds `+`, `#` or `/`, begins with `$` or is empty is never put into a
        topic. Then `allow` loses that topic, while `deny` holds for all topics.
        """
        if not self.concerns(client.username):
            return None
        topics = []
        every_topic = False
        for topic in self.topics:
            names = _names(topic, client)
            if any(name is None for name in names):
                continue  # nobody is logged in, so nobody's topics are meant
            if all(_harmless(name) for name in names if name is not None):
                topics.append(_PLACEHOLDER.sub(lambda found: _name(found[0], client) or "", topic))
            elif not self.allows:
                every_topic = True
        if not topics and not every_topic:
            return None
        return Bound(self.allows, tuple(topics), every_topic, self.region)


def _name(placeholder: str, client: Client) -> str | None:
    return client.username if placeholder == "%u" else client.client_id


def _names(topic: str, client: Client) -> list[str | None]:
    return [_name(placeholder, client) for placeholder in _PLACEHOLDER.findall(topic)]


def _harmless(name: str) -> bool:
    return bool(name) and not name.startswith("$") and not any(c in "+#/" for c in name)


@value
class Bound:
    """A rule for one client and one action."""

    allows: bool
    topics: tuple[str, ...]
    every_topic: bool
    region: Place | None

    def applies_to_topic(self, topic: str) -> bool:
        """Tell whether the rule speaks of a topic."""
        return self.every_topic or any(matches(each, topic) for each in self.topics)

    def applies_to_filter(self, topic_filter: str) -> bool:
        """Tell whether `allow` holds for all, or `deny` for some, of what a filter matches."""
        test = covers if self.allows else overlaps
        return self.every_topic or any(test(each, topic_filter) for each in self.topics)

    def applies_at(self, place: Place | None) -> bool:
        """Tell whether the rule speaks of a message that happened there; None: nobody knows."""
        if self.region is None:
            return True
        if place is None:
            return False
        return spatial(COVERS if self.allows else INTERSECTS, self.region, place)

    def applies_in(self, places: tuple[Place, ...]) -> bool:
        """Tell whether the rule speaks of a subscription to these places; (): everywhere."""
        if self.region is None:
            return True
        if not places:
            return not self.allows
        if self.allows:
            return all(spatial(COVERS, self.region, place) for place in places)
        return any(spatial(INTERSECTS, self.region, place) for place in places)


Verdicts = bool | tuple[Bound, ...]  # the answer, or the rules between which the place decides


class Rules:
    """One reading of the file, with the answers that have been given since."""

    def __init__(self, rules: list[Rule]) -> None:
        self._rules = rules
        self._by_client_id = any("%c" in topic for rule in rules for topic in rule.topics)
        self._bound: dict[tuple[str | None, str, str], tuple[Bound, ...]] = {}
        self._known: dict[tuple[str | None, str, str, str], Verdicts] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is allowed to anybody."""
        return not self._rules

    def bound(self, client: Client, action: Action) -> tuple[Bound, ...]:
        """Give the rules that concern a client and an action, in order."""
        key = (client.username, client.client_id if self._by_client_id else "", action)
        found = self._bound.get(key)
        if found is None:
            made = (rule.bind(client) for rule in self._rules if action in rule.actions)
            found = tuple(bound for bound in made if bound is not None)
            if len(self._bound) >= CLIENTS_KEPT:
                self._bound.clear()
            self._bound[key] = found
        return found

    def judge_message(self, client: Client, action: Action, message: Message) -> bool:
        """Decide on publishing or receiving a message."""
        known = self.judge_topic(client, action, message.topic)
        if isinstance(known, bool):
            return known
        place = _place(message)
        return next((rule.allows for rule in known if rule.applies_at(place)), False)

    def judge_topic(self, client: Client, action: Action, topic: str) -> Verdicts:
        """Decide as far as the topic goes."""
        who = client.client_id if self._by_client_id else ""
        key = (client.username, who, action, topic)
        known = self._known.get(key)
        if known is None:
            known = self._judge_topic(client, action, topic)
            if len(self._known) >= VERDICTS_KEPT:
                self._known.clear()
            self._known[key] = known
        return known

    def _judge_topic(self, client: Client, action: Action, topic: str) -> Verdicts:
        open_rules = []
        for rule in self.bound(client, action):
            if rule.applies_to_topic(topic):
                open_rules.append(rule)
                if rule.region is None:
                    break  # decides for every place that is left
        if not open_rules:
            return False
        if open_rules[0].region is None:
            return open_rules[0].allows
        return tuple(open_rules)

    def judge_filter(self, client: Client, action: Action, request: SubscribeRequest) -> bool:
        """Decide on a subscription."""
        for rule in self.bound(client, action):
            if rule.applies_to_filter(request.filter) and rule.applies_in(request.places):
                return rule.allows
        return False


def _place(message: Message) -> Place | None:
    """Where a message happened: the place it carries, or else where its publisher is."""
    if message.geo is not None and message.geo.place is not None:
        return message.geo.place
    if message.publisher is not None:
        return Place.point(message.publisher.lon, message.publisher.lat)
    return None


def read_rules(path: str | Path) -> Rules:
    """Read an ACL file; raises PluginError with one line that says where it is wrong."""
    try:
        data: Any = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        text = msgspec.convert(data, FileText)
    except OSError as error:
        raise PluginError(f"ACL file {path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PluginError(f"ACL file {path}: {error}") from None
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at ")
        where = where.strip("`").removeprefix("$").lstrip(".")
        raise PluginError(f"ACL file {path}: {where or 'top level'}: {reason}") from None
    rules = []
    for number, each in enumerate(text.rule):
        try:
            rules.append(Rule(each, text.groups))
        except (BadValue, ValueError) as error:
            raise PluginError(f"ACL file {path}: rule[{number}]: {error}") from None
    return Rules(rules)


class Acl(Plugin):
    """Grants what the ACL file allows and nothing else."""

    Settings: ClassVar[type[msgspec.Struct]] = AclSettings
    settings: AclSettings
    settles_topics = True

    def __init__(self, settings: AclSettings) -> None:
        super().__init__(settings)
        self._rules = read_rules(settings.file)

    async def start(self, broker: Broker) -> None:
        """Say how many rules there are; an empty file is easily a mistake."""
        self._report()

    def reload(self) -> None:
        """Read the file again; all answers are given anew."""
        self._rules = read_rules(self.settings.file)
        self._report()

    def _report(self) -> None:
        if self._rules.empty:
            log.warning("ACL file %s has no rules: everything is denied", self.settings.file)

    def settles_publish(self, client: Client, topic: str) -> bool:
        """Say whether the topic alone allows publishing."""
        return self._rules.judge_topic(client, "publish", topic) is True

    def settles_receive(self, client: Client, topic: str) -> bool | None:
        """Say what the topic alone says about receiving."""
        verdict = self._rules.judge_topic(client, "receive", topic)
        return verdict if isinstance(verdict, bool) else None

    def authorise_publish(self, client: Client, message: Message) -> bool:
        """Judge the topic and the place of a message."""
        return self._rules.judge_message(client, "publish", message)

    def authorise_receive(self, client: Client, message: Message) -> bool:
        """Judge the topic and the place of a message."""
        return self._rules.judge_message(client, "receive", message)

    def authorise_subscribe(self, client: Client, request: SubscribeRequest) -> bool:
        """Judge the filter and the places of a subscription."""
        rules = self._rules
        if not rules.judge_filter(client, "subscribe", request):
            return False
        return not request.sees_locations or rules.judge_filter(client, "locations", request)
