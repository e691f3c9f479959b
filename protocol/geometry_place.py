"""A place: a geometry in EPSG:4326 on a world whose longitude has no end.

The plane of degrees is a cylinder: 180 and -180 are one meridian. A place keeps its
geometry in one connected *frame*, a window of longitudes at most 360 degrees wide whose
west end lies in [-180, 180) and whose east end may therefore lie beyond 180. A fence over
the antimeridian runs from 170 to 190 and has no border at 180. Only what covers every
meridian has to be cut somewhere; it is cut at 180 and says so in `wraps`.

This module is the value alone. `geometry_frame` makes places of geometries, `relations`
compares them, `geometry_metres` measures them.
"""

import math
from typing import Any, ClassVar

import shapely

from protocol.errors import BadGeometry
from protocol.values import value

# A longitude that was moved by a turn is rounded to so many decimals (about a micrometre):
# binary fractions lose their last bits on the way, and a point and a fence that name the
# same longitude have to stay the same, whichever of them was moved.
DECIMALS = 11

Box = tuple[float, float, float, float]
# A shapely geometry. Shapely's constructors are typed "geometry or array of geometries",
# which nothing accepts, so the name is all the checker gets.
Geometry = Any


@value
class Limits:
    """How much geometry one field may bring; beyond it the geometry is bad."""

    max_vertices: int = 10_000
    max_nesting: int = 16
    max_bytes: int = 1 << 20


DEFAULT_LIMITS = Limits()
NO_LIMITS = Limits(max_vertices=1 << 31, max_nesting=1 << 10, max_bytes=1 << 31)


class Place:
    """A geometry ready to be matched; immutable by agreement.

    `x`, `y` and `z` belong to points; another geometry has the west and south ends of its
    frame there, and `bounds`. `boxes` is one box inside [-180, 180], or two where the
    geometry reaches the antimeridian from the west, for indexes that know no wrapping.

    >>> Place.point(190.0, 54.0)
    Place(POINT (-170 54))
    >>> Place.point(8.5, 54.0).boxes
    ((8.5, 54.0, 8.5, 54.0),)
    """

    __slots__ = ("_geometry", "mesh", "x", "y", "z")

    is_point: ClassVar[bool] = True
    wraps: ClassVar[bool] = False

    def __init__(self, x: float, y: float, z: float | None = None) -> None:
        # One comparison chain for the common case: it is false for NaN as well.
        if not (-180.0 <= x < 180.0 and -90.0 <= y <= 90.0):
            x = normal_longitude(x, y)
        self.x = x
        self.y = y
        self.z = z
        self._geometry: Geometry = None
        self.mesh: Any = None  # what distances keep beside a geometry

    @classmethod
    def point(cls, x: float, y: float, z: float | None = None) -> "Place":
        """Make a point of degrees; longitudes beyond 180 wrap, z in metres may be unknown."""
        return Place(x, y, z)

    @property
    def geometry(self) -> Geometry:
        """The geometry in its frame; points are built when first asked for."""
        if self._geometry is None:
            self._geometry = (
                shapely.Point(self.x, self.y)
                if self.z is None
                else shapely.Point(self.x, self.y, self.z)
            )
        return self._geometry

    @property
    def bounds(self) -> Box:
        """The box of the geometry in its frame: the east end may lie beyond 180."""
        return (self.x, self.y, self.x, self.y)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """One or two boxes inside [-180, 180] that cover the geometry."""
        return ((self.x, self.y, self.x, self.y),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Place):
            return NotImplemented
        if self.is_point and other.is_point:
            return self.x == other.x and self.y == other.y and self.z == other.z
        return bool(self.geometry == other.geometry)

    def __hash__(self) -> int:
        return hash((self.x, self.y))

    def __repr__(self) -> str:
        text = str(shapely.to_wkt(self.geometry, rounding_precision=17))
        return f"Place({text if len(text) <= 200 else text[:197] + '...'})"


class Area(Place):
    """A place that is no point: line, polygon, several of them, or a mixture."""

    __slots__ = ("_bounds", "is_box", "prepared", "wraps")

    is_point: ClassVar[bool] = False
    wraps: bool  # type: ignore[misc]

    def __init__(self, geometry: Geometry, *, wraps: bool = False) -> None:
        min_x, min_y, max_x, max_y = geometry.bounds
        self.x = min_x
        self.y = min_y
        self.z = None
        self._geometry = geometry
        self._bounds: Box = (min_x, min_y, max_x, max_y)
        self.mesh = None
        self.wraps = wraps
        self.prepared = False  # whether GEOS has an index of it
        self.is_box = False  # whether it fills its bounds, known once it is prepared

    @property
    def bounds(self) -> Box:
        return self._bounds

    @property
    def boxes(self) -> tuple[Box, ...]:
        min_x, min_y, max_x, max_y = self._bounds
        if self.wraps:
            return ((-180.0, min_y, 180.0, max_y),)
        if max_x < 180.0:
            return ((min_x, min_y, max_x, max_y),)
        # A point on the antimeridian is kept at -180, so what reaches 180 is there too.
        return ((min_x, min_y, 180.0, max_y), (-180.0, min_y, max_x - 360.0, max_y))


def normal_longitude(x: float, y: float) -> float:
    """Bring a longitude into [-180, 180), or say why the pair is no place.

    >>> normal_longitude(180.0, 0.0), normal_longitude(-190.0, 0.0)
    (-180.0, 170.0)
    """
    if not (math.isfinite(x) and math.isfinite(y)):
        raise BadGeometry("coordinate is not a finite number")
    if not -90.0 <= y <= 90.0:
        raise BadGeometry(f"latitude {y:g} is beyond 90 degrees")
    if -180.0 <= x < 180.0:
        return x
    x = round((x + 180.0) % 360.0 - 180.0, DECIMALS)
    return -180.0 if x >= 180.0 else x  # rounding may reach the other end
