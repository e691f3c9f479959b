"""docs/protocol.md is true: its bytes decode to what it says, its tables are those of the code."""

from __future__ import annotations

import json
import re
import struct
from math import isnan
from pathlib import Path
from typing import Any

import pytest
import shapely

from protocol import conditions
from protocol.conditions import from_text, geo_from_text
from protocol.decode import decode, decode_from_server
from protocol.envelope import GeoEntry, GeoSuback, GeoSubscribe, GeoUnsuback, GeoUnsubscribe
from protocol.errors import ProtocolError
from protocol.frames import next_frame
from protocol.geometry import parse_text
from protocol.mqttg import GEO, PLAIN
from protocol.packets import NAMES, Pingreq, Publish
from protocol.relations import DWITHIN, RELATIONS, spatial
from protocol.temporal import RELATION_NAMES, parse_filter
from protocol.topics import parse_share
from tests.conformance.raw import octets

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
EXAMPLES = re.findall(r"```hex\n(.*?)```\n```json\n(.*?)```", PAGE, re.DOTALL)


def lines_of(language: str) -> list[str]:
    """Give the lines of all code blocks of a language."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def table_under(heading: str, number: int = 0) -> list[list[str]]:
    """Give the cells of a table of a section, without its head."""
    section = re.split(r"^#+ ", PAGE.split(f"# {heading}\n")[1], flags=re.MULTILINE)[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    rows = tables[number].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def code(cell: str) -> list[str]:
    """Give what stands between backticks."""
    return re.findall(r"`([^`]*)`", cell)


# Packets


def meaning_of(packet: Any) -> dict[str, Any]:
    """Say what a packet means in the words of the page."""
    match packet:
        case Pingreq():
            return {"packet": "PINGREQ", "location": _location(packet.location)}
        case Publish():
            return _publish(packet)
        case GeoSubscribe() | GeoUnsubscribe():
            wanted = isinstance(packet, GeoSubscribe)
            return {
                "packet": type(packet).__name__.upper(),
                "packet_id": packet.packet_id,
                "entries": [_entry(each, subscribe=wanted) for each in packet.entries],
            }
        case GeoSuback() | GeoUnsuback():
            return {
                "packet": type(packet).__name__.upper(),
                "packet_id": packet.packet_id,
                "codes": [f"{each:02x}" for each in packet.codes],
            }
    raise AssertionError(packet)


def _location(location: Any) -> list[float | None]:
    return [location.lat, location.lon, None if isnan(location.elev) else location.elev]


def _publish(packet: Publish) -> dict[str, Any]:
    meant: dict[str, Any] = {
        "packet": "PUBLISH",
        "topic": packet.topic,
        "qos": packet.qos,
        "payload": packet.payload.decode(),
    }
    assert packet.fault is None
    geo = packet.geo
    assert geo is not None
    if packet.retain:
        meant["retain"] = True
    if packet.packet_id:
        meant["packet_id"] = packet.packet_id
    if packet.location is not None:
        meant["location"] = _location(packet.location)
    if geo.time is not None:
        meant |= {"time_form": geo.time_form, "time": list(geo.time)}
    if geo.geometry_form:
        meant["geometry_form"] = geo.geometry_form
        assert geo.place is not None
        if geo.geometry_form == 3:
            meant["geometry"] = geo.geometry_raw.decode()
        else:
            meant["place"] = shapely.to_wkt(geo.place.geometry)
    if geo.epsg != 4326:
        meant["epsg"] = geo.epsg
    if geo.fence is not None:
        middle = geo.fence.geometry.centroid
        meant["geofence_around"] = [round(middle.x, 6), round(middle.y, 6)]
    return meant


def _entry(entry: GeoEntry, *, subscribe: bool) -> dict[str, Any]:
    relation = entry.spatial_relation & 0x7F
    meant: dict[str, Any] = {
        "filter": entry.topic_filter,
        "temporal": RELATION_NAMES[entry.temporal_relation],
        "time": entry.temporal_filter,
        "spatial": RELATIONS[relation],
        "form": entry.form,
        "epsg": entry.epsg,
    }
    if subscribe:
        meant |= {"qos": entry.qos, "deliver": entry.deliver}
        conditions.from_entry(entry)  # the broker would grant it
    elif entry.names_all:
        meant["removes_all"] = True
    if entry.spatial_relation & 0x80:
        meant["publisher"] = True
    geometry = entry.geometry
    if entry.form == 7 or relation == DWITHIN:
        meant["metres"] = struct.unpack(">d", geometry[:8])[0]
        geometry = geometry[8:]
    if geometry:
        meant["geometry"] = geometry.decode()
    return meant


@pytest.mark.parametrize(("typed", "meant"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_decodes_to_what_stands_behind_it(typed: str, meant: str) -> None:
    data = octets("\n".join(line.partition(";")[0] for line in typed.splitlines()))
    assert next_frame(data, 0, 1000) == (2, len(data)), "the remaining length does not fit"
    first, body = data[0], data[2:]
    from_broker = first == 0xF6 and body[0] in (0x90, 0xB0)
    read = decode_from_server if from_broker else decode
    assert meaning_of(read(first, body, GEO)) == json.loads(meant)


def test_every_kind_of_packet_has_an_example() -> None:
    assert len(EXAMPLES) == PAGE.count("```hex") == PAGE.count("```json")
    shown = {json.loads(meant)["packet"] for _, meant in EXAMPLES}
    assert shown == {
        *("PINGREQ", "PUBLISH", "GEOSUBSCRIBE", "GEOSUBACK", "GEOUNSUBSCRIBE", "GEOUNSUBACK")
    }


# Tables


def test_the_first_bytes_are_those_that_the_decoder_knows() -> None:
    told = {
        int(byte, 16): says for bytes_, says in table_under("First bytes") for byte in code(bytes_)
    }
    assert {byte for byte in told if byte >= 0xF0} == set(range(0xF0, 0x100))
    for first, says in told.items():
        kind = NAMES[first >> 4] if first < 0xF0 else "PUBLISHg"
        if "reserved" in says:
            with pytest.raises(ProtocolError, match="reserved"):
                decode(first, b"\0\1a\0\1" + bytes(40), GEO)
        elif "envelope" in says:
            with pytest.raises(ProtocolError, match="envelope with unknown inner byte"):
                decode(first, b"\0", GEO)
        else:
            assert kind in says
            body = octets('00 04 "MQTT" 04 02 00 3c') if kind == "CONNECT" else b"\0\1a\0\1"
            with pytest.raises(ProtocolError, match="too short for its location"):
                decode(first, body, GEO)
        with pytest.raises(ProtocolError):
            decode(first, b"\0\1" + bytes(21), PLAIN)


def test_the_inner_bytes_are_those_that_the_decoder_knows() -> None:
    known = set()
    for bytes_, _, sender in table_under("The GeoMQTT envelope"):
        for part in bytes_.split(","):
            ends = [int(byte, 16) for byte in code(part)]
            known |= {(number, sender) for number in range(ends[0], ends[-1] + 1)}
    for inner in range(256):
        for sender, read in (("client", decode), ("broker", decode_from_server)):
            with pytest.raises(ProtocolError) as caught:
                read(0xF6, bytes((inner,)), GEO)
            understood = str(caught.value) == "packet ends inside a field"
            assert understood == bool({(inner, sender), (inner, "both")} & known), hex(inner)


def test_the_numbers_of_relations_are_those_of_the_code() -> None:
    spatial_rows = [(int(row[0]), row[1]) for row in table_under("Relations")]
    assert spatial_rows == list(enumerate(RELATIONS))
    temporal = [
        (int(number), name)
        for row in table_under("Relations", 1)
        for number, name in zip(row[::2], row[1::2], strict=True)
    ]
    assert sorted(temporal) == list(enumerate(RELATION_NAMES))


def test_the_codes_of_geosuback_are_those_of_the_code() -> None:
    codes = {
        int(each, 16)
        for row in table_under("GEOSUBSCRIBE and GEOSUBACK", 1)
        for each in code(row[0])
    }
    names = "FAILURE NOT_AUTHORISED BAD_FILTER QUOTA BAD_TIME BAD_GEOMETRY BAD_RELATION BAD_CRS"
    assert codes == {0, 1, 2} | {getattr(conditions, name) for name in names.split()}


# Text


@pytest.mark.parametrize("text", [code(row[0])[0] for row in table_under("Temporal filters")])
def test_a_temporal_filter_of_the_page_is_one(text: str) -> None:
    parse_filter(text)
    parse_filter(text.replace("/P", "--P"))


def test_the_geometry_texts_of_the_page_mean_what_it_says() -> None:
    rows = {code(text)[0]: says for text, says in table_under("Geometry text")}
    places = {text.split("(")[0]: parse_text(text).place for text in rows}
    assert places["BBOX"].bounds == places["ENVELOPE"].bounds == (8.5, 54.4, 8.7, 54.6)
    assert spatial(2, places["BUFFER"], places["POINT"])
    box = parse_text("BBOX(170,-10,-170,10)").place
    assert spatial(2, box, parse_text("POINT(180 0)").place)


@pytest.mark.parametrize("topic", lines_of("publish"))
def test_a_geo_topic_of_the_page_is_a_publish(topic: str) -> None:
    inner, geo = geo_from_text(topic)
    assert inner == "dike/7"
    assert (geo.place is not None) == ("at=" in topic)
    assert (geo.time is not None) == ("time=" in topic)
    assert (geo.fence is not None) == ("to=" in topic)


@pytest.mark.parametrize("topic_filter", lines_of("subscribe"))
def test_a_geo_filter_of_the_page_is_a_subscription(topic_filter: str) -> None:
    shared = parse_share(topic_filter)
    inner, found = from_text(shared.filter if shared else topic_filter)
    assert inner.startswith("dike/")
    assert bool(found.temporal) == ("time" in topic_filter)
    assert bool(found.prefix) == ("prefix=keep" in topic_filter)
    assert found.spatial or found.temporal
