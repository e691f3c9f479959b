"""Metres on the ellipsoid: circles, buffers, distances, and fences that move with a client.

Everything here is geodesic on WGS 84. Round one centre the ellipsoid is drawn flat by
azimuth and distance (the azimuthal equidistant picture, exact along every ray from the
centre); shapely draws buffers in that picture and the geodesics bring them back.
"""

import math
from itertools import pairwise

import numpy as np
import pyproj
import shapely

from protocol.errors import BadGeometry
from protocol.geometry_frame import (
    FULL_TURN,
    Floats,
    assemble,
    shift,
    simple_parts,
    unrolled_path,
)
from protocol.geometry_place import Area, Box, Geometry, Place

GEOD = pyproj.Geod(ellps="WGS84")
EARTH_RADIUS = 6371008.8
MAX_METRES = 20_037_508.0  # half the equator
# From here on a circle reaches round the world to the neighbourhood of its antipode,
# where the shortest way is no longer one way.
WHOLE_WORLD = 19_900_000.0
QUARTER_SEGMENTS = 32  # a circle of 128 corners lacks 0.03 % of its radius between them
NEAR_POLE_CORNERS = 1024
WIDE_STEP = 3.0  # degrees of longitude between two corners
_AZIMUTHS = np.linspace(0.0, 360.0, 4 * QUARTER_SEGMENTS, endpoint=False)
_ONES = np.ones_like(_AZIMUTHS)
_WORLD = (-180.0, -90.0, 180.0, 90.0)


def check_metres(metres: float) -> float:
    """Refuse a distance that is none."""
    if not math.isfinite(metres) or metres < 0:
        raise BadGeometry(f"distance of {metres:g} metres")
    if metres > MAX_METRES:
        raise BadGeometry(f"distance of {metres:g} metres is more than half round the world")
    return metres


# Flat pictures


def flatten(xy: Floats, x: float, y: float) -> Floats:
    """Draw degrees as metres east and north of a centre."""
    n = len(xy)
    azimuths, _, distances = GEOD.inv(np.full(n, x), np.full(n, y), xy[:, 0], xy[:, 1])
    angles = np.radians(azimuths)
    return np.column_stack((distances * np.sin(angles), distances * np.cos(angles)))


def unflatten(metres: Floats, x: float, y: float) -> Floats:
    """Bring metres east and north of a centre back to degrees in [-180, 180]."""
    n = len(metres)
    azimuths = np.degrees(np.arctan2(metres[:, 0], metres[:, 1]))
    distances = np.hypot(metres[:, 0], metres[:, 1])
    lon, lat, _ = GEOD.fwd(np.full(n, x), np.full(n, y), azimuths, distances)
    return np.column_stack((lon, lat))


def _area_of(flat: Geometry, x: float, y: float, *, drawn: bool) -> list[Geometry]:
    """Bring a polygon in a flat picture back to degrees, with a pole inside it or without.

    What was drawn in the picture has its true edges there; what came from degrees has only
    its corners there.
    """
    if not shapely.get_num_interior_rings(flat):
        return _filled(flat, x, y, drawn=drawn)
    shell = shapely.union_all(_filled(shapely.Polygon(flat.exterior), x, y, drawn=drawn))
    holes = [
        shift(hole, turns)
        for ring in flat.interiors
        for hole in _filled(shapely.Polygon(ring), x, y, drawn=drawn)
        for turns in (-1, 0, 1)
    ]
    return simple_parts(shapely.difference(shell, shapely.union_all(holes)))


def _filled(flat: Geometry, x: float, y: float, *, drawn: bool) -> list[Geometry]:
    path = unrolled_path(unflatten(shapely.get_coordinates(flat.exterior), x, y))
    north = south = False
    if abs(y) + math.degrees(max(map(abs, flat.bounds)) * math.sqrt(2) / EARTH_RADIUS) > 88.0:
        north, south = (
            bool(shapely.contains_xy(flat, *flatten(np.array([(0.0, pole)]), x, y)[0]))
            for pole in (90.0, -90.0)
        )
    if north or south or (drawn and np.abs(np.diff(path[:, 0])).max() > WIDE_STEP):
        # So near a pole an edge and the line between its ends in degrees are far apart.
        flat = shapely.segmentize(flat, flat.length / NEAR_POLE_CORNERS)
        path = unrolled_path(unflatten(shapely.get_coordinates(flat.exterior), x, y))
    return _enclosed(path, north=north, south=south)


