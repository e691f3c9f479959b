"""Geometry text, WKB and GeoJSON in; places, reasons and encodings out."""

import doctest
import importlib
import json
import math
import pickle

import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import BadGeometry, UnknownCrs
from protocol.geometry import (
    DELIVER_GEOJSON,
    DELIVER_WKB,
    DELIVER_WKT,
    Limits,
    Place,
    encode_geometry,
    parse_form,
    parse_geojson,
    parse_text,
    parse_wkb,
    reproject,
)

MODULES = ["", "_crs", "_distance", "_forms", "_frame", "_metres", "_place", "_text"]


@pytest.mark.parametrize(
    "name", [f"protocol.geometry{suffix}" for suffix in MODULES] + ["protocol.relations"]
)
def test_the_examples_in_the_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


# Places


def test_longitudes_beyond_180_wrap() -> None:
    assert Place.point(190.0, 5.0).x == -170.0
    assert Place.point(-190.0, 5.0).x == 170.0
    assert Place.point(725.0, 5.0).x == 5.0
    assert Place.point(180.0, 5.0) == Place.point(-180.0, 5.0)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_longitude_comes_home(x: float) -> None:
    assert -180.0 <= Place.point(x, 0.0).x < 180.0


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        (math.nan, 0.0, "finite"),
        (0.0, math.nan, "finite"),
        (math.inf, 0.0, "finite"),
        (0.0, -math.inf, "finite"),
        (54.5, 90.001, "latitude 90.001 is beyond 90 degrees"),
        (13.4, -91.0, "latitude -91 is beyond 90 degrees"),
    ],
)
def test_a_pair_that_is_no_place_says_why(x: float, y: float, reason: str) -> None:
    with pytest.raises(BadGeometry, match=reason):
        Place.point(x, y)


def test_the_poles_are_places() -> None:
    assert Place.point(10.0, 90.0).y == 90.0
    assert Place.point(10.0, -90.0).y == -90.0


def test_places_are_equal_by_geometry() -> None:
    assert Place.point(1.0, 2.0) == Place.point(361.0, 2.0)
    assert Place.point(1.0, 2.0) != Place.point(1.0, 2.0, 3.0)
    assert hash(Place.point(1.0, 2.0)) == hash(Place.point(1.0, 2.0))
    box = parse_text("BBOX(1,2,3,4)").place
    assert box == parse_text("BBOX(1,2,3,4)").place
    assert box != parse_text("BBOX(1,2,3,5)").place
    assert box != "BBOX"


def test_places_can_be_pickled() -> None:
    for text in ("POINT(1 2)", "BBOX(170,-10,-170,10)", "BBOX(-180,-10,180,10)"):
        place = parse_text(text).place
        copy = pickle.loads(pickle.dumps(place))
        assert copy == place
        assert copy.boxes == place.boxes


# The antimeridian


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("BBOX(170,-10,-170,10)", (170, -10, 190, 10)),
        ("ENVELOPE(170,-170,10,-10)", (170, -10, 190, 10)),
        ("BBOX(160,-10,200,10)", (160, -10, 200, 10)),
        ("BBOX(-200,-10,-160,10)", (160, -10, 200, 10)),
        ("BBOX(-120,-10,120,10)", (-120, -10, 120, 10)),  # wider than 180, crosses not
        ("BBOX(10,-10,-10,10)", (10, -10, 350, 10)),  # wider than 180, crosses
        ("BBOX(-180,-10,180,10)", (-180, -10, 180, 10)),
        ("BBOX(0,-90,360,90)", (-180, -90, 180, 90)),
        ("POLYGON((170 -10,-170 -10,-170 10,170 10,170 -10))", (170, -10, 190, 10)),
        ("POLYGON((-170 -10,-170 10,170 10,170 -10,-170 -10))", (170, -10, 190, 10)),
        ("POLYGON((-90 0,90 0,90 10,-90 10,-90 0))", (-90, 0, 90, 10)),  # 180 is not more
        ("POLYGON((-91 0,90 0,90 10,-91 10,-91 0))", (90, 0, 269, 10)),  # 181 is
        ("POLYGON((-180 0,180 0,180 10,-180 10,-180 0))", (-180, 0, 180, 10)),  # 360 is all
        ("LINESTRING(170 0,-170 5,-150 0)", (170, 0, 210, 5)),
        ("LINESTRING(-180 0,180 0)", (-180, 0, 180, 0)),
        ("LINESTRING(100 0,280 0)", (100, 0, 280, 0)),
        ("MULTIPOINT(179 0,-179 1)", (179, 0, 181, 1)),
        (
            "MULTIPOLYGON(((170 0,180 0,180 9,170 9,170 0)),"
            "((-180 0,-170 0,-170 9,-180 9,-180 0)))",
            (170, 0, 190, 9),
        ),
        ("GEOMETRYCOLLECTION(POINT(-179 3),LINESTRING(178 1,179 2))", (178, 1, 181, 3)),
    ],
)
def test_a_geometry_lies_in_one_connected_frame(text: str, bounds: tuple[float, ...]) -> None:
    assert parse_text(text).place.bounds == bounds


