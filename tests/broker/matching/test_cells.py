"""Fences in cells: what a cell knows of its fences is true for every point of it."""

from __future__ import annotations

from typing import Any

import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.matching.cells import CellIndex, Fence
from protocol.geometry import Place, parse_text
from protocol.relations import CONTAINS, COVERS, INTERSECTS, TOUCHES, spatial

FENCES = [
    "BBOX(0,0,11.25,11.25)",  # along the borders of cells
    "BBOX(8.5,54.4,8.7,54.6)",
    "POLYGON((0 0,10 0,10 10,5 3,0 10,0 0))",
    "POLYGON((0 0,16 0,16 16,0 16,0 0),(4 4,12 4,12 12,4 12,4 4))",
    "MULTIPOLYGON(((0 0,1 0,1 1,0 1,0 0)),((20 20,21 20,21 21,20 21,20 20)))",
    "GEOMETRYCOLLECTION(POLYGON((0 0,8 0,8 8,0 8,0 0)),POINT(20 20),LINESTRING(9 0,20 0))",
    "LINESTRING(0 0,10 10,20 0)",
    "POINT(5 5)",
    "BBOX(170,-10,-170,10)",
    "BBOX(-180,-90,180,90)",
    "BBOX(179,80,-179,90)",
    "BUFFER(POINT(180 0), 100000)",
    "BBOX(5,5,5.000001,5.000001)",
]
RELATIONS = [COVERS, CONTAINS, INTERSECTS, TOUCHES]


def claims(index: CellIndex[str], where: Place) -> tuple[set[str], set[str]]:
    """What the cells of a point settle, and what they leave to the exact test."""
    settled: set[str] = set()
    candidates: set[str] = set()
    for cell in index.at(where.x, where.y):
        settled |= {*cell.sure, *cell.inside}
        candidates |= {*cell.edge, *cell.tested}
        for geometry, item in zip(cell.shapes, cell.tested, strict=True):
            if shapely.intersects_xy(geometry, where.x, where.y):
                settled.add(item)
    return settled, candidates


@st.composite
def points_of(draw: Any, place: Place) -> Place:
    """Points in and round a place, on the borders of its cells, and on its own."""
    west, south, east, north = place.bounds
    share = st.sampled_from([-0.25, 0, 0.0625, 0.125, 0.25, 0.5, 0.75, 1, 1.0625]) | st.floats(0, 1)
    x = west + draw(share) * ((east - west) or 0.01)
    y = south + draw(share) * ((north - south) or 0.01)
    return Place(x, min(90.0, max(-90.0, y)))


@pytest.mark.parametrize("text", FENCES)
@pytest.mark.parametrize("relation", RELATIONS)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), alone=st.booleans())
def test_settled_is_true_and_left_out_is_false(
    text: str, relation: int, data: st.DataObject, alone: bool
) -> None:
    place = parse_text(text).place
    index: CellIndex[str] = CellIndex()
    index.add(Fence(place, "fence", relation, alone=alone), place.boxes)
    for _ in range(8):
        where = data.draw(points_of(place))
        settled, candidates = claims(index, where)
        holds = spatial(relation, place, where)
        if "fence" in settled:
            assert holds
        if not settled and not candidates:
            assert not holds


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(FENCES), min_size=1, max_size=12),
    st.data(),
)
def test_removed_fences_leave_nothing_behind(texts: list[str], data: st.DataObject) -> None:
    index: CellIndex[str] = CellIndex()
    fences = []
    for number, text in enumerate(texts):
        place = parse_text(text).place
        fence = Fence(place, str(number), COVERS, alone=data.draw(st.booleans()))
        index.add(fence, place.boxes)
        fences.append(fence)
    for fence in fences:  # so that some cells are known and others not
        claims(index, data.draw(points_of(fence.place)))
    for fence in data.draw(st.permutations(fences)):
        index.remove(fence)
        settled, candidates = claims(index, data.draw(points_of(fence.place)))
        assert fence.item not in settled | candidates
    assert len(index) == 0
