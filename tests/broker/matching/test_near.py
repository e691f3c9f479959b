"""Circles that move: found where they are, however they came there, to the metre."""

from __future__ import annotations

from math import cos, radians
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import Geod

from broker.matching.near import Circle, NearIndex
from protocol.geometry import Place, distance_metres

GEOD = Geod(ellps="WGS84")


def found(index: NearIndex[str], where: Place) -> set[str]:
    return {each.item for each in index.candidates(where) if each.holds(where)}


longitudes = st.one_of(st.sampled_from([-180.0, 179.9999, 0.0, 8.5]), st.floats(-180, 179.999))
latitudes = st.one_of(st.sampled_from([-90.0, 90.0, 0.0, 66.5, 79.99, 88.9]), st.floats(-90, 90))
places = st.builds(Place, longitudes, latitudes)
radii = st.sampled_from([1.0, 150.0, 2_000.0, 49_000.0, 51_000.0, 800_000.0, 12_000_000.0])


@settings(max_examples=300, deadline=None)
@given(
    places,
    radii,
    st.floats(-180, 180),
    st.sampled_from([0.5, 0.9, 0.97, 0.985, 0.999, 1.001, 1.02]),
)
def test_a_circle_ends_where_the_geodesic_says(
    here: Place, radius_m: float, bearing: float, share: float
) -> None:
    x, y, _ = GEOD.fwd(here.x, here.y, bearing, radius_m * share)
    where = Place(x, y)
    index: NearIndex[str] = NearIndex()
    circle = Circle("me", radius_m)
    index.move(circle, here)
    inside = distance_metres(here, where) <= radius_m
    assert found(index, where) == ({"me"} if inside else set())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(places, radii), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.none() | places), max_size=12),
    st.lists(places, min_size=1, max_size=6),
)
def test_moved_circles_are_where_they_were_moved_to(
    circles: list[tuple[Place, float]], moves: list[tuple[int, Place | None]], events: list[Place]
) -> None:
    index: NearIndex[str] = NearIndex()
    made = [Circle(str(number), radius_m) for number, (_, radius_m) in enumerate(circles)]
    there: dict[str, Place | None] = {}
    for circle, (place, _) in zip(made, circles, strict=True):
        index.move(circle, place)
        there[circle.item] = place
    for number, place in moves:
        if number < len(made):
            index.move(made[number], place)
            there[made[number].item] = place
    for where in [*events, *(place for place in there.values() if place is not None)]:
        wanted = {
            circle.item
            for circle in made
            if (here := there[circle.item]) is not None
            and distance_metres(here, where) <= circle.radius_m
        }
        assert found(index, where) == wanted
    for circle in made:
        index.remove(circle)
    assert index.all() == []


@pytest.mark.parametrize("step", [0.004, -0.004])
def test_a_long_walk_in_small_steps_changes_what_150_metres_are_in_degrees(step: float) -> None:
    """From the equator to 60 degrees a degree of longitude loses half its length."""
    index: NearIndex[str] = NearIndex()
    circle = Circle("walker", 150.0)
    y = 0.0
    while abs(y) < 60:
        index.move(circle, Place(8.5, y))
        y += step
    here = circle.place
    assert here is not None
    east = 140 / (111_320 * cos(radians(here.y)))
    assert found(index, Place(8.5 + east, here.y)) == {"walker"}
    assert found(index, Place(8.5 + 1.2 * east, here.y)) == set()


def test_a_circle_over_the_antimeridian_is_found_from_both_sides() -> None:
    index: NearIndex[str] = NearIndex()
    circle = Circle("me", 1000.0)
    for x in (-180.0, 179.999, -179.999):
        index.move(circle, Place(x, 12.0))
        for there in (179.995, -180.0, -179.995):
            assert found(index, Place(there, 12.0)) == {"me"}


def test_a_circle_at_a_pole_is_found_on_every_meridian() -> None:
    index: NearIndex[str] = NearIndex()
    index.move(Circle("me", 1000.0), Place(12.0, 89.999))
    assert all(found(index, Place(float(x), 89.999)) == {"me"} for x in range(-180, 180, 30))


def test_nobody_knows_where_it_is_any_more() -> None:
    index: NearIndex[str] = NearIndex()
    circle: Circle[Any] = Circle("me", 1000.0)
    index.move(circle, Place(8.5, 54.5))
    index.move(circle, None)
    assert found(index, Place(8.5, 54.5)) == set()
    assert index.all() == []
