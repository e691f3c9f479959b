"""Metres: circles, buffers, distances and moving fences against geodesics measured one by one."""

import math

import numpy as np
import pyproj
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import BadGeometry
from protocol.geometry import (
    Place,
    buffer_metres,
    circle,
    circle_boxes,
    distance_metres,
    from_offsets,
    parse_text,
    to_offsets,
)
from protocol.relations import CONTAINS, COVERS, INTERSECTS, spatial

GEOD = pyproj.Geod(ellps="WGS84")

LATITUDES = st.floats(-89.99, 89.99)
LONGITUDES = st.floats(-180, 180)
AZIMUTHS = st.floats(0, 360)
RADII = st.floats(0, 6.5).map(lambda power: 10**power)


def place(text: str) -> Place:
    return parse_text(text).place


def away(x: float, y: float, azimuth: float, metres: float) -> Place:
    lon, lat, _ = GEOD.fwd(x, y, azimuth, metres)
    return Place.point(lon, lat)


def measured(point: Place, text: str) -> float:
    """The distance to the nearest of very many points on the edges."""

    def distances(xy: np.ndarray) -> np.ndarray:
        n = len(xy)
        return GEOD.inv(np.full(n, point.x), np.full(n, point.y), xy[:, 0], xy[:, 1])[2]

    nearest = math.inf
    for part in shapely.get_parts(shapely.from_wkt(text)):
        if part.geom_type == "Point":
            nearest = min(nearest, distances(shapely.get_coordinates(part))[0])
            continue
        rings = [part] if part.geom_type == "LineString" else [part.exterior, *part.interiors]
        for ring in rings:
            dense = shapely.get_coordinates(shapely.segmentize(ring, 0.02))
            for best in np.argsort(distances(dense))[:4]:
                around = shapely.LineString(dense[max(best - 1, 0) : best + 2])
                close = shapely.get_coordinates(shapely.segmentize(around, 0.00002))
                nearest = min(nearest, float(np.min(distances(close))))
    return nearest


# Circles


@settings(max_examples=300, deadline=None)
@given(LONGITUDES, LATITUDES, AZIMUTHS, RADII)
def test_a_circle_has_its_radius_in_every_direction(
    x: float, y: float, azimuth: float, metres: float
) -> None:
    drawn = circle(x, y, metres)
    assert spatial(COVERS, drawn, away(x, y, azimuth, metres * 0.995))
    assert not spatial(COVERS, drawn, away(x, y, azimuth, metres * 1.005))
    assert spatial(CONTAINS, drawn, Place.point(x, y))


@settings(max_examples=300, deadline=None)
@given(LONGITUDES, st.floats(-90, 90), AZIMUTHS, RADII)
def test_the_boxes_of_a_circle_cover_it(x: float, y: float, azimuth: float, metres: float) -> None:
    edge = away(x, y, azimuth, metres)
    centre = Place.point(x, y)
    boxes = circle_boxes(centre.x, y, metres)
    for west, south, east, north in boxes:
        assert -180 <= west <= east <= 180
        assert -90 <= south <= north <= 90
    for point in (centre, edge):
        assert any(
            west <= x <= east and south <= point.y <= north
            for west, south, east, north in boxes
            for x in ((point.x, 180.0) if point.x == -180 else (point.x,))
        )


@pytest.mark.parametrize("pole", [90.0, -90.0])
def test_a_circle_at_a_pole_is_a_cap(pole: float) -> None:
    cap = circle(33.0, pole, 100_000.0)
    inside, outside = pole - math.copysign(0.89, pole), pole - math.copysign(0.9, pole)
    for x in (-180.0, -91.0, 0.0, 33.0, 179.9):
        assert spatial(CONTAINS, cap, Place.point(x, inside))
        assert not spatial(INTERSECTS, cap, Place.point(x, outside))


def test_a_circle_of_half_the_world_lacks_the_other_half() -> None:
    half = circle(0.0, 0.0, 12_000_000.0)
    assert spatial(COVERS, half, Place.point(0, 90))
    assert spatial(CONTAINS, half, Place.point(100, 0))
    assert not spatial(INTERSECTS, half, Place.point(180, 0))
    assert spatial(CONTAINS, circle(0.0, 0.0, 19_950_000.0), Place.point(180, 0))