def test_boxes_lie_within_180_and_cover_what_crosses() -> None:
    assert parse_text("BBOX(170,-10,-170,10)").place.boxes == (
        (170.0, -10.0, 180.0, 10.0),
        (-180.0, -10.0, -170.0, 10.0),
    )
    assert parse_text("BBOX(8,54,9,55)").place.boxes == ((8.0, 54.0, 9.0, 55.0),)
    assert parse_text("BBOX(-180,0,180,9)").place.boxes == ((-180.0, 0.0, 180.0, 9.0),)


def test_what_reaches_180_is_found_at_minus_180_too() -> None:
    boxes = parse_text("BBOX(170,0,180,9)").place.boxes
    assert boxes == ((170.0, 0.0, 180.0, 9.0), (-180.0, 0.0, -180.0, 9.0))


def test_parts_that_share_an_edge_are_one_area() -> None:
    halves = parse_text(
        "MULTIPOLYGON(((-120 0,0 0,0 9,-120 9,-120 0)),((0 0,120 0,120 9,0 9,0 0)))"
    ).place
    assert halves.geometry.geom_type == "Polygon"
    assert halves.bounds == (-120, 0, 120, 9)


def test_the_world_in_two_halves_goes_round() -> None:
    world = parse_text(
        "MULTIPOLYGON(((-180 0,0 0,0 9,-180 9,-180 0)),((0 0,180 0,180 9,0 9,0 0)))"
    ).place
    assert world.wraps
    assert world.geometry.area == 360 * 9


def test_a_hole_follows_its_shell_over_the_antimeridian() -> None:
    place = parse_text(
        "POLYGON((170 -10,-170 -10,-170 10,170 10,170 -10),(-179 -1,-178 -1,-178 1,-179 1,-179 -1))"
    ).place
    assert place.geometry.area == 20 * 20 - 2
    assert place.geometry.interiors[0].bounds == (181, -1, 182, 1)


def test_a_hole_in_a_band_round_the_world_may_lie_over_the_antimeridian() -> None:
    place = parse_text(
        "POLYGON((-180 -10,180 -10,180 10,-180 10,-180 -10),"
        "(175 -1,-175 -1,-175 1,175 1,175 -1),(10 5,20 5,20 6,10 6,10 5))"
    ).place
    assert place.geometry.area == 360 * 20 - 20 - 10


def test_a_track_that_winds_round_the_world_keeps_every_part() -> None:
    place = parse_text("LINESTRING(0 0,120 10,-120 20,0 30,120 40,-120 50)").place
    assert place.wraps
    assert place.bounds == (-180, 0, 180, 50)


