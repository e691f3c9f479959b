"""The geo subscriptions on one topic filter: which of them does an event concern?

    candidates by place (cells, circles, boxes) -> time windows -> exact predicate

Every subscription has one *leading* test by which it is found:

    circle     near me
    cells      a relation that needs the boxes of filter and event to meet
    scan       a relation that holds far apart too (disjoint, DE-9IM)
    anywhere   no spatial test

A handful of subscriptions is not worth an index: below `SMALL` all are tested in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Generic, Protocol, TypeVar

import numpy as np
from rtree.index import Index as RTree
from shapely.lib import intersects_xy

from broker.matching.cells import CellIndex, Fence
from broker.matching.near import Circle, NearIndex
from broker.matching.probe import Probe, in_time, passes
from protocol.conditions import Conditions, Spatial
from protocol.geometry_metres import circle_boxes
from protocol.geometry_place import Box, Geometry, Place
from protocol.relations import DE9IM, DISJOINT, DWITHIN

SMALL = 8
HAIR = 1e-9  # degrees
METRES_PER_DEGREE = 110_574.0  # of latitude, where it is shortest


class Item(Protocol):
    """What the index holds: a subscription, as far as matching goes."""

    geo: Conditions

    @property
    def here(self) -> Place | None:
        """Where the subscriber is."""


ItemT = TypeVar("ItemT", bound=Item)


class Undecided(Generic[ItemT]):
    """Tests of points against shapes, to be made together: 0.6 us each instead of 2.2."""

    def __init__(self) -> None:
        self._shapes: list[Geometry] = []
        self._items: list[ItemT] = []
        self._xs: list[float] = []
        self._ys: list[float] = []
        self._runs: list[tuple[list[ItemT], int]] = []  # for whom, and how many tests

    def add(
        self, shapes: list[Geometry], items: list[ItemT], x: float, y: float, found: list[ItemT]
    ) -> None:
        """Put off the tests of one point; the items of those that hold will go to `found`."""
        count = len(shapes)
        self._shapes += shapes
        self._items += items
        self._xs += [x] * count
        self._ys += [y] * count
        self._runs.append((found, count))

    def decide(self) -> None:
        """Make all tests."""
        if not self._shapes:
            return
        shapes = np.empty(len(self._shapes), dtype=object)
        shapes[:] = self._shapes
        hits = intersects_xy(shapes, np.array(self._xs), np.array(self._ys)).tolist()
        start = 0
        for found, count in self._runs:
            end = start + count
            found.extend(compress(self._items[start:end], hits[start:end]))
            start = end


class FenceIndex(Generic[ItemT]):
    """Geo subscriptions on one topic filter. Counts candidates and hits."""

    def __init__(self) -> None:
        self._items: dict[ItemT, None] = {}
        self._indexed = False
        self._anywhere: dict[ItemT, None] = {}
        self._scan: dict[ItemT, None] = {}
        self._cells = (CellIndex[ItemT](), CellIndex[ItemT]())  # of the event, of the publisher
        self._fences: dict[ItemT, Fence[ItemT]] = {}
        self._near = (NearIndex[ItemT](), NearIndex[ItemT]())
        self._circles: dict[ItemT, Circle[ItemT]] = {}
        self._tree: RTree | None = None  # boxes, for events that are no points
        self._next_number = 1
        self._numbers: dict[ItemT, int] = {}
        self._by_number: dict[int, ItemT] = {}
        self.candidates = 0
        self.hits = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[ItemT]:
        return iter(self._items)

    def add(self, item: ItemT) -> None:
        """Add a subscription."""
        self._items[item] = None
        if self._indexed:
            self._index(item)
        elif len(self._items) > SMALL:
            self._indexed = True
            for each in self._items:
                self._index(each)

    def _index(self, item: ItemT) -> None:
        test = leading(item.geo)
        if test is None:
            self._anywhere[item] = None
        elif test.place is None:
            circle = self._circles[item] = Circle(item, test.near_m)
            self._near[test.of_publisher].move(circle, item.here)
        elif test.relation in (DISJOINT, DE9IM):
            self._scan[item] = None
        else:
            fence = self._fences[item] = Fence(
                test.place, item, test.relation, alone=item.geo.simple
            )
            self._cells[test.of_publisher].add(fence, reach(test))
            if self._tree is not None and not test.of_publisher:
                self._plant(item, test)

    def remove(self, item: ItemT) -> None:
        """Remove a subscription."""
        del self._items[item]
        if not self._indexed:
            return
        self._anywhere.pop(item, None)
        self._scan.pop(item, None)
        circle = self._circles.pop(item, None)
        test = leading(item.geo)
        if circle is not None and test is not None:
            self._near[test.of_publisher].remove(circle)
        fence = self._fences.pop(item, None)
        if fence is not None and test is not None:
            self._cells[test.of_publisher].remove(fence)
            number = self._numbers.pop(item, None)
            if number is not None and self._tree is not None:
                del self._by_number[number]
                for box in widened(test):
                    self._tree.delete(number, box)

    def move(self, item: ItemT) -> None:
        """The subscriber of a "near me" subscription is somewhere else now."""
        circle = self._circles.get(item)
        if circle is not None:
            test = leading(item.geo)
            assert test is not None
            self._near[test.of_publisher].move(circle, item.here)

    def match(self, probe: Probe) -> list[ItemT]:
        """Give the subscriptions whose conditions an event fulfils."""
        found: list[ItemT] = []
        self._match(probe, found, None)
        self.hits += len(found)
        return found

    def match_batch(self, probes: Sequence[Probe]) -> list[list[ItemT]]:
        """Match events that came together: the exact tests of all of them in one call."""
        undecided: Undecided[ItemT] = Undecided()
        matched: list[list[ItemT]] = []
        for probe in probes:
            found: list[ItemT] = []
            self._match(probe, found, undecided)
            matched.append(found)
        undecided.decide()
        self.hits += sum(map(len, matched))
        return matched

    def _match(self, probe: Probe, found: list[ItemT], undecided: Undecided[ItemT] | None) -> None:
        if not self._indexed:
            found += [each for each in self._items if passes(each.geo, probe, each.here)]
            self.candidates += len(self._items)
            return
        if self._anywhere:
            found += [each for each in self._anywhere if in_time(each.geo, probe)]
        if self._scan:
            found += [each for each in self._scan if passes(each.geo, probe, each.here)]
        if probe.place is not None:
            if probe.place.is_point:
                self._match_point(probe, probe.place, found, undecided)
            else:
                self._match_area(probe, probe.place, found)
            self._match_near(self._near[0], probe, probe.place, found)
        if probe.publisher is not None and (self._cells[1] or self._circles):
            self._match_publisher(probe, probe.publisher, found)

    def _match_point(
        self, probe: Probe, place: Place, found: list[ItemT], undecided: Undecided[ItemT] | None
    ) -> None:
        x, y = place.x, place.y
        for cell in self._cells[0].at(x, y):
            found += cell.sure
            if undecided is not None:
                undecided.add(cell.shapes, cell.tested, x, y, found)
            else:
                for shape, item in zip(cell.shapes, cell.tested, strict=True):
                    if intersects_xy(shape, x, y):
                        found.append(item)
            for item in cell.inside:
                if passes(item.geo, probe, item.here, settled=leading(item.geo)):
                    found.append(item)
            for item in cell.edge:
                if passes(item.geo, probe, item.here):
                    found.append(item)
            self.candidates += len(cell.sure) + len(cell.tested) + len(cell.inside) + len(cell.edge)

    def _match_publisher(self, probe: Probe, place: Place, found: list[ItemT]) -> None:
        for cell in self._cells[1].at(place.x, place.y):
            for item in [*cell.sure, *cell.tested, *cell.inside, *cell.edge]:
                if passes(item.geo, probe, item.here):
                    found.append(item)
        self._match_near(self._near[1], probe, place, found)

    def _match_near(
        self, near: NearIndex[ItemT], probe: Probe, place: Place, found: list[ItemT]
    ) -> None:
        if not self._circles:
            return
        if not place.is_point:
            for circle in near.all():
                if passes(circle.item.geo, probe, circle.place):
                    found.append(circle.item)
            return
        for circle in near.candidates(place):
            self.candidates += 1
            if circle.holds(place) and passes(
                circle.item.geo, probe, circle.place, settled=leading(circle.item.geo)
            ):
                found.append(circle.item)

    def _match_area(self, probe: Probe, place: Place, found: list[ItemT]) -> None:
        """An event with an extent asks the R-tree, which is made when the first one comes."""
        if self._tree is None:
            self._tree = RTree()
            for item in self._fences:
                test = leading(item.geo)
                if test is not None and not test.of_publisher:
                    self._plant(item, test)
        numbers: set[int] = set()
        for box in place.boxes:
            numbers.update(self._tree.intersection(box))
        self.candidates += len(numbers)
        for number in sorted(numbers):
            item = self._by_number[number]
            if passes(item.geo, probe, item.here):
                found.append(item)

    def _plant(self, item: ItemT, test: Spatial) -> None:
        assert self._tree is not None
        number = self._next_number
        self._next_number += 1
        self._numbers[item] = number
        self._by_number[number] = item
        for box in widened(test):
            self._tree.insert(number, box)


def leading(conditions: Conditions) -> Spatial | None:
    """Give the test by which a subscription is found."""
    return conditions.spatial[0] if conditions.spatial else None


def reach(test: Spatial) -> tuple[Box, ...]:
    """Give boxes outside of which a test with a place never holds."""
    assert test.place is not None
    if test.relation != DWITHIN:
        return test.place.boxes
    metres = float(test.operand or 0)
    if test.place.is_point:
        return circle_boxes(test.place.x, test.place.y, metres)
    boxes: list[Box] = []
    for box in test.place.boxes:
        boxes += _widened(box, metres)
    return tuple(boxes)


def widened(test: Spatial) -> list[Box]:
    """Give the reach of a test, a hair wider: moving by a turn of the world rounds longitudes."""
    return [
        (west - HAIR, south - HAIR, east + HAIR, north + HAIR)
        for west, south, east, north in reach(test)
    ]


def _widened(box: Box, metres: float) -> list[Box]:
    """Widen a box by a distance in all directions, at least."""
    up = metres / METRES_PER_DEGREE * 1.01
    south, north = max(-90.0, box[1] - up), min(90.0, box[3] + up)
    # Near a pole a degree of longitude is too short to widen by: take all of them.
    if max(abs(south), abs(north)) > 85:
        return [(-180.0, south, 180.0, north)]
    (round_zero, *more) = circle_boxes(0.0, max(south, north, key=abs), metres)
    wide = 180.0 if more else max(abs(round_zero[0]), abs(round_zero[2])) * 1.01
    west, east = box[0] - wide, box[2] + wide
    if east - west >= 360:
        return [(-180.0, south, 180.0, north)]
    boxes = [(max(west, -180.0), south, min(east, 180.0), north)]
    if west < -180:
        boxes.append((west + 360, south, 180.0, north))
    if east > 180:
        boxes.append((-180.0, south, east - 360, north))
    return boxes