@pytest.mark.parametrize("metres", [0.0, -1.0, math.nan, math.inf, 1e9])
def test_a_circle_needs_a_radius(metres: float) -> None:
    with pytest.raises(BadGeometry, match="metres"):
        circle(8.0, 54.0, metres)


# Buffers


@pytest.mark.parametrize(
    ("text", "metres"),
    [
        ("LINESTRING(8 54,8.1 54.05)", 500),
        ("LINESTRING(8 54,20 60)", 500),
        ("LINESTRING(8 54,20 60)", 100_000),
        ("LINESTRING(-10 0,60 70)", 20_000),
        ("POLYGON((8 54,9 54,9 55,8 55,8 54))", 1_000),
        ("POLYGON((8 54,9 54,9 55,8 55,8 54),(8.4 54.4,8.6 54.4,8.5 54.6,8.4 54.4))", 2_000),
        ("POLYGON((8 54,8.1 54,8 54.1,8 54),(8.02 54.02,8.04 54.02,8.02 54.04,8.02 54.02))", 400),
        ("POLYGON((-20 30,40 30,40 60,-20 60,-20 30))", 30_000),
        ("POLYGON((10 80,60 80,60 85,10 85,10 80))", 5_000),
        ("MULTIPOINT(8 54,8.01 54.01,30 10)", 3_000),
    ],
)
def test_a_buffer_reaches_as_far_as_it_says(text: str, metres: float) -> None:
    wide = buffer_metres(place(text), metres)
    random = np.random.default_rng(7)
    corners = shapely.get_coordinates(shapely.segmentize(shapely.from_wkt(text), 0.5))
    inside = outside = 0
    for _ in range(100):
        x, y = corners[random.integers(len(corners))]
        point = away(x, y, random.uniform(0, 360), metres * random.uniform(0.2, 2.0))
        if shapely.intersects_xy(shapely.from_wkt(text), point.x, point.y):
            assert spatial(COVERS, wide, point)
            continue
        distance = measured(point, text)
        if distance < metres * 0.998:
            inside += 1
            assert spatial(COVERS, wide, point), distance
        elif distance > metres * 1.002:
            outside += 1
            assert not spatial(COVERS, wide, point), distance
    assert inside > 5
    assert outside > 5


def test_a_buffer_crosses_the_antimeridian() -> None:
    wide = buffer_metres(place("LINESTRING(179.9 10,179.95 10.05)"), 20_000)
    assert spatial(CONTAINS, wide, Place.point(-179.95, 10.05))
    assert len(wide.boxes) == 2
    assert spatial(CONTAINS, place("BUFFER(POINT(180 0), 1000)"), Place.point(-179.995, 0))


def test_a_buffer_over_a_pole_covers_it() -> None:
    wide = buffer_metres(place("LINESTRING(0 89,90 89)"), 150_000)
    for x in (-180.0, -135.0, 0.0, 45.0, 90.0, 179.0):
        assert spatial(CONTAINS, wide, Place.point(x, 89.999))
    assert not spatial(INTERSECTS, wide, Place.point(-135, 89.0))


def test_a_buffer_of_a_band_round_the_world_is_a_wider_band() -> None:
    wide = buffer_metres(place("BBOX(-180,-1,180,1)"), 111_000)
    assert wide.wraps
    for x in (-180.0, -90.0, 0.0, 90.0):
        assert spatial(CONTAINS, wide, Place.point(x, 1.99))
        assert not spatial(INTERSECTS, wide, Place.point(x, 2.02))


def test_a_buffer_of_nothing_is_the_area_itself() -> None:
    area = place("BBOX(8,54,9,55)")
    assert buffer_metres(area, 0) is area
    with pytest.raises(BadGeometry, match="no area"):
        buffer_metres(place("LINESTRING(8 54,9 55)"), 0)


# Distances