# What is refused, and why


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("POLYGON((0 0,1 1,1 0,0 1,0 0))", "self-intersection"),
        ("POLYGON((170 0,-170 10,-170 0,170 10,170 0))", "self-intersection"),
        ("POLYGON((0 0,1 0,1 1))", "closed"),
        ("POLYGON((0 0,1 0,1 1,0 1))", "closed"),
        ("POLYGON((0 0,9 0,9 9,0 0),(20 20,21 20,21 21,20 20))", "hole lies outside"),
        ("POLYGON((0 0,1 0,0 0))", "not a geometry|invalid"),
        ("LINESTRING(1 1,1 1)", "too few points"),
        ("LINESTRING(1 1)", "not a geometry"),
        ("MULTIPOLYGON(((0 0,4 0,4 4,0 4,0 0)),((2 2,6 2,6 6,2 6,2 2)))", "overlap"),
        (
            "MULTIPOLYGON(((-180 0,180 0,180 9,-180 9,-180 0)),((1 1,2 1,2 2,1 1)))",
            "parts of the multipolygon overlap",
        ),
        ("POLYGON((-120 80,0 80,120 80,-120 80))", "round a pole"),
        ("POLYGON((-120 -80,0 -80,120 -80,-120 -80))", "round a pole"),
        ("POLYGON((170 80,-10 80,-170 80,170 80))", "round a pole"),
        ("POINT(8 90.5)", "latitude"),
        ("LINESTRING(8 5,8 -90.5)", "latitude -?90.5"),
        ("BBOX(8,54,9,91)", "latitude"),
        ("POINT(nan 5)", "finite"),
        ("POINT(5 inf)", "finite"),
        ("POINT Z (5 5 nan)", "finite"),
        ("POINT(1e999 5)", "finite"),
        ("LINESTRING(0 0,1e999 5)", "finite"),
        ("BBOX(nan,1,2,3)", "finite"),
        ("POINT EMPTY", "empty"),
        ("POLYGON EMPTY", "empty"),
        ("GEOMETRYCOLLECTION EMPTY", "empty"),
        ("GEOMETRYCOLLECTION(POINT EMPTY)", "empty"),
        ("CIRCULARSTRING(0 0,1 1,2 0)", "unsupported geometry type or word CIRCULARSTRING"),
        ("CURVEPOLYGON(CIRCULARSTRING(0 0,4 0,4 4,0 4,0 0))", "unsupported"),
        ("TIN(((0 0,1 0,1 1,0 0)))", "unsupported"),
        ("COMPOUNDCURVE((0 0,1 1))", "unsupported"),
        ("HELLO", "unsupported"),
        ("", "not a geometry"),
        ("POINT(1 2", "not a geometry"),
        ("POINT(1 2) POINT(3 4)", "not a geometry"),
        ("POINT(1,2)", "not a geometry"),
        ("POINT(1 2)\0", "character"),
        ("POINT(１ 2)", "character"),
        ("BBOX(1,2,3)", "four numbers"),
        ("BBOX(1,2,3,x)", "four numbers"),
        ("BBOX(1,2,3,4_0)", "four numbers"),
        ("BUFFER(POINT(8 54),5_00)", "no number"),
        ("BBOX(1,5,3,4)", "miny 5 above maxy 4"),
        ("BBOX(1,2,1,4)", "no area"),
        ("BBOX(1,2,3,2)", "no area"),
        ("BUFFER(POINT(8 54),-1)", "distance of -1 metres"),
        ("BUFFER(POINT(8 54),nan)", "distance of nan metres"),
        ("BUFFER(POINT(8 54),inf)", "distance of inf metres"),
        ("BUFFER(POINT(8 54),1e12)", "half round the world"),
        ("BUFFER(POINT(8 54),0)", "no area"),
        ("BUFFER(POINT(8 54),x)", "no number"),
        ("BUFFER(POINT(8 54))", "unsupported"),
        ("BUFFER(BUFFER(POINT(8 54),5),5)", "unsupported"),
        ("BUFFER(POLYGON((0 0,1 1,1 0,0 1,0 0)),5)", "self-intersection"),
        ("SRID=25832;BBOX(3,1,2,2)", "cannot cross"),
        ("SRID=25832;POINT(1e30 1e30)", "do not fit|latitude|finite"),
    ],
)
def test_bad_geometry_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(BadGeometry, match=reason) as caught:
        parse_text(text)
    message = str(caught.value)
    assert not message.endswith(".")
    assert len(message) < 250


@pytest.mark.parametrize("epsg", [1, 999999, 4978, 2**32 - 1])
def test_an_unknown_crs_is_named(epsg: int) -> None:
    with pytest.raises(UnknownCrs, match=str(epsg)):
        parse_text("POINT(1 2)", epsg)


def test_an_unknown_crs_in_ewkt_is_named() -> None:
    with pytest.raises(UnknownCrs, match="EPSG:99999"):
        parse_text("SRID=99999;POINT(1 2)", 25832)


