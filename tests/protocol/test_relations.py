"""The spatial relations, on borders, on both sides of the antimeridian, and right round.

The oracle for the antimeridian is the world itself, turned: what shapely says of two
geometries in the middle of the map must hold wherever they are moved to.
"""

import struct

import pytest
import shapely
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protocol.errors import BadGeometry
from protocol.geometry import Place, parse_text
from protocol.relations import (
    ANY,
    CONTAINS,
    COVERED_BY,
    COVERS,
    CROSSES,
    DE9IM,
    DISJOINT,
    DWITHIN,
    EQUALS,
    INTERSECTS,
    NUMBERS,
    OVERLAPS,
    RELATIONS,
    TOUCHES,
    WITHIN,
    read_metres,
    read_operand,
    spatial,
    valid_pattern,
)

NAMED = range(COVERS, DISJOINT + 1)
ORACLE = {number: getattr(shapely, RELATIONS[number]) for number in NAMED}


def place(text: str) -> Place:
    return parse_text(text).place


def holding(filter_text: str, event_text: str) -> set[str]:
    """The names of the relations that hold."""
    filter_place, event_place = place(filter_text), place(event_text)
    return {RELATIONS[n] for n in NAMED if spatial(n, filter_place, event_place)}


def matrix(filter_place: Place, event_place: Place) -> str:
    """The DE-9IM matrix, found by asking for one cell at a time."""
    cells = ""
    for cell in range(9):
        cells += next(
            value
            for value in "F012"
            if spatial(DE9IM, filter_place, event_place, "*" * cell + value + "*" * (8 - cell))
        )
    return cells


def test_the_numbers_are_those_of_the_wire() -> None:
    assert [NUMBERS[name] for name in ("any", "covers", "contains", "intersects")] == [0, 1, 2, 3]
    assert [NUMBERS[name] for name in ("equals", "touches", "crosses", "overlaps")] == [4, 5, 6, 7]
    assert [NUMBERS[name] for name in ("within", "covered_by", "disjoint")] == [8, 9, 10]
    assert [NUMBERS[name] for name in ("de9im", "dwithin")] == [11, 12]


@pytest.mark.parametrize("event", ["POINT(0 0)", "BBOX(170,-10,-170,10)"])
def test_any_is_always_true(event: str) -> None:
    assert spatial(ANY, place("BBOX(5,5,6,6)"), place(event))
    assert spatial(ANY, place("POINT(5 5)"), place(event))


# Points against areas

INSIDE = {"covers", "contains", "intersects"}
ON_THE_EDGE = {"covers", "intersects", "touches"}
OUTSIDE = {"disjoint"}


