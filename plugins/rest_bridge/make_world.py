"""Make the map's world outline from Natural Earth data, which is in the public domain.

    npm pack world-atlas && tar xzf world-atlas-*.tgz
    python -m plugins.rest_bridge.make_world package plugins/rest_bridge/map/world.json

`world-atlas` holds Natural Earth as TopoJSON: shared arcs, quantised and delta-coded. What
comes out is smaller still and needs no library to read: whole numbers, `scale` to a degree,
every ring and line a flat list that starts at a coordinate and goes on in steps.

    {"scale": 1000, "land": [[outer, hole, …], …], "borders": [line, …],
     "names": [[name, lon, lat, zoom from which it is shown, is a country], …]}

The world is coarse, the German Bight fine: that is where `geomqtt demo` plays. Nothing here
runs in the broker; the result is kept beside the page that shows it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import shapely
from shapely.affinity import translate
from shapely.geometry import LineString, MultiLineString, Polygon
from shapely.geometry.base import BaseGeometry

SCALE = 1000  # 0.001 degrees are 110 metres
COARSE = 0.03  # tolerances, in degrees
FINE = 0.0005
SMALLEST_ISLAND = 0.01  # square degrees; in the fine part every island stays
FINE_BOX = shapely.box(7.0, 53.2, 10.2, 55.4)
WORLD = shapely.box(-180, -90, 180, 90)
TURNS = (-360, 0, 360)

Line = list[tuple[float, float]]

# Orientation where there are no tiles: name, longitude, latitude, first zoom.
PLACES: list[tuple[str, float, float, int]] = [
    ("London", -0.13, 51.51, 4), ("Paris", 2.35, 48.86, 4), ("Berlin", 13.40, 52.52, 4),
    ("Madrid", -3.70, 40.42, 4), ("Roma", 12.50, 41.90, 4), ("Wien", 16.37, 48.21, 5),
    ("Warszawa", 21.01, 52.23, 5), ("København", 12.57, 55.68, 5), ("Oslo", 10.75, 59.91, 5),
    ("Stockholm", 18.07, 59.33, 5), ("Helsinki", 24.94, 60.17, 5), ("Moskva", 37.62, 55.76, 4),
    ("Kyjiv", 30.52, 50.45, 5), ("İstanbul", 28.98, 41.01, 4), ("Athína", 23.73, 37.98, 5),
    ("Lisboa", -9.14, 38.72, 5), ("Dublin", -6.26, 53.35, 5), ("Amsterdam", 4.90, 52.37, 5),
    ("Bruxelles", 4.35, 50.85, 6), ("Zürich", 8.54, 47.37, 6), ("Praha", 14.44, 50.08, 5),
    ("Cairo", 31.24, 30.04, 4), ("Lagos", 3.38, 6.52, 4), ("Nairobi", 36.82, -1.29, 4),
    ("Johannesburg", 28.05, -26.20, 4), ("Casablanca", -7.59, 33.57, 5),
    ("New York", -74.01, 40.71, 4), ("Los Angeles", -118.24, 34.05, 4),
    ("Chicago", -87.63, 41.88, 4), ("Toronto", -79.38, 43.65, 5),
    ("Ciudad de México", -99.13, 19.43, 4), ("São Paulo", -46.63, -23.55, 4),
    ("Buenos Aires", -58.38, -34.60, 4), ("Lima", -77.04, -12.05, 4), ("Bogotá", -74.07, 4.71, 4),
    ("Santiago", -70.67, -33.45, 5), ("Vancouver", -123.12, 49.28, 5), ("Delhi", 77.21, 28.61, 4),
    ("Mumbai", 72.88, 19.08, 4), ("Beijing", 116.40, 39.90, 4), ("Shanghai", 121.47, 31.23, 4),
    ("Tokyo", 139.69, 35.69, 4), ("Seoul", 126.98, 37.57, 5), ("Singapore", 103.82, 1.35, 4),
    ("Jakarta", 106.85, -6.21, 4), ("Bangkok", 100.50, 13.76, 4), ("Sydney", 151.21, -33.87, 4),
    ("Melbourne", 144.96, -37.81, 5), ("Auckland", 174.76, -36.85, 5),
    ("Hamburg", 9.99, 53.55, 5), ("Bremen", 8.81, 53.08, 6), ("Kiel", 10.12, 54.32, 7),
    ("Flensburg", 9.44, 54.78, 8), ("Husum", 9.052, 54.477, 8), ("Heide", 9.094, 54.196, 9),
    ("Cuxhaven", 8.694, 53.862, 8), ("Helgoland", 7.885, 54.183, 8),
    ("Bremerhaven", 8.58, 53.55, 8), ("Schleswig", 9.56, 54.52, 9),
    ("Tönning", 8.943, 54.317, 10), ("Friedrichstadt", 9.088, 54.376, 10),
    ("Bredstedt", 8.966, 54.620, 10), ("St. Peter-Ording", 8.64, 54.305, 10),
    ("Pellworm", 8.648, 54.524, 9), ("Nordstrand", 8.868, 54.497, 9), ("Amrum", 8.336, 54.656, 9),
    ("Föhr", 8.49, 54.722, 9), ("Sylt", 8.32, 54.90, 8), ("Eiderstedt", 8.78, 54.345, 10),
    ("Niebüll", 8.83, 54.787, 9),
]  # fmt: skip


class Topology:
    """A TopoJSON file: arcs that geometries share, named objects made of them."""

    def __init__(self, path: Path) -> None:
        document = json.loads(path.read_bytes())
        self.objects: dict[str, Any] = document["objects"]
        (kx, ky), (dx, dy) = document["transform"]["scale"], document["transform"]["translate"]
        self.arcs: list[Line] = []
        for steps in document["arcs"]:
            x = y = 0
            arc = []
            for step_x, step_y in steps:
                x, y = x + step_x, y + step_y
                arc.append((x * kx + dx, y * ky + dy))
            self.arcs.append(arc)

    def polygons(self, name: str) -> Iterator[tuple[dict[str, Any], list[list[int]]]]:
        """Give the properties and the rings (as arc numbers) of every polygon of an object."""
        for geometry in self.objects[name]["geometries"]:
            parts = [geometry["arcs"]] if geometry["type"] == "Polygon" else geometry["arcs"]
            for part in parts:
                yield geometry.get("properties", {}), part

    def ring(self, numbers: Iterable[int]) -> Line:
        """Join arcs; a negative number is the complement of an arc run backwards."""
        ring: Line = []
        for number in numbers:
            arc = self.arcs[number] if number >= 0 else self.arcs[~number][::-1]
            ring.extend(arc[1:] if ring else arc)
        return ring

    def shape(self, rings: list[list[int]]) -> BaseGeometry:
        """Make a valid geometry of a polygon's rings, cut at the antimeridian."""
        outer, *holes = (inside(self.ring(numbers)) for numbers in rings)
        return outer.difference(shapely.union_all(holes))


