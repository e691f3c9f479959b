"""Geometries that are small to send and large to work with: refused, or answered at once."""

from __future__ import annotations

import math
import time

import pytest
import shapely
import shapely.affinity

from protocol.errors import BadGeometry
from protocol.geometry import parse_text
from protocol.geometry_crossings import MOST_MEETINGS, meet_too_often
from protocol.relations import COVERS, CROSSES, DE9IM, DISJOINT, INTERSECTS, OVERLAPS, spatial

AT_ONCE_S = 2.0  # of the processor; without the bounds these take from seconds to hours


def line(count: int, wide: bool) -> str:
    """Draw a zigzag from side to side, or from top to bottom."""
    corners = []
    for number in range(count):
        along, across = number * 9 / count, number % 2 * 9
        corners.append(f"{across} {along}" if wide else f"{along} {across}")
    return f"LINESTRING({','.join(corners)})"


def circling(count: int, step: float, radius: float = 1.0) -> str:
    corners = (
        f"{8 + radius * math.cos(step * number)} {50 + radius * math.sin(step * number)}"
        for number in range(count)
    )
    return f"LINESTRING({','.join(corners)})"


SPIRAL = f"LINESTRING({','.join(f'{(n * 179 + 180) % 360 - 180} {n / 200}' for n in range(9000))})"
BARS = ",".join(
    [f"POLYGON(({n} 0,{n + 0.1} 0,{n + 0.1} 80,{n} 80,{n} 0))" for n in range(-179, 180)]
    + [
        f"POLYGON((-179 {n / 5},-179 {n / 5 + 0.1},179 {n / 5 + 0.1},179 {n / 5},-179 {n / 5}))"
        for n in range(400)
    ]
)


@pytest.mark.parametrize(
    "text",
    [
        SPIRAL,
        f"LINESTRING(0 0,{'4' * 70}1 1)",
        circling(9000, 2.5),
        f"BUFFER({circling(9000, 2.5)}, 10)",
        f"BUFFER({line(9000, wide=True)}, 1)",
        f"GEOMETRYCOLLECTION({BARS})",
        f"BUFFER(MULTIPOINT({','.join(f'{n % 360 - 180} {n % 90}' for n in range(9000))}), 1)",
    ],
    ids=["spiral", "far", "star", "wide star", "long", "bars", "many circles"],
)
def test_what_would_take_long_is_bad_geometry_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(BadGeometry, match=r"edges meet|round the world|buffer of"):
        parse_text(text)
    assert time.process_time() - started < AT_ONCE_S


@pytest.mark.parametrize(
    "text",
    [
        circling(9000, math.tau / 500),  # eighteen laps of one circuit
        line(9000, wide=True),
        f"BUFFER({circling(5000, math.tau / 500, radius=0.01)}, 10)",
        "LINESTRING(0 0,179 10,-2 20,177 30,-4 40,175 50)",  # three times round
        f"MULTIPOINT({','.join(f'{n % 360 - 180} {n % 90}' for n in range(9000))})",
    ],
    ids=["laps", "zigzag", "wide laps", "turns", "points"],
)
def test_what_is_only_large_is_welcome(text: str) -> None:
    started = time.process_time()
    assert not parse_text(text).place.is_point
    assert time.process_time() - started < AT_ONCE_S


def test_lines_that_meet_a_million_times_only_intersect() -> None:
    one, other = parse_text(line(1500, wide=True)).place, parse_text(line(1500, wide=False)).place
    assert meet_too_often(one, other)
    started = time.process_time()
    assert spatial(INTERSECTS, one, other)
    assert not spatial(DISJOINT, one, other)
    for relation in (CROSSES, OVERLAPS, COVERS):
        assert not spatial(relation, one, other)
    assert not spatial(DE9IM, one, other, "T********")
    assert time.process_time() - started < AT_ONCE_S


def test_lines_that_meet_less_often_are_related_as_ever() -> None:
    one, other = parse_text(line(300, wide=True)).place, parse_text(line(300, wide=False)).place
    assert not meet_too_often(one, other)
    assert spatial(CROSSES, one, other)
    assert spatial(DE9IM, one, other, "T********")


def test_large_areas_that_share_an_edge_are_related_as_ever() -> None:
    """Many corners are no many meetings."""
    circle = shapely.Point(8, 50).buffer(1, quad_segs=2000)
    moved = shapely.affinity.translate(circle, 0.5)
    one, other = parse_text(circle.wkt).place, parse_text(moved.wkt).place
    assert shapely.get_num_coordinates(circle) ** 2 > MOST_MEETINGS
    assert spatial(OVERLAPS, one, other)
