"""The world outline: how it is made, and whether what is shipped is a world."""

import json
from pathlib import Path

import pytest
import shapely

from plugins.rest_bridge import make_world
from plugins.rest_bridge.make_world import Topology, borders, steps, unwrapped

SHIPPED = Path(make_world.__file__).parent / "map" / "world.json"

# Two squares side by side, quantised to whole degrees, that share the arc between them.
TWO_COUNTRIES = {
    "type": "Topology",
    "transform": {"scale": [1, 1], "translate": [10, 20]},
    "arcs": [
        [[1, 0], [0, 1]],
        [[1, 1], [-1, 0], [0, -1], [1, 0]],
        [[1, 0], [1, 0], [0, 1], [-1, 0]],
    ],
    "objects": {
        "countries": {
            "type": "GeometryCollection",
            "geometries": [
                {"type": "Polygon", "properties": {"name": "West"}, "arcs": [[0, 1]]},
                {"type": "MultiPolygon", "properties": {"name": "East"}, "arcs": [[[2, -1]]]},
            ],
        }
    },
}


@pytest.fixture
def countries(tmp_path):
    path = tmp_path / "countries.json"
    path.write_text(json.dumps(TWO_COUNTRIES))
    return Topology(path)


def test_arcs_are_steps_and_may_run_backwards(countries):
    (_, west), (_, east) = countries.polygons("countries")
    assert countries.shape(west).equals(shapely.box(10, 20, 11, 21))
    assert countries.shape(east).equals(shapely.box(11, 20, 12, 21))


def test_a_border_is_what_two_countries_share(countries):
    [border] = borders(countries)
    assert border.equals(shapely.LineString([(11, 20), (11, 21)]))


def test_a_ring_over_the_antimeridian_goes_on_beyond_180():
    ring = [(170.0, 0.0), (-170.0, 0.0), (-170.0, 10.0), (170.0, 10.0), (170.0, 0.0)]
    assert shapely.Polygon(unwrapped(ring)).equals(shapely.box(170, 0, 190, 10))


def test_a_ring_round_the_pole_is_closed_along_the_edge_of_the_map():
    ring = [(-180.0, -70.0), (-60.0, -70.0), (60.0, -70.0), (-180.0, -70.0)]
    assert shapely.Polygon(unwrapped(ring)).equals(shapely.box(-180, -90, 180, -70))


def test_a_line_is_coded_as_a_start_and_steps_without_standing_still():
    line = [(8.5, 54.0), (8.5004, 54.0), (8.6, 54.1), (8.55, 54.1)]
    assert steps(line) == [8500, 54000, 100, 100, -50, 0]


def decoded(flat, scale):
    x = y = 0
    points = []
    for step_x, step_y in zip(flat[::2], flat[1::2], strict=True):
        x, y = x + step_x, y + step_y
        points.append((x / scale, y / scale))
    return points


@pytest.fixture(scope="module")
def shipped():
    return json.loads(SHIPPED.read_bytes())


@pytest.mark.parametrize(
    ("name", "lon", "lat", "is_land"),
    [
        ("Pellworm", 8.64, 54.52, True),
        ("the sea west of it", 8.45, 54.45, False),
        ("Husum", 9.06, 54.48, True),
        ("Chukotka, beyond the antimeridian", -175.0, 67.0, True),
        ("Kamchatka", 160.0, 56.0, True),
        ("Antarctica", 30.0, -80.0, True),
        ("the Atlantic", -40.0, 30.0, False),
        ("the Caspian Sea", 50.5, 42.0, False),
        ("the Pacific at the antimeridian", 179.9, 10.0, False),
    ],
)
def test_the_shipped_world_knows_land_from_sea(shipped, name, lon, lat, is_land):
    place = shapely.Point(lon, lat)
    scale = shipped["scale"]
    found = any(
        shapely.make_valid(
            shapely.Polygon(decoded(outer, scale), [decoded(hole, scale) for hole in holes])
        ).covers(place)
        for outer, *holes in shipped["land"]
    )
    assert found is is_land, name


def test_the_shipped_world_is_small_and_stays_on_the_map(shipped):
    assert SHIPPED.stat().st_size < 350_000
    for line in shipped["borders"] + [ring for rings in shipped["land"] for ring in rings]:
        assert all(abs(x) <= 180 and abs(y) <= 90 for x, y in decoded(line, shipped["scale"]))
    for name, lon, lat, zoom, _ in shipped["names"]:
        assert abs(lon) <= 180, name
        assert abs(lat) <= 90, name
        assert 0 <= zoom <= 18, name