def inside(ring: Line) -> BaseGeometry:
    """Give what a ring encloses, every part of it on the map."""
    area = shapely.make_valid(Polygon(unwrapped(ring)))
    return shapely.union_all([WORLD.intersection(translate(area, turn)) for turn in TURNS])


def unwrapped(line: Line) -> Line:
    """Undo the jumps at the antimeridian: longitudes go on beyond 180.

    A ring that does not come back to its first longitude goes round a pole (Antarctica
    does); it is closed along the edge of the map.
    """
    result = line[:1]
    for longitude, latitude in line[1:]:
        before = result[-1][0]
        result.append((longitude + 360 * round((before - longitude) / 360), latitude))
    if line[0] == line[-1] and abs(result[-1][0] - result[0][0]) > 180:
        pole = -90.0 if result[0][1] < 0 else 90.0
        result += [(result[-1][0], pole), (result[0][0], pole), result[0]]
    return result


def _flat_parts(shape: BaseGeometry, kind: type[BaseGeometry]) -> Iterator[Any]:
    for part in shapely.get_parts(shape):
        if isinstance(part, kind):
            yield part
        elif shapely.get_num_geometries(part) > 1:
            yield from _flat_parts(part, kind)


def land(coarse: Topology, fine: Topology) -> list[Polygon]:
    """Give the world's land, fine inside FINE_BOX and coarse elsewhere, without a seam."""
    far = [
        shapely.simplify(shape, COARSE)
        for _, rings in coarse.polygons("land")
        if (shape := coarse.shape(rings)).area > SMALLEST_ISLAND
    ]
    near = [
        shapely.simplify(shape.intersection(FINE_BOX), FINE)
        for _, rings in fine.polygons("land")
        if shapely.intersects(FINE_BOX, shape := fine.shape(rings))
    ]
    whole = shapely.union_all([shapely.union_all(far).difference(FINE_BOX), *near])
    return list(_flat_parts(whole, Polygon))


