"""Geometry text: WKT and EWKT, BBOX, ENVELOPE and BUFFER.

    POINT(8.58 54.51)                       SRID=25832;POINT(294400 5628700)
    BBOX(minx,miny,maxx,maxy)               ENVELOPE(minx,maxx,maxy,miny)
    BUFFER(POINT(8.58 54.51), 500)

Points are read by a pattern of our own; other WKT is looked over for size, nesting and
unknown words before GEOS gets to see it.
"""

import math
import re

import numpy as np
import shapely

from protocol.errors import BadGeometry
from protocol.geometry_crs import WGS84, check_crs, reproject, to_degrees, transform_xy, turn_of
from protocol.geometry_frame import at_home, check_coordinates, guarded, simple_parts, to_place
from protocol.geometry_metres import buffer_metres
from protocol.geometry_place import DEFAULT_LIMITS, Area, Geometry, Limits, Place

# Possessive, so that a long number that is none costs one look and not the square of it.
_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?"
_POINT = re.compile(rf"\s*POINT\s*\(\s*({_NUMBER})\s+({_NUMBER})\s*\)\s*", re.IGNORECASE | re.ASCII)
_BOX = re.compile(r"\s*(BBOX|ENVELOPE)\s*\(([^()]*)\)\s*", re.IGNORECASE | re.ASCII)
_BUFFER = re.compile(r"\s*BUFFER\s*\((.*),([^(),]*)\)\s*", re.IGNORECASE | re.ASCII | re.DOTALL)
_SRID = re.compile(r"\s*SRID\s*=\s*(\d{1,9})\s*;(.*)", re.IGNORECASE | re.ASCII | re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9\s(),.+\-]*", re.ASCII)
_WORD = re.compile(r"(?<![0-9.A-Za-z])[A-Za-z]+", re.ASCII)
_PARENTHESIS = re.compile(r"[()]")
_TYPES = ("POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON")
_WORDS = frozenset((*_TYPES, "GEOMETRYCOLLECTION", "Z", "M", "ZM", "EMPTY"))
_NOT_FINITE = frozenset(("NAN", "INF", "INFINITY"))


class Parsed:
    """A geometry as it was sent, and the place it means.

    `place` is in EPSG:4326; `source` is the geometry in the system `epsg` it came in.
    """

    __slots__ = ("_source", "epsg", "place")

    def __init__(self, place: Place, epsg: int, source: Geometry) -> None:
        self.place = place
        self.epsg = epsg
        self._source = source

    @property
    def source(self) -> Geometry:
        """The shapely geometry as sent; for points it is built when first asked for."""
        if type(self._source) is tuple:
            self._source = shapely.Point(self._source)
        return self._source

    def __repr__(self) -> str:
        return f"Parsed({self.place!r}, epsg={self.epsg})"


def parse_text(text: str, epsg: int = WGS84, limits: Limits = DEFAULT_LIMITS) -> Parsed:
    """Read a geometry text.

    >>> parse_text("POINT(13.405 52.52)").place
    Place(POINT (13.405 52.52))
    >>> parse_text("BBOX(170,-10,-170,10)").place.boxes
    ((170.0, -10.0, 180.0, 10.0), (-180.0, -10.0, -170.0, 10.0))
    >>> parse_text("POLYGON((0 0,1 1,1 0,0 1,0 0))")
    Traceback (most recent call last):
    protocol.errors.BadGeometry: invalid geometry: self-intersection[0.5 0.5]
    """
    if epsg in (WGS84, 0):
        match = _POINT.fullmatch(text)
        if match is not None:
            x, y = float(match[1]), float(match[2])
            return Parsed(Place(x, y), WGS84, (x, y))
    if len(text) > limits.max_bytes:
        raise BadGeometry(f"geometry of {len(text)} characters, limit is {limits.max_bytes}")
    match = _SRID.fullmatch(text)
    if match is not None:
        text = match[2]
        epsg = int(match[1]) or epsg  # 0 is PostGIS for "none"
    epsg = check_crs(epsg)
    match = _BOX.fullmatch(text)
    if match is not None:
        return _parse_box(match[1].upper(), match[2], epsg)
    match = _BUFFER.fullmatch(text)
    if match is not None:
        return _parse_buffer(match[1], match[2], epsg, limits)
    return from_source(_read_wkt(text, limits), epsg)


def from_source(source: Geometry, epsg: int) -> Parsed:
    """Give a geometry in a known system its place."""
    if source is None or source.is_empty or not shapely.get_num_coordinates(source):
        raise BadGeometry("geometry is empty")
    if shapely.has_z(source):
        # Asked of each part: in a mixture shapely fills missing elevations with NaN.
        for part in filter(shapely.has_z, simple_parts(source)):
            if not np.isfinite(shapely.get_coordinates(part, include_z=True)).all():
                raise BadGeometry("coordinate is not a finite number")
    return Parsed(to_place(to_degrees(source, epsg)), epsg, source)


