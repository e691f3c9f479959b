"""The forms a geometry has on the wire: points, text, WKB and GeoJSON, in and out.

WKB and GeoJSON are walked over for size, nesting, types and closed rings before shapely
builds anything of them. Whatever the bytes, the only errors are BadGeometry and UnknownCrs.
"""

import json
import math
import struct
from typing import Any

import numpy as np
import shapely

from protocol.errors import BadGeometry
from protocol.geometry_crs import WGS84, check_crs
from protocol.geometry_frame import guarded
from protocol.geometry_place import DEFAULT_LIMITS, Geometry, Limits, Place
from protocol.geometry_text import Parsed, from_source, parse_text

FORM_POINT, FORM_POINT_ELEVATION, FORM_TEXT, FORM_WKB, FORM_GEOJSON = 1, 2, 3, 4, 5
DELIVER_WKT, DELIVER_GEOJSON, DELIVER_WKB = 2, 3, 4

EVERY_DIGIT = 100  # decimals; what is written is the shortest text that reads the same

_XY = struct.Struct(">dd")
_XYZ = struct.Struct(">ddd")


def parse_form(
    form: int, data: bytes, epsg: int = WGS84, limits: Limits = DEFAULT_LIMITS
) -> Parsed:
    """Read the geometry of a wire form.

    >>> parse_form(1, bytes.fromhex("402acf5c28f5c28f 404a428f5c28f5c3")).place
    Place(POINT (13.405 52.52))
    """
    if form == FORM_POINT:
        if len(data) != 16:
            raise BadGeometry(f"point of {len(data)} bytes instead of 16")
        x, y = _XY.unpack(data)
        if epsg in (WGS84, 0):
            return Parsed(Place(x, y), WGS84, (x, y))
        return _parse_point((x, y), epsg)
    if form == FORM_POINT_ELEVATION:
        if len(data) != 24:
            raise BadGeometry(f"point with elevation of {len(data)} bytes instead of 24")
        x, y, z = _XYZ.unpack(data)
        if not math.isfinite(z):
            raise BadGeometry("elevation is not a finite number")
        if epsg in (WGS84, 0):
            return Parsed(Place(x, y, z), WGS84, (x, y, z))
        return _parse_point((x, y, z), epsg)
    if form == FORM_TEXT:
        return parse_text(_text(data), epsg, limits)
    if form == FORM_WKB:
        return parse_wkb(data, epsg, limits)
    if form == FORM_GEOJSON:
        return parse_geojson(data, epsg, limits)
    raise BadGeometry(f"unknown geometry form {form}")


def _parse_point(coordinates: tuple[float, ...], epsg: int) -> Parsed:
    epsg = check_crs(epsg)
    if not all(map(math.isfinite, coordinates)):
        raise BadGeometry("coordinate is not a finite number")
    return from_source(shapely.Point(coordinates), epsg)


def _text(data: bytes) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise BadGeometry("geometry text is not valid utf-8") from None


# WKB

_WKB_TYPES = {1: "point", 2: "line", 3: "polygon", 4: "multi", 5: "multi", 6: "multi", 7: "multi"}
_MEMBERS = {4: 1, 5: 2, 6: 3}  # what the parts of a multi-geometry must be
_EWKB_Z, _EWKB_M, _EWKB_SRID = 0x80000000, 0x40000000, 0x20000000


def parse_wkb(data: bytes, epsg: int = WGS84, limits: Limits = DEFAULT_LIMITS) -> Parsed:
    """Read WKB, ISO or extended; an SRID in it overrides the EPSG code given."""
    if len(data) > limits.max_bytes:
        raise BadGeometry(f"geometry of {len(data)} bytes, limit is {limits.max_bytes}")
    data = bytes(data)
    walker = _WkbWalker(data, limits)
    try:
        walker.walk(0, None)
    except struct.error:
        raise BadGeometry("wkb ends too early") from None
    if walker.offset != len(data):
        raise BadGeometry(f"{len(data) - walker.offset} bytes after the end of the wkb")
    epsg = check_crs(walker.srid or epsg)
    source = guarded(shapely.from_wkb, data)
    return from_source(shapely.set_srid(source, 0), epsg)