@pytest.mark.parametrize(
    ("fence", "point", "expected"),
    [
        ("BBOX(8,54,9,55)", "8.5 54.5", INSIDE),
        ("BBOX(8,54,9,55)", "8 54.5", ON_THE_EDGE),
        ("BBOX(8,54,9,55)", "9 55", ON_THE_EDGE),
        ("BBOX(8,54,9,55)", "9.1 54.5", OUTSIDE),
        ("POLYGON((0 0,9 0,9 9,0 9,0 0),(3 3,6 3,6 6,3 6,3 3))", "4 4", OUTSIDE),
        ("POLYGON((0 0,9 0,9 9,0 9,0 0),(3 3,6 3,6 6,3 6,3 3))", "3 4", ON_THE_EDGE),
        ("POLYGON((0 0,9 0,9 9,0 9,0 0),(3 3,6 3,6 6,3 6,3 3))", "2 4", INSIDE),
        ("LINESTRING(0 0,4 0)", "2 0", INSIDE),
        ("LINESTRING(0 0,4 0)", "4 0", ON_THE_EDGE),
        ("LINESTRING(0 0,4 0)", "5 0", OUTSIDE),
        ("MULTIPOINT(0 0,4 0)", "4 0", INSIDE),
        ("POINT(4 0)", "4 0", INSIDE | {"equals", "within", "covered_by"}),
        ("POINT(4 0)", "5 0", OUTSIDE),
        ("MULTIPOINT(4 0,4 0)", "4 0", INSIDE | {"equals", "within", "covered_by"}),
        ("GEOMETRYCOLLECTION(BBOX)", "0 0", None),
        ("GEOMETRYCOLLECTION(POLYGON((0 0,4 0,4 4,0 0)),POINT(9 9))", "9 9", INSIDE),
        ("GEOMETRYCOLLECTION(POLYGON((0 0,4 0,4 4,0 0)),POINT(9 9))", "2 0", ON_THE_EDGE),
        # The antimeridian is no border
        ("BBOX(170,-10,-170,10)", "180 0", INSIDE),
        ("BBOX(170,-10,-170,10)", "-180 0", INSIDE),
        ("BBOX(170,-10,-170,10)", "175 0", INSIDE),
        ("BBOX(170,-10,-170,10)", "-175 0", INSIDE),
        ("BBOX(170,-10,-170,10)", "170 0", ON_THE_EDGE),
        ("BBOX(170,-10,-170,10)", "-170 0", ON_THE_EDGE),
        ("BBOX(170,-10,-170,10)", "180 10", ON_THE_EDGE),
        ("BBOX(170,-10,-170,10)", "0 0", OUTSIDE),
        ("BBOX(10,-10,-10,10)", "0 0", OUTSIDE),
        ("BBOX(10,-10,-10,10)", "-90 0", INSIDE),
        ("BBOX(10,-10,-10,10)", "-10 0", ON_THE_EDGE),
        ("BBOX(-120,-10,120,10)", "0 0", INSIDE),
        ("BBOX(-120,-10,120,10)", "180 0", OUTSIDE),
        ("BBOX(170,-10,180,10)", "-180 0", ON_THE_EDGE),
        ("BBOX(-180,-10,-170,10)", "180 0", ON_THE_EDGE),
        ("LINESTRING(180 0,180 9)", "-180 5", INSIDE),
        ("LINESTRING(170 0,-170 0)", "180 0", INSIDE),
        ("POINT(180 0)", "-180 0", INSIDE | {"equals", "within", "covered_by"}),
        # Right round the world there is no border at all
        ("BBOX(-180,-10,180,10)", "180 0", INSIDE),
        ("BBOX(-180,-10,180,10)", "-180 0", INSIDE),
        ("BBOX(-180,-10,180,10)", "180 10", ON_THE_EDGE),
        ("BBOX(-180,-10,180,10)", "180 11", OUTSIDE),
        ("BBOX(-180,-90,180,90)", "180 45", INSIDE),
        ("LINESTRING(-180 0,180 0)", "180 0", INSIDE),
        ("POLYGON((-180 0,180 0,180 9,-180 9,-180 0))", "180 5", INSIDE),
        (
            "MULTIPOLYGON(((-180 0,0 0,0 9,-180 9,-180 0)),((0 0,180 0,180 9,0 9,0 0)))",
            "0 5",
            INSIDE,
        ),
        (
            "MULTIPOLYGON(((-180 0,0 0,0 9,-180 9,-180 0)),((0 0,180 0,180 9,0 9,0 0)))",
            "180 5",
            INSIDE,
        ),
        (
            "MULTIPOLYGON(((170 0,180 0,180 9,170 9,170 0)),"
            "((-180 0,-170 0,-170 9,-180 9,-180 0)))",
            "180 5",
            INSIDE,
        ),
    ],
)
def test_a_point_against_a_fence(fence: str, point: str, expected: set[str] | None) -> None:
    if expected is None:
        with pytest.raises(BadGeometry):
            place(fence)
        return
    assert holding(fence, f"POINT({point})") == expected


def test_a_point_on_a_shared_border_belongs_to_both_neighbours() -> None:
    west, east = place("BBOX(8,54,9,55)"), place("BBOX(9,54,10,55)")
    border = Place.point(9.0, 54.5)
    assert spatial(COVERS, west, border)
    assert spatial(COVERS, east, border)
    assert not spatial(CONTAINS, west, border)
    assert not spatial(CONTAINS, east, border)


# Areas and lines


