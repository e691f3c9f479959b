"""Geometry as clients send it, as the broker matches it, and as it is delivered.

The face of the `geometry_*` modules:

    geometry_place      Place: a geometry in EPSG:4326 on a world without an edge
    geometry_frame      the edge rule and the antimeridian
    geometry_crs        other coordinate reference systems
    geometry_text       WKT, EWKT, BBOX, ENVELOPE, BUFFER
    geometry_forms      the wire forms, WKB and GeoJSON; encoding for delivery
    geometry_metres     circles, buffers, fences that move
    geometry_distance   geodesic distance

Which places match is the matter of `relations`.
"""

from protocol.geometry_crs import WGS84, check_crs, reproject, to_degrees
from protocol.geometry_distance import distance_metres
from protocol.geometry_forms import (
    DELIVER_GEOJSON,
    DELIVER_WKB,
    DELIVER_WKT,
    FORM_GEOJSON,
    FORM_POINT,
    FORM_POINT_ELEVATION,
    FORM_TEXT,
    FORM_WKB,
    encode_geometry,
    parse_form,
    parse_geojson,
    parse_wkb,
)
from protocol.geometry_frame import to_place as _to_place
from protocol.geometry_metres import (
    buffer_metres,
    check_metres,
    circle,
    circle_boxes,
    from_offsets,
    to_offsets,
)
from protocol.geometry_place import DEFAULT_LIMITS, Area, Box, Geometry, Limits, Place
from protocol.geometry_text import Parsed, parse_text

__all__ = [
    "DEFAULT_LIMITS",
    "DELIVER_GEOJSON",
    "DELIVER_WKB",
    "DELIVER_WKT",
    "FORM_GEOJSON",
    "FORM_POINT",
    "FORM_POINT_ELEVATION",
    "FORM_TEXT",
    "FORM_WKB",
    "WGS84",
    "Area",
    "Box",
    "Geometry",
    "Limits",
    "Parsed",
    "Place",
    "buffer_metres",
    "check_crs",
    "check_metres",
    "circle",
    "circle_boxes",
    "distance_metres",
    "encode_geometry",
    "from_offsets",
    "parse_form",
    "parse_geojson",
    "parse_text",
    "parse_wkb",
    "reproject",
    "to_offsets",
    "to_place",
]


def to_place(geometry: Geometry, epsg: int = WGS84) -> Place:
    """Make a place of a shapely geometry in a known system.

    >>> from shapely import box
    >>> to_place(box(8.5, 54.4, 8.7, 54.6)).boxes
    ((8.5, 54.4, 8.7, 54.6),)
    """
    return _to_place(to_degrees(geometry, check_crs(epsg)))
