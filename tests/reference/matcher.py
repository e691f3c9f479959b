"""Which subscriptions does an event concern? Brute force: every test of every one, in turn.

The tests compare the broker's matching room with this. It takes from the product what has
oracles of its own (one spatial relation, one temporal relation, one distance) and nothing
of the broker: no index, no box, no cell, no short cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from protocol.conditions import Conditions, Spatial
from protocol.geometry import Place, circle, distance_metres
from protocol.relations import COVERS, spatial


@dataclass
class Event:
    """Something that happened: its own place if it has one, and where its publisher was."""

    own: Place | None
    publisher: Place | None
    start_ms: int
    end_ms: int

    @property
    def place(self) -> Place | None:
        """Its own geometry, else the publisher's last known location."""
        return self.publisher if self.own is None else self.own


class Subscriber(Protocol):
    """Somebody who asked for something, and who is somewhere, or nobody knows where."""

    geo: Conditions

    @property
    def here(self) -> Place | None: ...


S = TypeVar("S", bound=Subscriber)


def concerned(subscribers: Iterable[S], event: Event) -> list[S]:
    """Give those whose conditions all hold."""
    return [each for each in subscribers if wants(each.geo, event, each.here)]


def wants(conditions: Conditions, event: Event, here: Place | None) -> bool:
    """Whether every condition holds: several of them must all hold."""
    in_place = [happens_there(test, event, here) for test in conditions.spatial]
    in_time = [
        test.windows.holds(test.relation, event.start_ms, event.end_ms)
        for test in conditions.temporal
    ]
    return all(in_place) and all(in_time)


def happens_there(test: Spatial, event: Event, here: Place | None) -> bool:
    """Whether one spatial condition holds; what is nowhere fulfils none."""
    where = event.publisher if test.of_publisher else event.place
    if where is None:
        return False
    if test.place is not None:
        return spatial(test.relation, test.place, where, test.operand)
    if here is None:
        return False
    if test.relation == COVERS and not where.is_point:
        return spatial(COVERS, circle(here.x, here.y, test.near_m), where)
    return distance_metres(here, where) <= test.near_m
