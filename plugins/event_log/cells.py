"""Morton numbers of places: one integer that keeps neighbours close together.

The world in EPSG:4326 is cut into 2^23 columns and as many rows (43 by 21 millionths of a
degree, under five metres); the bits of the column and of the row are interleaved, the
column's first. 46 bits fit SQLite's six-byte integer. A place that is no point has the
number of the middle of its box.

The number sorts the place index and serves as a grid for counting: `cell >> 2 * n` is the
cell n levels up. It is no search key: what finds places are the boxes in index.py, which
hold for lines and areas as well.
"""

from typing import Any

import numpy
from numpy.typing import NDArray

LEVEL = 23
_SIDE = 1 << LEVEL


def cells_of(x: NDArray[Any], y: NDArray[Any]) -> NDArray[numpy.int64]:
    """Number many places at once."""
    columns = numpy.clip((x + 180.0) * (_SIDE / 360.0), 0, _SIDE - 1).astype(numpy.int64)
    rows = numpy.clip((y + 90.0) * (_SIDE / 180.0), 0, _SIDE - 1).astype(numpy.int64)
    return _spread(columns) << 1 | _spread(rows)


def cell_of(x: float, y: float) -> int:
    """Number the place at a longitude and a latitude.

    >>> cell_of(-180.0, -90.0), cell_of(180.0, 90.0) == 2**46 - 1
    (0, True)
    """
    return int(cells_of(numpy.array([x]), numpy.array([y]))[0])


def cell_box(cell: int, level: int = LEVEL) -> tuple[float, float, float, float]:
    """Give min_x, min_y, max_x, max_y of a cell of a level, 0 being the whole world.

    >>> cell_box(cell_of(8.58, 54.51) >> 2 * (LEVEL - 3), 3)
    (0.0, 45.0, 45.0, 67.5)
    """
    column = _gather(cell >> 1)
    row = _gather(cell)
    width, height = 360.0 / (1 << level), 180.0 / (1 << level)
    min_x, min_y = column * width - 180.0, row * height - 90.0
    return min_x, min_y, min_x + width, min_y + height


def _spread(numbers: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
    """Put a zero bit before every bit of 23-bit numbers."""
    numbers = (numbers | numbers << 16) & 0x0000FFFF0000FFFF
    numbers = (numbers | numbers << 8) & 0x00FF00FF00FF00FF
    numbers = (numbers | numbers << 4) & 0x0F0F0F0F0F0F0F0F
    numbers = (numbers | numbers << 2) & 0x3333333333333333
    return (numbers | numbers << 1) & 0x5555555555555555


def _gather(number: int) -> int:
    """Take every second bit, the last one first."""
    number &= 0x5555555555555555
    number = (number | number >> 1) & 0x3333333333333333
    number = (number | number >> 2) & 0x0F0F0F0F0F0F0F0F
    number = (number | number >> 4) & 0x00FF00FF00FF00FF
    number = (number | number >> 8) & 0x0000FFFF0000FFFF
    return (number | number >> 16) & 0x00000000FFFFFFFF
