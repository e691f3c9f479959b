"""Geometries and times as Python has them, and the bytes they become."""

from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
import shapely
from shapely import Point, Polygon, box

from geomqtt import machine as m
from geomqtt.messages import Message
from geomqtt.place_and_time import event_geo, geo_entry, geometry_form, moment
from protocol import packets as p
from protocol.envelope import GeoEntry

POINT = "40 2a cf 5c 28 f5 c2 8f 40 4a 42 8f 5c 28 f5 c3"  # 13.405, 52.52
EVENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)  # 1,700,000,000 s


def sent_by(act) -> str:
    machine = m.ClientMachine(p.Connect("c1"))
    machine.connection_made()
    list(machine.receive_data(bytes.fromhex("20 02 00 00")))
    machine.data_to_send()
    act(machine)
    return machine.data_to_send().hex(" ")


def published(*, qos=0, retain=False, at=None, time=None, to=None, epsg=None) -> str:
    geo = event_geo(at, time, to, epsg)
    return sent_by(lambda machine: machine.publish(p.Publish("a/b", b"hi", qos, retain, geo=geo)))


def subscribed(topic_filter="a/#", qos=0, **conditions) -> str:
    entry = geo_entry(topic_filter, qos, conditions)
    return sent_by(lambda machine: machine.geo_subscribe([entry]))


def received(text: str) -> Message:
    machine = m.ClientMachine(p.Connect("c1"))
    machine.connection_made()
    [_, event] = machine.receive_data(bytes.fromhex("20 02 00 00" + text))
    assert isinstance(event, m.MessageReceived)
    return Message(event.packet)


def test_a_shapely_point_goes_out_as_two_numbers():
    assert published(qos=1, at=Point(13.405, 52.52)) == (
        f"f6 1b 32 00 03 61 2f 62 00 01 08 {POINT} 68 69"
    )


def test_a_named_pair_goes_out_as_the_same_two_numbers():
    assert published(at={"lat": 52.52, "lon": 13.405}) == published(at=Point(13.405, 52.52))


def test_text_goes_out_as_it_is_written_with_its_instant():
    assert published(at="POINT (13.405 52.52)", time=1_700_000_000_000) == (
        "f6 26 30 00 03 61 2f 62 19 00 00 01 8b cf e5 68 00"
        " 14 50 4f 49 4e 54 20 28 31 33 2e 34 30 35 20 35 32 2e 35 32 29 68 69"
    )


def test_an_interval_and_a_point_with_elevation():
    interval = (EVENT, EVENT + timedelta(hours=1))
    assert published(retain=True, at=Point(13.405, 52.52, 34), time=interval) == (
        "f6 31 31 00 03 61 2f 62 12 00 00 01 8b cf e5 68 00 00 00 01 8b d0 1c 56 80"
        f" {POINT} 40 41 00 00 00 00 00 00 68 69"
    )


def test_an_interval_may_be_open():
    assert published(time=(None, EVENT)) == (
        "f6 19 30 00 03 61 2f 62 02 80 00 00 00 00 00 00 00 00 00 01 8b cf e5 68 00 68 69"
    )


def test_a_geofence_is_an_extension():
    assert published(at=Point(13.405, 52.52), to="BUFFER(POINT(13.405 52.52), 500)") == (
        f"f6 3d 30 00 03 61 2f 62 88 {POINT} 23 01 21 03"
        " 42 55 46 46 45 52 28 50 4f 49 4e 54 28 31 33 2e 34 30 35 20 35 32 2e 35 32 29 2c 20"
        " 35 30 30 29 68 69"
    )


def test_a_geofence_in_another_system_names_it():
    fence = shapely.set_srid(box(294400, 5628700, 294500, 5628800), 25832)
    text = published(to=fence)
    assert bytes.fromhex(text).endswith(
        b"SRID=25832;POLYGON ((294500 5628700, 294500 5628800, 294400 5628800, "
        b"294400 5628700, 294500 5628700))hi"
    )


