"""Where the demonstration plays: Husum, its coast and the island of Pellworm.

Towns, roads, dikes and the ferry line are drawn by hand after the real ones, roughly: they
look right on a map and are good for nothing else. The streets of a town are a bent grid
with a few streets left out, the same ones at every start.

    Street map    nodes and the streets between them, for everything that drives or walks
    Line          a way with a length, for the ferry and for sensors along a dike
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

M_PER_DEGREE = 111_320.0
# The region is small: one scale for longitudes will do.
LON_SCALE = math.cos(math.radians(54.45))


class Spot(NamedTuple):
    """A place in WGS 84 degrees."""

    lon: float
    lat: float

    def metres_to(self, other: Spot) -> float:
        """Measure the distance, flat: good to a few metres in a thousand here."""
        return math.hypot(
            (other.lon - self.lon) * LON_SCALE * M_PER_DEGREE, (other.lat - self.lat) * M_PER_DEGREE
        )

    def towards(self, other: Spot, share: float) -> Spot:
        """Give the place at a share of the way to another."""
        return Spot(
            self.lon + (other.lon - self.lon) * share, self.lat + (other.lat - self.lat) * share
        )

    def moved(self, east_m: float, north_m: float) -> Spot:
        """Give the place so many metres east and north."""
        return Spot(
            self.lon + east_m / (LON_SCALE * M_PER_DEGREE), self.lat + north_m / M_PER_DEGREE
        )

    def heading_to(self, other: Spot) -> float:
        """Give the compass direction of another place, 0 is north."""
        east, north = (other.lon - self.lon) * LON_SCALE, other.lat - self.lat
        return math.degrees(math.atan2(east, north)) % 360


def spots(*pairs: tuple[float, float]) -> tuple[Spot, ...]:
    """Make places of longitudes and latitudes."""
    return tuple(Spot(*pair) for pair in pairs)


class Line:
    """A way through several places, measured in metres from its start."""

    def __init__(self, places: Sequence[Spot]) -> None:
        self.places = places
        self._starts = [0.0]
        for here, there in itertools.pairwise(places):
            self._starts.append(self._starts[-1] + here.metres_to(there))
        self.length_m = self._starts[-1]

    def at(self, metres: float) -> Spot:
        """Give the place so far along the way; beyond an end it is the end."""
        for number, start in enumerate(self._starts[1:], 1):
            if metres <= start:
                before = self._starts[number - 1]
                share = max(metres - before, 0.0) / ((start - before) or 1.0)
                return self.places[number - 1].towards(self.places[number], share)
        return self.places[-1]

    def evenly(self, count: int) -> list[Spot]:
        """Give so many places, evenly spaced from end to end."""
        return [self.at(self.length_m * number / max(count - 1, 1)) for number in range(count)]


class StreetMap:
    """Nodes and streets; every street can be taken both ways at its usual speed."""

    def __init__(self) -> None:
        self.places: list[Spot] = []
        self.streets: list[dict[int, float]] = []  # by node: neighbour -> metres per second

    def add_place(self, place: Spot) -> int:
        """Add a node."""
        self.places.append(place)
        self.streets.append({})
        return len(self.places) - 1

    def add_street(self, here: int, there: int, speed_kmh: float) -> None:
        """Join two nodes."""
        self.streets[here][there] = self.streets[there][here] = speed_kmh / 3.6

    def nearest(self, place: Spot) -> int:
        """Find the node nearest to a place."""
        return min(range(len(self.places)), key=lambda node: self.places[node].metres_to(place))

    def add_road(self, way: Sequence[Spot], speed_kmh: float) -> None:
        """Add a country road; its ends join the nodes nearest to them."""
        before = self.nearest(way[0])
        last = self.nearest(way[-1])
        for place in way[1:-1]:
            node = self.add_place(place)
            self.add_street(before, node, speed_kmh)
            before = node
        self.add_street(before, last, speed_kmh)

    def add_town(self, town: Town, chance: random.Random) -> None:
        """Add a bent grid of streets, a few of them left out."""
        turn = math.radians(town.turn_degrees)
        grid: dict[tuple[int, int], int] = {}
        for column in range(town.columns):
            for row in range(town.rows):
                x = (column - (town.columns - 1) / 2 + chance.uniform(-0.22, 0.22)) * town.block_m
                y = (row - (town.rows - 1) / 2 + chance.uniform(-0.22, 0.22)) * town.block_m
                east = x * math.cos(turn) - y * math.sin(turn)
                north = x * math.sin(turn) + y * math.cos(turn)
                grid[column, row] = self.add_place(town.centre.moved(east, north))
        for (column, row), node in grid.items():
            for side in ((column + 1, row), (column, row + 1)):
                # The outermost streets always stay, so that every node can be reached.
                rim = (side[0] == column and column in (0, town.columns - 1)) or (
                    side[1] == row and row in (0, town.rows - 1)
                )
                if side in grid and (rim or chance.random() < 0.85):
                    self.add_street(node, grid[side], chance.choice(town.speeds_kmh))
        for (column, row), node in grid.items():
            if not self.streets[node]:  # all of its streets were left out
                self.add_street(node, grid[column, row + 1], town.speeds_kmh[0])


class Town(NamedTuple):
    """A town, as its streets are made."""

    name: str
    centre: Spot
    columns: int
    rows: int
    block_m: float
    turn_degrees: float
    speeds_kmh: tuple[float, ...] = (30, 50)


HUSUM = Town("Husum", Spot(9.056, 54.478), 11, 9, 230, 18)
TOWNS = (
    HUSUM,
    Town("Bredstedt", Spot(8.968, 54.620), 5, 4, 220, 35),
    Town("Friedrichstadt", Spot(9.088, 54.377), 5, 4, 150, 5),
    Town("Tönning", Spot(8.950, 54.323), 4, 4, 200, 40),
    Town("St. Peter-Ording", Spot(8.652, 54.310), 4, 5, 260, -10),
    Town("Pellworm", Spot(8.646, 54.521), 6, 5, 700, 12, (50, 70)),
    Town("Nordstrand", Spot(8.875, 54.500), 6, 4, 650, -5, (50, 70)),
)

ROADS = (
    spots((9.044, 54.486), (9.038, 54.520), (9.012, 54.560), (8.988, 54.595), (8.970, 54.616)),
    spots((9.056, 54.469), (9.062, 54.440), (9.075, 54.405), (9.088, 54.381)),
    spots((9.044, 54.470), (9.020, 54.445), (8.995, 54.410), (8.968, 54.360), (8.951, 54.327)),
    spots((8.946, 54.323), (8.900, 54.330), (8.850, 54.328), (8.780, 54.332), (8.710, 54.325),
          (8.660, 54.312)),
    spots((9.042, 54.484), (9.021, 54.503), (8.985, 54.517), (8.955, 54.517), (8.900, 54.503)),
    spots((9.090, 54.374), (9.040, 54.350), (8.990, 54.330), (8.955, 54.325)),
)  # fmt: skip

FERRY_LINE = Line(
    spots((8.808, 54.499), (8.780, 54.503), (8.745, 54.514), (8.715, 54.524), (8.702, 54.527))
)
# The dike line in the south-west of Pellworm, where the sensors of the EarlyDike project are.
PELLWORM_DIKE = Line(
    spots((8.589249, 54.517893), (8.590708, 54.512), (8.598, 54.504), (8.608, 54.497),
          (8.622, 54.4925), (8.642, 54.4925), (8.660, 54.497))
)  # fmt: skip
MAINLAND_DIKE = Line(
    spots((8.887, 54.418), (8.948, 54.447), (8.987, 54.459), (9.005, 54.466), (9.013, 54.483),
          (9.013, 54.506), (8.987, 54.530), (8.945, 54.556), (8.905, 54.580))
)  # fmt: skip
NORDSTRAND_DIKE = Line(
    spots((8.926, 54.488), (8.887, 54.469), (8.843, 54.467), (8.825, 54.471), (8.813, 54.483))
)

HARBOUR = "POLYGON((9.020 54.468,9.052 54.468,9.052 54.482,9.020 54.482,9.020 54.468))"
ISLAND = (
    "POLYGON((8.575 54.485,8.665 54.485,8.715 54.520,8.715 54.565,8.640 54.560,8.575 54.530,"
    "8.575 54.485))"
)


def street_map(seed: int = 7) -> StreetMap:
    """Draw all towns and roads; the same seed gives the same streets."""
    chance = random.Random(seed)
    streets = StreetMap()
    for town in TOWNS:
        streets.add_town(town, chance)
    for road in ROADS:
        streets.add_road(road, 90)
    return streets
