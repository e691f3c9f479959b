"""Every vector, three times: whole, byte by byte, and cut at every offset.

A vector is a packet typed from the standard (or from docs/protocol.md for geo extensions):

    name, from      what it is and who sends it: client or server
    hex             its bytes
    means           type and fields of the packet; texts for bytes, {"hex": …} where not text;
                    of place and time, and of entries, only the fields that are not the
                    default; "faulty" when place or time cannot be used
    error           the class it must raise instead, with `code` for a refused CONNECT
    ids             the normative statements that it shows
    listener        how the listener reads: plain (the default), geo, little, after-fixed-header
    encodes         false when our own clients would write the same packet with other bytes
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from protocol import envelope, errors
from protocol.decode import decode, decode_from_server
from protocol.encode import encode
from protocol.frames import FrameReader
from protocol.geo import Geo, Location
from protocol.geometry import Place
from protocol.mqttg import GEO, PLAIN, Dialect, read_location
from protocol.packets import Publish, Will

LIMIT = 1_048_576
DIALECTS = {
    "plain": PLAIN,
    "geo": GEO,
    "little": Dialect(little_endian=True),
    "after-fixed-header": Dialect(location_after_fixed_header=True),
}

# Packets that end with a payload or with entries.
SHORTENED = {"Publish", "Subscribe", "Unsubscribe", "Suback"} | {
    "GeoSubscribe", "GeoUnsubscribe", "GeoSuback", "GeoUnsuback",
}  # fmt: skip

VECTORS = [
    pytest.param(vector, id=f"{path.stem}: {vector['name']}")
    for path in sorted((Path(__file__).parent / "vectors").glob("*.json"))
    for vector in json.loads(path.read_text())
]
GOOD = [each for each in VECTORS if "means" in each.values[0]]
BAD = [each for each in VECTORS if "error" in each.values[0]]


def receive(vector: dict[str, Any], pieces: list[bytes]) -> list[Any]:
    """Feed bytes piece by piece and decode every packet that is complete."""
    reader = FrameReader(LIMIT)
    read = decode if vector["from"] == "client" else decode_from_server
    dialect = DIALECTS[vector.get("listener", "plain")]
    return [
        read(first, body, dialect) for piece in pieces for first, body in reader.receive_data(piece)
    ]


def plain(value: Any) -> Any:
    """Bring a packet's field to what JSON can say."""
    if isinstance(value, bytes):
        try:
            return value.decode("ascii")
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, Will):
        return {name: plain(getattr(value, name)) for name in ("topic", "payload", "qos", "retain")}
    if isinstance(value, Location):
        if math.isnan(value.lat):
            return "unusable"
        elev = "nan" if math.isnan(value.elev) else value.elev
        return {"lat": value.lat, "lon": value.lon, "elev": elev}
    if isinstance(value, Place):
        return value.geometry.wkt
    if isinstance(value, Geo | envelope.GeoEntry):
        return {
            each.name: plain(getattr(value, each.name))
            for each in dataclasses.fields(value)
            if getattr(value, each.name) != each.default
        }
    return value


def encoded(packet: Any) -> bytes:
    """Encode a packet as one of our own clients, or the broker, does."""
    if isinstance(packet, Publish) and packet.geo is not None and packet.location is None:
        return envelope.geopublish(packet)
    if isinstance(packet, envelope.GeoSubscribe):
        return envelope.geosubscribe(packet)
    if isinstance(packet, envelope.GeoUnsubscribe):
        return envelope.geounsubscribe(packet)
    if isinstance(packet, envelope.GeoSuback):
        return envelope.geosuback(packet.packet_id, bytes(packet.codes))
    if isinstance(packet, envelope.GeoUnsuback):
        return envelope.geounsuback(packet.packet_id, bytes(packet.codes))
    return encode(packet)


def as_listed(value: Any) -> Any:
    """Write bytes as text where a vector does."""
    if isinstance(value, dict) and set(value) == {"hex"}:
        data = bytes.fromhex(value["hex"])
        return data.decode() if data.isascii() else value
    if isinstance(value, dict):
        return {key: as_listed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_listed(each) for each in value]
    return value