class _WkbWalker:
    """Steps over WKB from header to header, without building anything."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.data = data
        self.limits = limits
        self.offset = 0
        self.vertices = 0
        self.srid = 0

    def walk(self, depth: int, wanted: int | None) -> None:
        if depth > self.limits.max_nesting:
            raise BadGeometry(f"geometry is nested deeper than {self.limits.max_nesting}")
        order = self.data[self.offset : self.offset + 1]
        if order not in (b"\x00", b"\x01"):
            raise BadGeometry("wkb has no byte order" if order else "wkb ends too early")
        endian = "<" if order == b"\x01" else ">"
        self.offset += 1
        (word,) = self._read(endian + "I")
        kind, dimensions = word & 0x1FFFFFFF, 2
        if kind >= 4000:
            raise BadGeometry(f"unknown wkb type {word}")
        iso, kind = divmod(kind, 1000)
        dimensions += (iso in (1, 3) or bool(word & _EWKB_Z)) + (
            iso in (2, 3) or bool(word & _EWKB_M)
        )
        if kind not in _WKB_TYPES or (wanted is not None and kind != wanted):
            raise BadGeometry(f"unsupported wkb type {kind}")
        if word & _EWKB_SRID:
            (srid,) = self._read(endian + "I")
            if depth and srid not in (0, self.srid):
                raise BadGeometry("parts of the geometry name different srids")
            self.srid = srid if depth == 0 else self.srid
        self._body(kind, endian, 8 * dimensions, depth)

    def _body(self, kind: int, endian: str, size: int, depth: int) -> None:
        if kind == 1:
            self._skip(1, size)
            return
        (count,) = self._read(endian + "I")
        if kind == 2:
            self._skip(count, size)
        elif count > self.limits.max_vertices:
            raise BadGeometry(f"geometry of {count} parts, limit is {self.limits.max_vertices}")
        elif kind == 3:
            for _ in range(count):
                (length,) = self._read(endian + "I")
                self._skip(length, size)
        else:
            for _ in range(count):
                self.walk(depth + 1, _MEMBERS.get(kind))

    def _read(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self.data, self.offset)
        self.offset += struct.calcsize(layout)
        return values

    def _skip(self, vertices: int, size: int) -> None:
        self.vertices += vertices
        if self.vertices > self.limits.max_vertices:
            raise BadGeometry(
                f"geometry of {self.vertices} vertices, limit is {self.limits.max_vertices}"
            )
        self.offset += vertices * size
        if self.offset > len(self.data):
            raise BadGeometry("wkb ends too early")


# GeoJSON


def parse_geojson(
    data: bytes | str | dict[str, Any], epsg: int = WGS84, limits: Limits = DEFAULT_LIMITS
) -> Parsed:
    """Read a GeoJSON geometry, or the geometry of a Feature.

    >>> parse_geojson('{"type": "Point", "coordinates": [13.405, 52.52]}').place
    Place(POINT (13.405 52.52))
    """
    if isinstance(data, bytes | bytearray | memoryview):
        data = _text(bytes(data[: limits.max_bytes + 1]))
    if isinstance(data, str):
        if len(data) > limits.max_bytes:
            raise BadGeometry(f"geometry of more than {limits.max_bytes} characters")
        try:
            data = json.loads(data)
        except (ValueError, RecursionError):
            raise BadGeometry("not valid json") from None
    epsg = check_crs(epsg)
    if isinstance(data, dict) and data.get("type") == "Feature":
        data = data.get("geometry")  # type: ignore[assignment]
    return from_source(_GeoJson(limits).read(data, 0), epsg)


class _GeoJson:
    """Builds shapely geometries of GeoJSON objects that it has looked over."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.vertices = 0

    def read(self, node: Any, depth: int) -> Geometry:
        if depth > self.limits.max_nesting:
            raise BadGeometry(f"geometry is nested deeper than {self.limits.max_nesting}")
        if not isinstance(node, dict):
            raise BadGeometry("geojson geometry is not an object")
        kind = node.get("type")
        if kind == "GeometryCollection":
            parts = [self.read(part, depth + 1) for part in _items(node.get("geometries"))]
            return guarded(shapely.geometrycollections, parts)
        coordinates = node.get("coordinates")
        if kind == "Point":
            return guarded(shapely.Point, self._positions([coordinates])[0])
        if kind == "MultiPoint":
            return guarded(shapely.multipoints, self._positions(coordinates))
        if kind == "LineString":
            return guarded(shapely.LineString, self._positions(coordinates))
        if kind == "MultiLineString":
            lines = [
                guarded(shapely.LineString, self._positions(line)) for line in _items(coordinates)
            ]
            return guarded(shapely.multilinestrings, lines)
        if kind == "Polygon":
            return self._polygon(coordinates)
        if kind == "MultiPolygon":
            return guarded(
                shapely.multipolygons, [self._polygon(rings) for rings in _items(coordinates)]
            )
        raise BadGeometry(f"unsupported geojson type {str(kind)[:40]}")

    def _polygon(self, coordinates: Any) -> Geometry:
        rings = [self._positions(ring) for ring in _items(coordinates)]
        for ring in rings:
            # Shapely would close the ring in silence.
            if len(ring) < 4 or (ring[0][:2] != ring[-1][:2]).any():
                raise BadGeometry("ring is not closed or has fewer than four positions")
        return guarded(shapely.Polygon, rings[0], rings[1:])

    def _positions(self, coordinates: Any) -> Any:
        positions = _items(coordinates)
        self.vertices += len(positions)
        if self.vertices > self.limits.max_vertices:
            raise BadGeometry(f"geometry of more than {self.limits.max_vertices} vertices")
        for position in positions:
            if not isinstance(position, list | tuple) or len(position) < 2:
                raise BadGeometry("geojson position is not a list of two or three numbers")
            for ordinate in position:
                if type(ordinate) not in (int, float):
                    raise BadGeometry("geojson ordinate is not a number")
        size = 3 if all(len(position) > 2 for position in positions) else 2
        try:
            result = np.array([position[:size] for position in positions], dtype=np.float64)
        except OverflowError:
            raise BadGeometry("coordinate is not a finite number") from None
        if not np.isfinite(result).all():
            raise BadGeometry("coordinate is not a finite number")
        return result


def _items(node: Any) -> Any:
    if not isinstance(node, list | tuple):
        raise BadGeometry("geojson coordinates are not a list")
    if not node:
        raise BadGeometry("geometry is empty")
    return node


# Out


def encode_geometry(geometry: Geometry, deliver: int) -> bytes:
    """Write a geometry in a form that a subscription asks for, without an SRID.

    >>> encode_geometry(shapely.Point(13.405, 52.52), DELIVER_WKT)
    b'POINT (13.405 52.52)'
    """
    if deliver == DELIVER_WKT:
        return str(shapely.to_wkt(geometry, rounding_precision=EVERY_DIGIT)).encode()
    if deliver == DELIVER_GEOJSON:
        return str(shapely.to_geojson(geometry)).encode()
    if deliver == DELIVER_WKB:
        data: Any = shapely.to_wkb(geometry, include_srid=False, flavor="iso")
        return bytes(data)
    raise ValueError(f"no geometry encoding {deliver}")
