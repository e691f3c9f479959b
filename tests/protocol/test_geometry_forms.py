"""The wire forms of a geometry: points, text, WKB and GeoJSON, whole and damaged."""

import contextlib
import json
import math
import struct

import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import BadGeometry
from protocol.geometry import Place, parse_form, parse_geojson, parse_text, parse_wkb, to_place


def test_form_1_is_two_big_endian_floats() -> None:
    parsed = parse_form(1, bytes.fromhex("40 2a cf 5c 28 f5 c2 8f 40 4a 42 8f 5c 28 f5 c3"), 4326)
    assert parsed.place == Place.point(13.405, 52.52)
    assert parsed.source.wkt == "POINT (13.405 52.52)"
    assert parsed.epsg == 4326


def test_form_2_adds_an_elevation() -> None:
    data = struct.pack(">ddd", 13.405, 52.52, 34.0)
    parsed = parse_form(2, data, 4326)
    assert parsed.place.z == 34.0
    assert parsed.source.z == 34.0


def test_form_4_reads_little_endian_wkb() -> None:
    data = "01 01 00 00 00 8f c2 f5 28 5c cf 2a 40 c3 f5 28 5c 8f 42 4a 40"
    assert parse_form(4, bytes.fromhex(data), 4326).place == Place.point(13.405, 52.52)


def test_form_4_reads_big_endian_wkb() -> None:
    data = "00 00000001 40 2a cf 5c 28 f5 c2 8f 40 4a 42 8f 5c 28 f5 c3"
    assert parse_form(4, bytes.fromhex(data), 4326).place == Place.point(13.405, 52.52)


@pytest.mark.parametrize(
    "data",
    [
        "01 e9030000 000000000000f03f 0000000000000040 0000000000000840",  # ISO
        "01 01000080 000000000000f03f 0000000000000040 0000000000000840",  # extended
    ],
)
def test_both_ways_of_writing_z_in_wkb_are_read(data: str) -> None:
    assert parse_wkb(bytes.fromhex(data)).place == Place.point(1.0, 2.0, 3.0)


def test_an_srid_in_ewkb_overrides_the_field() -> None:
    data = shapely.to_wkb(
        shapely.set_srid(shapely.Point(294400, 5628700), 25832), include_srid=True
    )
    parsed = parse_form(4, data, 4326)
    assert parsed.epsg == 25832
    assert parsed.place.x == pytest.approx(6.0838743, abs=1e-6)
    assert shapely.get_srid(parsed.source) == 0


def test_an_srid_in_ewkt_overrides_the_field() -> None:
    parsed = parse_form(3, b"SRID=25832;POINT(294400 5628700)", 3857)
    assert parsed.epsg == 25832
    assert parsed.place.y == pytest.approx(50.7735685, abs=1e-6)
    assert parsed.source.wkt == "POINT (294400 5628700)"


def test_epsg_0_and_srid_0_name_no_system() -> None:
    assert parse_text("LINESTRING(1 2,3 4)", 0).epsg == 4326
    assert parse_text("SRID=0;POINT(294400 5628700)", 25832).epsg == 25832


def test_form_5_reads_geometries_and_features() -> None:
    point = {"type": "Point", "coordinates": [13.405, 52.52, 34]}
    assert parse_form(5, json.dumps(point).encode(), 4326).place == Place.point(13.405, 52.52, 34.0)
    feature = {"type": "Feature", "properties": None, "geometry": point}
    assert parse_geojson(feature).place == Place.point(13.405, 52.52, 34.0)


@pytest.mark.parametrize(
    "wkt",
    [
        "POINT (1 2)",
        "LINESTRING (1 2, 3 4)",
        "POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 2 1, 2 2, 1 2, 1 1))",
        "MULTIPOINT ((1 2), (3 4))",
        "MULTILINESTRING ((1 2, 3 4), (5 6, 7 8))",
        "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
        "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (1 2, 3 4))",
    ],
)
def test_every_simple_feature_is_read_the_same_in_every_form(wkt: str) -> None:
    geometry = shapely.from_wkt(wkt)
    as_text = parse_text(wkt)
    assert as_text.source.equals(geometry)
    assert parse_wkb(shapely.to_wkb(geometry)).place == as_text.place
    assert parse_geojson(shapely.to_geojson(geometry)).place == as_text.place
    assert to_place(geometry) == as_text.place
    assert as_text.place.geometry.equals(geometry)


@pytest.mark.parametrize(
    "text",
    [
        "POINT M (1 2 9)",
        "POINT ZM (1 2 3 9)",
        "POINT Z(1 2 3)",
        "point( 1  2 )",
        "POINT (+1. .2e1)",
    ],
)
def test_other_spellings_of_a_point(text: str) -> None:
    place = parse_text(text).place
    assert (place.x, place.y) == (1.0, 2.0)