def test_another_system_is_named_beside_the_geometry():
    expected = (
        "f6 24 30 00 03 61 2f 62 58 00 00 64 e8"
        " 16 50 4f 49 4e 54 20 28 32 39 34 34 30 30 20 35 36 32 38 37 30 30 29 68 69"
    )
    assert published(at="POINT (294400 5628700)", epsg=25832) == expected


def test_a_geometry_that_knows_its_system_need_not_be_told():
    point = shapely.set_srid(Point(294400, 5628700), 25832)
    assert published(at=point) == published(at=Point(294400, 5628700), epsg=25832)


def test_geojson_is_taken_as_text_as_a_dict_and_from_whoever_offers_it():
    described = {"type": "Point", "coordinates": [13.405, 52.52]}
    text = '{"type": "Point", "coordinates": [13.405, 52.52]}'
    forms = {
        geometry_form(each)
        for each in (text, described, SimpleNamespace(__geo_interface__=described))
    }
    assert forms == {(5, text.encode(), 4326)}


def test_wkb_is_taken_as_bytes_and_made_of_other_geometries():
    polygon = Polygon([(13, 52), (14, 52), (14, 53), (13, 53), (13, 52)])
    assert geometry_form(polygon) == geometry_form(shapely.to_wkb(polygon))
    assert geometry_form(polygon)[0] == 4


@pytest.mark.parametrize(
    ("geometry", "reason"),
    [
        ("POINT(200", "geometry"),
        ("nowhere", "unsupported"),
        (Point(13, 91), "latitude 91"),
        (Point(), "empty"),
        (Polygon([(0, 0), (1, 1), (1, 0), (0, 1)]), "invalid"),
        ((13.4, 52.5), "tuple is no geometry"),
        (13, "int is no geometry"),
        ({"type": "Nothing"}, "unsupported geojson type"),
        (b"\x07", "byte order"),
    ],
)
def test_what_is_no_geometry_is_a_value_error(geometry, reason):
    with pytest.raises(ValueError, match=f"(?i){reason}"):
        event_geo(geometry, None, None, None)


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (datetime(2026, 3, 28), "no time zone"),
        ("yesterday", "yesterday"),
        (1.5, "no datetime"),
        (True, "no datetime"),
        ((EVENT, EVENT - timedelta(seconds=1)), "ends before"),
        ((EVENT,), "start, end"),
    ],
)
def test_what_is_no_time_is_a_value_error(time, reason):
    with pytest.raises(ValueError, match=reason):
        event_geo(None, time, None, None)


def test_an_epsg_code_without_a_geometry_is_a_value_error():
    with pytest.raises(ValueError, match="epsg"):
        event_geo(None, EVENT, None, 25832)


def test_a_zone_is_reckoned_with():
    berlin = timezone(timedelta(hours=1))
    assert published(time=EVENT.astimezone(berlin)) == published(time=EVENT)


def test_covers_and_an_interval():
    assert subscribed(
        qos=1,
        covers="POLYGON ((13 52,14 52,14 53,13 53,13 52))",
        during="2016-03-28T11:15:00Z/PT2H30M",
    ) == (
        "f6 59 82 00 01 00 03 61 2f 23 01 01 00 1c"
        " 32 30 31 36 2d 30 33 2d 32 38 54 31 31 3a 31 35 3a 30 30 5a 2f 50 54 32 48 33 30 4d"
        " 01 03 00 00 00 00 29 50 4f 4c 59 47 4f 4e 20 28 28 31 33 20 35 32 2c 31 34 20 35 32 2c"
        " 31 34 20 35 33 2c 31 33 20 35 33 2c 31 33 20 35 32 29 29 00"
    )


def test_near_me_as_plain_messages():
    assert subscribed(near=150, deliver="plain") == (
        "f6 1c 82 00 01 00 03 61 2f 23 00 00 00 00 01 07 00 00 00 00 08 40 62 c0 00 00 00 00 00 01"
    )


