"""From the path and parameters of a request to what is asked for.

Every parameter is read by exactly one function here, which raises `BadParameter` with its
name. Unknown and repeated parameters are refused, so that a typing error is not a wider
question than was meant.
"""

from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request

from plugins.api import SubscribeRequest
from plugins.event_log.reader import Cursor, Query
from plugins.rest_bridge.problems import BadParameter
from protocol.errors import BadTime, BadValue
from protocol.geometry import (
    Limits,
    Parsed,
    Place,
    buffer_metres,
    check_metres,
    parse_geojson,
    parse_text,
)
from protocol.message import Message
from protocol.relations import (
    ANY,
    COVERS,
    DE9IM,
    DISJOINT,
    DWITHIN,
    NUMBERS,
    Operand,
    spatial,
    valid_pattern,
)
from protocol.temporal import MAX_MS, MIN_MS, parse_event_time
from protocol.topics import GEO_PREFIX, SHARE_PREFIX, check_filter, check_topic
from protocol.values import value

TOLERANCE_M = 100.0  # what a line or a point as filter reaches to either side
MAX_SIZE = 1_000_000_000
MAX_WAIT_S = 300.0
MAX_TOPIC_BYTES = 65_535
PAD_DEGREES = 1e-6  # so that the box round a point or a straight line has an area
BEGINNING = Cursor.parse("1970-01-01.0")

_LIMITS = Limits()


def topic_in_path(request: Request, prefix: str) -> str:
    """Take the topic from the path as it was sent, so that every slash stays what it is."""
    raw: bytes = request.scope["raw_path"].partition(b"?")[0]
    try:
        topic = unquote(raw.decode("ascii").removeprefix(prefix), errors="strict")
        size = len(topic.encode())
    except UnicodeError:
        raise BadParameter("topic", "the topic is not UTF-8") from None
    if "\0" in topic:
        raise BadParameter("topic", "the topic holds a null character")
    if size > MAX_TOPIC_BYTES:
        raise BadParameter("topic", f"topic of {size} bytes, limit is {MAX_TOPIC_BYTES}")
    return topic


def read_filter(request: Request, prefix: str) -> str:
    """Read the path as a topic filter."""
    topic_filter = topic_in_path(request, prefix)
    if topic_filter.startswith((GEO_PREFIX, SHARE_PREFIX)):
        raise BadParameter("topic", "conditions and groups are no part of a path here")
    try:
        check_filter(topic_filter)
    except BadValue as error:
        raise BadParameter("topic", str(error)) from None
    return topic_filter


def read_topic(request: Request, prefix: str) -> str:
    """Read the path as the topic of something to publish."""
    topic = topic_in_path(request, prefix)
    try:
        check_topic(topic)
    except BadValue as error:
        raise BadParameter("topic", str(error)) from None
    if topic.startswith("$"):
        raise BadParameter("topic", "topics that begin with $ are not for publishing here")
    return topic


def read_parameters(request: Request, known: frozenset[str]) -> dict[str, str]:
    """Take the query string apart; every parameter must be known and stand there once."""
    try:
        query = request.scope["query_string"].decode("ascii")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=100)
    except UnicodeError:
        raise BadParameter("query", "the query string is not UTF-8") from None
    except ValueError as error:
        raise BadParameter("query", str(error)) from None
    parameters: dict[str, str] = {}
    for name, text in pairs:
        if name not in known:
            expected = ", ".join(sorted(known)) or "none"
            raise BadParameter(name[:60], f"unknown parameter; known here: {expected}")
        if name in parameters:
            raise BadParameter(name, "given more than once")
        parameters[name] = text
    return parameters


# One parameter each


def read_size(parameters: Mapping[str, str]) -> int | None:
    """Read how many events are wanted; None: all."""
    text = parameters.get("size")
    return None if text is None else read_integer("size", text, 1, MAX_SIZE)


def read_integer(name: str, text: str, low: int, high: int) -> int:
    """Read a whole number in a range."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and low <= int(text) <= high):
        raise BadParameter(name, f"{text[:40]!r} is no whole number from {low} to {high}")
    return int(text)


def read_number(name: str, text: str, high: float) -> float:
    """Read a number from 0 up."""
    try:
        if not text.isascii() or "_" in text:
            raise ValueError
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= high:
        raise BadParameter(name, f"{text[:40]!r} is no number from 0 to {high:g}")
    return number


def read_switch(parameters: Mapping[str, str], name: str) -> bool:
    """Read true or false."""
    text = parameters.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise BadParameter(name, f"{text[:40]!r} is neither true nor false")
    return text in ("true", "1")


def read_choice(parameters: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Read one of some words; the first is the default."""
    text = parameters.get(name, choices[0])
    if text not in choices:
        raise BadParameter(name, f"{text[:40]!r} is none of {', '.join(choices)}")
    return text


def read_instant(parameters: Mapping[str, str], name: str, default: int) -> int:
    """Read an instant: ISO 8601 or Unix seconds."""
    text = parameters.get(name)
    if text is None:
        return default
    start, end = read_time(name, text)
    if start != end:
        raise BadParameter(name, f"{text[:60]!r} is an interval, expected an instant")
    return start


def read_time(name: str, text: str) -> tuple[int, int]:
    """Read the time of an event: an instant or an interval."""
    try:
        # No time holds a space: it is the plus of an offset that nobody encoded.
        return parse_event_time(text.replace(" ", "+"))
    except BadTime as error:
        raise BadParameter(name, str(error)) from None


