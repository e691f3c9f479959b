"""The topic trie against brute force: every filter asked by itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.matching.trie import TopicTrie, has_wildcard
from protocol.topics import check_filter, matches

names = st.sampled_from(["", "a", "b", "c", "$s", "ä"])
topics = st.lists(names, min_size=1, max_size=5).map("/".join).filter(bool)


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(names | st.just("+"), min_size=1, max_size=5))
    made = "/".join([*levels[:-1], "#"] if draw(st.booleans()) else levels)
    return made or "+"


class Leaf:
    """What the trie keeps for a filter; knows which one, so that answers can be checked."""

    topic_filter = ""


def build(filters: list[str]) -> TopicTrie[Leaf]:
    trie: TopicTrie[Leaf] = TopicTrie(Leaf)
    for topic_filter in filters:
        trie.ensure(topic_filter).topic_filter = topic_filter
    return trie


@given(st.lists(topic_filters(), max_size=30), st.lists(topics, min_size=1, max_size=10))
@settings(max_examples=300, deadline=None)
def test_the_trie_finds_what_brute_force_finds(filters: list[str], asked: list[str]) -> None:
    trie = build(filters)
    for topic in asked:
        found = sorted(leaf.topic_filter for leaf in trie.match(topic))
        assert found == sorted(each for each in set(filters) if matches(each, topic))


@given(topic_filters())
@settings(deadline=None)
def test_generated_filters_are_legal(topic_filter: str) -> None:
    check_filter(topic_filter)


class TrieAgainstDictionary(RuleBasedStateMachine):
    """Filters come and go; the trie holds what a dictionary would."""

    def __init__(self) -> None:
        super().__init__()
        self.trie: TopicTrie[Leaf] = TopicTrie(Leaf)
        self.model: dict[str, Leaf] = {}

    @rule(topic_filter=topic_filters())
    def ensure(self, topic_filter: str) -> None:
        leaf = self.trie.ensure(topic_filter)
        leaf.topic_filter = topic_filter
        assert self.model.setdefault(topic_filter, leaf) is leaf

    @rule(topic_filter=topic_filters())
    def discard(self, topic_filter: str) -> None:
        self.trie.discard(topic_filter)
        self.model.pop(topic_filter, None)

    @rule(topic_filter=topic_filters())
    def get(self, topic_filter: str) -> None:
        assert self.trie.get(topic_filter) is self.model.get(topic_filter)

    @rule(topic=topics)
    def match(self, topic: str) -> None:
        found = {leaf.topic_filter for leaf in self.trie.match(topic)}
        assert found == {each for each in self.model if matches(each, topic)}

    @invariant()
    def it_holds_what_was_added(self) -> None:
        assert dict(self.trie.items()) == self.model
        assert len(self.trie) == len(self.model)

    def teardown(self) -> None:
        for topic_filter in list(self.model):
            self.trie.discard(topic_filter)
        # Nothing is left behind: no empty node keeps memory or slows a lookup down.
        assert not self.trie._root.children
        assert not len(self.trie)


TestTrieAgainstDictionary = TrieAgainstDictionary.TestCase
TestTrieAgainstDictionary.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)


def test_wildcards_are_recognised() -> None:
    assert has_wildcard("a/+")
    assert has_wildcard("#")
    assert not has_wildcard("a/b")