def _enclosed(path: Floats, *, north: bool, south: bool) -> list[Geometry]:
    """What an unrolled ring encloses, told which poles lie inside."""
    ring: Geometry
    winding = round((path[-1, 0] - path[0, 0]) / FULL_TURN)
    if winding:
        # The ring goes once round: the area lies between it and the pole.
        path[-1] = (path[0, 0] + FULL_TURN * winding, path[0, 1])
        pole = 90.0 if north or (not south and path[:, 1].mean() > 0) else -90.0
        lid = np.array([(path[-1, 0], pole), (path[0, 0], pole)])
        ring = shapely.Polygon(np.concatenate((path, lid)))
    else:
        path[-1] = path[0]
        ring = shapely.Polygon(path)
    ring = shapely.make_valid(ring, method="structure", keep_collapsed=False)
    if north and south and not winding:
        around = [shift(ring, turns) for turns in (-1, 0, 1)]
        ring = shapely.difference(shapely.box(*_WORLD), shapely.union_all(around))
    return [part for part in simple_parts(ring) if part.geom_type == "Polygon"]


# Circles


def circle(x: float, y: float, metres: float) -> Place:
    """Draw the circle of a radius round a point, as a polygon of 128 corners.

    >>> [round(edge, 3) for edge in circle(180.0, 0.0, 111_195.0).bounds]
    [179.001, -1.006, 180.999, 1.006]
    """
    if check_metres(metres) == 0:
        raise BadGeometry("circle of 0 metres has no area")
    centre = Place(x, y)
    x, y = centre.x, centre.y
    if metres >= WHOLE_WORLD:
        return Area(shapely.box(*_WORLD), wraps=True)
    if abs(y) + math.degrees(metres / EARTH_RADIUS) > 88.0:
        # A pole is inside or near: the long way, which knows how to draw there.
        angles = np.radians(_AZIMUTHS)
        flat = shapely.Polygon(metres * np.column_stack((np.sin(angles), np.cos(angles))))
        # What is drawn here cannot overlap, and rounding at a pole must not look like it.
        return assemble(_home(_filled(flat, x, y, drawn=True)), overlapping=True)
    lon, lat, _ = GEOD.fwd(_ONES * x, _ONES * y, _AZIMUTHS, _ONES * metres)
    path = unrolled_path(np.column_stack((lon, lat)))
    return assemble(_home([shapely.Polygon(path)]))


def circle_boxes(x: float, y: float, metres: float) -> tuple[Box, ...]:
    """One or two boxes inside [-180, 180] that cover a circle, without drawing it.

    >>> [round(edge, 2) for edge in circle_boxes(8.0, 60.0, 111_000.0)[0]]
    [5.99, 59.0, 10.01, 61.0]
    """
    # The smallest radii of curvature make the box too large rather than too small.
    reach_y = math.degrees(metres / 6335439.0)
    south, north = y - reach_y, y + reach_y
    if north >= 90.0 or south <= -90.0:
        return ((-180.0, max(south, -90.0), 180.0, min(north, 90.0)),)
    ratio = math.sin(metres / 6335439.0) / math.cos(math.radians(y))
    # Near the pole the widest place of a circle is above its centre.
    reach_x = math.degrees(math.asin(ratio)) * 1.0001 if 0 <= ratio < 1 else 180.0
    if reach_x >= 179.0:
        return ((-180.0, south, 180.0, north),)
    west, east = x - reach_x, x + reach_x
    if west < -180.0:
        return ((-180.0, south, east, north), (west + FULL_TURN, south, 180.0, north))
    if east >= 180.0:
        return ((west, south, 180.0, north), (-180.0, south, east - FULL_TURN, north))
    return ((west, south, east, north),)


def _home(parts: list[Geometry]) -> list[Geometry]:
    return [shift(part, -math.floor((part.bounds[0] + 180.0) / FULL_TURN)) for part in parts]


# Buffers

CHUNK = 50_000.0  # metres of a line that are drawn in one picture, at least
MAX_CHUNKS = 128
MAX_CORNERS = 20_000
# Beyond these a buffer takes seconds.
MAX_PARTS = 1_000
MAX_LENGTH = 1e9  # metres: 25 times round the world


def buffer_metres(place: Place, metres: float) -> Place:
    """Widen a place by metres in every direction.

    >>> from protocol.geometry_frame import to_place
    >>> line = to_place(shapely.from_wkt("LINESTRING(8 54, 8 55)"))
    >>> [round(edge, 2) for edge in buffer_metres(line, 10_000).bounds]
    [7.84, 53.91, 8.16, 55.09]
    """
    check_metres(metres)
    if place.is_point:
        return circle(place.x, place.y, metres)
    if metres == 0:
        if shapely.get_dimensions(place.geometry) < 2:
            raise BadGeometry("buffer of 0 metres has no area")
        return place
    if metres >= WHOLE_WORLD:
        return Area(shapely.box(*_WORLD), wraps=True)
    wholes = simple_parts(place.geometry)
    if len(wholes) > MAX_PARTS:
        raise BadGeometry(f"buffer of {len(wholes)} parts, limit is {MAX_PARTS}")
    paths = [path for part in wholes for path in paths_of(part)]
    if sum(float(_lengths(path).sum()) for path in paths) > MAX_LENGTH:
        raise BadGeometry(f"buffer of lines of more than {MAX_LENGTH / 1000:.0f} km")
    parts: list[Geometry] = []
    for part in wholes:
        parts += _buffered(part, metres)
    return assemble(_home(parts), overlapping=True)


