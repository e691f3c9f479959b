"""The spatial relations of a subscription, read *filter REL event*.

Predicates are planar in degrees and exact: `covers` counts the edge in, `contains` does
not, `touches` is the edge alone. The antimeridian is no edge. Only `dwithin` measures in
metres. Most events are points and most relations `covers`, so points against areas take a
path without building a geometry for the event.
"""

import re
import struct
from collections.abc import Callable

import shapely
from shapely import lib

from protocol.errors import BadGeometry
from protocol.geometry_crossings import meet_too_often
from protocol.geometry_distance import distance_metres
from protocol.geometry_frame import FULL_TURN, LINE, RING, Pair, aligned, simple_parts
from protocol.geometry_metres import check_metres
from protocol.geometry_place import DECIMALS, Area, Geometry, Place

RELATIONS = (
    "any",
    "covers",
    "contains",
    "intersects",
    "equals",
    "touches",
    "crosses",
    "overlaps",
    "within",
    "covered_by",
    "disjoint",
    "de9im",
    "dwithin",
)
NUMBERS = {name: number for number, name in enumerate(RELATIONS)}
(ANY, COVERS, CONTAINS, INTERSECTS, EQUALS, TOUCHES, CROSSES, OVERLAPS, WITHIN, COVERED_BY) = range(
    10
)
DISJOINT, DE9IM, DWITHIN = 10, 11, 12
NEAR_ME = frozenset({COVERS, INTERSECTS})  # the relations that "near me" knows

Operand = str | float | None

_PATTERN = re.compile(r"[TF*012]{9}", re.ASCII)
_METRES = struct.Struct(">d")
_PREDICATES: dict[int, Callable[[Geometry, Geometry], object]] = {
    COVERS: shapely.covers,
    CONTAINS: shapely.contains,
    INTERSECTS: shapely.intersects,
    EQUALS: shapely.equals,
    TOUCHES: shapely.touches,
    CROSSES: shapely.crosses,
    OVERLAPS: shapely.overlaps,
    WITHIN: shapely.within,
    COVERED_BY: shapely.covered_by,
    DISJOINT: shapely.disjoint,
}
# The ufuncs behind shapely.intersects_xy and shapely.contains_xy, which spend as long on
# looking at their arguments as on the answer: 1.9 us against 1.0.
_intersects_xy = lib.intersects_xy
_contains_xy = lib.contains_xy


def valid_pattern(text: str) -> bool:
    """Whether a text is a DE-9IM pattern.

    >>> valid_pattern("T*F**FFF*"), valid_pattern("T*F"), valid_pattern("X********")
    (True, False, False)
    """
    return _PATTERN.fullmatch(text) is not None


def read_operand(relation: int, data: bytes) -> tuple[Operand, bytes]:
    """Take the operand of a relation off the front of the geometry bytes."""
    if relation == DE9IM:
        pattern = str(data[:9], "ascii", "replace")
        if not valid_pattern(pattern):
            raise BadGeometry("no DE-9IM pattern of nine characters")
        return pattern, data[9:]
    if relation == DWITHIN:
        return read_metres(data[:8]), data[8:]
    return None, data


def read_metres(data: bytes) -> float:
    """Read the distance of dwithin, or the radius of "near me"."""
    if len(data) != 8:
        raise BadGeometry(f"distance of {len(data)} bytes instead of 8")
    return check_metres(_METRES.unpack(data)[0])


def spatial(
    relation: int, filter_place: Place, event_place: Place, operand: Operand = None
) -> bool:
    """Whether *filter REL event* holds.

    Of two geometries whose edges meet in hundreds of thousands of places nothing holds but
    that they intersect or do not.

    >>> from protocol.geometry import parse_text
    >>> fence = parse_text("BBOX(170,-10,-170,10)").place
    >>> spatial(CONTAINS, fence, Place.point(180, 0)), spatial(CONTAINS, fence, Place.point(170, 0))
    (True, False)
    >>> spatial(DWITHIN, Place.point(8, 54), Place.point(8, 54.001), 112.0)
    True
    """
    if event_place.is_point and relation <= DISJOINT:
        if not filter_place.is_point:
            x = event_place.x
            # On the seam of what goes round the world only a new cut can tell.
            if not (filter_place.wraps and x == -180.0):
                return _area_and_point(relation, filter_place, x, event_place.y)  # type: ignore[arg-type]
        else:
            return _points(relation, filter_place, event_place)
    if relation == ANY:
        return True
    if relation == DWITHIN:
        return distance_metres(filter_place, event_place) <= _metres(operand)
    if relation != DE9IM and _are_apart(filter_place, event_place):
        return relation == DISJOINT
    if relation not in (INTERSECTS, DISJOINT) and meet_too_often(filter_place, event_place):
        return False
    pair = aligned(filter_place, event_place)
    if relation == DE9IM:
        return _relate(pair, str(operand))
    if pair.filter is filter_place.geometry and not filter_place.is_point:
        _prepare(filter_place)  # type: ignore[arg-type]
    return bool(_PREDICATES[relation](pair.filter, pair.event))