def test_z_and_m_do_not_disturb_other_geometries() -> None:
    flat = parse_text("LINESTRING(1 2,3 4)").place
    assert parse_text("LINESTRING Z(1 2 5,3 4 5)").place == flat
    assert parse_text("LINESTRING M(1 2 5,3 4 5)").place == flat
    assert parse_text("LINESTRING(1 2 5 6,3 4 5 6)").place == flat


@pytest.mark.parametrize(
    ("form", "data", "reason"),
    [
        (1, bytes(15), "15 bytes instead of 16"),
        (1, struct.pack(">dd", math.nan, 0), "finite"),
        (2, bytes(16), "16 bytes instead of 24"),
        (2, struct.pack(">ddd", 0, 0, math.nan), "finite"),
        (3, b"POINT(1 2\xff)", "utf-8"),
        (5, b"\xff\xfe", "utf-8"),
        (4, b"", "ends too early"),
        (4, b"\x02", "byte order"),
        (4, shapely.to_wkb(shapely.Point(1, 2)) + b"\0", "1 bytes after"),
        (4, bytes.fromhex("01 08000000 00000000"), "unsupported wkb type 8"),
        (4, bytes.fromhex("01 01000000 000000000000f87f 000000000000f87f"), "empty"),
        (4, bytes.fromhex("01 01000000 000000000000f87f 000000000000f03f"), "finite|empty"),
        (4, bytes.fromhex("01 02000000 00000000"), "empty"),
        (
            4,
            struct.pack("<BIII8d", 1, 3, 1, 4, 0, 0, 1, 0, 1, 1, 0, 1),
            "closed",
        ),
        (5, b"[1,2]", "not an object"),
        (5, b"{", "json"),
        (5, b'{"type":"Point"}', "list"),
        (5, b'{"type":"Point","coordinates":[1]}', "two or three"),
        (5, b'{"type":"Point","coordinates":[true,2]}', "not a number"),
        (5, b'{"type":"Point","coordinates":["1","2"]}', "not a number"),
        (5, b'{"type":"Point","coordinates":[NaN,2]}', "finite"),
        (5, b'{"type":"Point","coordinates":[1' + b"0" * 400 + b",2]}", "finite"),
        (5, b'{"type":"LineString","coordinates":[]}', "empty"),
        (5, b'{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,1]]]}', "closed"),
        (5, b'{"type":"Circle","coordinates":[1,2]}', "unsupported geojson type Circle"),
        (5, b'{"type":"FeatureCollection","features":[]}', "unsupported"),
        (5, b'{"type":"Feature","geometry":null}', "not an object"),
        (6, b"", "unknown geometry form 6"),
        (0, b"", "unknown geometry form 0"),
    ],
)
def test_bad_bytes_are_refused_with_the_reason(form: int, data: bytes, reason: str) -> None:
    with pytest.raises(BadGeometry, match=reason):
        parse_form(form, data, 4326)


@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, 7),
    st.binary(max_size=200),
    st.sampled_from([0, 4326, 25832, 3857, 77]),
)
def test_whatever_the_bytes_only_bad_geometry_comes_of_them(
    form: int, data: bytes, epsg: int
) -> None:
    try:
        place = parse_form(form, data, epsg).place
    except BadGeometry:
        return
    assert -180.0 <= place.bounds[0] <= 180.0


WORDS = [
    *("POINT", "LINESTRING", "POLYGON", "MULTIPOLYGON", "GEOMETRYCOLLECTION", "BBOX", "BUFFER"),
    *("ENVELOPE", "SRID=3857;", "SRID=4326;", "EMPTY", "Z", "M", "(", "((", ")", "))", ",", " "),
    *("0", "180", "-180", "170", "-170", "90", "-90", "1e5", "nan", "1 2", "0 0,1 0,1 1,0 0"),
]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=14).map("".join))
def test_whatever_the_text_only_bad_geometry_comes_of_it(text: str) -> None:
    try:
        parsed = parse_text(text)
    except BadGeometry:
        return
    assert not parsed.source.is_empty


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_wkb_and_geojson_never_raise_anything_else(data: st.DataObject) -> None:
    geometry = shapely.from_wkt(
        "GEOMETRYCOLLECTION(POLYGON((170 0,-170 0,-170 9,170 9,170 0)),MULTIPOINT(1 2,3 4))"
    )
    form = data.draw(st.sampled_from([4, 5]))
    whole = shapely.to_wkb(geometry) if form == 4 else shapely.to_geojson(geometry).encode()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(1, len(damaged)))])
    with contextlib.suppress(BadGeometry):
        parse_form(form, cut, 4326)
