"""What goes into the log comes out of it again, and only what was asked for."""

import random
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
import shapely
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from plugins.event_log import index, reader
from plugins.event_log.reader import Cursor, Query
from plugins.event_log.segments import list_segments, opened
from protocol.errors import BadValue
from protocol.geo import Geo, Location
from protocol.geometry import Place, parse_form, parse_text, to_place
from protocol.message import Message
from protocol.relations import COVERS, DE9IM, DISJOINT, DWITHIN, INTERSECTS, TOUCHES, spatial
from protocol.topics import matches

DAY = date(2026, 3, 28)
NOON = 1_774_699_200_000  # 2026-03-28T12:00Z

WriteLog = Callable[..., None]
WriteLogTo = Callable[[Path], WriteLog]


def at(
    text: str, topic: str = "t", time: tuple[int, int] | None = None, epsg: int = 4326
) -> Message:
    parsed = parse_text(text, epsg)
    geo = Geo(0, b"", time, 3, text.encode(), parsed.epsg, parsed.place)
    return Message(topic, text.encode(), 0, False, "c", NOON, geo)


def found(data: Path, **what: object) -> list[reader.Event]:
    return list(reader.query(data, Query(**what)))  # type: ignore[arg-type]


def test_a_plain_message_round_trips(write_log: WriteLog, tmp_path: Path) -> None:
    write_log([Message("a/b", b"\x00\xff", 2, True, "me", NOON)])
    (event,) = found(tmp_path)
    assert (event.topic, event.payload, event.qos, event.retain) == ("a/b", b"\x00\xff", 2, 1)
    assert (event.client_id, event.received_ms, event.day) == ("me", NOON, DAY)
    assert (event.start_ms, event.end_ms, event.has_time) == (NOON, NOON, 0)
    assert (event.geo, event.place, event.cell, event.epsg) == (0, None, None, 4326)


def test_a_point_has_its_coordinates_and_no_wkb(write_log: WriteLog, tmp_path: Path) -> None:
    write_log([at("POINT(8.5 54.25)", time=(5, 5))])
    (event,) = found(tmp_path)
    assert (event.min_x, event.min_y, event.max_x, event.max_y) == (8.5, 54.25, 8.5, 54.25)
    assert (event.wkb, event.sent, event.geo, event.has_time) == (None, None, 1, 1)
    assert (event.start_ms, event.end_ms) == (5, 5)
    assert event.place == Place(8.5, 54.25)


def test_an_elevation_is_kept_in_the_wkb(write_log: WriteLog, tmp_path: Path) -> None:
    write_log([at("POINT Z(8.5 54.25 17)")])
    (event,) = found(tmp_path)
    assert event.wkb is not None
    assert shapely.from_wkb(event.wkb).wkt == "POINT Z (8.5 54.25 17)"
    assert event.place == Place(8.5, 54.25, 17.0)


def test_an_area_has_its_box_and_an_interval_its_end(write_log: WriteLog, tmp_path: Path) -> None:
    write_log([at("BBOX(1,2,3,5)", time=(10, 20))])
    (event,) = found(tmp_path)
    assert (event.min_x, event.min_y, event.max_x, event.max_y) == (1, 2, 3, 5)
    assert (event.start_ms, event.end_ms) == (10, 20)
    assert shapely.from_wkb(event.wkb).equals(shapely.box(1, 2, 3, 5))


def test_an_area_over_the_antimeridian_is_cut_there(write_log: WriteLog, tmp_path: Path) -> None:
    write_log([at("BBOX(170,-5,-170,5)")])
    (event,) = found(tmp_path)
    assert (event.min_x, event.max_x) == (-180, 180)
    assert shapely.from_wkb(event.wkb).area == 200
    assert event.place is not None
    assert event.place.bounds == (170, -5, 190, 5)


@pytest.mark.parametrize(
    ("form", "raw"),
    [
        (1, bytes.fromhex("411c0fb0 00000000 41569a27 00000000")),
        (3, b"POINT(459756 5925020)"),
        (3, b"SRID=25832;POINT(459756 5925020)"),
        (4, bytes.fromhex("01 01000000 00000000b00f1c41 00000000279a5641")),
        (5, b'{"type": "Point", "coordinates": [459756, 5925020]}'),
    ],
)
def test_a_place_in_another_system_is_kept_as_sent_and_in_degrees(
    write_log: WriteLog, tmp_path: Path, form: int, raw: bytes
) -> None:
    parsed = parse_form(form, raw, 25832)
    geo = Geo(geometry_form=form, geometry_raw=raw, epsg=parsed.epsg, place=parsed.place)
    write_log([Message("t", b"", 0, False, "c", NOON, geo)])
    (event,) = found(tmp_path)
    assert event.epsg == 25832
    assert shapely.from_wkb(event.sent).wkt == "POINT (459756 5925020)"
    assert event.min_x == pytest.approx(8.39, abs=0.01)
    assert event.min_y == pytest.approx(53.47, abs=0.01)


