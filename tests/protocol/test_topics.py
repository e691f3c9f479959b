"""Topics and filters: the standard's examples, and laws that hold for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import BadTopic
from protocol.topics import (
    SharedFilter,
    check_filter,
    check_topic,
    covers,
    is_reserved,
    matches,
    parse_share,
)

levels = st.sampled_from(["", "a", "b", "$s", "+"])
topics = st.lists(st.sampled_from(["", "a", "b", "$s"]), min_size=1, max_size=4).map("/".join)


@st.composite
def filters(draw: st.DrawFn) -> str:
    made = draw(st.lists(levels, min_size=1, max_size=4))
    return "/".join([*made[:-1], "#"] if draw(st.booleans()) else made)


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matched"),
    [
        # Section 4.7.1.2
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "sport/tennis", True),
        # Section 4.7.1.3
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        # Section 4.7.2
        ("#", "$SYS/monitor/Clients", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/monitor/Clients", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        # Section 4.7.3
        ("ACCOUNTS", "Accounts", False),
        ("/finance", "finance", False),
    ],
)
def test_the_standards_examples(topic_filter: str, topic: str, matched: bool) -> None:
    assert matches(topic_filter, topic) is matched


def spelled_out(wanted: list[str], names: list[str]) -> bool:
    """Match level by level, as slowly and plainly as it can be said."""
    if wanted == ["#"]:
        return True
    if not wanted or not names:
        return not wanted and not names
    if wanted[0] not in ("+", names[0]):
        return False
    if wanted[1:] == ["#"] and len(names) == 1:
        return True
    return spelled_out(wanted[1:], names[1:])


@given(filters(), topics)
@settings(deadline=None)
def test_matching_agrees_with_a_recursive_definition(topic_filter: str, topic: str) -> None:
    hidden = topic.startswith("$") and topic_filter[:1] in ("+", "#")
    expected = not hidden and spelled_out(topic_filter.split("/"), topic.split("/"))
    assert matches(topic_filter, topic) is expected


@given(filters(), filters(), topics)
@settings(deadline=None)
def test_a_filter_that_covers_another_matches_what_it_matches(
    wide: str, narrow: str, topic: str
) -> None:
    if covers(wide, narrow) and matches(narrow, topic):
        assert matches(wide, topic)


@given(topics)
@settings(deadline=None)
def test_a_topic_is_a_filter_that_matches_itself(topic: str) -> None:
    if topic:
        check_topic(topic)
        check_filter(topic)
    assert matches(topic, topic)
    assert covers(topic, topic)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a#", "/" * 200])
def test_what_is_no_topic(topic: str) -> None:
    with pytest.raises(BadTopic):
        check_topic(topic)


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a#", "#a", "a+", "+a", "+/b+", "/" * 200])
def test_what_is_no_filter(topic_filter: str) -> None:
    with pytest.raises(BadTopic):
        check_filter(topic_filter)


def test_two_hundred_levels_are_enough() -> None:
    check_topic("/" * 199)
    check_filter("/" * 198 + "/#")


def test_a_shared_filter_is_taken_apart() -> None:
    assert parse_share("$share/group/a/+") == SharedFilter("group", "a/+")
    assert parse_share("$share/g//a") == SharedFilter("g", "/a")
    assert parse_share("a/$share/g/b") is None


@pytest.mark.parametrize("name", ["$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/"])
def test_what_is_no_shared_filter(name: str) -> None:
    with pytest.raises(BadTopic):
        parse_share(name)


def test_topics_that_are_the_brokers_own() -> None:
    assert is_reserved("$SYS/x")
    assert is_reserved("$SYS")
    assert is_reserved("$share/g/x")
    assert not is_reserved("$SYSTEM")
    assert not is_reserved("a/$SYS/x")