@pytest.mark.parametrize(
    ("filter_text", "event_text", "expected"),
    [
        (
            "BBOX(170,-10,-170,10)",
            "POLYGON((175 -5,-175 -5,-175 5,175 5,175 -5))",
            {"covers", "contains", "intersects"},
        ),
        ("BBOX(170,-10,180,10)", "BBOX(-180,-10,-170,10)", {"intersects", "touches"}),
        ("BBOX(-180,-10,-170,10)", "BBOX(170,-10,180,10)", {"intersects", "touches"}),
        ("BBOX(170,-10,-170,10)", "BBOX(-175,-5,0,5)", {"intersects", "overlaps"}),
        ("BBOX(170,-10,-170,10)", "LINESTRING(160 0,-160 0)", {"intersects", "crosses"}),
        ("BBOX(170,-10,-170,10)", "LINESTRING(-160 0,160 0)", {"intersects", "crosses"}),
        ("BBOX(10,-10,-10,10)", "BBOX(-20,-5,20,5)", {"intersects", "overlaps"}),
        (
            "BBOX(170,-10,-170,10)",
            "MULTIPOLYGON(((170 -10,180 -10,180 10,170 10,170 -10)),"
            "((-180 -10,-170 -10,-170 10,-180 10,-180 -10)))",
            {"covers", "contains", "intersects", "equals", "within", "covered_by"},
        ),
        (
            "BBOX(-180,-90,180,90)",
            "BBOX(0,-90,360,90)",
            {"covers", "contains", "intersects", "equals", "within", "covered_by"},
        ),
        (
            "BBOX(-180,-90,180,90)",
            "BBOX(170,-10,-170,10)",
            {"covers", "contains", "intersects"},
        ),
        (
            "BBOX(-180,-90,180,90)",
            "LINESTRING(170 0,-170 0)",
            {"covers", "contains", "intersects"},
        ),
        ("BBOX(-180,0,180,10)", "BBOX(-180,10,180,20)", {"intersects", "touches"}),
        ("BBOX(-180,0,180,10)", "BBOX(-180,5,180,20)", {"intersects", "overlaps"}),
        ("BBOX(-180,0,180,10)", "LINESTRING(-180 0,180 0)", {"covers", "intersects", "touches"}),
        (
            "BBOX(-180,0,180,10)",
            "LINESTRING(-180 5,180 5)",
            {"covers", "contains", "intersects"},
        ),
        ("BBOX(-180,0,180,10)", "LINESTRING(180 5,180 15)", {"intersects", "crosses"}),
        ("LINESTRING(-180 0,180 0)", "LINESTRING(180 -5,180 5)", {"intersects", "crosses"}),
        ("LINESTRING(-180 0,180 0)", "LINESTRING(180 0,180 5)", {"intersects", "touches"}),
        ("POINT(180 0)", "LINESTRING(170 0,-170 0)", {"intersects", "within", "covered_by"}),
        ("POINT(-170 0)", "LINESTRING(170 0,-170 0)", {"intersects", "touches", "covered_by"}),
        ("BBOX(8,54,9,55)", "BBOX(20,54,21,55)", {"disjoint"}),
        ("BBOX(8,54,9,55)", "BBOX(8,60,9,61)", {"disjoint"}),
    ],
)
def test_areas_and_lines_across_the_antimeridian(
    filter_text: str, event_text: str, expected: set[str]
) -> None:
    assert holding(filter_text, event_text) == expected


@pytest.mark.parametrize(
    ("filter_text", "event_text", "expected"),
    [
        # Known from the plane: an area within another, a border shared, an equal one
        ("BBOX(170,-10,-170,10)", "BBOX(175,-5,-175,5)", "212FF1FF2"),
        ("BBOX(170,-10,180,10)", "BBOX(-180,-10,-170,10)", "FF2F11212"),
        # Both right round the world: neither has an end, only a north and a south
        ("BBOX(-180,-10,180,10)", "BBOX(-180,-5,180,5)", "212FF1FF2"),
        ("BBOX(-180,-10,180,10)", "BBOX(-180,-10,180,10)", "2FFF1FFF2"),
        ("BBOX(-180,0,180,10)", "BBOX(-180,10,180,20)", "FF2F11212"),
        ("BBOX(-180,0,180,10)", "BBOX(-180,5,180,20)", "2121F1212"),
        # A parallel has no end points
        ("BBOX(-180,-10,180,10)", "LINESTRING(-180 0,180 0)", "1F2FF1FF2"),
        ("LINESTRING(-180 0,180 0)", "LINESTRING(-180 0,180 0)", "1FFFFFFF2"),
        ("LINESTRING(-180 0,180 0)", "BBOX(-180,0,180,10)", "F1FFFF212"),
        ("LINESTRING(-180 0,180 0)", "BBOX(-180,5,180,10)", "FF1FFF212"),
    ],
)
def test_a_matrix_knows_no_border_at_the_antimeridian(
    filter_text: str, event_text: str, expected: str
) -> None:
    assert matrix(place(filter_text), place(event_text)) == expected


