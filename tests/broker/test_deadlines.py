"""Deadlines without a timer each."""

from __future__ import annotations

from broker.deadlines import BUCKET_S, Deadlines


class Clock:
    """Time as a test wants it."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Thing:
    """Ends at a time of its own."""

    def __init__(self, due: float | None) -> None:
        self.bucket = -1
        self.due = due
        self.ended = 0

    def due_at(self) -> float | None:
        """Tell when."""
        return self.due

    def expire(self) -> None:
        """Count."""
        self.ended += 1


def test_a_thing_ends_when_it_is_due_and_not_before() -> None:
    clock = Clock()
    deadlines = Deadlines(clock)
    thing = Thing(1002.0)
    deadlines.watch(thing)
    clock.now = 1001.9
    deadlines.tick()
    assert thing.ended == 0
    clock.now = 1002.0 + 2 * BUCKET_S
    deadlines.tick()
    assert thing.ended == 1
    clock.now = 1010.0
    deadlines.tick()
    assert thing.ended == 1


def test_a_thing_that_showed_life_ends_later() -> None:
    clock = Clock()
    deadlines = Deadlines(clock)
    thing = Thing(1002.0)
    deadlines.watch(thing)
    thing.due = 1005.0
    clock.now = 1004.0
    deadlines.tick()
    assert thing.ended == 0
    clock.now = 1005.5
    deadlines.tick()
    assert thing.ended == 1


def test_a_deadline_can_come_closer() -> None:
    clock = Clock()
    deadlines = Deadlines(clock)
    thing = Thing(99_000.0)
    deadlines.watch(thing)
    thing.due = 1001.0
    deadlines.watch(thing)
    clock.now = 1002.0
    deadlines.tick()
    assert thing.ended == 1
    clock.now = 99_001.0
    deadlines.tick()
    assert thing.ended == 1


def test_what_is_forgotten_is_not_held_until_its_deadline() -> None:
    clock = Clock()
    deadlines = Deadlines(clock)
    for number in range(100):
        thing = Thing(clock.now + 98_000 + number)
        deadlines.watch(thing)
        deadlines.forget(thing)
        deadlines.forget(thing)
    assert not deadlines._buckets


def test_a_thing_without_a_deadline_is_not_watched() -> None:
    deadlines = Deadlines(Clock())
    thing = Thing(None)
    deadlines.watch(thing)
    assert thing.bucket == -1
