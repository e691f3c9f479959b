"""Topic names and topic filters (section 4.7): what is legal, and what matches what.

`matches` is the plain reading of the standard for one filter and one topic; the broker
matches many filters at once with the trie of its matching room.
"""

from protocol.errors import BadTopic
from protocol.values import value

MAX_LEVELS = 200
SHARE_PREFIX = "$share/"
GEO_PREFIX = "$geo/"


def check_topic(topic: str, max_levels: int = MAX_LEVELS) -> None:
    """Refuse what is no topic name [MQTT-4.7.3-1], [MQTT-3.3.2-2]."""
    if not topic:
        raise BadTopic("topic is empty")
    if "+" in topic or "#" in topic:
        raise BadTopic(f"topic {topic!r} holds a wildcard")
    if topic.count("/") >= max_levels:
        raise BadTopic(f"topic has more than {max_levels} levels")


def is_reserved(topic: str) -> bool:
    """Tell whether a topic is the broker's own: clients may not publish there."""
    return topic.startswith(("$SYS/", "$/SYS/", SHARE_PREFIX)) or topic == "$SYS"


def check_filter(topic_filter: str, max_levels: int = MAX_LEVELS) -> None:
    """Refuse what is no topic filter [MQTT-4.7.1-2], [MQTT-4.7.1-3]."""
    if not topic_filter:
        raise BadTopic("topic filter is empty")
    if topic_filter.count("/") >= max_levels:
        raise BadTopic(f"topic filter has more than {max_levels} levels")
    if "#" not in topic_filter and "+" not in topic_filter:
        return
    levels = topic_filter.split("/")
    for level in levels[:-1]:
        if "#" in level:
            raise BadTopic(f"topic filter {topic_filter!r} has '#' before its last level")
    for level in levels:
        if len(level) > 1 and ("+" in level or "#" in level):
            raise BadTopic(f"topic filter {topic_filter!r} has a wildcard inside a level")


def matches(topic_filter: str, topic: str) -> bool:
    """Tell whether a filter matches a topic, `$`-topics included [MQTT-4.7.2-1].

    >>> matches("sport/tennis/#", "sport/tennis"), matches("+", "/finance"), matches("#", "$SYS/x")
    (True, False, False)
    """
    wanted = topic_filter.split("/")
    names = topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= len(names) or (level != "+" and level != names[position]):
            return False
    return len(wanted) == len(names)


def covers(wide: str, narrow: str) -> bool:
    """Tell whether every topic that `narrow` matches is matched by `wide` as well.

    >>> covers("a/#", "a/+/c"), covers("a/+", "a/#")
    (True, False)
    """
    outer, inner = wide.split("/"), narrow.split("/")
    if narrow.startswith("$") and outer[0] in ("+", "#"):
        return False
    for position, level in enumerate(outer):
        if level == "#":
            return True
        if position >= len(inner):
            return False
        if inner[position] == "#" or (level != "+" and level != inner[position]):
            return False
    return len(outer) == len(inner)


def overlaps(one: str, other: str) -> bool:
    """Tell whether there is a topic that both filters match.

    >>> overlaps("a/+/c", "a/b/#"), overlaps("a/+", "b/#"), overlaps("#", "$SYS/#")
    (True, False, False)
    """
    left, right = one.split("/"), other.split("/")
    for levels, opposite in ((left, right), (right, left)):
        if levels[0].startswith("$") and opposite[0] in ("+", "#"):
            return False
    for mine, theirs in zip(left, right, strict=False):
        if mine == "#" or theirs == "#":
            return True
        if mine not in (theirs, "+") and theirs != "+":
            return False
    shorter, longer = sorted((left, right), key=len)
    # "a/#" matches "a" as well.
    return len(longer) == len(shorter) or longer[len(shorter) :] == ["#"]


@value
class SharedFilter:
    """`$share/<group>/<filter>` taken apart."""

    group: str
    filter: str


def parse_share(topic_filter: str) -> SharedFilter | None:
    """Take a shared subscription apart; None when it is an ordinary filter."""
    if not topic_filter.startswith(SHARE_PREFIX):
        return None
    group, slash, inner = topic_filter[len(SHARE_PREFIX) :].partition("/")
    if not group or not slash or not inner:
        raise BadTopic(f"{topic_filter!r} is not $share/<group>/<filter>")
    if "+" in group or "#" in group:
        raise BadTopic(f"share group {group!r} holds a wildcard")
    return SharedFilter(group, inner)