# The oracle: the world turned

LONGITUDES = st.integers(-60, 60)
LATITUDES = st.integers(-20, 20)


@st.composite
def boxes(draw: st.DrawFn) -> shapely.Geometry:
    west, south = draw(LONGITUDES), draw(LATITUDES)
    return shapely.box(
        west, south, west + draw(st.integers(1, 120)), south + draw(st.integers(1, 20))
    )


@st.composite
def geometries(draw: st.DrawFn) -> shapely.Geometry:
    kind = draw(st.sampled_from(["point", "points", "line", "box", "triangle", "boxes", "holed"]))
    if kind == "point":
        return shapely.Point(draw(LONGITUDES), draw(LATITUDES))
    corners = st.tuples(LONGITUDES, LATITUDES)
    if kind == "points":
        return shapely.MultiPoint(draw(st.lists(corners, min_size=2, max_size=4, unique=True)))
    if kind == "line":
        return shapely.LineString(draw(st.lists(corners, min_size=2, max_size=4, unique=True)))
    if kind == "box":
        return draw(boxes())
    if kind == "triangle":
        triangle = shapely.Polygon(draw(st.lists(corners, min_size=3, max_size=3, unique=True)))
        assume(triangle.is_valid)
        return triangle
    first, second = draw(boxes()), draw(boxes())
    area = first.union(second) if kind == "boxes" else first.difference(second)
    assume(not area.is_empty)
    return area


def turned(geometry: shapely.Geometry, by: int) -> Place:
    """The geometry as somebody else on the globe would write it, every longitude within 180."""

    def home(x: float) -> float:
        x = (x + by + 180) % 360 - 180
        return 180.0 if x == -180 and by % 2 else x

    moved = shapely.transform(
        geometry, lambda x, y: ([home(value) for value in x], y), interleaved=False
    )
    return parse_text(shapely.to_wkt(moved)).place


@settings(max_examples=400, deadline=None)
@given(geometries(), geometries(), st.integers(-360, 360))
def test_every_relation_holds_wherever_the_world_is_turned(
    one: shapely.Geometry, other: shapely.Geometry, by: int
) -> None:
    # Edges of more than 180 degrees would mean something else.
    filter_place, event_place = turned(one, by), turned(other, by)
    for number, oracle in ORACLE.items():
        assert spatial(number, filter_place, event_place) == oracle(one, other), RELATIONS[number]
    assert matrix(filter_place, event_place) == shapely.relate(one, other)


