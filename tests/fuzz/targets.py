"""What is fuzzed: functions that take any bytes and may only fail in the ways they say.

`packets` is the decoder: a stream cut into packets, each read as server and client read it,
in every dialect, and what decodes is encoded again. `texts` are the small languages that
clients write inside of packets: topics, geometries, times, conditions. A target gives what
came of the input; whatever else it raises is a finding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from broker.client_fences import parse_fence, parse_location
from protocol.conditions import from_text, geo_from_text
from protocol.decode import decode, decode_from_server
from protocol.encode import encode
from protocol.errors import BadValue, ProtocolError
from protocol.frames import next_frame
from protocol.geo import Location
from protocol.geometry import parse_text
from protocol.geometry_place import DEFAULT_LIMITS
from protocol.mqttg import GEO, PLAIN, Dialect
from protocol.packets import Publish
from protocol.relations import DE9IM, DWITHIN, spatial
from protocol.temporal import MAX_MS, MIN_MS, parse_event_time, parse_filter
from protocol.topics import check_filter, check_topic, matches, parse_share

DIALECTS = (PLAIN, GEO, Dialect(little_endian=True), Dialect(location_after_fixed_header=True))
MAX_PACKET_SIZE = 100_000
PLACES = tuple(
    parse_text(text).place
    for text in (
        "POINT(8.6 54.5)",
        "BBOX(170,-10,-170,10)",
        "POLYGON((0 0,9 0,9 60,0 60,0 0),(1 1,2 1,2 2,1 1))",
        "LINESTRING(-90 -80,90 80,0 0)",
    )
)
INTERVALS = (
    (1_774_700_000_000, 1_774_700_000_000),
    (0, 1_774_700_000_000),
    (MIN_MS, MAX_MS),
    (MAX_MS - 1, MAX_MS),
)
HERE = Location(lat=54.5, lon=8.6, elev=float("nan"))


def packets(data: bytes) -> str:
    """Cut a stream into packets and read each in every way."""
    offset = 0
    outcome = ""
    try:
        while (found := next_frame(data, offset, MAX_PACKET_SIZE)) is not None:
            start, end = found
            outcome += _read(data[offset], data[start:end])
            offset = end
    except ProtocolError as error:
        return outcome + type(error).__name__
    return outcome


def _read(first: int, body: bytes) -> str:
    outcome = ""
    for dialect in DIALECTS:
        for read in (decode, decode_from_server):
            try:
                packet = read(first, body, dialect)
            except ProtocolError as error:
                outcome += f"{type(error).__name__}{str(error)[:12]};"
                continue
            outcome += f"{type(packet).__name__};"
            if type(packet).__module__ == Publish.__module__ and (
                not isinstance(packet, Publish) or packet.geo is None
            ):
                assert encode(packet)
    return outcome


def _relate(text: str) -> None:
    """Ask every spatial relation, both ways, of a text and some places."""
    place = parse_text(text).place
    for other in PLACES:
        for relation in range(DWITHIN + 1):
            operand = {DE9IM: "T*F**F***", DWITHIN: 1000.0}.get(relation)
            spatial(relation, place, other, operand)
            spatial(relation, other, place, operand)


def _hold(text: str) -> None:
    """Ask every temporal relation of a text and some intervals."""
    windows = parse_filter(text)
    for start_ms, end_ms in INTERVALS:
        for relation in range(1, 15):
            windows.holds(relation, start_ms, end_ms)


TEXTS: tuple[Callable[[str], object], ...] = (
    _relate,
    _hold,
    parse_event_time,
    from_text,
    geo_from_text,
    parse_share,
    check_topic,
    lambda text: check_filter(text) or matches(text, "a/b"),
    lambda text: parse_fence(text.encode(), HERE, DEFAULT_LIMITS, 200),
    lambda text: parse_location(text.encode()),
)


def texts(data: bytes) -> str:
    """Read a text in every small language."""
    outcome = ""
    with contextlib.suppress(UnicodeDecodeError):
        text = data.decode()
        for position, read in enumerate(TEXTS):
            try:
                read(text)
                outcome += f"{position}+"
            except BadValue as error:
                outcome += f"{position}{str(error)[:10]};"
    return outcome


TARGETS: dict[str, Callable[[bytes], str]] = {"packets": packets, "texts": texts}
