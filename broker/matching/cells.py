"""Fences by the cells they touch, so that a point finds its fences in a dictionary.

The world is cut into squares of 360 / 2^level degrees; every fence lives on the level
where it is a few cells wide. The more points visit a cell, the more is known of it:

    never visited    a list of the fences whose boxes touch the cell, and no more
    some visits      each of these fences is tested with each point
    LEARN_VISITS     what each fence is to the cell is found out, and remembered:
                     inside (the whole cell lies in the fence: every point is a hit, without
                     geometry), edge (its border runs through the cell), or not there at all
    SPLIT_VISITS     a cell with edges is cut into four, again and again

So where things happen few tests remain, and where little happens nothing is spent on it.
A fence that stands *alone* is all its owner asks: inside means matched (`sure`), and at
the edge `intersects_xy` decides (`shapes`, for the owners in `tested`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from math import floor, log2
from typing import Generic, TypeVar

import shapely

from protocol.geometry_place import Area, Box, Geometry, Place
from protocol.relations import CONTAINS, COVERS, INTERSECTS, spatial

T = TypeVar("T")

SETTLED = (COVERS, CONTAINS, INTERSECTS)  # by a cell that lies in the fence's interior
EXACT = (COVERS, INTERSECTS)  # for a point, by shapely.intersects_xy

CELLS_ACROSS = 8  # a fence is between half of this and as many cells wide
MAX_LEVEL = 20  # squares of about 38 m
# Learning a cell costs about 100 us, and each visit then saves some tests of 0.2 us.
LEARN_VISITS = 128
SPLIT_VISITS = 512
# A point is tested against 32 vertices in 0.2 us, and in 1.5 us if GEOS has prepared that
# polygon and 20,000 others, because their indexes fall out of the processor's cache.
PREPARED_VERTICES = 128
SPLIT_DEPTH = 4


class Fence(Generic[T]):
    """A place in the index, with whatever its owner wants to find by it."""

    __slots__ = ("alone", "cells", "item", "place", "relation", "shape")

    def __init__(self, place: Place, item: T, relation: int, *, alone: bool) -> None:
        self.place = place
        self.item = item
        self.relation = relation
        self.alone = alone
        # What decides for a point, if that is all: None where more must be asked.
        self.shape: Geometry | None = None
        if alone and relation in EXACT and not place.is_point and place.bounds[2] < 180:
            self.shape = place.geometry
            if shapely.get_num_coordinates(self.shape) > PREPARED_VERTICES:
                shapely.prepare(self.shape)
        self.cells: tuple[int, list[int]] = (0, [])


class Cell(Generic[T]):
    """A cell that has been visited: its fences by what they are to it.

    `fences` are all of them, to start from again; a quarter leaves that to its parent.
    """

    __slots__ = (
        "across",
        "children",
        "depth",
        "edge",
        "fences",
        "inside",
        "shapes",
        "sure",
        "tested",
        "visits",
    )

    def __init__(self, fences: list[Fence[T]], parent: Cell[T] | None = None) -> None:
        self.fences = fences
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.visits = 0
        self.children: list[Cell[T] | None] | None = None
        # What holds for the whole parent holds for each of its quarters.
        self.sure: list[T] = list(parent.sure) if parent is not None else []
        self.inside: list[T] = list(parent.inside) if parent is not None else []
        self._test(fences if parent is None else parent.across)

    def _test(self, fences: list[Fence[T]]) -> None:
        """Have these fences tested with every point."""
        self.across = fences  # whose border may run through the cell
        self.shapes: list[Geometry] = []
        self.tested: list[T] = []
        self.edge: list[T] = []
        for fence in fences:
            if fence.shape is not None:
                self.shapes.append(fence.shape)
                self.tested.append(fence.item)
            else:
                self.edge.append(fence.item)

    def learn(self, corners: Box) -> None:
        """Find out what the fences are to this cell."""
        west, south, east, north = corners
        # A hair wider than the cell: a point that rounding puts here must not be lost.
        hair = (east - west) * 1e-9
        box = shapely.box(west - hair, south - hair, east + hair, north + hair)
        at_seam = west < -179.999 or east > 179.999
        across = []
        for fence in self.across:
            place = fence.place
            if fence.relation not in SETTLED or place.is_point:
                verdict = Lies.ACROSS
            elif at_seam or place.bounds[2] > 179.999:
                verdict = _compare_at_seam(place, box, fence.relation)
            else:
                verdict = _compare(place, box)
            if verdict is Lies.INSIDE:
                (self.sure if fence.alone else self.inside).append(fence.item)
            elif verdict is Lies.ACROSS:
                across.append(fence)
        self._test(across)

    def worth_splitting(self) -> bool:
        """Tell whether smaller cells would spare tests."""
        return bool(self.across) and self.depth < SPLIT_DEPTH


class CellIndex(Generic[T]):
    """Fences, asked with points."""

    def __init__(self) -> None:
        # level -> cell number -> fences that may touch the cell, or what is known of them
        self._levels: dict[int, dict[int, list[Fence[T]] | Cell[T]]] = {}
        self._scales: tuple[tuple[float, dict[int, list[Fence[T]] | Cell[T]]], ...] = ()

    def add(self, fence: Fence[T], boxes: tuple[Box, ...]) -> None:
        """Add a fence that can only match points in these boxes."""
        width = max(max(box[2] - box[0], box[3] - box[1]) for box in boxes)
        level = MAX_LEVEL if width <= 0 else floor(log2(360 * CELLS_ACROSS / width))
        level = min(max(level, 0), MAX_LEVEL)
        cells = self._levels.get(level)
        if cells is None:
            cells = self._levels[level] = {}
            self._list_scales()
        scale = 2**level / 360
        keys: list[int] = []
        for west, south, east, north in boxes:
            first_row, last_row = int((south + 90) * scale), int((north + 90) * scale)
            for column in range(int((west + 180) * scale), int((east + 180) * scale) + 1):
                base = column << 32
                keys.extend(range(base | first_row, (base | last_row) + 1))
        if len(boxes) > 1:
            keys = list(dict.fromkeys(keys))  # boxes may meet in a cell
        for key in keys:
            cell = cells.get(key)
            if cell is None:
                cells[key] = [fence]
            elif isinstance(cell, Cell):
                cells[key] = [*cell.fences, fence]
            else:
                cell.append(fence)
        fence.cells = (level, keys)

    def remove(self, fence: Fence[T]) -> None:
        """Remove a fence."""
        level, keys = fence.cells
        cells = self._levels[level]
        for key in keys:
            cell = cells.get(key)
            if cell is None:
                continue
            left = [each for each in _fences_of(cell) if each is not fence]
            if left:
                cells[key] = left
            else:
                del cells[key]
        if not cells:
            del self._levels[level]
            self._list_scales()

    def _list_scales(self) -> None:
        self._scales = tuple((2**each / 360, self._levels[each]) for each in self._levels)

    def at(self, x: float, y: float) -> Iterator[Cell[T]]:
        """Give the cells that hold a point, one a level at the most."""
        for scale, cells in self._scales:
            column, row = int((x + 180) * scale), int((y + 90) * scale)
            key = column << 32 | row
            cell = cells.get(key)
            if cell is None:
                continue
            if type(cell) is not Cell:
                cell = cells[key] = Cell(_fences_of(cell))
            children = cell.children
            while children is not None:
                scale *= 2  # noqa: PLW2901 - down one level
                column, row = int((x + 180) * scale), int((y + 90) * scale)
                quarter = (column & 1) << 1 | row & 1
                child = children[quarter]
                if child is None:
                    child = children[quarter] = Cell([], cell)
                cell = child
                children = cell.children
            cell.visits += 1
            if cell.visits == LEARN_VISITS:
                cell.learn(_corners(column, row, scale))
            elif cell.visits == SPLIT_VISITS and cell.worth_splitting():
                cell.children = [None, None, None, None]
            yield cell

    def __len__(self) -> int:
        return sum(len(cells) for cells in self._levels.values())


def _fences_of(cell: list[Fence[T]] | Cell[T]) -> list[Fence[T]]:
    return cell.fences if isinstance(cell, Cell) else cell


def _corners(column: int, row: int, scale: float) -> Box:
    side = 1 / scale
    west, south = column * side - 180, row * side - 90
    return west, south, west + side, south + side


class Lies(Enum):
    """How a cell lies to a place."""

    INSIDE = auto()  # in its interior
    ACROSS = auto()  # at its border
    OUTSIDE = auto()


def _compare(place: Place, box: Geometry) -> Lies:
    # A copy, because what GEOS prepares for boxes slows points down (see above).
    geometry = shapely.from_wkb(shapely.to_wkb(place.geometry))
    shapely.prepare(geometry)
    if shapely.contains_properly(geometry, box):
        return Lies.INSIDE
    return Lies.ACROSS if shapely.intersects(geometry, box) else Lies.OUTSIDE


def _compare_at_seam(place: Place, box: Geometry, relation: int) -> Lies:
    """Near the antimeridian the frames of cell and fence may differ: ask the long way."""
    cell = Area(box)
    if not spatial(INTERSECTS, place, cell):
        return Lies.OUTSIDE
    # A cell that is covered may still touch the border, and what lies there is not contained.
    if relation != CONTAINS and spatial(COVERS, place, cell):
        return Lies.INSIDE
    return Lies.ACROSS
