"""The ACL: rules, names in patterns, regions, and what a broken file does."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.acl import Acl, AclSettings, Rule, Rules, RuleText
from plugins.api import Client, PluginError, SubscribeRequest
from protocol.geo import Geo, Location
from protocol.geometry import Place, parse_text
from protocol.message import Message
from protocol.topics import matches, overlaps

HARBOUR = "BBOX(8,54,9,55)"


def acl(tmp_path: Path, text: str) -> Acl:
    path = tmp_path / "acl.toml"
    path.write_text(text)
    return Acl(AclSettings(str(path)))


def client(username: str | None = "ann", client_id: str = "c1") -> Client:
    return Client(client_id, username, "127.0.0.1:1", "tcp:1883", username is None)


def message(topic: str, place: str = "", at: Location | None = None) -> Message:
    geo = Geo(place=parse_text(place).place) if place else None
    return Message(topic, b"", geo=geo, publisher=at)


def request(topic_filter: str, *places: str, sees_locations: bool = False) -> SubscribeRequest:
    found = tuple(parse_text(place).place for place in places)
    return SubscribeRequest(topic_filter, 0, found, sees_locations)


def test_an_empty_file_denies_everything(tmp_path: Path) -> None:
    rules = acl(tmp_path, "")
    assert not rules.authorise_publish(client(), message("a"))
    assert not rules.authorise_receive(client(), message("a"))
    assert not rules.authorise_subscribe(client(), request("a"))


def test_each_action_is_granted_for_itself(tmp_path: Path) -> None:
    rules = acl(
        tmp_path,
        """
        [[rule]]
        allow = ["publish"]
        topics = ["p"]
        [[rule]]
        allow = ["subscribe"]
        topics = ["s"]
        [[rule]]
        allow = ["receive"]
        topics = ["r"]
        [[rule]]
        allow = ["read"]
        topics = ["sr"]
        """,
    )
    for topic in ("p", "s", "r", "sr"):
        assert rules.authorise_publish(client(), message(topic)) is (topic == "p")
        assert rules.authorise_subscribe(client(), request(topic)) is ("s" in topic)
        assert rules.authorise_receive(client(), message(topic)) is ("r" in topic)


def test_the_first_rule_that_applies_decides(tmp_path: Path) -> None:
    rules = acl(
        tmp_path,
        """
        [[rule]]
        deny = ["publish"]
        topics = ["a/secret"]
        [[rule]]
        allow = ["publish"]
        topics = ["a/#"]
        [[rule]]
        deny = ["publish"]
        topics = ["a/late"]
        """,
    )
    assert not rules.authorise_publish(client(), message("a/secret"))
    assert rules.authorise_publish(client(), message("a/late"))
    assert rules.authorise_publish(client(), message("a"))
    assert not rules.authorise_publish(client(), message("b"))


def test_rules_speak_of_users_groups_and_the_anonymous(tmp_path: Path) -> None:
    rules = acl(
        tmp_path,
        """
        [groups]
        drivers = ["ann", "bob"]
        [[rule]]
        users = ["cid"]
        allow = ["publish"]
        topics = ["user"]
        [[rule]]
        groups = ["drivers"]
        allow = ["publish"]
        topics = ["group"]
        [[rule]]
        anonymous = true
        allow = ["publish"]
        topics = ["anonymous"]
        [[rule]]
        users = ["cid"]
        groups = ["drivers"]
        anonymous = true
        allow = ["publish"]
        topics = ["all three"]
        [[rule]]
        allow = ["publish"]
        topics = ["everybody"]
        """,
    )

    def topics(username: str | None) -> set[str]:
        names = ("user", "group", "anonymous", "all three", "everybody")
        return {each for each in names if rules.authorise_publish(client(username), message(each))}

    assert topics("ann") == topics("bob") == {"group", "all three", "everybody"}
    assert topics("cid") == {"user", "all three", "everybody"}
    assert topics(None) == {"anonymous", "all three", "everybody"}
    assert topics("dan") == {"everybody"}


def test_names_of_user_and_client_stand_in_topics(tmp_path: Path) -> None:
    rules = acl(
        tmp_path, '[[rule]]\nallow = ["all"]\ntopics = ["u/%u/#", "c/%c", "both/%u-%c/x"]\n'
    )
    ann = client("ann", "c1")
    assert rules.authorise_publish(ann, message("u/ann/x"))
    assert rules.authorise_publish(ann, message("c/c1"))
    assert rules.authorise_publish(ann, message("both/ann-c1/x"))
    assert not rules.authorise_publish(ann, message("u/bob/x"))
    assert not rules.authorise_publish(client("bob", "c1"), message("u/ann/x"))
    assert not rules.authorise_publish(client("ann", "c2"), message("c/c1"))
    assert not rules.authorise_publish(client(None, "c1"), message("u//x"))
    assert rules.authorise_publish(client(None, "c1"), message("c/c1"))
    # What looks like a placeholder inside a name is text.
    assert rules.authorise_publish(client("%c", "c1"), message("u/%c/x"))
    assert not rules.authorise_publish(client("%c", "c1"), message("u/c1/x"))


@pytest.mark.parametrize("name", ["+", "#", "a/b", "a+", "/", "", "$SYS"])
def test_a_name_never_widens_a_pattern(tmp_path: Path, name: str) -> None:
    rules = acl(
        tmp_path,
        """
        [[rule]]
        users = ["strict"]
        allow = ["all"]
        topics = ["by-client/%c"]
        [[rule]]
        allow = ["all"]
        topics = ["%u/x", "fleet/%u/#", "%u/#"]
        """,
    )
    tricky = client(name)
    for topic in ("x", "a/x", "fleet/a/b", "fleet/x", "fleet/a", "a/b/x", "$SYS/x", f"{name}/x"):
        assert not rules.authorise_publish(tricky, message(topic))
        assert not rules.authorise_receive(tricky, message(topic))
    for topic_filter in ("#", "+/x", "fleet/#", "fleet/+/x", "$SYS/#", f"fleet/{name}/x"):
        assert not rules.authorise_subscribe(tricky, request(topic_filter))
    assert not rules.authorise_publish(client("strict", name), message(f"by-client/{name}"))
    assert not rules.authorise_publish(client("strict", name), message("by-client/a"))


def test_a_denial_holds_for_all_topics_when_the_name_cannot_be_put_into_it(tmp_path: Path) -> None:
    rules = acl(
        tmp_path,
        """
        [[rule]]
        deny = ["all"]
        topics = ["locked/%u"]
        [[rule]]
        allow = ["all"]
        topics = ["#"]
        """,
    )
    assert rules.authorise_publish(client("ann"), message("x"))
    assert not rules.authorise_publish(client("ann"), message("locked/ann"))
    assert not rules.authorise_publish(client("a/b"), message("x"))
    assert not rules.authorise_subscribe(client("a/b"), request("x"))
    assert rules.authorise_publish(client(None), message("x"))


def test_a_filter_is_granted_only_if_all_it_matches_is(tmp_path: Path) -> None:
    rules = acl(
        tmp_path,
        """
        [[rule]]
        deny = ["subscribe"]
        topics = ["a/secret/#"]
        [[rule]]
        allow = ["subscribe"]
        topics = ["a/#", "b/+"]
        """,
    )
    granted = {
        each: rules.authorise_subscribe(client(), request(each))
        for each in ("a/x", "a/x/#", "a/#", "a/+", "+", "#", "b/+", "b/c", "b/#", "a/secret", "$a")
    }
    assert {each for each, verdict in granted.items() if verdict} == {"a/x", "a/x/#", "b/+", "b/c"}


LEVELS = ("a", "b", "+", "#", "$s")
TOPICS = [
    "/".join(levels) for size in (1, 2, 3) for levels in product(("a", "b", "c", "$s"), repeat=size)
]


def filters() -> st.SearchStrategy[str]:
    body = st.lists(st.sampled_from(["a", "b", "+", "$s"]), min_size=1, max_size=2)
    end = st.sampled_from([[], ["#"]])
    return st.one_of(
        st.just("#"), st.tuples(body, end).map(lambda parts: "/".join(parts[0] + parts[1]))
    )


@given(filters(), filters())
def test_filters_overlap_exactly_when_some_topic_matches_both(one: str, other: str) -> None:
    expected = any(matches(one, topic) and matches(other, topic) for topic in TOPICS)
    assert overlaps(one, other) is overlaps(other, one) is expected


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(filters(), min_size=1, max_size=2)),
        min_size=1,
        max_size=5,
    ),
    filters(),
)
def test_whoever_is_granted_a_filter_may_receive_every_topic_of_it(
    drawn: list[tuple[bool, list[str]]], topic_filter: str
) -> None:
    texts = [
        RuleText(topics, allow=["read"] if allows else [], deny=[] if allows else ["read"])
        for allows, topics in drawn
    ]
    rules = Rules([Rule(text, {}) for text in texts])
    ann = client()
    if rules.judge_filter(ann, "subscribe", request(topic_filter)):
        for topic in TOPICS:
            if matches(topic_filter, topic):
                assert rules.judge_message(ann, "receive", message(topic))
    for topic in TOPICS:  # the answer for one topic is the plain reading of the rules
        first = next((a for a, topics in drawn if any(matches(t, topic) for t in topics)), False)
        assert rules.judge_message(ann, "receive", message(topic)) is first
        assert rules.judge_message(ann, "receive", message(topic)) is first


def test_an_allowed_region_must_hold_the_place_of_a_message(tmp_path: Path) -> None:
    rules = acl(tmp_path, f'[[rule]]\nallow = ["publish"]\ntopics = ["#"]\nregion = "{HARBOUR}"\n')
    ann = client()
    assert rules.authorise_publish(ann, message("x", "POINT(8.5 54.5)"))
    assert rules.authorise_publish(ann, message("x", "POINT(8 54)"))
    assert not rules.authorise_publish(ann, message("x", "POINT(9.5 54.5)"))
    assert rules.authorise_publish(ann, message("x", "BBOX(8.1,54.1,8.2,54.2)"))
    assert not rules.authorise_publish(ann, message("x", "BBOX(8.5,54.5,9.5,54.6)"))
    assert not rules.authorise_publish(ann, message("x"))
    assert rules.authorise_publish(ann, message("x", at=Location(54.5, 8.5, 0.0)))
    assert not rules.authorise_publish(ann, message("x", at=Location(8.5, 54.5, 0.0)))
    # The place of the event itself outweighs that of the publisher.
    assert not rules.authorise_publish(ann, message("x", "POINT(0 0)", at=Location(54.5, 8.5, 0.0)))


def test_a_denied_region_holds_for_whatever_touches_it(tmp_path: Path) -> None:
    rules = acl(
        tmp_path,
        f"""
        [[rule]]
        deny = ["publish", "subscribe"]
        topics = ["#"]
        region = "{HARBOUR}"
        [[rule]]
        allow = ["publish", "subscribe"]
        topics = ["#"]
        """,
    )
    ann = client()
    assert not rules.authorise_publish(ann, message("x", "BBOX(8.5,54.5,9.5,54.6)"))
    assert rules.authorise_publish(ann, message("x", "POINT(9.5 54.5)"))
    assert rules.authorise_publish(ann, message("x"))
    assert rules.authorise_subscribe(ann, request("x", "BBOX(1,1,2,2)"))
    assert not rules.authorise_subscribe(ann, request("x", "BBOX(1,1,2,2)", "BBOX(8,54,20,60)"))
    assert not rules.authorise_subscribe(ann, request("x")), "everywhere includes the region"


def test_a_subscription_must_lie_in_the_allowed_region_with_all_its_places(tmp_path: Path) -> None:
    rules = acl(
        tmp_path, f'[[rule]]\nallow = ["subscribe"]\ntopics = ["#"]\nregion = "{HARBOUR}"\n'
    )
    ann = client()
    assert rules.authorise_subscribe(ann, request("x", "BBOX(8.1,54.1,8.2,54.2)"))
    assert not rules.authorise_subscribe(
        ann, request("x", "BBOX(8.1,54.1,8.2,54.2)", "BBOX(8.5,54.5,9.5,54.6)")
    )
    assert not rules.authorise_subscribe(ann, request("x"))


def test_seeing_locations_is_a_right_of_its_own(tmp_path: Path) -> None:
    rules = acl(
        tmp_path,
        """
        [[rule]]
        users = ["ann"]
        allow = ["locations"]
        topics = ["fleet/#"]
        [[rule]]
        allow = ["read"]
        topics = ["#"]
        """,
    )
    seeing = request("fleet/1", sees_locations=True)
    assert rules.authorise_subscribe(client("ann"), seeing)
    assert not rules.authorise_subscribe(client("bob"), seeing)
    assert rules.authorise_subscribe(client("bob"), request("fleet/1"))
    assert not rules.authorise_subscribe(client("ann"), request("x", sees_locations=True))


def test_reloading_forgets_every_answer_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    rules = acl(tmp_path, '[[rule]]\nallow = ["publish"]\ntopics = ["a"]\n')
    assert rules.authorise_publish(client(), message("a"))
    path = tmp_path / "acl.toml"
    path.write_text("[[rule]\n")
    with pytest.raises(PluginError, match=r"acl\.toml"):
        rules.reload()
    assert rules.authorise_publish(client(), message("a"))
    path.write_text('[[rule]]\nallow = ["publish"]\ntopics = ["b"]\n')
    rules.reload()
    assert not rules.authorise_publish(client(), message("a"))
    assert rules.authorise_publish(client(), message("b"))


def test_the_answers_that_are_kept_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.acl.VERDICTS_KEPT", 10)
    monkeypatch.setattr("plugins.acl.CLIENTS_KEPT", 3)
    rules = acl(tmp_path, '[[rule]]\nallow = ["publish"]\ntopics = ["t/%c/+"]\n')
    for number in range(100):
        name = f"c{number % 7}"
        assert rules.authorise_publish(client("ann", name), message(f"t/{name}/{number}"))
        assert not rules.authorise_publish(client("ann", name), message(f"t/x/{number}"))
    assert len(rules._rules._known) <= 10
    assert len(rules._rules._bound) <= 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rule = 1", "rule: Expected `array`"),
        ("[[rules]]", "unknown field `rules`"),
        ('[[rule]]\ntopics = ["a"]', "rule[0]: needs either allow or deny"),
        (
            '[[rule]]\ntopics = ["a"]\nallow = ["read"]\ndeny = ["read"]',
            "rule[0]: needs either allow or deny",
        ),
        ('[[rule]]\ntopics = []\nallow = ["read"]', "rule[0]: topics: is empty"),
        ('[[rule]]\nallow = ["read"]', "rule[0]: Object missing required field `topics`"),
        ('[[rule]]\ntopics = ["a#"]\nallow = ["read"]', "rule[0]: topic filter 'a#'"),
        ('[[rule]]\ntopics = ["a"]\nallow = ["write"]', "rule[0].allow[0]: Invalid enum value"),
        ('[[rule]]\ntopics = ["a"]\nallow = ["read"]\ngroups = ["g"]', "no group 'g'"),
        ('[[rule]]\ntopics = ["a"]\nallow = ["read"]\nregion = "X"', "rule[0]: "),
        ('[[rule]]\ntopics = ["a"]\nallow = ["read"]\nregion = "POINT(1 1)"', "no inside"),
    ],
)
def test_a_broken_file_is_refused_with_the_place_of_the_mistake(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(PluginError) as error:
        acl(tmp_path, text)
    assert reason in str(error.value)
    assert "acl.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_place_without_extent_may_lie_on_the_edge_of_a_region() -> None:
    rule = Rule(RuleText(["#"], allow=["publish"], region=HARBOUR), {})
    bound = rule.bind(client())
    assert bound is not None
    assert bound.applies_at(Place.point(9, 55))
    assert not bound.applies_at(Place.point(9.0001, 55))