def _read_wkt(text: str, limits: Limits) -> Geometry:
    """Look WKT over, then let GEOS read it."""
    if _PLAIN.fullmatch(text) is None:
        raise BadGeometry("geometry text has a character that is no part of WKT")
    vertices = text.count(",") + 1
    if vertices > limits.max_vertices:
        raise BadGeometry(f"geometry of {vertices} vertices, limit is {limits.max_vertices}")
    depth = 0
    for parenthesis in _PARENTHESIS.findall(text):
        depth += 1 if parenthesis == "(" else -1
        # The rings of a multipolygon stand in three parentheses of their own.
        if depth > limits.max_nesting + 3:
            raise BadGeometry(f"geometry is nested deeper than {limits.max_nesting}")
    for word in _WORD.findall(text):
        if word.upper() in _NOT_FINITE:
            raise BadGeometry("coordinate is not a finite number")
        if word.upper() not in _WORDS:
            raise BadGeometry(f"unsupported geometry type or word {word[:40]}")
    return guarded(shapely.from_wkt, text)


def _parse_box(word: str, numbers: str, epsg: int) -> Parsed:
    try:
        first, second, third, fourth = (_float(part) for part in numbers.split(","))
    except ValueError:
        raise BadGeometry(f"{word} needs four numbers") from None
    if word == "BBOX":
        min_x, min_y, max_x, max_y = first, second, third, fourth
    else:
        min_x, max_x, max_y, min_y = first, second, third, fourth
    source = box_polygon(min_x, min_y, max_x, max_y, epsg)
    if epsg == WGS84 and -180 <= min_x < max_x <= 180 and max_x - min_x <= 180:
        check_coordinates(source)
        return Parsed(Area(source), epsg, source)
    return Parsed(to_place(to_degrees(source, epsg)), epsg, source)


def _float(text: str) -> float:
    # Python reads 1_000 and digits of other scripts too.
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def box_polygon(min_x: float, min_y: float, max_x: float, max_y: float, epsg: int) -> Geometry:
    """Make the polygon of a box that crosses the antimeridian when min_x > max_x.

    A wide box gets vertices along its edges, so that the edge rule reads it as it is meant.

    >>> box_polygon(-120, 0, 120, 10, 4326).wkt
    'POLYGON ((-120 0, 0 0, 120 0, 120 10, 0 10, -120 10, -120 0))'
    """
    if not all(map(math.isfinite, (min_x, min_y, max_x, max_y))):
        raise BadGeometry("coordinate is not a finite number")
    if min_y > max_y:
        raise BadGeometry(f"box has miny {min_y:g} above maxy {max_y:g}")
    turn = turn_of(epsg)
    width = max_x - min_x
    if width < 0:
        if turn is None:
            raise BadGeometry(f"a box in EPSG:{epsg} cannot cross the antimeridian")
        width %= turn
    if width == 0 or min_y == max_y:
        raise BadGeometry("box has no area")
    if turn is None:
        pieces = 1 if _is_narrow(min_x, min_y, max_x, max_y, epsg) else 8
        xs = [min_x + width * piece / pieces for piece in range(pieces)] + [max_x]
    elif width >= turn:
        # The whole parallel: where it begins does not matter any more.
        xs = [-turn / 2, turn / 2]
    else:
        pieces = 1 + math.floor(2 * width / turn)
        inner = [min_x + width * piece / pieces for piece in range(1, pieces)]
        # Vertices between the ends come to where longitudes are at home.
        xs = [min_x, *((x + turn / 2) % turn - turn / 2 for x in inner), max_x]
    south = [(x, min_y) for x in xs]
    north = [(x, max_y) for x in reversed(xs)]
    return shapely.Polygon([*south, *north])


def _is_narrow(min_x: float, min_y: float, max_x: float, max_y: float, epsg: int) -> bool:
    corners = np.array([(min_x, min_y), (max_x, min_y), (max_x, max_y), (min_x, max_y)])
    return float(np.ptp(transform_xy(corners, epsg, WGS84)[:, 0])) < 90.0


def _parse_buffer(inner: str, metres: str, epsg: int, limits: Limits) -> Parsed:
    source = _read_wkt(inner, limits)
    try:
        radius = _float(metres)
    except ValueError:
        raise BadGeometry(f"buffer distance {metres.strip()[:40]!r} is no number") from None
    place = buffer_metres(from_source(source, epsg).place, radius)
    return Parsed(place, epsg, reproject(at_home(place.geometry), WGS84, epsg))