def check_meaning(packet: Any, means: dict[str, Any]) -> None:
    assert type(packet).__name__ == means["type"]
    for name, value in means.items():
        if name == "faulty":
            assert packet.fault
        elif name == "geo" and value is not None:
            check_geo(plain(packet.geo), as_listed(value))
        elif name != "type":
            assert plain(getattr(packet, name)) == as_listed(value), name
    if "faulty" not in means:
        assert getattr(packet, "fault", None) is None


def check_geo(found: dict[str, Any], listed: dict[str, Any]) -> None:
    """Compare place and time; where a place was computed, only that there is one."""
    found, listed = dict(found), dict(listed)
    assert ("fence" in found) is listed.pop("fenced", False)
    found.pop("fence", None)
    if found.get("epsg", 4326) != 4326 and "place" not in listed:
        assert found.pop("place")
    assert found == listed


@pytest.mark.parametrize("vector", GOOD)
def test_a_good_packet_means_what_the_standard_says(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    for pieces in ([data], [bytes((byte,)) for byte in data]):
        (packet,) = receive(vector, pieces)
        check_meaning(packet, vector["means"])


@pytest.mark.parametrize("vector", GOOD)
def test_a_good_packet_cut_anywhere_waits_for_the_rest(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    for cut in range(len(data)):
        assert receive(vector, [data[:cut]]) == []
        (packet,) = receive(vector, [data[:cut], data[cut:]])
        check_meaning(packet, vector["means"])


@pytest.mark.parametrize("vector", GOOD)
def test_a_good_packet_whose_length_ends_early_is_no_other_good_packet(
    vector: dict[str, Any],
) -> None:
    """The body cut at every offset, under a length that admits to it.

    Only a PUBLISH may lose the end of its payload, and what has entries the last of them,
    and still be a packet; nothing raises anything but a ProtocolError.
    """
    data = bytes.fromhex(vector["hex"])
    head = 2 if data[1] < 0x80 else 3
    shortens = vector["means"]["type"] in SHORTENED
    for cut in range(head, len(data)):
        size = cut - head
        length = bytes((size,)) if size < 0x80 else bytes((size & 0x7F | 0x80, size >> 7))
        try:
            packets = receive(vector, [data[:1] + length + data[head:cut]])
        except errors.ProtocolError:
            continue
        assert shortens, packets


@pytest.mark.parametrize("vector", [each for each in GOOD if each.values[0].get("encodes", True)])
def test_a_good_packet_is_encoded_as_it_was_typed(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    (packet,) = receive(vector, [data])
    assert encoded(packet) == data


@pytest.mark.parametrize("vector", BAD)
def test_a_bad_packet_is_refused(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    for pieces in ([data], [bytes((byte,)) for byte in data]):
        with pytest.raises(getattr(errors, vector["error"])) as caught:
            receive(vector, pieces)
        if "code" in vector:
            assert isinstance(caught.value, errors.ConnectRefused)
            assert caught.value.code == vector["code"]


@pytest.mark.parametrize("vector", BAD)
def test_a_bad_packet_cut_anywhere_is_never_a_good_one(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    for cut in range(len(data)):
        try:
            assert receive(vector, [data[:cut]]) == []
        except errors.ProtocolError:
            continue
        with pytest.raises(errors.ProtocolError):
            receive(vector, [data[:cut], data[cut:]])


def test_two_packets_in_one_read_are_two_packets() -> None:
    packets = receive({"from": "client"}, [bytes.fromhex("c0 00 e0 00 c0")])
    assert [type(packet).__name__ for packet in packets] == ["Pingreq", "Disconnect"]


def test_a_location_block_is_21_packed_bytes() -> None:
    block = bytes.fromhex("01 40 4a 42 8f 5c 28 f5 c3 40 2a cf 5c 28 f5 c2 8f 42 08 00 00")
    assert read_location(block, 0) == (Location(52.52, 13.405, 34.0), 21)
    for cut in range(21):
        with pytest.raises(errors.MalformedPacket):
            read_location(block[:cut], 0)
