"""The envelope beyond its vectors: any bytes, every cut, there and back, and what identity is."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.conditions import Refused, from_entry, from_text, geo_from_text
from protocol.decode import decode, decode_from_server
from protocol.envelope import (
    ENVELOPE,
    GeoEntry,
    GeoSubscribe,
    GeoUnsubscribe,
    entry_from_identity,
    fence_extension,
    geo_fields,
    geopublish,
    geosubscribe,
    geounsubscribe,
    read_geo,
)
from protocol.errors import BadValue, ProtocolError
from protocol.frames import FrameReader
from protocol.geo import Geo
from protocol.geometry_place import Limits
from protocol.mqttg import GEO, PLAIN, Dialect
from protocol.packets import Publish
from protocol.topic_fields import known_topics

DIALECTS = [GEO, PLAIN, Dialect(little_endian=True), Dialect(location_after_fixed_header=True)]
INNERS = [0x30, 0x31, 0x32, 0x34, 0x3C, 0x82, 0x90, 0xA2, 0xB0, 0x10, 0x36]

dialects = st.sampled_from(DIALECTS)
names = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Cn"], exclude_characters="+#"),
    min_size=1, max_size=12,
).filter(lambda name: not name.startswith("$"))  # fmt: skip
coordinates = st.tuples(st.floats(-180, 179.99), st.floats(-90, 90))


def opened(data: bytes, read: Any = decode, dialect: Dialect = GEO) -> Any:
    """Frame and decode exactly one packet."""
    ((first, body),) = FrameReader(1 << 20).receive_data(data)
    return read(first, body, dialect)


# Any bytes


@given(st.integers(0xF0, 0xFF), st.binary(max_size=80), dialects)
@settings(deadline=None, max_examples=500)
def test_any_bytes_of_type_15_decode_or_are_refused(
    first: int, body: bytes, dialect: Dialect
) -> None:
    for read in (decode, decode_from_server):
        with contextlib.suppress(ProtocolError):
            assert read(first, body, dialect) is not None


@given(
    st.sampled_from(INNERS),
    st.integers(0, 255),
    st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 16, 0x7F, 0x80, 0xFF]), max_size=40).map(bytes),
)
@settings(deadline=None, max_examples=600)
def test_any_envelope_of_small_fields_decodes_or_is_refused(
    inner: int, flags: int, rest: bytes
) -> None:
    """Small numbers make lengths that nearly fit, which random bytes never do."""
    for start in (b"\x00\x01a", b"\x00\x0a", b"\x00\x01a\x00\x0a"):
        with contextlib.suppress(ProtocolError):
            decode(ENVELOPE, bytes((inner,)) + start + bytes((flags,)) + rest, GEO)


@given(st.binary(max_size=60))
@settings(deadline=None, max_examples=500)
def test_any_geo_fields_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        geo, fault, offset = read_geo(data, 0)
        assert offset <= len(data)
        assert fault is None or geo == Geo()


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=500)
def test_any_geo_topic_is_read_or_refused(text: str) -> None:
    for read in (from_text, geo_from_text):
        with contextlib.suppress(BadValue):
            read(f"$geo/{text}")


@given(
    st.builds(
        GeoEntry,
        topic_filter=st.sampled_from(["a", "a/#", "a/#/b", "$geo/near=1/a", "$share/g/a", ""]),
        temporal_relation=st.integers(0, 255),
        temporal_filter=st.sampled_from(["", "2026-01-01/P1D", "never", "0 0 8 ? * MON/PT1H"]),
        spatial_relation=st.integers(0, 255),
        form=st.integers(0, 255) | st.integers(0, 7),
        epsg=st.sampled_from([0, 4326, 25832, 999_999]),
        geometry=st.binary(max_size=30)
        | st.sampled_from([b"", b"POINT(1 2)", b"T********POINT(1 2)", bytes(24)]),
        qos=st.integers(0, 3),
        deliver=st.integers(0, 255),
    )
)
@settings(deadline=None, max_examples=600)
def test_any_entry_is_granted_or_refused_with_a_code(entry: GeoEntry) -> None:
    code = entry.qos
    try:
        from_entry(entry)
    except Refused as refused:
        code = refused.code
    assert code in (0, 1, 2, 0x80, 0x8F, 0xC0, 0xC1, 0xC2, 0xC3)


# There and back


def geo_of(time: Any, place: Any, fence: bytes, unknown: bytes) -> Geo:
    """Put fields together as a client does, and let the decoder say what they mean."""
    time_form, time_raw = time
    geometry_form, geometry_raw, epsg = place
    extensions = fence_extension(3, fence) if fence else b""
    if unknown and not fence:
        tlv = b"\x63" + bytes((len(unknown),)) + unknown
        extensions = bytes((len(tlv),)) + tlv
    return Geo(
        time_form, time_raw, None, geometry_form, geometry_raw, epsg, None, extensions,
        epsg_sent=epsg,
    )  # fmt: skip


times = st.one_of(
    st.just((0, b"")),
    st.integers(-(2**62), 2**62).map(lambda ms: (1, struct.pack(">q", ms))),
    st.tuples(st.integers(-(2**62), 0), st.integers(0, 2**62)).map(
        lambda pair: (2, struct.pack(">qq", *pair))
    ),
    st.sampled_from(["1700000000", "2016-03-28T11:15:00Z/PT2H30M"]).map(lambda t: (3, t.encode())),
)
geometries = st.one_of(
    st.just((0, b"", 4326)),
    coordinates.map(lambda xy: (1, struct.pack(">dd", *xy), 4326)),
    coordinates.map(lambda xy: (2, struct.pack(">ddd", *xy, 34.0), 4326)),
    coordinates.map(lambda xy: (3, f"POINT({xy[0]!r} {xy[1]!r})".encode(), 4326)),
    st.just((3, b"POINT(294400 5628700)", 25832)),
    coordinates.map(lambda xy: (4, b"\x00\x00\x00\x00\x01" + struct.pack(">dd", *xy), 4326)),
    coordinates.map(
        lambda xy: (5, f'{{"type":"Point","coordinates":[{xy[0]!r},{xy[1]!r}]}}'.encode(), 4326)
    ),
)
geos = st.builds(
    geo_of, times, geometries, st.sampled_from([b"", b"BBOX(1,1,2,2)"]), st.binary(max_size=5)
)


@given(geos, names, st.integers(0, 2), st.booleans(), st.binary(max_size=200))
@settings(deadline=None, max_examples=300)
def test_a_geopublish_comes_back_as_it_went(
    geo: Geo, topic: str, qos: int, retain: bool, payload: bytes
) -> None:
    packet = Publish(topic, payload, qos, retain, False, 77 if qos else 0, geo)
    data = geopublish(packet)
    for read in (decode, decode_from_server):
        again = opened(data, read)
        assert again.fault is None
        assert (again.topic, again.payload, again.qos, again.retain) == (
            topic, payload, qos, retain,
        )  # fmt: skip
        assert geo_fields(again.geo) == geo_fields(geo)
        assert (again.geo.place is not None) == bool(geo.geometry_form)
        assert (again.geo.time is not None) == bool(geo.time_form)
        assert geopublish(again) == data


@given(geos)
@settings(deadline=None, max_examples=100)
def test_geo_fields_cut_anywhere_are_no_geo_fields(geo: Geo) -> None:
    fields = geo_fields(geo)
    assert read_geo(fields, 0)[2] == len(fields)
    for cut in range(len(fields)):
        with pytest.raises(ProtocolError):
            read_geo(fields[:cut], 0)


entries = st.builds(
    GeoEntry,
    topic_filter=names,
    temporal_relation=st.integers(0, 255),
    temporal_filter=st.sampled_from(["", "2026-01-01/P1D", "nonsense"]),
    spatial_relation=st.integers(0, 255),
    form=st.integers(0, 255),
    epsg=st.integers(0, 2**32 - 1),
    geometry=st.binary(max_size=300),
    qos=st.integers(0, 255),
    deliver=st.integers(0, 255),
)


@given(st.lists(entries, min_size=1, max_size=4), st.integers(1, 65_535))
@settings(deadline=None, max_examples=200)
def test_subscriptions_come_back_as_they_went(several: list[GeoEntry], packet_id: int) -> None:
    packet = GeoSubscribe(packet_id, tuple(several))
    assert opened(geosubscribe(packet)) == packet
    bare = tuple(entry_from_identity(each.identity, 0, 0) for each in several)
    undone = GeoUnsubscribe(packet_id, bare)
    assert opened(geounsubscribe(undone)) == undone


@given(entries, entries)
@settings(deadline=None)
def test_identity_is_every_field_but_qos_and_deliver(one: GeoEntry, other: GeoEntry) -> None:
    assert entry_from_identity(one.identity, one.qos, one.deliver) == one
    same = all(
        getattr(one, name) == getattr(other, name)
        for name in (
            "topic_filter",
            "temporal_relation",
            "temporal_filter",
            "spatial_relation",
            "form",
            "epsg",
            "geometry",
        )
    )
    assert (one.identity == other.identity) == same


def test_geo_topics_do_not_push_other_topics_out_of_memory() -> None:
    """Every place is another topic, and none of them comes twice."""
    kept = dict(known_topics)
    for number in range(1000):
        topic = f"$geo/at=POINT(8.{number:04} 54)/a".encode()
        body = len(topic).to_bytes(2, "big") + topic + b"hi"
        assert decode(0x30, body, GEO).topic == topic.decode()
    assert known_topics == kept


def test_a_geometry_may_be_longer_than_64_kib() -> None:
    ring = ",".join(f"{x / 1000} 0" for x in range(8000)) + ",8 1,0 0"
    text = f"POLYGON((0 0,{ring}))".replace("(0 0,0.0 0,", "(0 0,").encode() + b" " * 70_000
    packet = Publish("a", b"hi", 0, geo=Geo(geometry_form=3, geometry_raw=text))
    again = opened(geopublish(packet))
    assert again.fault is None
    assert again.geo.geometry_raw == text


@pytest.mark.parametrize("count", [10_001, 100_000])
def test_too_many_vertices_are_a_fault_and_no_more(count: int) -> None:
    text = ("LINESTRING(" + ",".join(["1 2", "2 1"] * (count // 2 + 1)) + ")").encode()
    again = opened(geopublish(Publish("a", b"", geo=Geo(geometry_form=3, geometry_raw=text))))
    assert "limit is 10000" in again.fault


def test_a_listener_may_allow_more_vertices() -> None:
    corners = (f"{number / 1000} {number % 2}" for number in range(16_000))
    text = f"LINESTRING({','.join(corners)})".encode()
    data = geopublish(Publish("a", b"", geo=Geo(geometry_form=3, geometry_raw=text)))
    assert opened(data, dialect=Dialect(geometry=Limits(max_vertices=20_000))).fault is None


def test_deep_collections_are_a_fault_and_no_more() -> None:
    text = b"GEOMETRYCOLLECTION(" * 5000 + b"POINT(1 2)" + b")" * 5000
    again = opened(geopublish(Publish("a", b"", geo=Geo(geometry_form=3, geometry_raw=text))))
    assert "nested deeper" in again.fault


def test_an_epsg_field_goes_out_as_it_came() -> None:
    """Also where it says what would be understood without it."""
    data = bytes.fromhex("f61b 30 000161 48 000010e6 402acf5c28f5c28f 404a428f5c28f5c3 6869")
    packet = opened(data)
    assert packet.geo.epsg_sent == 4326
    assert geopublish(packet) == data


def test_an_empty_filter_and_form_0_mean_any_whatever_the_relation() -> None:
    entry = GeoEntry("a", temporal_relation=10, spatial_relation=8)
    conditions = from_entry(entry)
    assert (conditions.spatial, conditions.temporal) == ((), ())
