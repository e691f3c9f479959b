"""From what a Python program has at hand to what GEOPUBLISH and GEOSUBSCRIBE carry.

    geometries   shapely geometries; WKT, EWKT, BBOX, ENVELOPE and BUFFER text; GeoJSON as text,
                 as a dict or by `__geo_interface__`; WKB bytes; {"lat": …, "lon": …}
    times        an aware datetime, Unix milliseconds, ISO 8601 text, or (start, end) of those
                 with None for an open end

Everything is checked here as the broker will check it, so that a mistake is a ValueError at
the call and not a message that nobody ever gets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict, get_args

import shapely

from protocol.conditions import Refused, from_entry
from protocol.envelope import GeoEntry, fence_extension
from protocol.errors import BadGeometry, BadTime
from protocol.fields import F64, I64
from protocol.geo import Geo
from protocol.geometry import (
    FORM_GEOJSON,
    FORM_POINT,
    FORM_POINT_ELEVATION,
    FORM_TEXT,
    FORM_WKB,
    parse_form,
)
from protocol.geometry_place import NO_LIMITS  # the broker has limits; we do not guess them
from protocol.relations import COVERS, DE9IM, DWITHIN, NUMBERS
from protocol.temporal import MAX_MS, MIN_MS, TEMPORAL_RELATIONS, format_time, parse_event_time

WGS84 = 4326
FORM_NEAR_ME = 7
PUBLISHER_FLAG = 0x80
REPROJECT_FLAG = 0x80

DELIVER = {"as published": 0, "plain": 1, "wkt": 2, "geojson": 3, "wkb": 4}

GeometryLike = Any  # see the head of this module; the checker cannot tell them apart
Instant = datetime | int
TimeLike = Instant | str | tuple[Instant | None, Instant | None]
FilterLike = str | tuple[Instant | None, Instant | None]
TemporalRelation = Literal[
    "any", "intersects", "before", "after", "meets", "met_by", "overlaps", "overlapped_by",
    "starts", "started_by", "during", "contains", "finishes", "finished_by", "equals",
]  # fmt: skip


class GeoConditions(TypedDict, total=False):
    """What a subscription may ask of an event, read *geometry RELATION event*."""

    covers: GeometryLike
    contains: GeometryLike
    intersects: GeometryLike
    equals: GeometryLike
    touches: GeometryLike
    crosses: GeometryLike
    overlaps: GeometryLike
    within: GeometryLike
    covered_by: GeometryLike
    disjoint: GeometryLike
    de9im: tuple[str, GeometryLike]  # a DE-9IM pattern and its geometry
    dwithin: tuple[float, GeometryLike]  # metres and the geometry they are measured from
    near: float  # metres round our own last known location (see Client.move)
    publisher: bool  # test where the publisher is, not where the event is
    during: FilterLike  # an interval, a repeating one, or Quartz cron and a duration
    time: FilterLike  # another name for the same
    time_relation: TemporalRelation  # of the event to that; default: intersects
    epsg: int  # of the geometry; default: 4326
    deliver: Literal["as published", "plain", "wkt", "geojson", "wkb"]
    reproject: bool  # deliver in the system that `epsg` names
    geo: bool  # any place, any time: as a geo subscription, so that place and time arrive


SPATIAL = tuple(name for name in NUMBERS if name in GeoConditions.__annotations__)
assert set(get_args(TemporalRelation)) == set(TEMPORAL_RELATIONS)


def geometry_form(geometry: GeometryLike, epsg: int | None = None) -> tuple[int, bytes, int]:
    """Find the wire form of a geometry: the form, its bytes, and the EPSG code beside it."""
    form, raw, own = _form_of(geometry)
    code = epsg if epsg is not None else own or WGS84
    parse_form(form, raw, code, NO_LIMITS)
    return form, raw, code


def _form_of(geometry: GeometryLike) -> tuple[int, bytes, int]:
    if isinstance(geometry, shapely.Geometry):
        own: Any = shapely.get_srid(geometry)
        if isinstance(geometry, shapely.Point) and not geometry.is_empty:
            if not geometry.has_z:
                return FORM_POINT, F64.pack(geometry.x) + F64.pack(geometry.y), int(own)
            raw = F64.pack(geometry.x) + F64.pack(geometry.y) + F64.pack(geometry.z)
            return FORM_POINT_ELEVATION, raw, int(own)
        wkb: Any = shapely.to_wkb(geometry, include_srid=False, flavor="iso")
        return FORM_WKB, bytes(wkb), int(own)
    if isinstance(geometry, str):
        form = FORM_GEOJSON if geometry.lstrip().startswith("{") else FORM_TEXT
        return form, geometry.encode(), 0
    if isinstance(geometry, bytes):
        return FORM_WKB, geometry, 0
    if isinstance(geometry, Mapping) and geometry.keys() == {"lat", "lon"}:
        return FORM_POINT, F64.pack(geometry["lon"]) + F64.pack(geometry["lat"]), 0
    described = getattr(geometry, "__geo_interface__", geometry)
    if isinstance(described, Mapping):
        return FORM_GEOJSON, json.dumps(described).encode(), 0
    raise BadGeometry(f"{type(geometry).__name__} is no geometry, WKT or GeoJSON")


def _flat_form(geometry: GeometryLike, epsg: int | None) -> tuple[int, bytes, int]:
    """Find a form that filters and fences know: points with an elevation go without it."""
    form, raw, code = geometry_form(geometry, epsg)
    if form == FORM_POINT_ELEVATION:
        return FORM_POINT, raw[:16], code
    return form, raw, code


def event_geo(
    at: GeometryLike | None, time: TimeLike | None, to: GeometryLike | None, epsg: int | None
) -> Geo:
    """Make the geo part of an event."""
    time_form, time_raw = (0, b"") if time is None else time_form_of(time)
    form, raw, code = (0, b"", WGS84) if at is None else geometry_form(at, epsg)
    if epsg is not None and at is None:
        raise ValueError("epsg says in which system `at` is, and there is none")
    return Geo(
        time_form=time_form,
        time_raw=time_raw,
        geometry_form=form,
        geometry_raw=raw,
        epsg=code,
        extensions=b"" if to is None else _fence(to),
        epsg_sent=code if code != WGS84 else None,
    )


def _fence(to: GeometryLike) -> bytes:
    form, raw, code = _flat_form(to, None)
    if code != WGS84:
        # The extension has no EPSG field of its own, but its text may name one.
        text = shapely.to_wkt(parse_form(form, raw, code, NO_LIMITS).source, rounding_precision=-1)
        form, raw = FORM_TEXT, f"SRID={code};{text}".encode()
    return fence_extension(form, raw)


def time_form_of(time: TimeLike) -> tuple[int, bytes]:
    """Find the wire form of an event's time."""
    if isinstance(time, str):
        parse_event_time(time)
        return 3, time.encode()
    if isinstance(time, tuple):
        start, end = interval_ms(time)
        return 2, I64.pack(start) + I64.pack(end)
    return 1, I64.pack(instant_ms(time))