# Limits


def ring_text(corners: int) -> str:
    xy = shapely.get_coordinates(shapely.Point(8, 54).buffer(1, quad_segs=corners // 4))
    return "POLYGON((" + ",".join(f"{x} {y}" for x, y in xy) + "))"


def test_a_hundred_thousand_vertices_are_refused_in_every_form() -> None:
    text = ring_text(100_000)
    with pytest.raises(BadGeometry, match=r"100001 vertices, limit is 10000|characters"):
        parse_text(text)
    polygon = shapely.from_wkt(text)
    roomy = Limits(max_bytes=1 << 30)
    for parse, data in (
        (parse_text, text),
        (parse_wkb, shapely.to_wkb(polygon)),
        (parse_geojson, shapely.to_geojson(polygon)),
    ):
        with pytest.raises(BadGeometry, match="vertices"):
            parse(data, 4326, roomy)
    wide = Limits(max_vertices=200_000, max_bytes=1 << 30)
    assert parse_text(text, 4326, wide).place.geometry.geom_type == "Polygon"


def test_bytes_beyond_the_limit_are_refused() -> None:
    small = Limits(max_bytes=50)
    for parse, data in (
        (parse_text, "LINESTRING(" + ",".join(["1 2", "2 3"] * 20) + ")"),
        (parse_wkb, bytes(51)),
        (parse_geojson, '{"type": "Point", "coordinates": [1, 2]}' + " " * 50),
    ):
        with pytest.raises(BadGeometry, match=r"limit|more than 50"):
            parse(data, 4326, small)


def nested_wkb(depth: int) -> bytes:
    collection = bytes.fromhex("01 07000000 01000000")
    return collection * depth + shapely.to_wkb(shapely.Point(1, 2))


@pytest.mark.parametrize("depth", [17, 1000, 100_000])
def test_deep_collections_are_refused(depth: int) -> None:
    with pytest.raises(BadGeometry, match=r"nested deeper than 16|characters"):
        parse_text("GEOMETRYCOLLECTION(" * (depth + 3) + "POINT(1 2)" + ")" * (depth + 3))
    with pytest.raises(BadGeometry, match="nested deeper than 16"):
        parse_wkb(nested_wkb(depth))
    opening = '{"type":"GeometryCollection","geometries":['
    point = '{"type":"Point","coordinates":[1,2]}'
    roomy = Limits(max_bytes=1 << 30)
    with pytest.raises(BadGeometry, match=r"nested deeper than 16|not valid json"):
        parse_geojson(opening * depth + point + "]}" * depth, 4326, roomy)
    with pytest.raises(BadGeometry, match=r"json|object|list"):
        parse_geojson("[" * depth)


def test_shallow_collections_are_read() -> None:
    text = "GEOMETRYCOLLECTION(" * 5 + "POINT(1 2)" + ")" * 5
    assert parse_text(text).place == Place.point(1.0, 2.0)
    assert parse_wkb(nested_wkb(16)).place == Place.point(1.0, 2.0)


def test_a_wkb_that_promises_more_than_it_has_is_refused_before_it_is_built() -> None:
    with pytest.raises(BadGeometry, match="vertices"):
        parse_wkb(bytes.fromhex("01 02000000 ffffffff"))
    with pytest.raises(BadGeometry, match="ends too early"):
        parse_wkb(bytes.fromhex("01 02000000 ff000000"))
    with pytest.raises(BadGeometry, match="parts"):
        parse_wkb(bytes.fromhex("01 07000000 ffffffff"))
    with pytest.raises(BadGeometry, match="ends too early"):
        parse_wkb(bytes.fromhex("01 03000000 05000000"))


def test_a_long_number_that_is_none_is_refused_quickly() -> None:
    with pytest.raises(BadGeometry):
        parse_text("POINT(" + "1" * 1_000_000 + "x 2)")


# Other systems


def test_x_is_easting_whatever_the_authority_prefers() -> None:
    # ETRS89 (4258) names latitude first, New Zealand's 2193 northing first.
    assert parse_text("POINT(7 51)", 4258).place.x == pytest.approx(7.0, abs=1e-6)
    place = parse_text("POINT(1750000 5428000)", 2193).place
    assert place.x == pytest.approx(174.79, abs=0.05)
    assert place.y == pytest.approx(-41.28, abs=0.05)


def test_a_polygon_in_utm_over_the_antimeridian_is_connected() -> None:
    # UTM zone 60 south, whose east end is the antimeridian.
    ring = "800000 8000000,900000 8000000,900000 8100000,800000 8000000"
    place = parse_text(f"SRID=32760;POLYGON(({ring}))").place
    assert 179 < place.bounds[0] < 180 < place.bounds[2] < 181


def test_a_world_in_mercator_metres_is_the_whole_world() -> None:
    place = parse_text(
        "SRID=3857;POLYGON((-20037508.342789244 -1000,20037508.342789244 -1000,"
        "20037508.342789244 1000,-20037508.342789244 1000,-20037508.342789244 -1000))"
    ).place
    assert place.wraps
    assert parse_text("BBOX(-20037508.3427,-1000,20037508.3427,1000)", 3857).place.bounds[
        2
    ] == pytest.approx(180)


def test_a_wide_box_in_mercator_metres_does_not_cross() -> None:
    place = parse_text("BBOX(-15000000,-1000,15000000,1000)", 3857).place
    assert place.bounds[0] == pytest.approx(-134.7, abs=0.1)
    assert place.bounds[2] == pytest.approx(134.7, abs=0.1)


def test_a_box_in_mercator_metres_crosses_when_minx_is_beyond_maxx() -> None:
    place = parse_text("BBOX(19000000,-1000,-19000000,1000)", 3857).place
    assert place.bounds[0] == pytest.approx(170.7, abs=0.1)
    assert place.bounds[2] == pytest.approx(189.3, abs=0.1)


# Out


def test_geometries_are_encoded_without_an_srid() -> None:
    point = shapely.set_srid(shapely.Point(13.405, 52.52), 25832)
    assert encode_geometry(point, DELIVER_WKT) == b"POINT (13.405 52.52)"
    assert json.loads(encode_geometry(point, DELIVER_GEOJSON)) == {
        "type": "Point",
        "coordinates": [13.405, 52.52],
    }
    assert (
        encode_geometry(point, DELIVER_WKB).hex(" ")
        == "01 01 00 00 00 8f c2 f5 28 5c cf 2a 40 c3 f5 28 5c 8f 42 4a 40"
    )


@given(st.floats(-180, 180), st.floats(-90, 90))
def test_text_keeps_every_bit_of_a_coordinate(x: float, y: float) -> None:
    text = encode_geometry(shapely.Point(x, y), DELIVER_WKT).decode()
    source = parse_text(text).source
    assert (source.x, source.y) == (x, y)


@pytest.mark.parametrize(
    "text",
    [
        "BBOX(8,54,9,55)",
        "BBOX(170,-10,-170,10)",
        "BBOX(-120,-10,120,10)",
        "BBOX(10,-10,-10,10)",
        "BBOX(-180,-90,180,90)",
        "BUFFER(POINT(179.9 0),50000)",
        "BUFFER(POINT(8 54),500)",
    ],
)
@pytest.mark.parametrize("deliver", [DELIVER_WKT, DELIVER_GEOJSON, DELIVER_WKB])
def test_boxes_and_buffers_become_polygons_that_mean_the_same(text: str, deliver: int) -> None:
    parsed = parse_text(text)
    assert parsed.source.geom_type == "Polygon"
    form = {DELIVER_WKT: 3, DELIVER_GEOJSON: 5, DELIVER_WKB: 4}[deliver]
    again = parse_form(form, encode_geometry(parsed.source, deliver), 4326)
    assert again.place.bounds == pytest.approx(parsed.place.bounds)
    assert again.place.geometry.area == pytest.approx(parsed.place.geometry.area)


def test_reprojection_keeps_elevation_and_comes_back() -> None:
    there = reproject(shapely.Point(7, 51, 99), 4326, 25832)
    assert there.z == 99
    assert round(there.x) == 359667
    back = reproject(there, 25832, 4326)
    assert (back.x, back.y) == pytest.approx((7, 51))
    assert reproject(there, 25832, 25832) is there
    with pytest.raises(UnknownCrs):
        reproject(there, 25832, 1)
