"""The index against brute force: the same subscriptions, once each, whatever happens.

Everything is drawn on a few stages where something can go wrong: a city, the antimeridian,
both poles, the corner of the map, the borders of the index's own cells. Coordinates come from
a coarse grid, so that events fall on edges and vertices all the time.
"""

from __future__ import annotations

from typing import Any

import pytest
import shapely
from hypothesis import HealthCheck, assume, event, given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.matching.fences import SMALL, FenceIndex
from broker.matching.probe import Probe
from protocol.conditions import Conditions, Spatial, Temporal
from protocol.errors import BadGeometry
from protocol.geometry import Place, parse_text
from protocol.relations import COVERS, DE9IM, DISJOINT, DWITHIN, INTERSECTS, RELATIONS
from protocol.temporal import TEMPORAL_RELATIONS, parse_filter
from tests.reference.matcher import Event, concerned

STAGES = [(8.5, 54.5), (180.0, 0.0), (-180.0, 66.5), (0.0, 0.0), (11.25, -22.5), (40.0, 89.0)]
PATTERNS = ["T*****FF*", "FF*FF****", "T********", "****T****", "T*F**F***"]
FILTERS = [
    "1970-01-01T00:00:00Z/PT10S",
    "1970-01-01T00:00:05Z/PT10S",
    "R5/1970-01-01T00:00:00Z/PT4S",
    "../1970-01-01T00:00:10Z",
    "0/2 * * * * ?/PT1S",
]


class Client:
    """Somebody who is somewhere, or nobody knows where."""

    def __init__(self) -> None:
        self.here: Place | None = None


class Item:
    """A subscription, as far as matching goes."""

    def __init__(self, client: Client, geo: Conditions) -> None:
        self.client = client
        self.geo = geo

    @property
    def here(self) -> Place | None:
        return self.client.here

    def __repr__(self) -> str:
        return f"Item({self.geo})"


# What is drawn

steps = st.integers(-8, 8)
sizes = st.integers(1, 6)
units = st.sampled_from([0.0625, 0.1, 0.3515625])  # of the cells', of people, of both
stages = st.sampled_from(STAGES)


def at(stage: tuple[float, float], unit: float, column: int, row: int) -> tuple[float, float]:
    """A corner of the grid of a stage; longitudes may lie beyond 180."""
    x, y = stage
    return round(x + column * unit, 10), min(90.0, max(-90.0, round(y + row * unit, 10)))


@st.composite
def positions(draw: Any) -> tuple[float, float]:
    return at(draw(stages), draw(units), draw(steps), draw(steps))


@st.composite
def points(draw: Any) -> Place:
    return Place(*draw(positions()))


def polygon(corners: list[tuple[float, float]]) -> str:
    ring = [*corners, corners[0]]
    return "((" + ",".join(f"{x!r} {y!r}" for x, y in ring) + "))"


@st.composite
def texts(draw: Any) -> str:
    """Geometry texts of every kind, some of them round the world or over a pole's edge."""
    stage, unit = draw(stages), draw(units)
    column, row, wide, high = draw(steps), draw(steps), draw(sizes), draw(sizes)
    west, south = at(stage, unit, column, row)
    east, north = at(stage, unit, column + wide, row + high)
    middle_x, middle_y = at(stage, unit, column + wide + 1, row + high + 1)
    kind = draw(st.integers(0, 10))
    box = f"BBOX({west!r},{south!r},{east!r},{north!r})"
    if kind <= 2:
        return box
    if kind == 3:
        return "POLYGON" + polygon([(west, south), (east, south), (middle_x, middle_y)])
    if kind == 4:
        inner_west, inner_south = at(stage, unit / 4, 4 * column + 1, 4 * row + 1)
        inner_east, inner_north = at(stage, unit / 4, 4 * column + 3, 4 * row + 3)
        outer = polygon([(west, south), (east, south), (east, north), (west, north)])
        hole = polygon(
            [
                (inner_west, inner_south),
                (inner_east, inner_south),
                (inner_east, inner_north),
                (inner_west, inner_north),
            ]
        )
        return f"POLYGON{outer[:-1]},{hole[1:]}"
    if kind == 5:
        return f"LINESTRING({west!r} {south!r},{east!r} {south!r},{east!r} {north!r})"
    if kind == 6:
        return f"MULTIPOINT(({west!r} {south!r}),({east!r} {north!r}))"
    if kind == 7:
        return f"BUFFER(POINT({west!r} {south!r}), {draw(st.sampled_from([500, 20_000]))})"
    if kind == 8:
        triangle = polygon([(west, south), (east, south), (middle_x, middle_y)])
        return f"GEOMETRYCOLLECTION(POINT({east!r} {north!r}),POLYGON{triangle})"
    if kind == 9:
        return draw(
            st.sampled_from(
                [
                    "BBOX(-180,-90,180,90)",
                    "BBOX(-180,-1,180,1)",
                    "BBOX(10,-5,9,5)",
                    "BBOX(-170,-5,169,5)",
                    "BBOX(170,-10,-170,10)",
                    "BBOX(100,60,180,90)",
                    "BBOX(-180,60,-100,70)",
                ]
            )
        )
    return f"POINT({west!r} {south!r})"