def test_the_publisher_within_500_metres():
    assert subscribed(qos=2, dwithin=(500, "POINT (13.405 52.52)"), publisher=True) == (
        "f6 30 82 00 01 00 03 61 2f 23 02 00 00 00 8c 03 00 00 00 00 1c 40 7f 40 00 00 00 00 00"
        " 50 4f 49 4e 54 20 28 31 33 2e 34 30 35 20 35 32 2e 35 32 29 00"
    )


def test_a_pattern_in_another_system_delivered_as_geojson_in_it():
    assert subscribed(
        "b",
        1,
        de9im=("T*F**F***", "POINT (294400 5628700)"),
        epsg=25832,
        deliver="geojson",
        reproject=True,
    ) == (
        "f6 31 82 00 01 00 01 62 01 00 00 00 0b 03 00 00 64 e8 1f 54 2a 46 2a 2a 46 2a 2a 2a"
        " 50 4f 49 4e 54 20 28 32 39 34 34 30 30 20 35 36 32 38 37 30 30 29 83"
    )


def test_a_filter_may_be_an_interval_of_datetimes():
    entry = geo_entry("a", 0, {"during": (EVENT, None), "time_relation": "after"})
    assert entry.temporal_filter == "2023-11-14T22:13:20Z/.."
    assert entry.temporal_relation == 3


@pytest.mark.parametrize(
    ("number", "name"),
    enumerate(
        ["covers", "contains", "intersects", "equals", "touches", "crosses", "overlaps",
         "within", "covered_by", "disjoint"], 1
    ),
)  # fmt: skip
def test_every_relation_has_its_number(number, name):
    entry = geo_entry("a", 0, {name: box(8, 54, 9, 55)})
    assert (entry.spatial_relation, entry.form) == (number, 4)


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ({"covers": "BBOX(1,2,3,4)", "near": 10}, "one spatial condition"),
        ({"covers": "BBOX(1,2,3)"}, "four numbers"),
        ({"near": -1}, "distance"),
        ({"near": float("nan")}, "distance"),
        ({"dwithin": (float("inf"), "POINT(1 2)")}, "distance"),
        ({"de9im": ("T", "POINT(1 2)")}, "DE-9IM"),
        ({"during": "2026-03-28"}, "2026-03-28"),
        ({"during": "2026/2027", "time": "2026/2027"}, "two names"),
        ({"time_relation": "before"}, "without a filter"),
        ({"during": "2026-01-01/P1D", "time_relation": "beside"}, "beside"),
        ({"covers": "POINT(1 2)", "epsg": 999_999}, "999999"),
        ({"covers": "POINT(1 2)", "deliver": "xml"}, "xml"),
        ({"publisher": True}, "spatial condition"),
    ],
)
def test_conditions_that_cannot_be_granted_are_refused_before_they_are_sent(conditions, reason):
    with pytest.raises(ValueError, match=f"(?i){reason}"):
        geo_entry("a", 0, conditions)


def test_an_unknown_condition_is_a_type_error():
    with pytest.raises(TypeError, match="'cover'"):
        geo_entry("a", 0, {"cover": "POINT(1 2)"})


def test_taking_back_any_place_does_not_take_back_everything():
    assert not geo_entry("a", 0, {"geo": True}).names_all


def test_a_geo_subscription_is_answered_made_again_and_taken_back():
    machine = m.ClientMachine(p.Connect("c1"))
    machine.connection_made()
    list(machine.receive_data(bytes.fromhex("20 02 00 00")))
    entries = [geo_entry("a", 1, {"near": 150}), geo_entry("a", 1, {"geo": True})]
    machine.geo_subscribe(entries)
    assert list(machine.receive_data(bytes.fromhex("f6 05 90 00 01 01 97"))) == [
        m.RequestAnswered(1, (1, 0x97))
    ]
    machine.connection_lost()
    machine.connection_made()
    machine.data_to_send()
    list(machine.receive_data(bytes.fromhex("20 02 00 00")))
    assert machine.data_to_send().hex(" ") == (
        "f6 1a 82 00 02 00 01 61 01 00 00 00 01 07 00 00 00 00 08 40 62 c0 00 00 00 00 00 00"
    )
    assert list(machine.receive_data(bytes.fromhex("f6 04 90 00 02 97"))) == [
        m.SubscriptionLost("a", 0x97)
    ]
    assert machine.geo_subscriptions == {}