def instant_ms(instant: Instant) -> int:
    """Turn an instant into Unix milliseconds."""
    if isinstance(instant, datetime):
        if instant.tzinfo is None:
            raise BadTime(f"{instant.isoformat()} has no time zone")
        return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if isinstance(instant, int) and not isinstance(instant, bool) and MIN_MS < instant < MAX_MS:
        return instant
    raise BadTime(f"{instant!r} is no datetime and no number of milliseconds")


def interval_ms(interval: tuple[Instant | None, Instant | None]) -> tuple[int, int]:
    """Turn an interval into Unix milliseconds, with the ends of time for None."""
    if len(interval) != 2:
        raise BadTime("an interval is (start, end)")
    start = MIN_MS if interval[0] is None else instant_ms(interval[0])
    end = MAX_MS if interval[1] is None else instant_ms(interval[1])
    if end < start:
        raise BadTime("interval ends before it starts")
    return start, end


def moment(ms: int) -> datetime:
    """Turn Unix milliseconds into a datetime, at the ends of the calendar if they are beyond."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return (datetime.max if ms > 0 else datetime.min).replace(tzinfo=UTC)


def geo_entry(topic_filter: str, qos: int, conditions: GeoConditions) -> GeoEntry:
    """Make the entry of a GEOSUBSCRIBE, judged as the broker will judge it."""
    unknown = conditions.keys() - GeoConditions.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown condition {min(unknown)!r}")
    temporal_relation, temporal_filter = _temporal(conditions)
    relation, form, geometry, epsg = _spatial(conditions)
    entry = GeoEntry(
        topic_filter,
        temporal_relation,
        temporal_filter,
        relation | (PUBLISHER_FLAG if conditions.get("publisher") else 0),
        form,
        epsg,
        geometry,
        qos,
        _deliver(conditions),
    )
    try:
        from_entry(entry, NO_LIMITS)
    except Refused as error:
        raise ValueError(str(error)) from None
    return entry


def _temporal(conditions: GeoConditions) -> tuple[int, str]:
    if "during" in conditions and "time" in conditions:
        raise ValueError("during and time are two names of one condition")
    during = conditions.get("during", conditions.get("time", ""))
    if isinstance(during, tuple):
        during = format_time(*interval_ms(during))
    if "time_relation" in conditions and not during:
        raise ValueError("a temporal relation without a filter")
    name = conditions.get("time_relation", "intersects" if during else "any")
    if name not in TEMPORAL_RELATIONS:
        raise ValueError(f"unknown temporal relation {name!r}")
    return TEMPORAL_RELATIONS[name], during


def _spatial(conditions: GeoConditions) -> tuple[int, int, bytes, int]:
    """Find relation, form, geometry bytes (operand first) and EPSG code."""
    names = [name for name in (*SPATIAL, "near") if name in conditions]
    if len(names) > 1:
        raise ValueError(
            f"{' and '.join(names)}: a subscription has one spatial condition; "
            "several can be joined in a $geo/ filter"
        )
    epsg = conditions.get("epsg")
    if not names:
        if conditions.get("publisher"):
            raise ValueError("publisher needs a spatial condition")
        # Relation 1, not 0: an unsubscription with all zeros would take the others as well.
        return COVERS, 0, b"", epsg or 0
    [name] = names
    if name == "near":
        return COVERS, FORM_NEAR_ME, F64.pack(conditions["near"]), epsg or 0
    relation, operand, geometry = NUMBERS[name], b"", conditions[name]  # type: ignore[literal-required]
    if relation == DE9IM:
        pattern, geometry = geometry
        operand = pattern.encode()
    elif relation == DWITHIN:
        metres, geometry = geometry
        operand = F64.pack(metres)
    form, raw, code = _flat_form(geometry, epsg)
    return relation, form, operand + raw, 0 if code == WGS84 else code


def _deliver(conditions: GeoConditions) -> int:
    name = conditions.get("deliver", "as published")
    if name not in DELIVER:
        raise ValueError(f"deliver is one of {', '.join(DELIVER)}, not {name!r}")
    return DELIVER[name] | (REPROJECT_FLAG if conditions.get("reproject") else 0)
