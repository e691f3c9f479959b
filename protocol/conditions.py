"""What a geo subscription asks of an event, whatever door it came through.

    GEOSUBSCRIBE entry  --> from_entry()   --\\
                                              >--> Conditions: spatial and temporal tests
    $geo/<conditions>/…  --> from_text()    --/

Conditions are values: they know what is asked, not whether an event fulfils it. That
needs places and clocks, which belong to the broker's matching room.
"""

from urllib.parse import unquote

from protocol.envelope import GeoEntry, fence_extension
from protocol.errors import BadGeometry, BadTime, BadTopic, BadValue, UnknownCrs
from protocol.geo import Geo
from protocol.geometry_crs import check_crs
from protocol.geometry_forms import FORM_TEXT, parse_form
from protocol.geometry_metres import check_metres
from protocol.geometry_place import DEFAULT_LIMITS, Limits, Place
from protocol.geometry_text import parse_text
from protocol.relations import (
    COVERS,
    DE9IM,
    DWITHIN,
    NEAR_ME,
    NUMBERS,
    RELATIONS,
    Operand,
    read_metres,
    read_operand,
    valid_pattern,
)
from protocol.temporal import TEMPORAL_RELATIONS, TimeFilter, parse_event_time, parse_filter
from protocol.topics import GEO_PREFIX, SHARE_PREFIX, check_filter, check_topic
from protocol.values import value

FORM_NEAR_ME = 7
PUBLISHER_FLAG = 0x80
REPROJECT_FLAG = 0x80

# Codes of a GEOSUBACK entry that was not granted.
FAILURE, NOT_AUTHORISED, BAD_FILTER, QUOTA = 0x80, 0x87, 0x8F, 0x97
BAD_TIME, BAD_GEOMETRY, BAD_RELATION, BAD_CRS = 0xC0, 0xC1, 0xC2, 0xC3