def test_all_geo_subscriptions_of_a_filter_are_taken_back_with_zeros():
    machine = m.ClientMachine(p.Connect("c1"))
    machine.connection_made()
    list(machine.receive_data(bytes.fromhex("20 02 00 00")))
    machine.geo_subscribe([geo_entry("a/#", 0, {"near": 1}), geo_entry("b", 0, {"near": 1})])
    list(machine.receive_data(bytes.fromhex("f6 05 90 00 01 00 00")))
    machine.data_to_send()
    machine.geo_unsubscribe([GeoEntry("a/#")])
    assert machine.data_to_send().hex(" ") == (
        "f6 12 a2 00 02 00 03 61 2f 23 00 00 00 00 00 00 00 00 00 00"
    )
    assert list(machine.receive_data(bytes.fromhex("f6 04 b0 00 02 00"))) == [
        m.RequestAnswered(2, (0,))
    ]
    assert [entry.topic_filter for entry in machine.geo_subscriptions.values()] == ["b"]


def test_a_received_event_has_place_and_time():
    message = received(
        "f6 26 30 00 03 61 2f 62 19 00 00 01 8b cf e5 68 00"
        " 14 50 4f 49 4e 54 20 28 31 33 2e 34 30 35 20 35 32 2e 35 32 29 68 69"
    )
    assert (message.topic, message.payload) == ("a/b", b"hi")
    assert message.place == Point(13.405, 52.52)
    assert (message.geometry, message.epsg) == (Point(13.405, 52.52), 4326)
    assert message.time == EVENT
    assert message.time_text == "2023-11-14T22:13:20Z"
    assert message.fence is None


def test_a_received_event_in_another_system_has_both_readings():
    message = received(
        "f6 24 30 00 03 61 2f 62 58 00 00 64 e8"
        " 16 50 4f 49 4e 54 20 28 32 39 34 34 30 30 20 35 36 32 38 37 30 30 29 68 69"
    )
    assert (message.geometry, message.epsg) == (Point(294400, 5628700), 25832)
    assert message.place is not None
    assert message.place.distance(Point(6.085, 50.77)) < 0.02
    assert message.time is None


def test_a_received_interval_has_two_ends_or_none():
    message = received(
        "f6 31 31 00 03 61 2f 62 12 00 00 01 8b cf e5 68 00 7f ff ff ff ff ff ff ff"
        f" {POINT} 40 41 00 00 00 00 00 00 68 69"
    )
    assert message.time == (EVENT, None)
    assert message.place == Point(13.405, 52.52, 34)


def test_a_received_geofence_can_be_seen():
    message = received(
        f"f6 3d 30 00 03 61 2f 62 88 {POINT} 23 01 21 03"
        " 42 55 46 46 45 52 28 50 4f 49 4e 54 28 31 33 2e 34 30 35 20 35 32 2e 35 32 29 2c 20"
        " 35 30 30 29 68 69"
    )
    assert message.fence is not None
    assert message.fence.covers(Point(13.405, 52.52))


def test_a_plain_message_has_neither():
    message = received("30 07 00 03 61 2f 62 68 69")
    assert (message.place, message.geometry, message.time, message.fence) == (None,) * 4


def test_times_beyond_the_calendar_stop_at_its_ends():
    assert moment(2**62) == datetime.max.replace(tzinfo=UTC)
    assert moment(-(2**62)) == datetime.min.replace(tzinfo=UTC)