def test_where_the_publisher_was_last_is_never_logged(write_log: WriteLog, tmp_path: Path) -> None:
    publisher = Location(54.0, 8.0, float("nan"))
    write_log([Message("t", b"", 0, False, "c", NOON, publisher=publisher)])
    (event,) = found(tmp_path)
    assert (event.geo, event.place, event.cell) == (0, None, None)
    assert found(tmp_path, geo=True) == []


def test_an_event_with_a_time_and_no_place_is_no_geo_event(
    write_log: WriteLog, tmp_path: Path
) -> None:
    write_log([Message("t", b"", 0, False, "c", NOON, Geo(time=(7, 9)))])
    (event,) = found(tmp_path, geo=False)
    assert (event.start_ms, event.end_ms, event.has_time) == (7, 9, 1)


def test_times_are_half_open(write_log: WriteLog, tmp_path: Path) -> None:
    times = [(10, 10), (20, 20), (0, 10), (0, 11), (19, 40), (20, 40)]
    write_log([Message(str(n), b"", 0, False, "c", NOON, Geo(time=t)) for n, t in enumerate(times)])
    assert [event.topic for event in found(tmp_path, from_ms=10, to_ms=20)] == ["0", "3", "4"]


def test_filters_find_what_mqtt_says(write_log: WriteLog, tmp_path: Path) -> None:
    topics = ["a", "a/b", "a/b/c", "ab", "/a", "b/b", "a/", "$SYS/a", "$SYS/b", "ä/b"]
    write_log(
        [Message(topic, b"", 0, False, "c", NOON) for topic in topics], include=("#", "$SYS/#")
    )
    for wanted in ("#", "+", "a", "a/#", "a/+", "+/b", "+/+", "/+", "$SYS/#", "ä/#", "x", "a/+/c"):
        names = [event.topic for event in found(tmp_path, topic_filter=wanted)]
        assert names == [topic for topic in topics if matches(wanted, topic)], wanted


places = st.one_of(
    st.builds(Place, st.floats(-180, 179.9), st.floats(-90, 90)),
    st.sampled_from(
        [
            parse_text(text).place
            for text in (
                "POINT(-180 0)", "BBOX(170,-5,-170,5)", "BBOX(170,-5,180,5)",
                "BBOX(-180,-5,-170,5)",
                "LINESTRING(0 0, 10 10)", "BBOX(-180,-90,180,90)", "BBOX(0,0,1,1)",
                "MULTIPOINT(0 0, 5 5)", "BBOX(0,-10,0.5,10)", "POINT(179.99999 80)",
            )
        ]
    ),
)  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@example(
    events=[Place(-179.99999999999997, 0.0)],
    fence=to_place(shapely.box(170, -5, 180, 5)),
    relation=COVERS,
    tail=0,
)
@given(
    events=st.lists(places, min_size=1, max_size=30),
    fence=places,
    relation=st.sampled_from([COVERS, INTERSECTS, TOUCHES, DISJOINT, DE9IM, DWITHIN]),
    tail=st.integers(0, 30),
)
def test_a_query_by_place_finds_what_comparing_everything_finds(
    write_log_to: WriteLogTo,
    tmp_path_factory: pytest.TempPathFactory,
    events: list[Place],
    fence: Place,
    relation: int,
    tail: int,
) -> None:
    data = tmp_path_factory.mktemp("log")
    operand = {DE9IM: "FF*FF****", DWITHIN: 300_000.0}.get(relation)
    items = [
        Message(f"{n}", b"", 0, False, "c", NOON, Geo(place=place))
        for n, place in enumerate(events)
    ]
    write = write_log_to(data)
    write(items[tail:])
    write(items[:tail], close=False)  # in no summary
    expected = {n for n, place in enumerate(events) if spatial(relation, fence, place, operand)}
    what = Query(place=fence, relation=relation, operand=operand)  # type: ignore[arg-type]
    assert {int(event.topic) for event in reader.query(data, what)} == expected


def large_log(write_log: WriteLog, count: int = 150_000) -> list[tuple[str, float, float]]:
    """Two runs and a tail of points on 30 topics, with plain messages between them."""
    chance = random.Random(7)
    rows = [
        (f"node/{chance.randrange(30)}", chance.uniform(-180, 179), chance.uniform(-90, 90))
        for _ in range(count)
    ]
    write_log(
        [
            Message(topic, b"%d" % n, 0, False, f"c{n % 11}", NOON + n // 100,
                    None if n % 3 == 0 else Geo(place=Place(x, y)))
            for n, (topic, x, y) in enumerate(rows)
        ],
        close=False,
    )  # fmt: skip
    return rows


