"""The examples of the papers that the protocol comes from, on the running daemon."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tests.conformance.raw import Clients, publish, subscribe_with
from tests.integration.geo.wire import (
    entry,
    geopublish,
    granted,
    location,
    move,
    payloads,
    publishg,
    settle,
    tell,
)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


# GeoMQTT: intervals and covers (Herle, Becker and Blankenbach, "Bridging GeoMQTT and REST")


@pytest.mark.parametrize("door", ["GEOSUBSCRIBE", "$geo/"])
def test_geomqtts_interval_lasts_two_hours_and_a_half(
    clients: Clients, topic: str, door: str
) -> None:
    """`2016-03-28T11:15:00Z/PT2H30M` subscribes to events until 13:45:00Z, within a polygon."""
    client, sensor = clients.connect(), clients.connect()
    dike = "POLYGON((8.5 54.4,8.7 54.4,8.7 54.6,8.5 54.6,8.5 54.4))"
    interval = "2016-03-28T11:15:00Z/PT2H30M"
    if door == "$geo/":
        subscribe_with(client, f"$geo/covers={dike};time={interval.replace('/', '--')}/{topic}/#")
    else:
        granted(client, entry(f"{topic}/#", at=dike, time=interval))
    on_the_dike, elsewhere = "POINT(8.58 54.51)", "POINT(8.8 54.51)"
    times = {
        "before": "2016-03-28T11:14:59.999",
        "start": "2016-03-28T11:15:00",
        "within": "2016-03-28T12:00:00",
        "last": "2016-03-28T13:44:59.999",
        "end": "2016-03-28T13:45:00",
    }
    for name, text in times.items():
        settle(sensor, geopublish(f"{topic}/t", name, at=on_the_dike, time=ms(text)))
    settle(sensor, geopublish(f"{topic}/t", "elsewhere", at=elsewhere, time=ms(times["within"])))
    assert payloads(client, 3) == ["start", "within", "last"]


# MQTT-G: forest fires (Bryce and Srivastava, "The Addition of Geolocation to Sensor Networks")


def test_fire_crews_hear_of_their_own_fire_and_managers_of_all(
    clients: Clients, topic: str
) -> None:
    """Two fires, a crew with a polygon for each, a manager with a political boundary."""
    north = "POLYGON((-115.2 55.0,-115.0 55.0,-115.0 55.2,-115.2 55.2,-115.2 55.0))"
    south = "POLYGON((-114.2 53.0,-114.0 53.0,-114.0 53.2,-114.2 53.2,-114.2 53.0))"
    province = "BBOX(-120,49,-110,60)"
    crews = {}
    for name, fence in (("north", north), ("south", south), ("manager", province)):
        crews[name] = clients.subscribed(topic)
        tell(crews[name], "$/SYS/MQTT/geofence/fire", fence)
    spotter = clients.connect()
    settle(spotter, publishg(topic, "flames", location(55.1, -115.1)))
    settle(spotter, publishg(topic, "smoke", location(53.1, -114.1)))
    settle(spotter, publishg(topic, "sunshine", location(40.0, -100.0)))
    assert payloads(crews["north"], 1) == ["flames"]
    assert payloads(crews["south"], 1) == ["smoke"]
    assert payloads(crews["manager"], 2) == ["flames", "smoke"]


def test_a_third_party_joins_by_drawing_the_same_fence(clients: Clients, topic: str) -> None:
    helper, spotter = clients.subscribed(topic), clients.connect()
    settle(spotter, publishg(topic, "before", location(55.1, -115.1)))
    helper.expect(publish(topic, "before"))
    tell(helper, "$/SYS/MQTT/geofence/fire", "BBOX(-115.2,55,-115,55.2)")
    settle(spotter, publishg(topic, "far", location(40.0, -100.0)))
    settle(spotter, publishg(topic, "near", location(55.1, -115.1)))
    assert payloads(helper, 1) == ["near"]


def test_a_polygon_moves_with_the_last_known_location_of_its_client(
    clients: Clients, topic: str
) -> None:
    """ "Dynamic": and any packet moves it, so that no packet is sent for that alone."""
    crew, spotter = clients.subscribed(topic), clients.connect()
    move(crew, 55.1, -115.1)
    dynamic = {"geometry": "BBOX(-115.11,55.09,-115.09,55.11)", "mode": "dynamic"}
    tell(crew, "$/SYS/MQTT/geofence/around", json.dumps(dynamic))
    settle(crew, publishg(f"{topic}/report", "on our way", location(55.5, -115.5)))
    settle(spotter, publishg(topic, "old", location(55.1, -115.1)))
    settle(spotter, publishg(topic, "new", location(55.5, -115.5)))
    assert payloads(crew, 1) == ["new"]


# GeoBroker: geo-contexts (Hasenburg and Bermbach, "Using geo-context information for efficient
# rendezvous-based routing in publish/subscribe systems"), read with one broker for all areas

AREA_1 = "BBOX(0,0,10,10)"
AREA_2 = "BBOX(10,0,20,10)"
GEOFENCES = {
    "1": "BUFFER(POINT(4 5), 200000)",  # in the first area
    "2": "BBOX(8,3,12,7)",  # in both
    "3": "BBOX(13,3,17,7)",  # in the second
}


def test_the_subscription_geocheck(clients: Clients, topic: str) -> None:
    """Publishers must be inside the subscription geofence."""
    client, inside, outside = (clients.connect() for _ in range(3))
    granted(client, entry(topic, at=AREA_1, publisher=True))
    move(inside, 5.0, 5.0)
    move(outside, 5.0, 15.0)
    settle(outside, publish(topic, "outside"), geopublish(topic, "outside", at=(5.0, 5.0)))
    settle(inside, publish(topic, "inside"), geopublish(topic, "also", at=(15.0, 5.0)))
    assert payloads(client, 2) == ["inside", "also"]


def test_the_event_geocheck(clients: Clients, topic: str) -> None:
    """Subscribers must be inside the event geofence."""
    inside, outside, nowhere = (clients.subscribed(topic) for _ in range(3))
    move(inside, 5.0, 5.0)
    move(outside, 5.0, 15.0)
    settle(clients.connect(), geopublish(topic, "x", to=AREA_1))
    assert payloads(inside, 1) == ["x"]
    outside.expect_nothing()
    nowhere.expect_nothing()


def test_both_geochecks_and_the_topic_must_agree(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(topic, at=AREA_1, publisher=True))
    for lon_subscriber, lon_publisher, geofence, name, arrives in (
        (5.0, 5.0, AREA_1, topic, True),
        (5.0, 15.0, AREA_1, topic, False),
        (15.0, 5.0, AREA_1, topic, False),
        (15.0, 15.0, AREA_1, topic, False),
        (5.0, 5.0, AREA_1, f"{topic}/other", False),
        (15.0, 5.0, AREA_2, topic, True),
    ):
        move(client, 5.0, lon_subscriber)
        move(sensor, 5.0, lon_publisher)
        settle(sensor, geopublish(name, "x", to=geofence))
        assert payloads(client, int(arrives)) == ["x"] * arrives


def test_three_event_geofences_reach_the_clients_of_one_area_of_both_or_of_the_other(
    clients: Clients, topic: str
) -> None:
    """Figure 3: the publisher is in the first area; where its events arrive is up to the fence."""
    positions = {"first": (5.0, 4.0), "first, near 2": (5.0, 9.0), "second, near 1": (5.0, 11.0),
                 "second": (5.0, 15.0)}  # fmt: skip
    subscribers = {name: clients.subscribed(topic) for name in positions}
    for name, (lat, lon) in positions.items():
        move(subscribers[name], lat, lon)
    publisher = clients.connect()
    move(publisher, 5.0, 3.0)
    settle(publisher, *(geopublish(topic, name, to=fence) for name, fence in GEOFENCES.items()))
    found = {name: payloads(client, 1) for name, client in subscribers.items()}
    assert found == {
        "first": ["1"], "first, near 2": ["2"], "second, near 1": ["2"], "second": ["3"],
    }  # fmt: skip


def test_three_subscription_geofences_take_from_one_area_from_both_or_from_the_other(
    clients: Clients, topic: str
) -> None:
    """Figure 4: the subscriber is in the first area; whom it hears is up to the fence."""
    subscribers = {name: clients.connect() for name in GEOFENCES}
    for name, fence in GEOFENCES.items():
        move(subscribers[name], 5.0, 3.0)
        granted(subscribers[name], entry(topic, at=fence, publisher=True))
    for name, lon in (
        ("first", 4.0),
        ("west of the border", 9.0),
        ("east of it", 11.0),
        ("second", 15.0),
    ):
        publisher = clients.connect()
        move(publisher, 5.0, lon)
        settle(publisher, publish(topic, name))
    assert payloads(subscribers["1"], 1) == ["first"]
    assert payloads(subscribers["2"], 2) == ["west of the border", "east of it"]
    assert payloads(subscribers["3"], 1) == ["second"]