@st.composite
def places(draw: Any) -> Place:
    text = draw(texts())
    try:
        return parse_text(text).place
    except BadGeometry:
        assume(False)
        raise


@st.composite
def spatial_tests(draw: Any) -> Spatial:
    of_publisher = draw(st.integers(0, 3)) == 0
    if draw(st.integers(0, 3)) == 0:
        metres = draw(st.sampled_from([150.0, 7_000.0, 40_000.0, 300_000.0, 9_000_000.0]))
        relation = draw(st.sampled_from([COVERS, INTERSECTS]))
        return Spatial(relation, None, None, of_publisher, metres)
    relation = draw(st.sampled_from([COVERS, *range(1, len(RELATIONS))]))
    operand: str | float | None = None
    if relation == DE9IM:
        operand = draw(st.sampled_from(PATTERNS))
    elif relation == DWITHIN:
        operand = draw(st.sampled_from([0.0, 300.0, 12_000.0, 700_000.0]))
    return Spatial(relation, draw(places()), operand, of_publisher)


temporal_tests = st.builds(
    Temporal,
    st.sampled_from(sorted(set(TEMPORAL_RELATIONS.values()) - {0})),
    st.sampled_from([parse_filter(text) for text in FILTERS]),
)


@st.composite
def conditions(draw: Any) -> Conditions:
    tests = draw(st.lists(spatial_tests(), max_size=2 if draw(st.booleans()) else 1))
    times = draw(st.lists(temporal_tests, max_size=2)) if draw(st.integers(0, 3)) == 0 else []
    return Conditions(tuple(tests), tuple(times))


@st.composite
def events(draw: Any) -> Event:
    own = draw(st.one_of(points(), points(), places(), st.none()))
    publisher = draw(st.one_of(st.none(), points()))
    start = draw(st.integers(0, 20)) * 1000
    return Event(own, publisher, start, start + draw(st.sampled_from([0, 0, 1000, 5000])))


# The comparison


def check(index: FenceIndex[Item], items: list[Item], happened: Event) -> None:
    """Insist on the same subscriptions, each of them once."""
    probe = Probe(happened.place, happened.publisher, happened.start_ms, happened.end_ms)
    found = index.match(probe)
    wanted = concerned(items, happened)
    note(f"{happened}: {len(wanted)} of {len(items)}")
    assert sorted(map(id, found)) == sorted(map(id, wanted))
    for together in index.match_batch([probe, probe]):
        assert sorted(map(id, together)) == sorted(map(id, wanted))
    event("hits" if wanted else "no hits")


def corners_of(items: list[Item]) -> list[tuple[float, float]]:
    """All vertices of all fences."""
    return [
        (float(x), float(y))
        for item in items
        for test in item.geo.spatial
        if test.place is not None
        for x, y in shapely.get_coordinates(test.place.geometry)[:12]
    ]


class Matching(RuleBasedStateMachine):
    """Subscriptions come and go, clients move, events happen."""

    def __init__(self) -> None:
        super().__init__()
        self.index: FenceIndex[Item] = FenceIndex()
        self.items: list[Item] = []
        self.clients = [Client() for _ in range(3)]

    @initialize(several=st.lists(st.tuples(st.integers(0, 2), conditions()), max_size=2 * SMALL))
    def begin(self, several: list[tuple[int, Conditions]]) -> None:
        for number, geo in several:
            self.subscribe(number, geo)

    @rule(number=st.integers(0, 2), geo=conditions())
    def subscribe(self, number: int, geo: Conditions) -> None:
        item = Item(self.clients[number], geo)
        self.items.append(item)
        self.index.add(item)

    @precondition(lambda self: self.items)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.items))
        self.items.remove(item)
        self.index.remove(item)

    @rule(number=st.integers(0, 2), there=st.one_of(points(), points(), st.none()))
    def move(self, number: int, there: Place | None) -> None:
        client = self.clients[number]
        client.here = there
        for item in self.items:
            if item.client is client:
                self.index.move(item)

    @rule(happened=events())
    def happen(self, happened: Event) -> None:
        check(self.index, self.items, happened)

    @precondition(lambda self: corners_of(self.items))
    @rule(data=st.data(), of_publisher=st.booleans())
    def happen_on_a_vertex(self, data: st.DataObject, of_publisher: bool) -> None:
        where = Place(*data.draw(st.sampled_from(corners_of(self.items))))
        check(self.index, self.items, Event(None if of_publisher else where, where, 0, 0))

    @precondition(lambda self: any(client.here for client in self.clients))
    @rule(number=st.integers(0, 2), column=steps, row=steps)
    def happen_near_a_client(self, number: int, column: int, row: int) -> None:
        here = self.clients[number].here
        if here is not None:
            x, y = at((here.x, here.y), 0.01, column, row)
            check(self.index, self.items, Event(Place(x, y), None, 0, 0))

    @invariant()
    def holds_what_was_added(self) -> None:
        assert list(self.index) == self.items
        assert len(self.index) == len(self.items)


