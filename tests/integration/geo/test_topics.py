"""`$geo/` topics: standard clients, unmodified, as geo clients."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import paho.mqtt.client as paho
import pytest

from tests.conformance.raw import (
    Clients,
    clients_of,
    publish,
    subscribe,
    subscribe_with,
    unsubscribe,
)
from tests.conftest import RunningBroker
from tests.integration.geo.wire import (
    entry,
    fence,
    geopublish,
    granted,
    location,
    move,
    publishg,
    received,
    settle,
)

BOX = "BBOX(8,54,9,55)"
TIMEOUT_S = 20


def at(place: str, topic: str) -> str:
    return f"$geo/at={place}/{topic}"


def test_a_geo_publish_of_a_standard_client_reaches_everybody_in_their_form(
    clients: Clients, topic: str
) -> None:
    plain, geo, other = clients.subscribed(topic), clients.connect(), clients.connect()
    in_topic = clients.subscribed(f"$geo/covers={BOX}/{topic}")
    granted(geo, entry(topic, at=BOX))
    name = f"$geo/at=POINT(8.58 54.51);time=2026-03-28T11:15:00Z/{topic}"
    settle(other, publish(name, "21"))
    plain.expect(publish(topic, "21"))
    in_topic.expect(publish(topic, "21"))
    geo.expect(geopublish(topic, "21", at="POINT(8.58 54.51)", time="2026-03-28T11:15:00Z"))


def test_a_geo_publish_goes_out_percent_decoded(clients: Clients, topic: str) -> None:
    geo, sender = clients.connect(), clients.connect()
    granted(geo, entry(topic))
    move(geo, 54.51, 8.58)
    name = (
        f"$geo/at=SRID=25832%3BPOINT(294400%205628700);time=2026-03-28T11:15:00%2B01:00--PT1H"
        f";to=BUFFER(POINT(8.58 54.51),500)/{topic}"
    )
    settle(sender, publish(name, "x"))
    event = received(geo)
    assert event.geometry == "SRID=25832;POINT(294400 5628700)"
    assert event.time == "2026-03-28T11:15:00+01:00--PT1H"
    assert event.extensions == fence("BUFFER(POINT(8.58 54.51),500)")


@pytest.mark.parametrize(
    ("conditions", "holds"),
    [
        (f"covers={BOX}", True),
        ("covers=BBOX(0,0,1,1)", False),
        ("contains=BBOX(8.5,54,9,55)", False),  # on its edge
        ("intersects=LINESTRING(8 54.5,9 54.5)", True),
        ("equals=POINT(8.5 54.5)", True),
        ("touches=BBOX(8.5,54,9,55)", True),
        ("crosses=BBOX(8,54,9,55)", False),
        ("overlaps=POINT(8.5 54.5)", False),
        ("within=POINT(8.5 54.5)", True),
        ("covered_by=POINT(8.5 54.5)", True),
        ("disjoint=BBOX(0,0,1,1)", True),
        ("dwithin.1200=POINT(8.5 54.51)", True),
        ("dwithin.1000=POINT(8.5 54.51)", False),
        ("de9im.T*****FF*=BBOX(8,54,9,55)", True),
        ("de9im.FF*FF****=BBOX(8,54,9,55)", False),
        ("publisher.covers=BBOX(0,0,1,1)", True),
        (f"publisher.covers={BOX}", False),
        ("publisher.dwithin.100=POINT(0.5 0.5)", True),
        ("near=2000", True),
        ("near=1000", False),
        ("time=2026-03-28T11:15:00Z--PT2H30M", True),
        ("time=2026-03-28T13:15:00Z--PT2H30M", False),
        ("time.before=2027-01-01--P1D", True),
        ("time.after=2027-01-01--P1D", False),
        ("time=0 0 11 ? * SAT--PT1H", True),
        ("time=0 0 12 ? * SAT--PT1H[Europe/Berlin]".replace("/", "%2F"), True),
        (f"covers={BOX};time=2026-03-28T11:15:00Z--PT2H30M", True),
        (f"covers={BOX};time=2026-03-29--P1D", False),
        (f"covers={BOX};disjoint=BBOX(8.4,54.4,8.6,54.6)", False),
        (f"covers={BOX};publisher.covers=BBOX(0,0,1,1);near=2000", True),
        ("any=POINT(1 2)", True),
    ],
)
def test_conditions(clients: Clients, topic: str, conditions: str, holds: bool) -> None:
    """The event lies at 8.5 54.5, its publisher at 0.5 0.5, the subscriber a nautical mile off."""
    client, sensor = clients.connect(), clients.connect()
    move(client, 54.5 + 1 / 60, 8.5)
    move(sensor, 0.5, 0.5)
    subscribe_with(client, f"$geo/{conditions}/{topic}/+/t")
    moment = 1_774_697_400_000  # 2026-03-28T11:30:00Z, a Saturday
    settle(sensor, geopublish(f"{topic}/7/t", "x", at=(8.5, 54.5), time=moment))
    if holds:
        client.expect(publish(f"{topic}/7/t", "x"))
    client.expect_nothing()


@pytest.mark.parametrize(
    "name",
    [
        "$geo/",
        "$geo/a",
        "$geo/covers=POINT(1 2)",
        "$geo/covers=POINT(1 2)/",
        "$geo//a",
        "$geo/covers/a",
        "$geo/covers=/a",
        "$geo/covers=POINT(1 91)/a",
        "$geo/covers=POLYGON((0 0,1 1,1 0,0 1,0 0))/a",
        "$geo/hides=POINT(1 2)/a",
        "$geo/dwithin=POINT(1 2)/a",
        "$geo/dwithin.x=POINT(1 2)/a",
        "$geo/covers.5=POINT(1 2)/a",
        "$geo/de9im.T=POINT(1 2)/a",
        "$geo/near=/a",
        "$geo/near=0/a",
        "$geo/near=-5/a",
        "$geo/near=nan/a",
        "$geo/time=2026-03-28/a",
        "$geo/time.sometimes=2026-01-01--P1D/a",
        "$geo/time=R0--2026-01-01--P1D/a",
        "$geo/prefix=drop/a",
        "$geo/at=POINT(1 2)/a",
        "$geo/covers=POINT(1 2)/$geo/covers=POINT(1 2)/a",
        "$geo/covers=POINT(1 2)/$SYS/broker",
        "$geo/covers=POINT(1 2)/$share/g/a",
        "$geo/covers=POINT(1 2)/a/#/b",
        "$geo/covers=POINT(+1 2)/a",
        "$geo/+/a",
        "$geo/#",
        "$geo/covers=POINT(%ff 2)/a",
        "$share/g/$geo/covers=nowhere/a",
    ],
)
def test_a_malformed_condition_fails_and_closes_mqtt_31(clients: Clients, name: str) -> None:
    client = clients.connect()
    client.send(subscribe(1, ("fine", 1), (name, 1), ("fine", 0)))
    client.expect("90 05 00 01 01 80 00")
    client.expect_nothing()
    old = clients.raw()
    old.send('10 11 00 06 "MQIsdp" 03 02 00 00 00 03 "old"')
    old.expect("20 02 00 00")
    old.send(subscribe(1, (name, 1)))
    old.expect_close()


@pytest.mark.parametrize(
    "name",
    [
        "$geo/at=POINT(1 91)/a",
        "$geo/at=nowhere/a",
        "$geo/time=soon/a",
        "$geo/to=POINT EMPTY/a",
        "$geo/at=POINT(1 2);at=POINT(1 2)/a",
        "$geo/covers=POINT(1 2)/a",
        "$geo/at=POINT(1 2)",
        "$geo/a",
        "$geo//a",
        "$geo/at=POINT(1 2)/$SYS/a",
        "$geo/at=POINT(1 2)/$geo/at=POINT(1 2)/a",
    ],
)
def test_a_malformed_publish_is_acknowledged_and_told(clients: Clients, name: str) -> None:
    client, watcher = clients.subscribed("$/SYS/MQTT/error"), clients.subscribed("$geo-test/#")
    client.send(publish(name, "x", qos=1, packet_id=1))
    client.expect("40 02 00 01")
    error = json.loads(received(client).payload)
    assert error["topic"] == name
    assert error["reason"]
    watcher.expect_nothing()


def test_the_prefix_is_kept_for_those_who_dispatch_by_filter(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    name = f"$geo/covers={BOX};prefix=keep"
    subscribe_with(client, f"{name}/{topic}/+")
    event = geopublish(f"{topic}/7", "x", at=(8.5, 54.5))
    settle(sensor, event)
    client.expect(publish(f"{name}/{topic}/7", "x"))
    later = f"$geo/prefix=keep;near=1000000/{topic}/#"
    move(client, 54.5, 8.5)
    subscribe_with(client, later)
    settle(sensor, event)
    client.expect(publish(f"$geo/prefix=keep;near=1000000/{topic}/7", "x"))
    subscribe_with(client, f"$geo/covers={BOX}/{topic}/#")
    settle(sensor, event)
    client.expect(publish(f"{topic}/7", "x"))  # somebody does not ask for it
    client.expect_nothing()


def test_a_plain_subscription_beside_it_takes_the_prefix_off(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    subscribe_with(client, f"$geo/covers={BOX};prefix=keep/{topic}")
    subscribe_with(client, topic)
    settle(sensor, geopublish(topic, "x", at=(8.5, 54.5)))
    client.expect(publish(topic, "x"))
    client.expect_nothing()


def test_a_share_goes_to_a_member_that_passes(clients: Clients, topic: str) -> None:
    west, east, sensor = clients.connect(), clients.connect(), clients.connect()
    subscribe_with(west, f"$share/g/$geo/covers=BBOX(8,54,8.5,55)/{topic}")
    subscribe_with(east, f"$share/g/$geo/covers=BBOX(8.5,54,9,55)/{topic}")
    for _ in range(3):
        settle(
            sensor, geopublish(topic, "w", at=(8.2, 54.5)), geopublish(topic, "e", at=(8.7, 54.5))
        )
    west.expect(publish(topic, "w") * 3)
    east.expect(publish(topic, "e") * 3)
    west.expect_nothing()
    east.expect_nothing()


def test_a_share_divides_what_several_members_want(clients: Clients, topic: str) -> None:
    members = [clients.subscribed(f"$share/g/$geo/covers={BOX}/{topic}") for _ in range(3)]
    sensor = clients.connect()
    settle(sensor, *[geopublish(topic, "x", at=(8.5, 54.5))] * 9)
    for member in members:
        member.expect(publish(topic, "x") * 3)
        member.expect_nothing()


def test_a_plain_share_respects_the_event_geofence(clients: Clients, topic: str) -> None:
    near, far = (clients.subscribed(f"$share/g/{topic}") for _ in range(2))
    move(near, 54.5, 8.5)
    move(far, 10.0, 8.5)
    sensor = clients.connect()
    settle(sensor, *[geopublish(topic, "x", to=BOX)] * 4)
    near.expect(publish(topic, "x") * 4)
    far.expect_nothing()


def test_unsubscribe_names_the_same_string(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    name = f"$geo/covers={BOX}/{topic}"
    subscribe_with(client, name)
    for number, wrong in enumerate((topic, f"$geo/covers=BBOX(8,54,9,55.0)/{topic}"), 1):
        client.send(unsubscribe(number, wrong))
        client.expect(f"b0 02 00 0{number}")
    settle(sensor, geopublish(topic, "x", at=(8.5, 54.5)))
    client.expect(publish(topic, "x"))
    client.send(unsubscribe(5, name))
    client.expect("b0 02 00 05")
    settle(sensor, geopublish(topic, "x", at=(8.5, 54.5)))
    client.expect_nothing()


def test_a_will_can_have_a_place_and_a_geofence(clients: Clients, topic: str) -> None:
    geo, near, far = clients.connect(), clients.subscribed(topic), clients.subscribed(topic)
    granted(geo, entry(topic, at=BOX))
    for client, lat in ((geo, 54.5), (near, 54.5), (far, 10.0)):
        move(client, lat, 8.5)
    name = f"$geo/at=POINT(8.5 54.5);to=BUFFER(POINT(8.5 54.5),500)/{topic}"
    clients.connect(will=(name, "lost", 0, False)).drop()
    event = received(geo)
    assert (event.payload, event.geometry) == ("lost", "POINT(8.5 54.5)")
    near.expect(publish(topic, "lost"))
    far.expect_nothing()


def test_a_plain_will_is_where_its_client_was_last(clients: Clients, topic: str) -> None:
    geo = clients.connect()
    granted(geo, entry(topic, at=BOX))
    client = clients.connect(will=(topic, "lost", 0, False))
    move(client, 54.5, 8.5)
    client.drop()
    event = received(geo)
    assert (event.payload, event.form) == ("lost", 0)


def test_a_will_is_no_command(clients: Clients) -> None:
    watcher = clients.subscribed("$/SYS/MQTT/geofence/#")
    clients.connect("wilful", will=("$/SYS/MQTT/geofence/x", BOX, 0, False)).drop()
    clients.connect("wilful").disconnect()
    watcher.expect_nothing()


def test_at_wins_over_the_location_of_a_publishg(clients: Clients, topic: str) -> None:
    geo, sender = clients.connect(), clients.connect()
    granted(geo, entry(topic))
    settle(sender, publishg(at("POINT(8.5 54.5)", topic), "a", location(1.0, 2.0)))
    assert received(geo).geometry == "POINT(8.5 54.5)"
    settle(sender, publishg(f"$geo/time=7/{topic}", "b", location(1.0, 2.0)))
    event = received(geo)
    assert (event.geometry, event.time) == ((2.0, 1.0), "7")


def test_retained_events_of_geo_topics_are_kept_under_their_own_topic(
    clients: Clients, topic: str
) -> None:
    sender = clients.connect()
    settle(sender, publish(at("POINT(8.5 54.5)", topic), "old", retain=True))
    settle(sender, publish(at("POINT(8.6 54.5)", topic), "new", retain=True))
    inside = clients.subscribed(f"$geo/covers={BOX}/{topic}")
    inside.expect(publish(topic, "new", retain=True))
    inside.expect_nothing()
    clients.subscribed(f"$geo/covers=BBOX(0,0,1,1)/{topic}").expect_nothing()
    settle(sender, publish(at("POINT(8.6 54.5)", topic), "", retain=True))
    clients.subscribed(topic).expect_nothing()


def test_a_wildcard_never_reaches_dollar_topics_through_geo(broker: RunningBroker) -> None:
    with clients_of(broker.host, broker.port) as clients:
        client, geo, sensor = (clients.connect() for _ in range(3))
        subscribe_with(client, "$geo/covers=BBOX(-180,-90,180,90)/#")
        granted(geo, entry("+/topic", at="BBOX(-180,-90,180,90)"), entry("#"))
        move(sensor, 1.0, 1.0)
        settle(sensor, publish("$other/topic", "x"))
        client.expect_nothing()
        geo.expect_nothing()


def test_many_places_are_one_topic(clients: Clients, topic: str) -> None:
    """Every `at=` is a new outer topic; the inner one is one route, and all arrive."""
    client, sensor = clients.subscribed(f"$geo/covers={BOX}/{topic}"), clients.connect()
    events = [publish(at(f"POINT({8 + n / 100_000} 54.5)", topic), "x") for n in range(20_000)]
    settle(sensor, *events)
    client.expect(publish(topic, "x") * 20_000)


# Clients we did not write


def run(*command: str) -> Callable[[], str]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish() -> str:
        output, said = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, said
        return output

    return finish


@pytest.mark.needs("mosquitto")
def test_mosquitto_clients_are_geo_clients(daemon: RunningBroker, topic: str) -> None:
    """In debug mode it tells when its subscription has been granted."""
    where = ["-h", daemon.host, "-p", str(daemon.port)]
    name = f"$geo/covers=BBOX(8.5,54.4,8.7,54.6)/{topic}/+/temperature"
    process = subprocess.Popen(
        ["stdbuf", "-oL", "mosquitto_sub", "-d", *where, "-t", name, "-C", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    while "SUBACK" not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    for place, payload in (("POINT(9 54.51)", "20"), ("POINT(8.58 54.51)", "21")):
        sent = f"$geo/at={place}/{topic}/7/temperature"
        run("mosquitto_pub", *where, "-q", "1", "-t", sent, "-m", payload)()
    rest, _ = process.communicate(timeout=TIMEOUT_S)
    lines = rest.splitlines()
    assert "21" in lines
    assert "20" not in lines


def test_paho_dispatches_by_filter_with_the_prefix_kept(daemon: RunningBroker, topic: str) -> None:
    found: list[tuple[str, bytes]] = []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=f"paho-{topic}")
    name = f"$geo/covers={BOX};prefix=keep/{topic}/+"
    ready: list[bool] = []
    client.on_subscribe = lambda *_: ready.append(True)
    client.message_callback_add(name, lambda _c, _u, m: found.append((m.topic, m.payload)))
    client.connect(daemon.host, daemon.port)
    client.subscribe(name, 1)
    while not ready:
        assert client.loop(1.0) == paho.MQTT_ERR_SUCCESS
    client.publish(f"$geo/at=POINT(8.5 54.5)/{topic}/7", b"x", 1)
    while not found:
        assert client.loop(1.0) == paho.MQTT_ERR_SUCCESS
    client.disconnect()
    assert found == [(f"$geo/covers={BOX};prefix=keep/{topic}/7", b"x")]
