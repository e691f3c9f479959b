"""Retained messages against brute force: every topic asked by itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.retained import Retained
from protocol.message import Message
from protocol.topics import matches

names = st.sampled_from(["", "a", "b", "c", "$s", "ä"])
topics = st.lists(names, min_size=1, max_size=4).map("/".join).filter(bool)


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(names | st.just("+"), min_size=1, max_size=4))
    return "/".join([*levels[:-1], "#"] if draw(st.booleans()) else levels) or "#"


steps = st.lists(st.tuples(topics, st.binary(max_size=3)), max_size=40)


@given(steps, st.lists(topic_filters(), min_size=1, max_size=8))
@settings(max_examples=300, deadline=None)
def test_the_tree_finds_what_brute_force_finds_in_topic_order(
    published: list[tuple[str, bytes]], asked: list[str]
) -> None:
    retained = Retained()
    model: dict[str, bytes] = {}
    for topic, payload in published:
        if payload:
            retained.keep(Message(topic, payload, retain=True))
            model[topic] = payload
        else:
            assert retained.clear(topic) is (topic in model)
            model.pop(topic, None)
    assert len(retained) == len(model)
    assert {message.topic: message.payload for message in retained} == model
    assert retained.total_bytes == sum(len(t) + len(p) for t, p in model.items())
    for topic_filter in asked:
        found = [(message.topic, message.payload) for message in retained.match(topic_filter)]
        expected = [(t, model[t]) for t in model if matches(topic_filter, t)]
        assert found == sorted(expected, key=lambda each: each[0].split("/"))
    for topic in list(model):
        retained.clear(topic)
    assert not retained._root.children  # nothing is left behind
    assert not retained.total_bytes
