"""Events as they are shown: GeoJSON features, JSON objects, CSV rows.

Events with a place are features, the others plain objects; either alone on a line is the
newline-delimited form. A payload that is no UTF-8 is shown in base64, under another name,
so that nothing is lost. Places are in WGS 84 and cut at the antimeridian, as RFC 7946
wants it.
"""

import base64
import csv
import io
from typing import Any, Literal

import msgspec
import shapely

from plugins.event_log.reader import Event
from protocol.geometry import Geometry, Place
from protocol.message import Message
from protocol.temporal import format_time
from protocol.values import value

# A point of two numbers needs no geometry to be shown.
_Shown = Geometry | tuple[float, float]
Kind = Literal["json", "csv"]  # of one event; a feature if it has a place

COLUMNS = (
    "id",
    "time",
    "received",
    "topic",
    "client",
    "qos",
    "retain",
    "geometry",
    "payload",
    "payload_base64",
)
FEATURES = b'{"type":"FeatureCollection","features":['


@value
class Framing:
    """What stands before, between and behind the events of an answer."""

    media_type: str
    kind: Kind
    head: bytes
    between: bytes
    tail: bytes
    closes: bool = False  # the tail stands there even if there are no events


GEOJSON = Framing("application/geo+json", "json", FEATURES, b",\n", b"]}\n", closes=True)
JSON = Framing("application/json", "json", b"[", b",\n", b"]\n", closes=True)
LINES = Framing("application/x-ndjson", "json", b"", b"\n", b"\n")
CSV = Framing(
    "text/csv; charset=utf-8; header=present",
    "csv",
    ",".join(COLUMNS).encode() + b"\r\n",
    b"\r\n",
    b"\r\n",
)


def whole(framing: Framing, shown: list[bytes]) -> bytes:
    """Make an answer of events that are all there."""
    tail = framing.tail if shown or framing.closes else b""
    return framing.head + framing.between.join(shown) + tail


def shape_event(event: Event, kind: Kind) -> bytes:
    """Show an event of the log."""
    geometry: _Shown | None = None
    if event.min_x is not None and event.min_y is not None:
        if event.wkb is None:
            geometry = _point(event.min_x, event.min_y)
        else:
            geometry = shapely.from_wkb(event.wkb)
    return _shape(
        kind,
        str(event.cursor),
        geometry,
        {
            "topic": event.topic,
            "client": event.client_id,
            "qos": event.qos,
            "retain": bool(event.retain),
            "time": format_time(event.start_ms, event.end_ms),
            "received": format_time(event.received_ms, event.received_ms),
        },
        event.payload,
    )


def shape_message(message: Message, kind: Kind, event_id: str = "") -> bytes:
    """Show a message as it happens."""
    geo = message.geo
    received_ms = message.received_ms
    start_ms, end_ms = geo.time if geo is not None and geo.time else (received_ms, received_ms)
    return _shape(
        kind,
        event_id,
        None if geo is None or geo.place is None else geometry_of(geo.place),
        {
            "topic": message.topic,
            "client": message.client_id,
            "qos": message.qos,
            "retain": message.retain,
            "time": format_time(start_ms, end_ms),
            "received": format_time(received_ms, received_ms),
        },
        message.payload,
    )


def shape_place(place: Place, properties: dict[str, Any]) -> bytes:
    """Show a place that is no event."""
    return msgspec.json.encode(
        {
            "type": "Feature",
            "geometry": _geojson(geometry_of(place)),
            "properties": properties,
        }
    )


def geometry_of(place: Place) -> _Shown:
    """Give what is shown of a place."""
    return _point(place.x, place.y) if place.is_point and place.z is None else place.geometry


def _point(x: float, y: float) -> tuple[float, float]:
    return (x, y)


def _shape(
    kind: Kind, event_id: str, geometry: _Shown | None, properties: dict[str, Any], payload: bytes
) -> bytes:
    try:
        properties["payload"] = payload.decode()
    except UnicodeDecodeError:
        properties["payload_base64"] = base64.b64encode(payload).decode()
    if kind == "csv":
        return _row(event_id, geometry, properties)
    named: dict[str, Any] = {"id": event_id} if event_id else {}
    if geometry is None:
        return msgspec.json.encode(named | properties)
    return msgspec.json.encode(
        named | {"type": "Feature", "geometry": _geojson(geometry), "properties": properties}
    )


def with_id(shown: bytes, event_id: str) -> bytes:
    """Give a JSON object that was shown without one its id."""
    return b'{"id":' + msgspec.json.encode(event_id) + b"," + shown[1:]


def _row(event_id: str, geometry: _Shown | None, properties: dict[str, Any]) -> bytes:
    text = io.StringIO()
    cells = properties | {"id": event_id, "retain": int(properties["retain"])}
    if geometry is not None:
        if isinstance(geometry, tuple):
            cells["geometry"] = f"POINT ({geometry[0]!r} {geometry[1]!r})"
        else:
            cells["geometry"] = shapely.to_wkt(_cut(geometry), rounding_precision=17)
    csv.writer(text, lineterminator="").writerow([cells.get(column, "") for column in COLUMNS])
    return text.getvalue().encode()


def _geojson(geometry: _Shown) -> Any:
    if isinstance(geometry, tuple):
        return {"type": "Point", "coordinates": geometry}
    return msgspec.Raw(str(shapely.to_geojson(_cut(geometry))).encode())


def _cut(geometry: Geometry) -> Geometry:
    """Cut what reaches beyond the antimeridian there, and write its other half at home."""
    if geometry.bounds[2] <= 180.0:
        return geometry
    here = shapely.intersection(geometry, shapely.box(-180.0, -90.0, 180.0, 90.0))
    beyond = shapely.intersection(geometry, shapely.box(180.0, -90.0, 540.0, 90.0))
    beyond = shapely.transform(beyond, lambda xy: xy - (360.0, 0.0))
    parts = [
        part
        for half in (here, beyond)
        for part in shapely.get_parts(half)
        if shapely.get_dimensions(part) == shapely.get_dimensions(geometry)
    ]
    return _collected(parts)


def _collected(parts: list[Geometry]) -> Geometry:
    kinds = {part.geom_type for part in parts}
    if len(parts) == 1:
        return parts[0]
    if kinds == {"Polygon"}:
        return shapely.multipolygons(parts)
    if kinds == {"LineString"}:
        return shapely.multilinestrings(parts)
    if kinds == {"Point"}:
        return shapely.multipoints(parts)
    return shapely.geometrycollections(parts)