def _buffered(part: Geometry, metres: float) -> list[Geometry]:
    """Widen one point, line or polygon, in as many pictures as its size asks for."""
    # An edge is straight in degrees and bends in a flat picture: corners are put in until
    # it bends less than this between them.
    bend = max(metres * 2e-4, 0.05)
    paths = [_cornered(path, bend) for path in paths_of(part)]
    length = sum(float(_lengths(path).sum()) for path in paths)
    chunk = max(CHUNK, metres / 4, length / MAX_CHUNKS)
    if length <= chunk:
        x, y = shapely.get_coordinates(part.envelope.centroid)[0]
        flat = shapely.transform(
            _drawn_again(part, paths), lambda xy: flatten(xy, float(x), float(y))
        )
        if flat.geom_type == "Polygon":
            flat = shapely.make_valid(flat, method="structure", keep_collapsed=False)
        return _widened(flat, metres, x, y)
    result = [part] if part.geom_type == "Polygon" else []
    for path in paths:
        ends = np.floor(np.cumsum(_lengths(path)) / chunk)
        cuts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(path) - 1]
        for first, last in pairwise(cuts):
            piece = path[first : last + 1]
            x, y = piece[len(piece) // 2]
            result += _widened(shapely.LineString(flatten(piece, x, y)), metres, x, y)
    return result


def _widened(flat: Geometry, metres: float, x: float, y: float) -> list[Geometry]:
    wide = shapely.buffer(flat, metres, quad_segs=QUARTER_SEGMENTS)
    return [area for part in simple_parts(wide) for area in _area_of(part, x, y, drawn=True)]


def paths_of(part: Geometry) -> list[Floats]:
    if part.geom_type == "Polygon":
        return [shapely.get_coordinates(ring) for ring in (part.exterior, *part.interiors)]
    return [shapely.get_coordinates(part)]


def _drawn_again(part: Geometry, paths: list[Floats]) -> Geometry:
    if part.geom_type == "Polygon":
        return shapely.Polygon(paths[0], paths[1:])
    return shapely.Point(paths[0][0]) if part.geom_type == "Point" else shapely.LineString(paths[0])


def _lengths(path: Floats) -> Floats:
    """Roughly how long the edges of a path are, in metres."""
    steps = np.diff(path, axis=0)
    middles = np.radians((path[1:, 1] + path[:-1, 1]) / 2)
    lengths: Floats = np.radians(np.hypot(steps[:, 0] * np.cos(middles), steps[:, 1]))
    return lengths * EARTH_RADIUS


def _cornered(path: Floats, bend: float) -> Floats:
    """Put corners into the edges of a path until none bends more than so many metres."""
    steepness = math.tan(math.radians(min(float(np.abs(path[:, 1]).max()), 89.9)))
    step = math.sqrt(8 * EARTH_RADIUS * bend / max(steepness, 0.1))
    return stepped(path, step)


def stepped(path: Floats, step: float) -> Floats:
    """Put corners into the edges of a path so that none is longer than so many metres."""
    lengths = _lengths(path)
    if not len(lengths):
        return path
    step = max(step, float(lengths.sum()) / MAX_CORNERS)
    counts = np.maximum(np.ceil(lengths / step).astype(int), 1)
    if counts.max() == 1:
        return path
    starts = np.repeat(np.arange(len(counts)), counts)
    within = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
    share = (within / np.repeat(counts, counts))[:, None]
    inner: Floats = path[starts] + share * (path[starts + 1] - path[starts])
    return np.concatenate((inner, path[-1:]))


# Fences that move


def to_offsets(place: Place, lat: float, lon: float) -> Geometry:
    """Describe a place as metres east and north of a location.

    >>> from protocol.geometry_frame import to_place
    >>> fence = to_place(shapely.box(8.0, 54.0, 8.1, 54.1))
    >>> moved = from_offsets(to_offsets(fence, 54.0, 8.0), 0.0, 179.99)
    >>> [round(edge, 3) for edge in moved.bounds]
    [179.99, 0.0, 180.049, 0.101]
    """
    return shapely.transform(place.geometry, lambda xy: flatten(xy, lon, lat))


def from_offsets(offsets: Geometry, lat: float, lon: float) -> Place:
    """Place metres east and north round another location."""
    centre = Place(lon, lat)
    parts: list[Geometry] = []
    for part in simple_parts(offsets):
        if part.geom_type == "Polygon":
            parts += _area_of(part, centre.x, centre.y, drawn=False)
        else:
            path = unrolled_path(unflatten(shapely.get_coordinates(part), centre.x, centre.y))
            parts.append(shapely.Point(path[0]) if len(path) == 1 else shapely.LineString(path))
    return assemble(_home(parts), overlapping=True)