class Refused(BadValue):
    """A subscription that cannot be granted, with the code that says why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@value
class Spatial:
    """One spatial test, read *filter REL event*."""

    relation: int
    place: Place | None = None  # None: near me
    operand: Operand = None
    of_publisher: bool = False  # test the publisher's last known location
    near_m: float = 0.0  # near me: metres round the subscriber's own location


@value
class Temporal:
    """One temporal test, read *event REL filter*."""

    relation: int
    windows: TimeFilter


@value
class Conditions:
    """All tests of one subscription; every one of them must hold."""

    spatial: tuple[Spatial, ...] = ()
    temporal: tuple[Temporal, ...] = ()
    prefix: str = ""  # `$geo/<conditions>/` if deliveries shall carry it
    envelope: bool = False  # made by a GEOSUBSCRIBE: deliver as GEOPUBLISH
    deliver: int = 0
    epsg: int = 4326

    @property
    def simple(self) -> bool:
        """Whether there is one spatial test and no other."""
        return len(self.spatial) == 1 and not self.temporal


def from_entry(
    entry: GeoEntry, limits: Limits = DEFAULT_LIMITS, max_levels: int = 200
) -> Conditions:
    """Judge an entry of a GEOSUBSCRIBE; raises Refused with its code."""
    if entry.qos > 2:
        raise Refused(FAILURE, f"QoS {entry.qos}")
    if entry.deliver & ~REPROJECT_FLAG > 4:
        raise Refused(FAILURE, f"deliver value {entry.deliver:#x}")
    try:
        if entry.topic_filter.startswith((GEO_PREFIX, SHARE_PREFIX)):
            raise BadTopic(f"{entry.topic_filter[:60]!r} in a GEOSUBSCRIBE")
        check_filter(entry.topic_filter, max_levels)
        temporal = _temporal_of(entry)
        spatial = _spatial_of(entry, limits)
        epsg = check_crs(entry.epsg) if entry.epsg else 4326
    except BadTopic as error:
        raise Refused(BAD_FILTER, str(error)) from None
    except BadTime as error:
        raise Refused(BAD_TIME, str(error)) from None
    except UnknownCrs as error:
        raise Refused(BAD_CRS, str(error)) from None
    except BadGeometry as error:
        raise Refused(BAD_GEOMETRY, str(error)) from None
    return Conditions(spatial, temporal, "", True, entry.deliver, epsg)


def _temporal_of(entry: GeoEntry) -> tuple[Temporal, ...]:
    relation = entry.temporal_relation
    if relation >= len(TEMPORAL_RELATIONS):
        raise Refused(BAD_RELATION, f"unknown temporal relation {relation}")
    if not entry.temporal_filter:
        return ()  # any time, whatever the relation
    windows = parse_filter(entry.temporal_filter)
    return (Temporal(relation, windows),) if relation else ()


def _spatial_of(entry: GeoEntry, limits: Limits) -> tuple[Spatial, ...]:
    relation = entry.spatial_relation & ~PUBLISHER_FLAG
    of_publisher = bool(entry.spatial_relation & PUBLISHER_FLAG)
    if relation >= len(RELATIONS):
        raise Refused(BAD_RELATION, f"unknown spatial relation {relation}")
    if entry.form == FORM_NEAR_ME:
        if relation not in NEAR_ME:
            raise Refused(BAD_RELATION, f"near me knows covers and intersects, not {relation}")
        return (_near(read_metres(entry.geometry), relation, of_publisher),)
    if entry.form == 0:
        if entry.geometry:
            raise BadGeometry("a geometry without a form")
        return ()  # any place, whatever the relation
    if entry.form not in (1, 3, 4, 5):
        raise BadGeometry(f"unknown form {entry.form}")
    operand, raw = read_operand(relation, entry.geometry)
    place = parse_form(entry.form, raw, entry.epsg or 4326, limits).place
    return (Spatial(relation, place, operand, of_publisher),) if relation else ()


def _near(metres: float, relation: int, of_publisher: bool = False) -> Spatial:
    if metres == 0:
        raise BadGeometry("near me within 0 metres")
    return Spatial(relation, None, None, of_publisher, check_metres(metres))


# $geo/ topics


def split_geo_topic(topic: str) -> tuple[str, str]:
    """Part `$geo/<conditions>/<inner>`; the inner topic must be an ordinary one."""
    conditions, slash, inner = topic[len(GEO_PREFIX) :].partition("/")
    if not slash or not inner:
        raise BadTopic("expected $geo/<conditions>/<topic>")
    if inner.startswith("$"):
        raise BadTopic(f"{inner!r} cannot stand behind $geo/")
    return conditions, inner


def _pairs(conditions: str) -> list[tuple[str, str]]:
    pairs = []
    for condition in conditions.split(";"):
        key, equals, text = condition.partition("=")
        if not equals:
            raise BadTopic(f"condition {condition[:60]!r} is not key=value")
        try:
            pairs.append((unquote(key, errors="strict"), unquote(text, errors="strict")))
        except UnicodeDecodeError:
            raise BadTopic("condition is not UTF-8 behind its percent signs") from None
    return pairs


def from_text(
    topic_filter: str, limits: Limits = DEFAULT_LIMITS, max_levels: int = 200
) -> tuple[str, Conditions]:
    """Judge a `$geo/` filter: the inner filter, and the conditions before it."""
    text, inner = split_geo_topic(topic_filter)
    if "+" in text or "#" in text:
        raise BadTopic("conditions need %2B and %23 for '+' and '#'")
    check_filter(inner, max_levels)
    spatial: list[Spatial] = []
    temporal: list[Temporal] = []
    prefix = ""
    for key, content in _pairs(text):
        name, dot, detail = key.partition(".")
        if key == "prefix":
            if content != "keep":
                raise BadTopic(f"prefix={content[:20]!r}, expected keep")
            prefix = f"{GEO_PREFIX}{text}/"
        elif key == "near":
            spatial.append(_near(_metres(content), COVERS))
        elif name == "time":
            number = TEMPORAL_RELATIONS.get(detail) if dot else 1
            if number is None:
                raise BadTopic(f"unknown temporal relation {detail[:40]!r}")
            windows = parse_filter(content)
            if number:
                temporal.append(Temporal(number, windows))
        else:
            test = _spatial_condition(key, content, limits)
            if test.relation:
                spatial.append(test)
    return inner, Conditions(tuple(spatial), tuple(temporal), prefix)


def _spatial_condition(key: str, content: str, limits: Limits) -> Spatial:
    of_publisher = key.startswith("publisher.")
    name, dot, detail = key.removeprefix("publisher.").partition(".")
    relation = NUMBERS.get(name)
    if relation is None or bool(dot) != (relation in (DE9IM, DWITHIN)):
        raise BadTopic(f"unknown condition {key[:60]!r}")
    operand: Operand = None
    if relation == DE9IM:
        if not valid_pattern(detail):
            raise BadTopic(f"{detail[:20]!r} is no DE-9IM pattern")
        operand = detail
    elif relation == DWITHIN:
        operand = check_metres(_metres(detail))
    return Spatial(relation, parse_text(content, 4326, limits).place, operand, of_publisher)


def _metres(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadGeometry(f"{text[:40]!r} is no distance in metres") from None


def geo_from_text(
    topic: str, limits: Limits = DEFAULT_LIMITS, max_levels: int = 200
) -> tuple[str, Geo]:
    """Read a `$geo/` publish topic: the inner topic, and the place and time before it."""
    text, inner = split_geo_topic(topic)
    check_topic(inner, max_levels)
    found = dict(_pairs(text))
    if len(found) != text.count(";") + 1:
        raise BadTopic("the same condition twice")
    unknown = found.keys() - {"at", "time", "to"}
    if unknown:
        raise BadTopic(f"unknown condition {min(unknown)[:60]!r}")
    at, time, to = found.get("at"), found.get("time"), found.get("to")
    parsed = parse_text(at, 4326, limits) if at is not None else None
    return inner, Geo(
        time_form=3 if time is not None else 0,
        time_raw=time.encode() if time is not None else b"",
        time=parse_event_time(time) if time is not None else None,
        geometry_form=FORM_TEXT if at is not None else 0,
        geometry_raw=at.encode() if at is not None else b"",
        epsg=parsed.epsg if parsed is not None else 4326,
        place=parsed.place if parsed is not None else None,
        extensions=fence_extension(FORM_TEXT, to.encode()) if to is not None else b"",
        fence=parse_text(to, 4326, limits).place if to is not None else None,
    )
