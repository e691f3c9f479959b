"""From longitudes as people write them to one connected frame, and between frames.

`to_place` applies the edge rule to a geometry in degrees: an edge of more than 180 and
less than 360 degrees goes the short way, over the antimeridian; an edge of exactly 360 is
the whole parallel. Parts that meet at the antimeridian become one, a ring that does not
return to its start runs round a pole and is refused.

`aligned` brings two places into one plane, cut where it does no harm, so that planar
predicates of the two geometries are right on the cylinder.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.errors import ShapelyError

from protocol.errors import BadGeometry
from protocol.geometry_crossings import check_crossings
from protocol.geometry_place import DECIMALS, Area, Geometry, Place

Floats = NDArray[np.float64]
Interval = tuple[float, float]

POINT, LINE, RING, POLYGON = 0, 1, 2, 3  # shapely's type numbers
FULL_TURN = 360.0
MAX_TURNS = 64  # a satellite's day is 16; every turn costs, and a number can name 10^300 of them
GRID = 10.0**-DECIMALS  # what is cut and joined again is rounded like what is moved
# Where in a gap between vertices to cut: off its middle, because symmetrical drawings
# cross there.
OFF_CENTRE = 0.381966


@np.errstate(all="ignore")
def to_place(geometry: Geometry) -> Place:
    """Make a place of a geometry in degrees, or say what is wrong with it.

    >>> fence = to_place(shapely.from_wkt("POLYGON((170 -5,-170 -5,-170 5,170 5,170 -5))"))
    >>> fence.bounds
    (170.0, -5.0, 190.0, 5.0)
    >>> fence.boxes
    ((170.0, -5.0, 180.0, 5.0), (-180.0, -5.0, -170.0, 5.0))
    """
    check_coordinates(geometry)
    if geometry.geom_type == "Point":
        z = geometry.z if geometry.has_z else None
        return Place(geometry.x, geometry.y, None if z is None or math.isnan(z) else z)
    check_crossings(geometry)
    geometry = shapely.force_2d(geometry)
    min_x, _, max_x, _ = geometry.bounds
    kind = geometry.geom_type
    if min_x >= -180.0 and max_x <= 180.0 and max_x - min_x <= 180.0:
        # No edge can cross, and no two parts can meet at the antimeridian.
        if kind in ("GeometryCollection", "MultiPoint"):
            geometry = gather(simple_parts(geometry), overlapping=True)
        if geometry.geom_type == "Point":
            return Place(geometry.x, geometry.y)
        return Area(valid(geometry))
    parts = [part for whole in simple_parts(geometry) for part in unrolled(whole)]
    return assemble(parts, overlapping=kind == "GeometryCollection")


def check_coordinates(geometry: Geometry) -> None:
    """Refuse what is empty, not finite, or beyond the poles."""
    if geometry is None or geometry.is_empty:
        raise BadGeometry("geometry is empty")
    xy = shapely.get_coordinates(geometry)
    if not np.isfinite(xy).all():
        raise BadGeometry("coordinate is not a finite number")
    worst = float(np.abs(xy[:, 1]).max())
    if worst > 90.0:
        raise BadGeometry(f"latitude {worst:g} is beyond 90 degrees")


def simple_parts(geometry: Geometry) -> list[Geometry]:
    """Take a geometry apart into points, lines and polygons, however deep they are."""
    parts: list[Geometry] = []
    waiting = [geometry]
    while waiting:
        part = waiting.pop()
        if shapely.get_type_id(part) <= POLYGON:
            if not part.is_empty:
                parts.append(part)
        else:
            waiting.extend(reversed(part.geoms))
    return parts


def valid(geometry: Geometry) -> Geometry:
    """Refuse invalid rings and lines; polygons side by side are taken as one area."""
    if shapely.is_valid(geometry):
        return geometry
    if geometry.geom_type == "MultiPolygon" and shapely.is_valid(list(geometry.geoms)).all():
        # OGC forbids parts that share an edge, but an area wider than 180 degrees has to
        # be given in such parts. Parts that overlap stay forbidden.
        union = shapely.union_all(geometry.geoms)
        if math.isclose(union.area, geometry.area, rel_tol=1e-9):
            return union
        raise BadGeometry("parts of the multipolygon overlap")
    reason = str(shapely.is_valid_reason(geometry))
    raise BadGeometry(f"invalid geometry: {reason[:1].lower()}{reason[1:120]}")


# The edge rule


def unrolled(part: Geometry) -> list[Geometry]:
    """Apply the edge rule to one point, line or polygon; its west end comes to [-180, 180)."""
    kind = shapely.get_type_id(part)
    if kind == POINT:
        place = Place(part.x, part.y)
        return [shapely.Point(place.x, place.y)]
    if kind == POLYGON:
        return simple_parts(_unrolled_polygon(part))
    xy = shapely.get_coordinates(part)
    turns = path_turns(xy)
    return [valid(shapely.linestrings(_turned(xy, turns + _turns_home(xy, turns))))]


def path_turns(xy: Floats) -> Floats:
    """Apply the edge rule along a path: the whole turns to take off each longitude.

    >>> path_turns(np.array([[170.0, 0], [-170, 0], [-150, 0]])).tolist()
    [0.0, -1.0, -1.0]
    """
    steps = np.diff(xy[:, 0])
    wide = (np.abs(steps) > 180.0) & (np.abs(steps) != FULL_TURN)
    turns = np.zeros(len(xy))
    if wide.any():
        turns[1:] = np.cumsum(np.where(wide, np.round(steps / FULL_TURN), 0.0))
    return turns


def _turned(xy: Floats, turns: Floats) -> Floats:
    moved = np.round(xy[:, 0] - FULL_TURN * turns, DECIMALS)
    return np.column_stack((np.where(turns == 0, xy[:, 0], moved), xy[:, 1]))


def unrolled_path(xy: Floats) -> Floats:
    """Apply the edge rule along a path, from where it begins."""
    return _turned(xy, path_turns(xy))


def _turns_home(xy: Floats, turns: Floats, west: float = -180.0) -> float:
    """The further turns that bring the west end of a path to `west` or less than one beyond."""
    return math.floor((float((xy[:, 0] - FULL_TURN * turns).min()) - west) / FULL_TURN)


def _unrolled_polygon(polygon: Geometry) -> Geometry:
    xy = shapely.get_coordinates(polygon.exterior)
    turns = _ring_turns(xy)
    shell = _turned(xy, turns + _turns_home(xy, turns))
    west, east = float(shell[:, 0].min()), float(shell[:, 0].max())
    if east - west > FULL_TURN:
        raise BadGeometry("polygon is wider than 360 degrees")
    holes = []
    for ring in polygon.interiors:
        xy = shapely.get_coordinates(ring)
        turns = _ring_turns(xy)
        holes.append(_turned(xy, turns + _turns_home(xy, turns, west)))
    if east - west < FULL_TURN:
        return valid(shapely.Polygon(shell, holes))
    # Right round the world a hole may lie over both ends of the shell.
    area = valid(shapely.Polygon(shell))
    for hole in holes:
        gap = valid(shapely.Polygon(hole))
        area = shapely.difference(area, shapely.union(gap, shift(gap, -1)))
    return area


def _ring_turns(xy: Floats) -> Floats:
    turns = path_turns(xy)
    if turns[-1] != 0:
        raise BadGeometry("ring runs round a pole")
    return turns


def shift(geometry: Geometry, turns: int) -> Geometry:
    """Move a geometry round the world by whole turns."""
    if turns == 0:
        return geometry
    return shapely.transform(geometry, lambda xy: _turned(xy, np.full(len(xy), -float(turns))))


def at_home(geometry: Geometry) -> Geometry:
    """Write every longitude within 180 again, for readers who know the edge rule.

    >>> at_home(shapely.box(170, 0, 190, 5)).wkt
    'POLYGON ((-170 0, -170 5, 170 5, 170 0, -170 0))'
    """
    return shapely.transform(geometry, lambda xy: _turned(xy, (xy[:, 0] > 180.0).astype(float)))


# Parts of one geometry


def assemble(parts: Sequence[Geometry], *, overlapping: bool = False) -> Place:
    """Put unrolled parts into one frame; parts that meet become one."""
    if not parts:
        raise BadGeometry("geometry is empty")
    if len(parts) == 1 and shapely.get_type_id(parts[0]) == POINT:
        return Place(parts[0].x, parts[0].y)
    cut = free_meridian(_extent(part) for part in parts)
    if cut is None:
        whole = gather(_cut(parts, -180.0))
        if not overlapping and sum(part.area for part in parts) > whole.area * (1 + 1e-9):
            raise BadGeometry("parts of the multipolygon overlap")
        return Area(whole, wraps=True)
    return Area(gather(_framed(parts, cut), overlapping=overlapping))


def _framed(parts: Sequence[Geometry], cut: float) -> list[Geometry]:
    """Move parts into the frame that begins at a free meridian; its west end comes home."""
    turns = [-math.floor((part.bounds[0] - cut) / FULL_TURN) for part in parts]
    west = min(part.bounds[0] + FULL_TURN * n for part, n in zip(parts, turns, strict=True))
    home = -math.floor((west + 180.0) / FULL_TURN)
    return [shift(part, n + home) for part, n in zip(parts, turns, strict=True)]


def gather(parts: Sequence[Geometry], *, overlapping: bool = False) -> Geometry:
    """Make one geometry of simple parts, and see that it is valid.

    Polygons that overlap are one area in a mixture, and bad geometry in a multipolygon.
    """
    polygons = [part for part in parts if shapely.get_type_id(part) == POLYGON]
    if len(polygons) > 1 and overlapping and shapely.is_valid(polygons).all():
        others = [part for part in parts if shapely.get_type_id(part) != POLYGON]
        parts = [*simple_parts(shapely.union_all(polygons)), *others]
    geometry = collected(parts)
    if geometry.geom_type == "GeometryCollection":
        return shapely.geometrycollections([valid(group) for group in geometry.geoms])
    return valid(geometry)


def collected(parts: Sequence[Geometry]) -> Geometry:
    """Make one geometry of simple parts: a single part, a multi-geometry or a mixture."""
    groups: list[Geometry] = []
    for kinds, several in (
        ((POLYGON,), shapely.multipolygons),
        ((LINE, RING), shapely.multilinestrings),
        ((POINT,), shapely.multipoints),
    ):
        group = [part for part in parts if shapely.get_type_id(part) in kinds]
        if group:
            groups.append(group[0] if len(group) == 1 else several(group))
    return groups[0] if len(groups) == 1 else shapely.geometrycollections(groups)


def _extent(part: Geometry) -> Interval:
    min_x, _, max_x, _ = part.bounds
    return (min_x, max_x)


def free_meridian(extents: Iterable[Interval]) -> float | None:
    """Find the longitude in [-180, 180) that lies farthest from every extent.

    >>> free_meridian([(170.0, 190.0)])
    0.0
    >>> free_meridian([(-180.0, 0.0), (0.0, 180.0)]) is None
    True
    """
    spans: list[Interval] = []
    for west, east in extents:
        if east - west >= FULL_TURN:
            return None
        start = (west + 180.0) % FULL_TURN - 180.0
        spans.append((start, start + (east - west)))
    spans.sort()
    reach = max(east for _, east in spans) - FULL_TURN  # what comes over from the east
    widest, found = 0.0, None
    for west, east in [*spans, (spans[0][0] + FULL_TURN, 0.0)]:
        if west - reach > widest:
            widest, found = west - reach, (west + reach) / 2
        reach = max(reach, east)
    return None if found is None else (found + 180.0) % FULL_TURN - 180.0


def _cut(parts: Iterable[Geometry], meridian: float) -> list[Geometry]:
    """Cut parts at a meridian into the frame that begins there, and join what meets inside."""
    window = shapely.box(meridian, -90.0, meridian + FULL_TURN, 90.0)
    polygons: list[Geometry] = []
    lines: list[Geometry] = []
    points: list[Geometry] = []
    for part in parts:
        kind = shapely.get_type_id(part)
        min_x, _, max_x, _ = part.bounds
        first = -math.floor((max_x - meridian) / FULL_TURN)
        last = -math.floor((min_x - meridian) / FULL_TURN)
        if kind == POINT:
            points.append(shapely.set_precision(shift(part, last), GRID))
            continue
        if last - first > MAX_TURNS:
            raise BadGeometry(f"goes round the world more than {MAX_TURNS} times")
        target = polygons if kind == POLYGON else lines
        for turns in range(first, last + 1):
            clipped = simple_parts(shapely.intersection(shift(part, turns), window))
            target.extend(piece for piece in clipped if shapely.get_type_id(piece) == kind)
    whole: list[Geometry] = [*points]
    if polygons:
        whole.append(shapely.union_all(polygons, grid_size=GRID))
    if lines:
        whole.append(shapely.line_merge(shapely.union_all(lines, grid_size=GRID)))
    return [part for geometry in whole for part in simple_parts(geometry)]


# Two places in one plane


class Pair:
    """Two geometries in one plane; `seam` is where both had to be cut, None if nowhere."""

    __slots__ = ("event", "filter", "seam")

    def __init__(self, filter_: Geometry, event: Geometry, seam: float | None = None) -> None:
        self.filter = filter_
        self.event = event
        self.seam = seam


def aligned(filter_place: Place, event_place: Place) -> Pair:
    """Bring two places into one plane; the filter's own geometry is kept where possible.

    Where both together leave no meridian free they are cut at one that no vertex lies on.
    Points in common, interiors and dimensions are the same on either side of such a cut,
    so the named predicates stay right; only a matrix would show the cut as a border.
    """
    west, _, east, _ = filter_place.bounds
    event_west, _, event_east, _ = event_place.bounds
    if not (filter_place.wraps or event_place.wraps):
        meetings = [
            turns
            for turns in (-1, 0, 1)
            if event_west + FULL_TURN * turns <= east and event_east + FULL_TURN * turns >= west
        ]
        if len(meetings) <= 1:
            turns = meetings[0] if meetings else 0
            if turns < 0:
                # East is where moved longitudes already are: those of the two stay the same.
                return Pair(shift(filter_place.geometry, 1), event_place.geometry)
            return Pair(filter_place.geometry, shift(event_place.geometry, turns))
    filter_parts = simple_parts(filter_place.geometry)
    event_parts = simple_parts(shapely.force_2d(event_place.geometry))
    free = free_meridian(_extent(part) for part in (*filter_parts, *event_parts))
    if free is not None:
        count = len(filter_parts)
        parts = _framed([*filter_parts, *event_parts], free)
        return Pair(collected(parts[:count]), collected(parts[count:]))
    seam = _vertexless_meridian(filter_place.geometry, event_place.geometry)
    return Pair(collected(_cut(filter_parts, seam)), collected(_cut(event_parts, seam)), seam)


def meet(one: Place, other: Place) -> bool:
    """Whether two places have a point in common."""
    pair = aligned(one, other)
    return bool(shapely.intersects(pair.filter, pair.event))


def _vertexless_meridian(*geometries: Geometry) -> float:
    xs = np.concatenate([shapely.get_coordinates(geometry)[:, 0] for geometry in geometries])
    xs = np.unique((xs + 180.0) % FULL_TURN)
    gaps = np.diff(np.append(xs, xs[0] + FULL_TURN))
    widest = int(np.argmax(gaps))
    # In steps that the grid and binary fractions share, so that the cut is straight. Within
    # the limits on vertices some gap is far wider than a step.
    found = round(float(xs[widest] + OFF_CENTRE * gaps[widest]) * 1024) / 1024
    return found % FULL_TURN - 180.0


@np.errstate(all="ignore")
def guarded(make: Any, *arguments: Any) -> Geometry:
    """Call a shapely constructor; what it cannot make is bad geometry."""
    try:
        return make(*arguments)
    except (ShapelyError, ValueError, TypeError, OverflowError, NotImplementedError) as error:
        reason = re.sub(r"^\w+Exception:\s*", "", " ".join(str(error).split()))[:160]
        raise BadGeometry(f"not a geometry: {reason[:1].lower()}{reason[1:]}") from None