def test_runs_and_tail_answer_as_one(write_log: WriteLog, tmp_path: Path) -> None:
    rows = large_log(write_log)
    with opened(list_segments(tmp_path)[0]) as connection:
        assert len(index.runs(connection)) == 2
    fence = parse_text("BBOX(-20,-20,40,35)").place
    in_fence = [
        n for n, (topic, x, y) in enumerate(rows)
        if n % 3 and topic == "node/7" and -20 <= x <= 40 and -20 <= y <= 35
    ]  # fmt: skip
    events = found(tmp_path, topic_filter="node/7", place=fence)
    assert [int(event.payload) for event in events] == in_fence
    newest = found(tmp_path, topic_filter="node/7", place=fence, newest_first=True, limit=5)
    assert [int(event.payload) for event in newest] == in_fence[:-6:-1]
    assert found(tmp_path, topic_filter="node/7", place=fence, geo=False) == []
    placed = found(tmp_path, topic_filter="node/+", geo=True)
    assert [int(event.payload) for event in placed] == [n for n in range(len(rows)) if n % 3]
    plain = found(tmp_path, topic_filter="node/7", geo=False, from_ms=NOON + 1000)
    assert [int(event.payload) for event in plain] == [
        n
        for n, (topic, _, _) in enumerate(rows)
        if not n % 3 and topic == "node/7" and n >= 100_000
    ]
    last = {event.client_id: int(event.payload) for event in reader.latest(tmp_path)}
    assert last == {f"c{n % 11}": n for n in range(len(rows)) if n % 3}
    topics = {event.topic: int(event.payload) for event in reader.latest(tmp_path, by="topic")}
    assert topics == {row[0]: n for n, row in enumerate(rows) if n % 3}


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_join_without_gap_or_double(
    write_log: WriteLog, tmp_path: Path, newest_first: bool
) -> None:
    large_log(write_log, 70_000)
    write_log([Message("node/1", b"%d" % n, 0, False, "c", NOON + 86_400_000) for n in range(9)])
    whole = found(tmp_path, topic_filter="node/1", newest_first=newest_first)
    pages: list[reader.Event] = []
    after = None
    while page := found(
        tmp_path, topic_filter="node/1", newest_first=newest_first, limit=500, after=after
    ):
        pages += page
        after = Cursor.parse(str(page[-1].cursor))
    assert pages == whole
    assert len(whole) > 2000


@pytest.mark.parametrize(
    "text", ["", "2026-03-28", "2026-03-28.", "2026-03-28.-1", "x.1", "2026-13-1.1"]
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="no position in the log"):
        Cursor.parse(text)


def test_a_query_that_began_before_a_run_grew_still_answers(
    write_log: WriteLog, tmp_path: Path
) -> None:
    first = at("POINT(0 0)", topic="t/2")
    filling = (NOON, "c", b"\x30\x03\x00\x01f" * 65_535, 65_535)
    write_log([first, filling, *(at(f"POINT({n} 0)", topic=f"t/{n % 3}") for n in range(100))])
    fence = parse_text("BBOX(-1,-1,200,1)").place
    queries = [
        reader.query(tmp_path, Query("t/+", place=fence)),
        reader.query(tmp_path, Query("t/2")),
        reader.query(tmp_path, Query("#", geo=True)),
    ]
    assert [next(events).payload for events in queries] == [b"POINT(0 0)"] * 3
    write_log([at(f"POINT({n} 0)", topic=f"t/{n % 5}") for n in range(100, 170)])
    assert [len(list(events)) for events in queries] == [100, 33, 100]


def test_deleting_gives_back_what_is_gone_and_leaves_the_rest(
    write_log: WriteLog, tmp_path: Path
) -> None:
    rows = large_log(write_log, 70_000)
    gone = list(reader.delete(tmp_path, Query("node/3")))
    assert [int(event.payload) for event in gone] == [
        n for n, row in enumerate(rows) if row[0] == "node/3"
    ]
    assert found(tmp_path, topic_filter="node/3") == []
    assert len(found(tmp_path)) == len(rows) - len(gone)


def test_the_last_position_goes_back_when_the_newest_is_deleted(
    write_log: WriteLog, tmp_path: Path
) -> None:
    write_log([at(f"POINT({n} 0)", topic=f"t/{n}") for n in range(5)])
    list(reader.delete(tmp_path, Query("t/4")))
    list(reader.delete(tmp_path, Query("t/3")))
    (event,) = reader.latest(tmp_path)
    assert event.topic == "t/2"


def test_an_id_is_never_given_out_twice(write_log: WriteLog, tmp_path: Path) -> None:
    write_log([Message("old", b"", 0, False, "c", NOON)])
    (old,) = reader.delete(tmp_path, Query())
    write_log([Message("new", b"", 0, False, "c", NOON)])
    (new,) = found(tmp_path, after=old.cursor)
    assert (new.topic, new.id) == ("new", old.id + 1)
    assert new.place is None