# Where a span begins and how wide it is, in tenths of a degree: tenths are what rounding
# gets wrong.
SPANS = st.tuples(st.integers(-1800, 1799), st.integers(1, 1799))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(SPANS, min_size=1, max_size=4),
    st.lists(SPANS, min_size=1, max_size=4),
    st.tuples(st.integers(-20, 0), st.integers(1, 20)),
    st.tuples(st.integers(-20, 0), st.integers(1, 20)),
    st.integers(-1800, 1800),
)
def test_areas_right_round_the_world_relate_alike_wherever_it_is_turned(
    filter_spans: list[tuple[int, int]],
    event_spans: list[tuple[int, int]],
    filter_rows: tuple[int, int],
    event_rows: tuple[int, int],
    by: int,
) -> None:
    def band(spans: list[tuple[int, int]], rows: tuple[int, int], by: int) -> Place:
        south, north = rows
        parts = []
        for start, width in spans:
            west = ((start + by + 1800) % 3600 - 1800) / 10
            east = ((start + by + width + 1800) % 3600 - 1800) / 10
            ring = f"{west} {south},{east} {south},{east} {north},{west} {north},{west} {south}"
            parts.append(f"POLYGON(({ring}))")
        return place(f"GEOMETRYCOLLECTION({','.join(parts)})")

    here = band(filter_spans, filter_rows, 0), band(event_spans, event_rows, 0)
    there = band(filter_spans, filter_rows, by), band(event_spans, event_rows, by)
    for number in NAMED:
        assert spatial(number, *here) == spatial(number, *there), RELATIONS[number]
    assert matrix(*here) == matrix(*there)
    # And against degrees counted by tenths.
    covered = [
        {x % 3600 for start, width in spans for x in range(start, start + width)}
        for spans in (filter_spans, event_spans)
    ]
    rows = filter_rows[0] <= event_rows[0] and event_rows[1] <= filter_rows[1]
    assert spatial(COVERS, *here) == (rows and covered[1] <= covered[0])


@settings(max_examples=200, deadline=None)
@given(geometries(), st.integers(-180, 180))
def test_the_boxes_cover_the_geometry(geometry: shapely.Geometry, by: int) -> None:
    moved = turned(geometry, by)
    boxes = [shapely.box(*box) for box in moved.boxes]
    for box in moved.boxes:
        assert -180 <= box[0] <= box[2] <= 180
    for x, y in shapely.get_coordinates(moved.geometry):
        point = Place.point(x, y)
        assert any(box.intersects(shapely.Point(point.x, y)) for box in boxes)


# Operands


def test_dwithin_counts_metres_across_the_antimeridian() -> None:
    assert spatial(DWITHIN, Place.point(179.999, 0), Place.point(-179.999, 0), 222.7)
    assert not spatial(DWITHIN, Place.point(179.999, 0), Place.point(-179.999, 0), 222.5)
    fence = place("BBOX(170,-10,180,10)")
    assert spatial(DWITHIN, fence, Place.point(-179.999, 0), 111.4)
    assert not spatial(DWITHIN, fence, Place.point(-179.999, 0), 111.2)
    assert spatial(DWITHIN, fence, Place.point(175, 0), 0.0)


def test_the_operands_stand_first() -> None:
    assert read_operand(DE9IM, b"T*F**F***POINT(1 2)") == ("T*F**F***", b"POINT(1 2)")
    assert read_operand(DWITHIN, struct.pack(">d", 500.0) + b"rest") == (500.0, b"rest")
    assert read_operand(COVERS, b"POINT(1 2)") == (None, b"POINT(1 2)")


@pytest.mark.parametrize(
    ("relation", "data"),
    [
        (DE9IM, b""),
        (DE9IM, b"T*F**F**"),
        (DE9IM, b"T*F**F**3POINT(1 2)"),
        (DE9IM, b"t*f**f***"),
        (DE9IM, b"\xff" * 9),
        (DWITHIN, b"1234567"),
        (DWITHIN, struct.pack(">d", float("nan"))),
        (DWITHIN, struct.pack(">d", -1.0)),
        (DWITHIN, struct.pack(">d", 1e9)),
    ],
)
def test_operands_that_are_none_are_refused(relation: int, data: bytes) -> None:
    with pytest.raises(BadGeometry):
        read_operand(relation, data)


def test_the_radius_of_near_me_is_read_from_the_wire() -> None:
    assert read_metres(bytes.fromhex("40 62 c0 00 00 00 00 00")) == 150.0


def test_patterns_have_nine_characters_of_six_kinds() -> None:
    assert valid_pattern("TF*012TF*")
    assert not valid_pattern("TF*012TF")
    assert not valid_pattern("TF*012TF*\n")
    assert not valid_pattern("TF*012TF3")


def test_the_constants_name_the_relations() -> None:
    named = {
        "equals": EQUALS,
        "touches": TOUCHES,
        "crosses": CROSSES,
        "overlaps": OVERLAPS,
        "within": WITHIN,
        "covered_by": COVERED_BY,
        "intersects": INTERSECTS,
    }
    assert all(NUMBERS[name] == number for name, number in named.items())
