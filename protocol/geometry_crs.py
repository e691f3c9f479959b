"""Coordinate reference systems by EPSG code: to degrees, between each other, and back.

x is longitude or easting and y latitude or northing in every system, whatever axis order
its authority prefers.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pyproj
import shapely
from numpy.typing import NDArray
from pyproj.exceptions import ProjError

from protocol.errors import BadGeometry, UnknownCrs
from protocol.geometry_place import Geometry

WGS84 = 4326
# How far a world map in Mercator metres is from one antimeridian to the other.
MERCATOR_TURN = 2 * math.pi * 6378137.0
MERCATORS = frozenset({3857, 3395})


@lru_cache(maxsize=256)
def _crs(epsg: int) -> Any:
    """The system of a code, or None: a peer may ask for a wrong one again and again."""
    try:
        crs = pyproj.CRS.from_epsg(epsg)
    except (ProjError, OverflowError):
        return None
    return crs if crs.is_geographic or crs.is_projected else None


@lru_cache(maxsize=256)
def _transformer(from_epsg: int, to_epsg: int) -> Any:
    for epsg in (from_epsg, to_epsg):
        if _crs(epsg) is None:
            return None
    try:
        return pyproj.Transformer.from_crs(_crs(from_epsg), _crs(to_epsg), always_xy=True)
    except ProjError:
        return None


def check_crs(epsg: int) -> int:
    """Return a known code, 4326 for 0, or raise UnknownCrs.

    >>> check_crs(0), check_crs(25832)
    (4326, 25832)
    """
    if epsg in (0, WGS84):
        return WGS84
    if _crs(epsg) is None:
        raise UnknownCrs(f"unknown coordinate reference system EPSG:{epsg}")
    return epsg


def turn_of(epsg: int) -> float | None:
    """How far x goes once round the world; None where it cannot."""
    if epsg == WGS84:
        return 360.0
    if epsg in MERCATORS:
        return MERCATOR_TURN
    crs = _crs(epsg)
    return 360.0 if crs.is_geographic and "degree" in crs.axis_info[0].unit_name else None


def transform_xy(xy: NDArray[np.float64], from_epsg: int, to_epsg: int) -> NDArray[np.float64]:
    """Transform coordinates; what has no place in the target system is bad geometry."""
    transformer = _transformer(from_epsg, to_epsg)
    if transformer is None:
        raise UnknownCrs(f"cannot transform EPSG:{from_epsg} to EPSG:{to_epsg}")
    try:
        x, y = transformer.transform(xy[:, 0], xy[:, 1])
    except ProjError as error:
        raise BadGeometry(f"coordinates do not fit EPSG:{from_epsg}: {error}") from None
    result = np.column_stack((x, y))
    if not np.isfinite(result).all():
        raise BadGeometry(f"coordinates do not fit EPSG:{from_epsg}")
    return result


def to_degrees(geometry: Geometry, epsg: int) -> Geometry:
    """Bring a geometry to EPSG:4326, in two dimensions unless it is there already."""
    if epsg == WGS84:
        return geometry
    if not np.isfinite(shapely.get_coordinates(geometry)).all():
        raise BadGeometry("coordinate is not a finite number")
    return shapely.transform(geometry, lambda xy: _snapped(transform_xy(xy, epsg, WGS84)))


def _snapped(xy: NDArray[np.float64]) -> NDArray[np.float64]:
    # The edge of a world map must come out as 180 exactly: an edge of 360 degrees is the
    # whole parallel, one of 359.99999999999997 would be next to nothing.
    x = xy[:, 0]
    edge = np.abs(np.abs(x) - 180.0) < 1e-9
    x[edge] = np.copysign(180.0, x[edge])
    return xy


def reproject(source: Geometry, from_epsg: int, to_epsg: int) -> Geometry:
    """Bring a geometry from one system to another for delivery; elevations stay.

    >>> point = reproject(shapely.Point(7.0, 51.0), 4326, 25832)
    >>> round(point.x), round(point.y)
    (359667, 5651729)
    """
    from_epsg, to_epsg = check_crs(from_epsg), check_crs(to_epsg)
    if from_epsg == to_epsg:
        return source
    if shapely.has_z(source):
        return shapely.transform(
            shapely.force_3d(source),
            lambda xyz: np.column_stack((transform_xy(xyz[:, :2], from_epsg, to_epsg), xyz[:, 2])),
            include_z=True,
        )
    return shapely.transform(source, lambda xy: transform_xy(xy, from_epsg, to_epsg))