@given(LONGITUDES, LATITUDES, LONGITUDES, LATITUDES)
def test_the_distance_of_points_is_the_geodesic(
    x: float, y: float, other_x: float, other_y: float
) -> None:
    expected = GEOD.inv(x, y, other_x, other_y)[2]
    found = distance_metres(Place.point(x, y), Place.point(other_x, other_y))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-6)


SHAPES = [
    "POLYGON((8 54,8.2 54,8.1 54.2,8 54))",
    "LINESTRING(8 54,12 57)",
    "POLYGON((-20 30,40 30,40 60,-20 60,-20 30))",
    "LINESTRING(0 80,90 85)",
    "MULTIPOINT(8 54,9 55)",
]


@pytest.mark.parametrize("text", SHAPES)
def test_the_distance_to_a_shape_is_that_to_its_nearest_point(text: str) -> None:
    shape = place(text)
    random = np.random.default_rng(11)
    corners = shapely.get_coordinates(shape.geometry)
    for _ in range(12):
        x, y = corners[random.integers(len(corners))]
        point = away(x, y, random.uniform(0, 360), 10 ** random.uniform(2, 6.3))
        if shape.geometry.intersects(point.geometry):
            assert distance_metres(shape, point) == 0
            continue
        expected = measured(point, text)
        assert distance_metres(shape, point) == pytest.approx(expected, rel=1e-4, abs=0.05)
        assert distance_metres(point, shape) == distance_metres(shape, point)


def test_the_distance_of_two_shapes_is_the_same_from_both_sides() -> None:
    one, other = place("BBOX(8,54,9,55)"), place("BBOX(9.5,54.2,10,54.8)")
    # Two meridians come nearest at the north end of the shorter.
    expected = GEOD.inv(9, 54.8, 9.5, 54.8)[2]
    assert distance_metres(one, other) == pytest.approx(expected, rel=1e-5)
    assert distance_metres(other, one) == pytest.approx(expected, rel=1e-5)
    assert distance_metres(one, place("BBOX(8.5,54.5,12,57)")) == 0


def test_shapes_of_many_vertices_are_measured_as_exactly() -> None:
    ring = shapely.Point(8, 54).buffer(1, quad_segs=1000)
    other = shapely.Point(12, 54).buffer(1, quad_segs=1000)
    one, two = (parse_text(shapely.to_wkt(shape)).place for shape in (ring, other))
    expected = GEOD.inv(9, 54, 11, 54)[2]
    assert distance_metres(one, two) == pytest.approx(expected, rel=1e-3)
    assert distance_metres(one, two) <= expected + 1e-6


def test_distance_knows_no_antimeridian() -> None:
    fence = place("BBOX(170,-10,180,10)")
    expected = GEOD.inv(180, 0, -179, 0)[2]
    assert distance_metres(fence, Place.point(-179, 0)) == pytest.approx(expected)
    assert distance_metres(fence, place("BBOX(-179,-1,-178,1)")) == pytest.approx(
        GEOD.inv(180, 1, -179, 1)[2], rel=1e-4
    )
    assert distance_metres(place("BBOX(170,-10,-170,10)"), Place.point(180, 0)) == 0


def test_distance_to_a_band_round_the_world_is_that_to_its_parallel() -> None:
    band = place("BBOX(-180,-10,180,10)")
    assert distance_metres(band, Place.point(-180, 0)) == 0
    expected = GEOD.inv(50, 10, 50, 11)[2]
    assert distance_metres(band, Place.point(50, 11)) == pytest.approx(expected, rel=1e-6)
    assert distance_metres(band, Place.point(180, 11)) == pytest.approx(expected, rel=1e-6)


def test_the_nearest_way_may_lead_over_a_pole() -> None:
    shape = place("LINESTRING(0 88,10 88)")
    expected = GEOD.inv(10, 88, 180, 88)[2]
    assert distance_metres(shape, Place.point(180, 88)) == pytest.approx(
        min(expected, measured(Place.point(180, 88), "LINESTRING(0 88,10 88)")), rel=1e-4
    )


# Fences that move


