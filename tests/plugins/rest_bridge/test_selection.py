"""What is asked of the log and what is asked of live events is the same question."""

import pytest
import shapely
from hypothesis import assume, given
from hypothesis import strategies as st

from plugins.rest_bridge.live import Position
from plugins.rest_bridge.parameters import TOLERANCE_M, read_selection
from plugins.rest_bridge.problems import BadParameter
from protocol.conditions import from_text
from protocol.geo import Geo
from protocol.geometry import Place, distance_metres, parse_text
from protocol.message import Message
from protocol.relations import INTERSECTS, NUMBERS, spatial
from protocol.topics import GEO_PREFIX

longitudes = st.one_of(st.sampled_from([-180.0, 180.0, 179.5, -179.5, 0.0]), st.floats(-180, 180))
latitudes = st.one_of(st.sampled_from([-90.0, 90.0, 0.0]), st.floats(-90, 90))
WORDS = sorted(NUMBERS.keys() - {"de9im", "dwithin"})


def at(place: Place, start_ms: int = 0, end_ms: int | None = None) -> Message:
    time = (start_ms, start_ms if end_ms is None else end_ms)
    return Message("a", b"", received_ms=5_000, geo=Geo(place=place, time=time))


@given(
    west=longitudes,
    east=longitudes,
    south=st.floats(-90, 89),
    height=st.floats(0.001, 1),
    x=longitudes,
    y=latitudes,
    relation=st.sampled_from(WORDS),
)
def test_the_live_filter_lets_everything_through_that_matches(
    west: float, east: float, south: float, height: float, x: float, y: float, relation: str
) -> None:
    assume(abs(abs(east - west) - 180) < 179.9)  # neither without width nor all round
    text = f"BBOX({west!r},{south!r},{east!r},{min(south + height, 90.0)!r})"
    selection = read_selection("a/#", {"geometry": text, "relation": relation}, geo=True)
    for place in (Place.point(x, y), Place.point(west, south), Place.point(east, south)):
        if selection.matches(at(place)) and selection.live_filter.startswith(GEO_PREFIX):
            inner, conditions = from_text(selection.live_filter)
            assert inner == "a/#"
            [test] = conditions.spatial
            assert test.relation == INTERSECTS
            assert test.place is not None
            assert spatial(test.relation, test.place, place)


@pytest.mark.parametrize("geometry", ["POINT(180 0)", "LINESTRING(179 0,-179 1)", "POINT(8 90)"])
def test_a_line_or_a_point_is_met_by_what_is_near_it(geometry: str) -> None:
    selection = read_selection("a", {"geometry": geometry}, geo=True)
    line = parse_text(geometry).place
    for part in shapely.get_coordinates(line.geometry):
        near = Place.point(part[0], min(part[1] + 0.0005, 90.0))
        far = Place.point(part[0], part[1] - 0.005)
        assert distance_metres(line, near) < TOLERANCE_M < distance_metres(line, far)
        assert selection.matches(at(near))
        assert not selection.matches(at(far))
        if selection.live_filter.startswith(GEO_PREFIX):
            test = from_text(selection.live_filter)[1].spatial[0]
            assert test.place is not None
            assert spatial(INTERSECTS, test.place, near)


def test_an_interval_is_met_where_it_overlaps() -> None:
    selection = read_selection("a", {"from": "10", "to": "20"}, geo=True)
    place = Place.point(8, 54)
    assert [
        selection.matches(at(place, start, end))
        for start, end in ((0, 10_000), (0, 10_001), (10_000, 10_000), (19_999, 50_000))
    ] == [False, True, True, True]
    assert not selection.matches(at(place, 20_000))
    assert not selection.matches(Message("a", b"", received_ms=15_000))
    plain = read_selection("a", {"from": "10", "to": "20"}, geo=False)
    assert plain.matches(Message("a", b"", received_ms=15_000))
    assert not plain.matches(at(place, 15_000))


def test_an_authoriser_is_asked_about_all_that_may_be_found() -> None:
    def places(**parameters: str) -> tuple[Place, ...]:
        return read_selection("a", parameters, geo=True).request.places

    box = parse_text("BBOX(8,54,9,55)").place
    assert places() == ()
    assert places(geometry="BBOX(8,54,9,55)") == (box,)
    assert places(geometry="BBOX(8,54,9,55)", relation="disjoint") == ()
    [wide] = places(geometry="BBOX(8,54,9,55)", relation="dwithin.1000")
    assert wide.bounds[0] < 8
    assert wide.bounds[2] > 9


def test_the_id_of_an_event_is_a_position() -> None:
    position = Position.parse("2026-03-28.11~0123456789abcdef.2", "after")
    assert (str(position.cursor), position.digest, position.ordinal) == (
        "2026-03-28.11",
        "0123456789abcdef",
        2,
    )
    for text in ("", "2026-03-28", "2026-03-28.1~", "x~0123456789abcdef.1", "2026-03-28.1~0.1"):
        with pytest.raises(BadParameter) as caught:
            Position.parse(text, "after")
        assert caught.value.parameter == "after"
