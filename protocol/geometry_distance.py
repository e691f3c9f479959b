"""Geodesic distance between places, their edges straight in degrees.

Two points are one call. For everything else edges are cut into pieces of about ten
kilometres, the nearest corner and piece are found in space, where a chord is as good as an
arc to compare by, and that pair is measured on the ellipsoid.
"""

import math
from typing import Any

import numpy as np
import shapely

from protocol.geometry_frame import Floats, meet, simple_parts
from protocol.geometry_metres import GEOD, paths_of, stepped
from protocol.geometry_place import Place
from protocol.values import value

STEP = 10_000.0
BLOCK = 64
BRUTE_FORCE = 100_000  # pairs that are cheaper to compare than to sort out
FINALISTS = 8  # near-equal pairs that are measured, because chords only estimate

_A = 6378137.0
_E2 = 0.0066943799901413165


def distance_metres(one: Place, other: Place) -> float:
    """The shortest way between two places; 0 where they meet.

    >>> round(distance_metres(Place.point(179.5, 0), Place.point(-179.5, 0)))
    111319
    """
    if one.is_point and other.is_point:
        return float(GEOD.inv(one.x, one.y, other.x, other.y)[2])
    if meet(one, other):
        return 0.0
    mesh, other_mesh = _mesh_of(one), _mesh_of(other)
    nearest = math.inf
    if one.is_point or not other.is_point:
        nearest = _nearest(mesh, other_mesh, nearest)
    if other.is_point or not one.is_point:
        nearest = _nearest(other_mesh, mesh, nearest)
    return nearest


@value
class Mesh:
    """Corners and pieces of the edges of a place, in degrees and in space."""

    corners: Floats  # (n, 2) degrees
    corners_in_space: Floats  # (n, 3) metres
    first: Any  # (m,) numbers of the corners where pieces begin and end
    last: Any


def _mesh_of(place: Place) -> Mesh:
    if place.mesh is None:
        place.mesh = _make_mesh(place)
    mesh: Mesh = place.mesh
    return mesh


def _make_mesh(place: Place) -> Mesh:
    corners: list[Floats] = []
    first: list[Any] = []
    last: list[Any] = []
    count = 0
    for part in simple_parts(shapely.force_2d(place.geometry)):
        for path in paths_of(part):
            dense = stepped(path, STEP)
            numbers = np.arange(count, count + len(dense))
            # A point is a piece that ends where it begins.
            first.append(numbers[:-1] if len(dense) > 1 else numbers)
            last.append(numbers[1:] if len(dense) > 1 else numbers)
            corners.append(dense)
            count += len(dense)
    degrees = np.concatenate(corners)
    return Mesh(degrees, _in_space(degrees), np.concatenate(first), np.concatenate(last))


def _in_space(degrees: Floats) -> Floats:
    """Geocentric coordinates on the WGS 84 ellipsoid."""
    lon, lat = np.radians(degrees[:, 0]), np.radians(degrees[:, 1])
    radius = _A / np.sqrt(1 - _E2 * np.sin(lat) ** 2)
    across = radius * np.cos(lat)
    return np.column_stack(
        (across * np.cos(lon), across * np.sin(lon), radius * (1 - _E2) * np.sin(lat))
    )


def _nearest(points: Mesh, lines: Mesh, best: float) -> float:
    """The shortest way from the corners of one mesh to the pieces of another."""
    n, m = len(points.corners), len(lines.first)
    if n * m <= BRUTE_FORCE:
        return min(best, _measured(points, lines, np.arange(n), np.arange(m)))
    point_blocks = _blocks(points.corners_in_space, points.corners_in_space)
    starts = lines.corners_in_space[lines.first]
    line_blocks = _blocks(starts, lines.corners_in_space[lines.last])
    centres = point_blocks[0][:, None, :] - line_blocks[0][None, :, :]
    # A chord is shorter than its arc, so this is never more than the distance.
    at_least = np.linalg.norm(centres, axis=2) - point_blocks[1][:, None] - line_blocks[1][None, :]
    for number in np.argsort(at_least, axis=None):
        row, column = divmod(int(number), at_least.shape[1])
        if at_least[row, column] >= best:
            break
        near = np.arange(row * BLOCK, min((row + 1) * BLOCK, n))
        pieces = np.arange(column * BLOCK, min((column + 1) * BLOCK, m))
        best = min(best, _measured(points, lines, near, pieces))
    return best


def _blocks(starts: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """Balls round each block of pieces: centres and radii."""
    edges = range(0, len(starts), BLOCK)
    both = [np.concatenate((starts[i : i + BLOCK], ends[i : i + BLOCK])) for i in edges]
    centres = np.array([block.mean(axis=0) for block in both])
    # Between its ends a piece strays from its chord by no more than half its length.
    slack = float(np.linalg.norm(ends - starts, axis=1).max()) / 2
    radii = [
        float(np.linalg.norm(block - centre, axis=1).max()) + slack
        for block, centre in zip(both, centres, strict=True)
    ]
    return centres, np.array(radii)


def _measured(points: Mesh, lines: Mesh, rows: Any, columns: Any) -> float:
    """Measure the nearest of these pairs on the ellipsoid."""
    start = lines.corners_in_space[lines.first[columns]]
    along = lines.corners_in_space[lines.last[columns]] - start
    reach = points.corners_in_space[rows][:, None, :] - start[None, :, :]
    square = np.einsum("mk,mk->m", along, along)
    share = np.einsum("nmk,mk->nm", reach, along) / np.where(square > 0, square, 1.0)
    share = np.clip(share, 0.0, 1.0)
    gap = reach - share[:, :, None] * along[None, :, :]
    chords = np.einsum("nmk,nmk->nm", gap, gap).ravel()
    if len(chords) > FINALISTS:
        chosen = np.argpartition(chords, FINALISTS)[:FINALISTS]
    else:
        chosen = np.arange(len(chords))
    row, column = np.divmod(chosen, len(columns))
    begin = lines.corners[lines.first[columns[column]]]
    end = lines.corners[lines.last[columns[column]]]
    foot = begin + share.ravel()[chosen][:, None] * (end - begin)
    corner = points.corners[rows[row]]
    distances = GEOD.inv(corner[:, 0], corner[:, 1], foot[:, 0], foot[:, 1])[2]
    return float(np.min(distances))
