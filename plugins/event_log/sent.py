"""Geometries as the log keeps them: the one sent as WKB, the one in 4326 inside ±180 degrees.

Only what a point does not say comes here.
"""

import shapely

from protocol.geometry import parse_form
from protocol.geometry_frame import collected, simple_parts
from protocol.geometry_place import NO_LIMITS

# The broker has held the geometry to its limits.


def within_180(wkb: bytes) -> bytes:
    """Cut a geometry that reaches beyond 180 degrees there, and bring that part round.

    >>> shapely.from_wkb(within_180(shapely.to_wkb(shapely.box(170, 0, 190, 10)))).bounds
    (-180.0, 0.0, 180.0, 10.0)
    """
    geometry = shapely.from_wkb(wkb)
    west = shapely.intersection(geometry, shapely.box(-180, -90, 180, 90))
    east = shapely.intersection(geometry, shapely.box(180, -90, 540, 90))
    east = shapely.transform(east, lambda xy: xy - [360.0, 0.0])
    parts = [*simple_parts(west), *simple_parts(east)]
    if geometry.geom_type != "GeometryCollection":
        # What only touches the meridian is less than the whole, and in the other half.
        dimension = shapely.get_dimensions(geometry)
        parts = [part for part in parts if shapely.get_dimensions(part) == dimension]
    return _wkb(collected(parts))


def sent_wkb(form: int, raw: bytes, epsg: int) -> bytes:
    """Make WKB, without an SRID, of a geometry in the system it was sent in."""
    return _wkb(parse_form(form, raw, epsg, NO_LIMITS).source)


def _wkb(geometry: shapely.Geometry) -> bytes:
    return bytes(shapely.to_wkb(geometry))
