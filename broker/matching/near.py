"""Circles that move with their subscribers: "whatever happens within 150 m of me".

A circle lives in the one cell that holds its centre, on the level whose cells are at least
as wide as its radius; an event looks into that cell and the eight round it. Moving a
circle is then a matter of one dictionary entry, and of nothing at all while its centre
stays in its cell.
"""

from __future__ import annotations

from math import floor, log2
from typing import Generic, TypeVar

from protocol.geometry_distance import distance_metres
from protocol.geometry_metres import circle_boxes
from protocol.geometry_place import Place

T = TypeVar("T")

# Inside these an ellipse of the circle's own extent is the circle to better than a percent.
SMALL_M = 50_000.0
LOW_LATITUDE = 80.0


class Circle(Generic[T]):
    """One circle: where it is, how large, and whose."""

    __slots__ = (
        "half_height",
        "half_width",
        "item",
        "key",
        "level",
        "measured_y",
        "place",
        "radius_m",
    )

    def __init__(self, item: T, radius_m: float) -> None:
        self.item = item
        self.radius_m = radius_m
        self.place: Place | None = None
        self.level = -1  # -1: not in a cell
        self.key = 0
        self.half_width = 0.0
        self.half_height = 0.0
        self.measured_y = 0.0  # the latitude where it has this extent

    def holds(self, place: Place) -> bool:
        """Tell whether a point lies within the circle."""
        here = self.place
        if here is None:
            return False
        if self.level >= 0:
            across = abs(place.x - here.x)
            if across > 180:
                across = 360 - across
            up = abs(place.y - here.y)
            if across > self.half_width or up > self.half_height:
                return False
            if self.radius_m <= SMALL_M and abs(here.y) < LOW_LATITUDE:
                share = (across / self.half_width) ** 2 + (up / self.half_height) ** 2
                if share < 0.95:
                    return True
        return distance_metres(here, place) <= self.radius_m


class NearIndex(Generic[T]):
    """Circles, asked with points."""

    def __init__(self) -> None:
        self._levels: dict[int, dict[int, list[Circle[T]]]] = {}
        self._large: list[Circle[T]] = []  # too large, or too near a pole, for cells

    def move(self, circle: Circle[T], place: Place | None) -> None:
        """Put a circle where its subscriber is now; None: nobody knows."""
        circle.place = place
        if place is None:
            self._take_out(circle)
            return
        if circle.level >= 0 and abs(circle.measured_y - place.y) < 0.01:
            # Its extent in degrees has not changed to speak of: only the cell may have.
            key = _key(place.x, place.y, circle.level)
            if key == circle.key:
                return
            self._take_out(circle, keep_extent=True)
            self._put(circle, circle.level, key)
            return
        self._take_out(circle)
        boxes = circle_boxes(place.x, place.y, circle.radius_m)
        width = sum(box[2] - box[0] for box in boxes)
        height = max(box[3] - box[1] for box in boxes)
        if width >= 90 or abs(place.y) + height >= 89:
            self._large.append(circle)
            return
        # A hair of room for the small moves that keep the extent.
        circle.half_width = width / 2 * 1.01 + 1e-9
        circle.half_height = height / 2 * 1.01 + 1e-9
        circle.measured_y = place.y
        level = max(0, min(20, floor(log2(360 / max(circle.half_width, circle.half_height)))))
        self._put(circle, level, _key(place.x, place.y, level))

    def _put(self, circle: Circle[T], level: int, key: int) -> None:
        circle.level, circle.key = level, key
        self._levels.setdefault(level, {}).setdefault(key, []).append(circle)

    def _take_out(self, circle: Circle[T], *, keep_extent: bool = False) -> None:
        if circle.level < 0:
            if circle in self._large:
                self._large.remove(circle)
            return
        cells = self._levels[circle.level]
        cells[circle.key].remove(circle)
        if not cells[circle.key]:
            del cells[circle.key]
            if not cells:
                del self._levels[circle.level]
        if not keep_extent:
            circle.level = -1

    def remove(self, circle: Circle[T]) -> None:
        """Forget a circle."""
        self._take_out(circle)

    def candidates(self, place: Place) -> list[Circle[T]]:
        """Give the circles that may hold a point."""
        found = list(self._large)
        for level, cells in self._levels.items():
            scale = 2**level / 360
            columns = 2**level
            column, row = int((place.x + 180) * scale), int((place.y + 90) * scale)
            # On a coarse level the neighbours to both sides may be the same cell.
            for near in {(column + step) % columns for step in (-1, 0, 1)}:
                base = near << 32
                for key in (
                    (base | row, base | row + 1)
                    if row == 0
                    else (base | row - 1, base | row, base | row + 1)
                ):
                    circles = cells.get(key)
                    if circles is not None:
                        found += circles
        return found

    def all(self) -> list[Circle[T]]:
        """Give every circle that has a place."""
        found = list(self._large)
        for cells in self._levels.values():
            for circles in cells.values():
                found += circles
        return found


def _key(x: float, y: float, level: int) -> int:
    scale = 2**level / 360
    return int((x + 180) * scale) << 32 | int((y + 90) * scale)