def borders(countries: Topology) -> list[LineString]:
    """Give the lines between countries: the arcs that two of them share."""
    used = Counter(
        number if number >= 0 else ~number
        for _, rings in countries.polygons("countries")
        for numbers in rings
        for number in numbers
    )
    shared = [
        LineString(unwrapped(countries.arcs[number])) for number, uses in used.items() if uses > 1
    ]
    merged = shapely.simplify(shapely.line_merge(MultiLineString(shared)), COARSE)
    return list(_flat_parts(merged, LineString))


def country_names(countries: Topology) -> Iterator[list[Any]]:
    """Give every country's name at a place inside its largest part, large ones first."""
    largest: dict[str, BaseGeometry] = {}
    for properties, rings in countries.polygons("countries"):
        shape, name = countries.shape(rings), properties["name"]
        if name not in largest or shape.area > largest[name].area:
            largest[name] = shape
    for name, shape in sorted(largest.items(), key=lambda item: -item[1].area):
        middle = shape.representative_point()
        zoom = 2 if shape.area > 300 else 3 if shape.area > 60 else 4 if shape.area > 10 else 5
        yield [name, round(middle.x, 2), round(middle.y, 2), zoom, 1]


def steps(coordinates: Iterable[tuple[float, ...]]) -> list[int]:
    """Code a line as a start and steps, all in whole units; points that fall together go."""
    flat: list[int] = []
    x = y = 0
    for longitude, latitude in coordinates:
        next_x, next_y = round(longitude * SCALE), round(latitude * SCALE)
        if not flat or (next_x, next_y) != (x, y):
            flat += (next_x - x, next_y - y)
        x, y = next_x, next_y
    return flat


def make_world(folder: Path) -> dict[str, Any]:
    """Read a `world-atlas` folder and give what the page needs."""
    shapes = land(Topology(folder / "land-50m.json"), Topology(folder / "land-10m.json"))
    rings = (
        [steps(ring.coords) for ring in (shape.exterior, *shape.interiors)] for shape in shapes
    )
    return {
        "source": "Natural Earth (public domain), through world-atlas",
        "scale": SCALE,
        "land": [each for each in rings if len(each[0]) >= 8],
        "borders": [
            steps(line.coords) for line in borders(Topology(folder / "countries-50m.json"))
        ],
        "names": [
            *country_names(Topology(folder / "countries-110m.json")),
            *([*place, 0] for place in PLACES),
        ],
    }


def main(folder: str, target: str) -> None:
    """Write the outline and say how large it is."""
    world = make_world(Path(folder))
    text = json.dumps(world, separators=(",", ":"), ensure_ascii=False)
    Path(target).write_text(text, encoding="utf-8")
    print(f"{target}: {len(world['land'])} polygons, {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