def _are_apart(one: Place, other: Place) -> bool:
    """Whether the boxes of two places already say that they do not meet."""
    west, south, east, north = one.bounds
    other_west, other_south, other_east, other_north = other.bounds
    if other_south > north or other_north < south:
        return True
    if one.wraps or other.wraps:
        return False
    return not any(
        other_west + turn <= east and other_east + turn >= west
        for turn in (0.0, FULL_TURN, -FULL_TURN)
    )


def _metres(operand: Operand) -> float:
    return operand if isinstance(operand, float) else float(operand or 0.0)


def _prepare(area: Area) -> None:
    if area.prepared:
        return
    geometry = area.geometry
    shapely.prepare(geometry)
    # Boxes are the commonest fences, and need no geometry at all to be asked for a point.
    area.is_box = (
        geometry.geom_type == "Polygon"
        and not area.wraps
        and bool(shapely.equals(geometry, shapely.box(*area.bounds)))
    )
    area.prepared = True


def _area_and_point(relation: int, area: Area, x: float, y: float) -> bool:
    min_x, min_y, max_x, max_y = area._bounds
    if x < min_x and max_x >= 180.0:
        x = round(x + FULL_TURN, DECIMALS)
    if not (min_x <= x <= max_x and min_y <= y <= max_y):
        return relation in (ANY, DISJOINT)
    if not area.prepared:
        _prepare(area)
    geometry = area._geometry
    if relation in (COVERS, INTERSECTS):
        return area.is_box or bool(_intersects_xy(geometry, x, y))
    if relation == CONTAINS:
        if area.is_box:
            return min_x < x < max_x and min_y < y < max_y
        return bool(_contains_xy(geometry, x, y))
    if relation == DISJOINT:
        return not (area.is_box or _intersects_xy(geometry, x, y))
    if relation == TOUCHES:
        return bool(_intersects_xy(geometry, x, y)) and not _contains_xy(geometry, x, y)
    if relation in (EQUALS, WITHIN, COVERED_BY):
        # Only many points in one place can lie within a point.
        return bool(min_x == max_x and min_y == max_y and x == min_x and y == min_y)
    # A single point neither crosses nor overlaps anything.
    return relation == ANY


def _points(relation: int, one: Place, other: Place) -> bool:
    if one.x == other.x and one.y == other.y:
        return relation not in (TOUCHES, CROSSES, OVERLAPS, DISJOINT)
    return relation in (ANY, DISJOINT)


# DE-9IM across a seam


def _relate(pair: Pair, pattern: str) -> bool:
    if pair.seam is None:
        return bool(shapely.relate_pattern(pair.filter, pair.event, pattern))
    return _fits(_matrix(pair.filter, pair.event, pair.seam), pattern)


def _matrix(one: Geometry, other: Geometry, seam: float) -> str:
    """The matrix of two geometries that were both cut at a meridian no vertex lies on.

    The cut gives both a border that is none. Interiors and exteriors do not mind; what the
    matrix says of boundaries is asked of the true boundaries instead.
    """
    whole = _relate_matrix(one, other)
    edge, other_edge = _true_boundary(one, seam), _true_boundary(other, seam)
    edge_in, edge_out = "F", "F"
    in_edge, out_edge = "F", "F"
    edges = "F"
    if edge is not None:
        matrix = _relate_matrix(edge, other)
        edge_in, edge_out = _most(matrix, 0, 3), _most(matrix, 2, 5)
    if other_edge is not None:
        matrix = _relate_matrix(one, other_edge)
        in_edge, out_edge = _most(matrix, 0, 1), _most(matrix, 6, 7)
    if edge is not None and other_edge is not None:
        edges = _most(_relate_matrix(edge, other_edge), 0, 1, 3, 4)
    return "".join(
        (whole[0], in_edge, whole[2], edge_in, edges, edge_out, whole[6], out_edge, whole[8])
    )


def _relate_matrix(one: Geometry, other: Geometry) -> str:
    return str(shapely.relate(one, other))


def _most(matrix: str, *cells: int) -> str:
    # "F" sorts after the digits but means less than any of them.
    return max((matrix[cell] for cell in cells), key="F012".index)


def _true_boundary(geometry: Geometry, seam: float) -> Geometry | None:
    """The boundary without what the cut at a seam added; None where there is none."""
    edges = shapely.multilinestrings([[(x, -90.0), (x, 90.0)] for x in (seam, seam + FULL_TURN)])
    boundaries = []
    lines = [part for part in simple_parts(geometry) if shapely.get_type_id(part) in (LINE, RING)]
    polygons = [part for part in simple_parts(geometry) if part.geom_type == "Polygon"]
    if polygons:
        boundaries.append(shapely.boundary(shapely.multipolygons(polygons)))
    if lines:
        boundaries.append(shapely.boundary(shapely.multilinestrings(lines)))
    found = [
        part
        for boundary in boundaries
        for part in simple_parts(shapely.difference(boundary, edges))
    ]
    return shapely.geometrycollections(found) if found else None


def _fits(matrix: str, pattern: str) -> bool:
    return all(
        wanted in ("*", cell) or (wanted == "T" and cell != "F")
        for cell, wanted in zip(matrix, pattern, strict=True)
    )