def read_geometry(text: str) -> Parsed:
    """Read a geometry: WKT, EWKT, BBOX, ENVELOPE, BUFFER or GeoJSON."""
    try:
        if text.lstrip().startswith("{"):
            return parse_geojson(text, limits=_LIMITS)
        return parse_text(text, limits=_LIMITS)
    except BadValue as error:
        raise BadParameter("geometry", str(error)) from None


def read_cursor(name: str, text: str) -> Cursor:
    """Read a position in the log."""
    try:
        return Cursor.parse(text)
    except BadValue as error:
        raise BadParameter(name, str(error)) from None


# All of them


@value
class Selection:
    """Which events are asked for, of the log and of what happens."""

    topic_filter: str
    geo: bool  # those with a place, or those without
    from_ms: int = MIN_MS
    to_ms: int = MAX_MS
    place: Place | None = None
    relation: int = COVERS
    operand: Operand = None

    def query(self, after: Cursor | None, *, newest_first: bool) -> Query:
        """Ask the log."""
        return Query(
            topic_filter=self.topic_filter,
            from_ms=self.from_ms,
            to_ms=self.to_ms,
            place=self.place,
            relation=self.relation,
            operand=self.operand,
            geo=self.geo,
            newest_first=newest_first,
            after=after,
        )

    def matches(self, message: Message) -> bool:
        """Ask a message on a matching topic."""
        geo = message.geo
        place = geo.place if geo is not None else None
        if (place is not None) != self.geo:
            return False
        start = end = message.received_ms
        if geo is not None and geo.time is not None:
            start, end = geo.time
        if start >= self.to_ms or (start < self.from_ms and end <= self.from_ms):
            return False
        if self.place is None or place is None:
            return True
        return spatial(self.relation, self.place, place, self.operand)

    @property
    def live_filter(self) -> str:
        """The filter to subscribe to: never less than what matches, and little more."""
        place = self.place
        if place is None or place.wraps or self.topic_filter.startswith("$"):
            return self.topic_filter
        if self.relation in (ANY, DISJOINT, DE9IM, DWITHIN):
            return self.topic_filter
        west, south, east, north = place.bounds
        west, east = west - PAD_DEGREES, east + PAD_DEGREES
        if east - west >= 359.0:
            return self.topic_filter
        south, north = max(south - PAD_DEGREES, -90.0), min(north + PAD_DEGREES, 90.0)
        west = west + 360.0 if west < -180.0 else west
        east = east - 360.0 if east > 180.0 else east
        box = f"BBOX({west!r},{south!r},{east!r},{north!r})"
        return f"{GEO_PREFIX}intersects={box}/{self.topic_filter}"

    @property
    def request(self) -> SubscribeRequest:
        """What an authoriser is asked."""
        places: tuple[Place, ...] = ()
        if self.place is not None and self.relation not in (ANY, DISJOINT, DE9IM):
            reach = float(self.operand or 0) if self.relation == DWITHIN else 0.0
            places = (buffer_metres(self.place, reach) if reach else self.place,)
        return SubscribeRequest(self.topic_filter, 0, places)


def read_selection(topic_filter: str, parameters: Mapping[str, str], *, geo: bool) -> Selection:
    """Read `from`, `to`, `geometry`, `relation` and `tolerance`."""
    from_ms = read_instant(parameters, "from", MIN_MS)
    to_ms = read_instant(parameters, "to", MAX_MS)
    if from_ms >= to_ms:
        raise BadParameter("to", "must lie after from")
    place, relation, operand = _read_place(parameters)
    return Selection(topic_filter, geo, from_ms, to_ms, place, relation, operand)


def _read_place(parameters: Mapping[str, str]) -> tuple[Place | None, int, Operand]:
    text = parameters.get("geometry")
    if text is None:
        for name in ("relation", "tolerance"):
            if name in parameters:
                raise BadParameter(name, "there is no geometry that it could belong to")
        return None, COVERS, None
    place = read_geometry(text).place
    relation, operand = COVERS, None
    if "relation" in parameters:
        relation, operand = _read_relation(parameters["relation"])
    tolerance_m = 0.0
    if "tolerance" in parameters:
        tolerance_m = read_number("tolerance", parameters["tolerance"], 1e7)
    elif "relation" not in parameters and _has_no_inside(place):
        # Nothing lies exactly on a line or a point: what is near it is meant.
        tolerance_m = TOLERANCE_M
    if tolerance_m:
        try:
            place = buffer_metres(place, tolerance_m)
        except BadValue as error:
            raise BadParameter("tolerance", str(error)) from None
    return place, relation, operand


def _has_no_inside(place: Place) -> bool:
    return place.is_point or not place.geometry.area


def _read_relation(text: str) -> tuple[int, Operand]:
    name, _, detail = text.partition(".")
    relation = NUMBERS.get(name)
    if relation is None:
        raise BadParameter("relation", f"{name[:40]!r} is none of {', '.join(NUMBERS)}")
    if relation == DE9IM:
        if not valid_pattern(detail):
            raise BadParameter("relation", "expected de9im.<nine of T F * 0 1 2>")
        return relation, detail
    if relation == DWITHIN:
        metres = read_number("relation", detail, 1e8)
        try:
            return relation, check_metres(metres)
        except BadValue as error:
            raise BadParameter("relation", str(error)) from None
    if detail:
        raise BadParameter("relation", f"{name} takes no operand")
    return relation, None