def test_a_fence_moves_with_its_client() -> None:
    fence = place("POLYGON((8 54,8.02 54,8.02 54.01,8 54.01,8 54))")
    moved = from_offsets(to_offsets(fence, 54.005, 8.01), 10.0, 100.0)
    east = GEOD.inv(8.01, 54.005, 8.02, 54.005)[2]
    north = GEOD.inv(8.01, 54.005, 8.01, 54.01)[2]
    assert spatial(COVERS, moved, away(100, 10, 90, east * 0.999))
    assert not spatial(COVERS, moved, away(100, 10, 90, east * 1.001))
    assert spatial(COVERS, moved, away(100, 10, 0, north * 0.999))
    assert not spatial(COVERS, moved, away(100, 10, 0, north * 1.001))


@settings(max_examples=100, deadline=None)
@given(st.floats(-85, 85), LONGITUDES, st.floats(0.001, 3), st.floats(0.001, 3))
def test_a_fence_put_back_where_it_was_is_the_same(
    lat: float, lon: float, width: float, height: float
) -> None:
    fence = parse_text(f"BBOX({lon},{lat},{lon + width},{lat + height})").place
    again = from_offsets(to_offsets(fence, lat + 0.01, lon - 0.02), lat + 0.01, lon - 0.02)
    assert again.bounds == pytest.approx(fence.bounds, abs=1e-7) or again.bounds[
        0
    ] == pytest.approx(-180, abs=1e-6)
    assert again.geometry.area == pytest.approx(fence.geometry.area, rel=1e-5)


def test_a_fence_moves_over_the_antimeridian() -> None:
    fence = place("POLYGON((7.9 -0.1,8.1 -0.1,8.1 0.1,7.9 0.1,7.9 -0.1))")
    moved = from_offsets(to_offsets(fence, 0.0, 8.0), 0.0, 180.0)
    assert len(moved.boxes) == 2
    assert spatial(CONTAINS, moved, Place.point(180, 0))
    assert spatial(CONTAINS, moved, Place.point(-179.95, 0))
    assert not spatial(INTERSECTS, moved, Place.point(0, 0))


def test_a_fence_moves_over_a_pole() -> None:
    fence = place("POLYGON((7.9 -0.1,8.1 -0.1,8.1 0.1,7.9 0.1,7.9 -0.1))")
    moved = from_offsets(to_offsets(fence, 0.0, 8.0), 90.0, 0.0)
    for x in (-180.0, -91.0, 0.0, 120.0):
        assert spatial(CONTAINS, moved, Place.point(x, 89.95))
        assert not spatial(INTERSECTS, moved, Place.point(x, 89.8))


def test_lines_and_points_move_too() -> None:
    mixture = place("GEOMETRYCOLLECTION(POINT(8 54),LINESTRING(8 54.1,8.1 54.1))")
    moved = from_offsets(to_offsets(mixture, 54.0, 8.0), 0.0, -180.0)
    assert spatial(INTERSECTS, moved, Place.point(180, 0))
    assert moved.geometry.geom_type == "GeometryCollection"
    point = from_offsets(to_offsets(Place.point(8, 54), 54.0, 8.0), 1.0, 2.0)
    assert point.is_point
    assert (point.x, point.y) == pytest.approx((2.0, 1.0))


def test_offsets_survive_being_written_down() -> None:
    offsets = to_offsets(place("BBOX(8,54,9,55)"), 54.0, 8.0)
    again = shapely.from_wkb(shapely.to_wkb(offsets))
    assert from_offsets(again, 1.0, 2.0) == from_offsets(offsets, 1.0, 2.0)


@pytest.mark.parametrize("y", [90.0, -90.0])
@pytest.mark.parametrize("metres", [1.0, 150.0, 40_000.0])
def test_a_small_circle_at_a_pole_is_a_cap(y: float, metres: float) -> None:
    cap = circle(40.0, y, metres)
    assert spatial(COVERS, cap, Place(-100.0, y))
    assert not spatial(COVERS, cap, Place(40.0, y - 1 if y > 0 else y + 1))