TestMatching = Matching.TestCase
TestMatching.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    st.lists(conditions(), min_size=SMALL + 1, max_size=40),
    st.lists(events(), min_size=1, max_size=12),
    points(),
)
def test_every_event_finds_the_subscriptions_that_brute_force_finds(
    several: list[Conditions], happened: list[Event], here: Place
) -> None:
    client = Client()
    client.here = here
    items = [Item(client, geo) for geo in several]
    index: FenceIndex[Item] = FenceIndex()
    for item in items:
        index.add(item)
    for each in happened:
        check(index, items, each)
    probes = [Probe(each.place, each.publisher, each.start_ms, each.end_ms) for each in happened]
    for each, together in zip(happened, index.match_batch(probes), strict=True):
        assert sorted(map(id, together)) == sorted(map(id, concerned(items, each)))
    for item in items[::2]:
        index.remove(item)
    for each in happened:
        check(index, items[1::2], each)


def filled(*texts: str, relation: int = COVERS, operand: Any = None) -> FenceIndex[Item]:
    """An index with these fences first, and enough others elsewhere to be worth an index."""
    index: FenceIndex[Item] = FenceIndex()
    for text in texts:
        test = Spatial(relation, parse_text(text).place, operand)
        index.add(Item(Client(), Conditions((test,))))
    for number in range(SMALL + 1):
        far = parse_text(f"BBOX({-60 - number},-60,{-59.5 - number},-59)").place
        index.add(Item(Client(), Conditions((Spatial(COVERS, far),))))
    return index


def hits(index: FenceIndex[Item], where: str) -> int:
    """How many of the fences an event finds."""
    return len(index.match(Probe(parse_text(where).place, None, 0, 0)))


@pytest.mark.parametrize(
    "where", ["POINT(180 0)", "POINT(-180 0)", "POINT(170 10)", "POINT(190 1)"]
)
def test_a_fence_over_the_antimeridian_is_found_from_both_sides(where: str) -> None:
    assert hits(filled("BBOX(170,-10,-170,10)"), where) == 1


def test_a_fence_almost_right_round_the_world_is_found_once_everywhere() -> None:
    """Both of its ends lie in one cell of the index."""
    index = filled("BBOX(10,-5,9,5)")
    assert [hits(index, f"POINT({x} 0)") for x in (8, 9, 9.5, 10, 11, 180, -180)] == [
        1, 1, 0, 1, 1, 1, 1,
    ]  # fmt: skip


def test_the_edge_of_a_fence_beyond_the_antimeridian_is_exact() -> None:
    """-169.9 and a turn is 190.10000000000002, where the fence ends at 190.1."""
    index = filled("BBOX(170.3,-10,-169.9,10)")
    assert hits(index, "POINT(-169.9 1)") == 1
    assert hits(index, "POINT(-169.8999 1)") == 0


def test_two_neighbours_both_have_their_common_border() -> None:
    index = filled("BBOX(8,54,8.5,55)", "BBOX(8.5,54,9,55)")
    assert hits(index, "POINT(8.5 54.3)") == 2
    assert hits(index, "POINT(8.4999 54.3)") == 1
    assert (
        hits(filled("BBOX(8,54,8.5,55)", "BBOX(8.5,54,9,55)", relation=2), "POINT(8.5 54.3)") == 0
    )


def test_a_hole_is_outside_and_its_edge_is_not() -> None:
    index = filled("POLYGON((0 0,8 0,8 8,0 8,0 0),(2 2,6 2,6 6,2 6,2 2))")
    assert hits(index, "POINT(4 4)") == 0
    assert hits(index, "POINT(2 3)") == 1
    assert hits(index, "POINT(1 1)") == 1


def test_every_longitude_of_a_pole_is_one_corner_of_the_index() -> None:
    index = filled("BBOX(-180,80,180,90)", "BBOX(0,80,90,90)")
    assert hits(index, "POINT(45 90)") == 2
    assert hits(index, "POINT(-45 90)") == 1
    assert hits(index, "POINT(45 -90)") == 0


def test_an_event_with_an_extent_that_touches_a_fence_beyond_the_antimeridian_is_found() -> None:
    """The fence ends at -169.9, which is 190.1 in its own frame, and back again is not quite."""
    index = filled("BBOX(170.3,-10,-169.9,10)", relation=INTERSECTS)
    assert hits(index, "BBOX(-169.9,0,-169,1)") == 1


def test_disjoint_is_found_on_the_other_side_of_the_world() -> None:
    index = filled("BBOX(8,54,9,55)", relation=DISJOINT)
    assert hits(index, "POINT(-100 -30)") == 1
    assert hits(index, "POINT(8 54)") == 0


def test_a_distance_reaches_round_the_pole() -> None:
    index = filled("POINT(0 89.9)", relation=DWITHIN, operand=25_000.0)
    assert hits(index, "POINT(180 89.9)") == 1
    assert hits(index, "POINT(180 89.8)") == 0


def test_it_counts_candidates_and_hits() -> None:
    index = filled("BBOX(8,54,9,55)")
    hits(index, "POINT(8.5 54.5)")
    hits(index, "POINT(20 20)")
    assert index.hits == 1
    assert index.candidates >= 1
