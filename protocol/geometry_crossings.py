"""How often edges may meet: a bound on what a predicate can cost.

Relating two lines takes time and memory for every place where their edges meet, and two
lines of some thousand corners can meet millions of times: 5 s and 1.2 GB for 2,000 corners
each (GEOS 3.13). Boxes of edges that meet are counted instead, which is fast and never too
few, and only where there are corners enough for it to matter.
"""

import numpy as np
import shapely
from numpy.typing import NDArray

from protocol.errors import BadGeometry
from protocol.geometry_place import Geometry, Place

MOST_MEETINGS = 250_000  # a quarter of a second, and 100 MB for as long as that
FEW_CORNERS = 700  # whose edges cannot meet more often among themselves
CHUNK = 256  # edges whose meetings are counted at a time

Boxes = NDArray[np.object_]


def check_crossings(geometry: Geometry) -> None:
    """Refuse a geometry whose own edges meet too often."""
    if shapely.get_num_coordinates(geometry) <= FEW_CORNERS or geometry.geom_type == "Polygon":
        return  # the ring of a polygon does not cross itself, or it is refused for that
    boxes = _edge_boxes(geometry)
    if _meetings(boxes, boxes) > 2 * MOST_MEETINGS:
        raise BadGeometry(f"its edges meet in more than {MOST_MEETINGS} places")


def meet_too_often(one: Place, other: Place) -> bool:
    """Tell whether the edges of two places meet too often to find out what they have in common."""
    if one.is_point or other.is_point:
        return False
    corners = shapely.get_num_coordinates([one.geometry, other.geometry])
    if int(corners[0]) * int(corners[1]) <= MOST_MEETINGS:
        return False
    return _meetings(_edge_boxes(one.geometry), _edge_boxes(other.geometry)) > MOST_MEETINGS


def _edge_boxes(geometry: Geometry) -> Boxes:
    """Give the box of every edge."""
    paths = shapely.get_parts(geometry)
    while (shapely.get_type_id(paths) > 3).any():
        paths = shapely.get_parts(paths)
    rings = shapely.get_rings(paths[shapely.get_type_id(paths) == 3])
    lines = paths[np.isin(shapely.get_type_id(paths), (1, 2))]
    xy, path = shapely.get_coordinates(np.concatenate((lines, rings)), return_index=True)
    inside = np.flatnonzero(path[1:] == path[:-1])
    low = np.minimum(xy[inside], xy[inside + 1])
    high = np.maximum(xy[inside], xy[inside + 1])
    boxes: Boxes = shapely.box(low[:, 0], low[:, 1], high[:, 0], high[:, 1])
    return boxes


def _meetings(ones: Boxes, others: Boxes) -> int:
    """Count how often boxes meet, as far as it matters."""
    tree = shapely.STRtree(others)
    count = 0
    for start in range(0, len(ones), CHUNK):
        count += tree.query(ones[start : start + CHUNK]).shape[1]
        if count > 2 * MOST_MEETINGS:
            break
    return count
