"""Fences by the cells they touch, so that a point finds its fences in a dictionary.

The world is cut into squares of 360 / 2^level degrees; every fence lives on the level
where it is a few cells wide. What a fence is to one of its cells is found out when a point
first falls into that cell, and remembered:

    inside  the whole cell lies in the fence: every point of it is a hit, no geometry needed
    edge    the fence's border runs through the cell: each point needs the exact test
    (gone)  the cell lies in the fence's box, but not in the fence

A fence that stands *alone* is all its owner asks: inside means matched, and at the edge
one call of a prepared predicate decides (`sure` and `exact`).

Adding a fence costs its cells and no geometry at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, log2
from typing import Generic, TypeVar

import shapely
from shapely import lib

from protocol.geometry_place import Area, Box, Geometry, Place
from protocol.relations import CONTAINS, COVERS, INTERSECTS, spatial

T = TypeVar("T")

Predicate = Callable[[Geometry, float, float], bool]

# The relations that follow from a cell lying in the fence's interior, and what decides
# them for a point at its border. The functions behind shapely.intersects_xy and
# shapely.contains_xy: those spend as long on their arguments as on the answer.
_PREDICATES: dict[int, Predicate] = {
    COVERS: lib.intersects_xy,
    INTERSECTS: lib.intersects_xy,
    CONTAINS: lib.contains_xy,
}

CELLS_ACROSS = 6  # a fence is between this and twice as many cells wide
MAX_LEVEL = 20  # squares of about 38 m


class Cell(Generic[T]):
    """What is known of one cell: its fences by what they are to it."""

    __slots__ = ("edge", "exact", "inside", "sure", "unknown")

    def __init__(self) -> None:
        self.unknown: list[Fence[T]] = []
        self.sure: list[T] = []
        self.inside: list[T] = []
        # predicate(geometry, x + turn, y) decides; a turn of 360 brings x into the fence's frame
        self.exact: list[tuple[Predicate, Geometry, float, T]] = []
        self.edge: list[T] = []

    @property
    def empty(self) -> bool:
        """Whether no fence is left."""
        return not (self.unknown or self.sure or self.inside or self.exact or self.edge)

    def remove(self, fence: Fence[T]) -> None:
        """Forget a fence, whatever it is to the cell."""
        item = fence.item
        for items in (self.sure, self.inside, self.edge):
            if item in items:
                items.remove(item)
                return
        if fence in self.unknown:
            self.unknown.remove(fence)
        else:
            self.exact = [each for each in self.exact if each[3] is not item]


class Fence(Generic[T]):
    """A place in the index, with whatever its owner wants to find by it."""

    __slots__ = ("alone", "cells", "item", "place", "relation")

    def __init__(self, place: Place, item: T, relation: int, *, alone: bool) -> None:
        self.place = place
        self.item = item
        self.relation = relation
        self.alone = alone
        self.cells: tuple[int, list[int]] = (0, [])


class CellIndex(Generic[T]):
    """Fences, asked with points."""

    def __init__(self) -> None:
        self._levels: dict[int, dict[int, Cell[T]]] = {}
        self._scales: tuple[tuple[float, dict[int, Cell[T]]], ...] = ()

    def add(self, fence: Fence[T], boxes: tuple[Box, ...]) -> None:
        """Add a fence that can only match points in these boxes."""
        width = max(max(box[2] - box[0], box[3] - box[1]) for box in boxes)
        level = MAX_LEVEL if width <= 0 else ceil(log2(360 * CELLS_ACROSS / width))
        level = min(max(level, 0), MAX_LEVEL)
        cells = self._levels.get(level)
        if cells is None:
            cells = self._levels[level] = {}
            self._scales = tuple((2**each / 360, self._levels[each]) for each in self._levels)
        scale = 2**level / 360
        keys: list[int] = []
        for west, south, east, north in boxes:
            first_row, last_row = int((south + 90) * scale), int((north + 90) * scale)
            for column in range(int((west + 180) * scale), int((east + 180) * scale) + 1):
                base = column << 32
                keys.extend(range(base | first_row, (base | last_row) + 1))
        for key in keys:
            cell = cells.get(key)
            if cell is None:
                cell = cells[key] = Cell()
            cell.unknown.append(fence)
        fence.cells = (level, keys)

    def remove(self, fence: Fence[T]) -> None:
        """Remove a fence."""
        level, keys = fence.cells
        cells = self._levels[level]
        for key in keys:
            cell = cells.get(key)
            if cell is None:
                continue
            cell.remove(fence)
            if cell.empty:
                del cells[key]
        if not cells:
            del self._levels[level]
            self._scales = tuple((2**each / 360, self._levels[each]) for each in self._levels)

    def at(self, x: float, y: float) -> Iterator[Cell[T]]:
        """Give the cells that hold a point, one a level at the most, each fully known."""
        for scale, cells in self._scales:
            column, row = int((x + 180) * scale), int((y + 90) * scale)
            cell = cells.get(column << 32 | row)
            if cell is not None:
                if cell.unknown:
                    _learn(cell, column, row, scale)
                yield cell

    def __len__(self) -> int:
        return sum(len(cells) for cells in self._levels.values())


def _learn(cell: Cell[T], column: int, row: int, scale: float) -> None:
    """Find out what the fences of a cell are to it."""
    unknown, cell.unknown = cell.unknown, []
    side = 1 / scale
    west, south = column * side - 180, row * side - 90
    # A hair wider than the cell: a point that rounding puts here must not be lost.
    hair = side * 1e-9
    box = shapely.box(west - hair, south - hair, west + side + hair, south + side + hair)
    for fence in unknown:
        predicate = _PREDICATES.get(fence.relation)
        if predicate is None or fence.place.is_point:
            cell.edge.append(fence.item)
            continue
        verdict = _compare(fence.place, box, (west, south, west + side, south + side))
        if verdict > 0:
            (cell.sure if fence.alone else cell.inside).append(fence.item)
        elif verdict == 0:
            if fence.alone and not fence.place.wraps:
                turn = 360.0 if west + side < fence.place.bounds[0] else 0.0
                cell.exact.append((predicate, fence.place.geometry, turn, fence.item))
            else:
                cell.edge.append(fence.item)


def _compare(place: Place, box: shapely.Geometry, corners: Box) -> int:
    """Say whether a cell lies in a place's interior (1), at its border (0) or outside (-1)."""
    west, _, east, _ = corners
    bounds = place.bounds
    if west < -179.999 or east > 179.999 or bounds[2] > 179.999:
        # Near the antimeridian the frames of cell and fence may differ: ask the long way.
        if not spatial(INTERSECTS, place, Area(box)):
            return -1
        return 1 if spatial(COVERS, place, Area(shapely.buffer(box, (east - west) * 1e-6))) else 0
    geometry = place.geometry
    if not place.prepared:  # type: ignore[attr-defined]
        shapely.prepare(geometry)
        place.prepared = True  # type: ignore[attr-defined]
    if shapely.contains_properly(geometry, box):
        return 1
    return 0 if shapely.intersects(geometry, box) else -1
