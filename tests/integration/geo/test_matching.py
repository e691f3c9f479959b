"""What matches what: the four contexts, event geofences, near me, retained and offline."""

from __future__ import annotations

import socket
import time

import pytest

from tests.conformance.certificates import Certificates
from tests.conformance.raw import Clients, Raw, clients_of, connect, framed, publish, subscribe_with
from tests.conformance.raw_websocket import expect_binary, frame, handshake
from tests.conftest import StartBroker
from tests.integration.geo.wire import (
    entry,
    geopublish,
    geosubscribe,
    granted,
    location,
    move,
    payloads,
    publishg,
    received,
    removed,
    settle,
)

BOX = "BBOX(8,54,9,55)"
IN, OUT = (8.5, 54.5), (8.5, 10.0)


# Event geofences


def test_an_event_geofence_lets_in_those_who_are_inside(clients: Clients, topic: str) -> None:
    """Its edge counts as inside; who is nowhere gets nothing."""
    where = {"inside": (54.5, 8.5), "edge": (54.5, 8.0), "outside": (54.5, 7.999), "nowhere": None}
    plain, geo = {}, {}
    for name, place in where.items():
        plain[name], geo[name] = clients.subscribed(topic), clients.connect()
        granted(geo[name], entry(topic))
        if place is not None:
            move(plain[name], *place)
            move(geo[name], *place)
    settle(clients.connect(), geopublish(topic, "warning", to=BOX))
    for name, client in plain.items():
        if name in ("inside", "edge"):
            client.expect(publish(topic, "warning"))
        client.expect_nothing()
    for name, client in geo.items():
        assert payloads(client, int(name in ("inside", "edge"))) == ["warning"] * (
            name in ("inside", "edge")
        )


def test_an_event_geofence_is_in_degrees_unless_it_says_otherwise(
    clients: Clients, topic: str
) -> None:
    """The event's EPSG is not the fence's; an SRID in the fence is."""
    client, sensor = clients.subscribed(topic), clients.connect()
    move(client, 50.75, 6.1)
    point = "POINT (294400 5628700)"
    degrees = "BBOX(6,50.7,6.2,50.8)"
    settle(sensor, geopublish(topic, "degrees", at=point, epsg=25832, to=degrees))
    metres = "SRID=25832;BBOX(290000,5620000,300000,5630000)"
    settle(sensor, geopublish(topic, "metres", at=point, epsg=25832, to=metres))
    client.expect(publish(topic, "degrees") + publish(topic, "metres"))


def test_an_event_geofence_follows_the_receiver(clients: Clients, topic: str) -> None:
    client, sensor = clients.subscribed(topic), clients.connect()
    for lat, arrives in ((54.5, True), (10.0, False), (54.6, True)):
        move(client, lat, 8.5)
        settle(sensor, geopublish(topic, "x", to=BOX))
        if arrives:
            client.expect(publish(topic, "x"))
        client.expect_nothing()


def test_a_retained_event_keeps_its_geofence(clients: Clients, topic: str) -> None:
    settle(clients.connect(), geopublish(topic, "kept", to=BOX, retain=True))
    inside = clients.connect()
    move(inside, 54.5, 8.5)
    subscribe_with(inside, topic)
    inside.expect(publish(topic, "kept", retain=True))
    clients.subscribed(topic).expect_nothing()


# Near me, and the publisher


def test_near_me_moves_with_the_subscriber(clients: Clients, topic: str) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(topic, near=150.0))
    event = geopublish(topic, "x", at=IN)
    settle(sensor, event)
    client.expect_nothing()  # nobody knows where I am
    move(client, 54.501, 8.5)  # 111 m away
    settle(sensor, event)
    assert received(client).payload == "x"
    move(client, 54.502, 8.5)  # 223 m away
    settle(sensor, event)
    client.expect_nothing()
    move(client, 54.5, 8.5)
    settle(sensor, event)
    assert received(client).payload == "x"
    assert removed(client, entry(topic, near=150.0)) == [0]
    settle(sensor, event)
    client.expect_nothing()


def test_near_me_tests_areas_by_its_relation(clients: Clients, topic: str) -> None:
    covers, intersects, sensor = clients.connect(), clients.connect(), clients.connect()
    granted(covers, entry(topic, near=1000.0))
    granted(intersects, entry(topic, relation="intersects", near=1000.0))
    for client in (covers, intersects):
        move(client, 54.5, 8.5)
    small = "BBOX(8.499,54.499,8.501,54.501)"
    settle(sensor, geopublish(topic, "small", at=small), geopublish(topic, "large", at=BOX))
    assert payloads(covers, 1) == ["small"]
    assert payloads(intersects, 2) == ["small", "large"]


def test_the_publishers_location_is_tested_instead_of_the_place(
    clients: Clients, topic: str
) -> None:
    client, sensor = clients.connect(), clients.connect()
    granted(client, entry(topic, at=BOX, publisher=True))
    settle(sensor, geopublish(topic, "publisher unknown", at=IN))
    move(sensor, 54.5, 8.5)
    settle(sensor, geopublish(topic, "publisher inside", at=OUT))
    move(sensor, 10.0, 8.5)
    settle(sensor, geopublish(topic, "publisher outside", at=IN))
    settle(sensor, publishg(topic, "moved back", location(54.5, 8.5)))
    assert payloads(client, 2) == ["publisher inside", "moved back"]


def test_many_subscriptions_and_few_give_the_same(clients: Clients, topic: str) -> None:
    """Beyond a handful an index takes over."""
    client, sensor = clients.connect(), clients.connect()
    events = [geopublish(topic, f"{n}", at=(n / 2 + 0.25, 0.25), time=n * 1000) for n in range(40)]
    granted(client, entry(topic, at="BBOX(5,0,10,1)"), entry(topic, time="30/33"))
    settle(sensor, *events)
    few = payloads(client, 13)
    granted(client, *(entry(topic, at=f"BBOX({100 + n},0,{101 + n},1)") for n in range(50)))
    settle(sensor, *events)
    assert payloads(client, 13) == few == [str(n) for n in (*range(10, 20), 30, 31, 32)]


# Retained


def test_retained_events_are_tested_when_somebody_subscribes(clients: Clients, topic: str) -> None:
    sensor = clients.connect()
    move(sensor, 54.5, 8.5)
    settle(
        sensor,
        geopublish(f"{topic}/in", "in", at=IN, time=1_000, retain=True),
        geopublish(f"{topic}/out", "out", at=OUT, time=2_000, retain=True),
        publish(f"{topic}/from", "from", retain=True),
        publishg(f"{topic}/g", "g", location(54.6, 8.6), retain=True),
    )
    move(sensor, 10.0, 8.5)  # what is retained stays where it was
    client = clients.connect()
    granted(client, entry(f"{topic}/#", at=BOX))
    found = [received(client) for _ in range(3)]
    client.expect_nothing()
    assert all(event.retain and event.enveloped for event in found)
    assert {event.payload: event.geometry for event in found} == {
        "in": IN, "from": None, "g": (8.6, 54.6),
    }  # fmt: skip
    timed = clients.connect()
    granted(timed, entry(f"{topic}/+", time="1/2"))
    assert payloads(timed, 1) == ["in"]
    publisher = clients.connect()
    granted(publisher, entry(f"{topic}/+", at=BOX, publisher=True))
    assert sorted(payloads(publisher, 4)) == ["from", "g", "in", "out"]


def test_a_retained_event_keeps_its_time_of_receipt(clients: Clients, topic: str) -> None:
    before = time.time_ns() // 1_000_000
    settle(clients.connect(), geopublish(topic, "x", at=IN, retain=True))
    after = time.time_ns() // 1_000_000
    client = clients.connect()
    granted(client, entry(topic))
    first = received(client)
    granted(client, entry(topic))
    assert first == received(client)
    assert isinstance(first.time, int)
    assert before <= first.time <= after


def test_retained_events_go_out_once_for_each_new_subscription_in_its_form(
    clients: Clients, topic: str
) -> None:
    settle(clients.connect(), geopublish(topic, "x", at=IN, retain=True))
    client = clients.connect()
    client.send(
        geosubscribe(
            5, entry(topic, at=BOX), entry(topic, deliver=1), entry(topic, deliver=3, near=9.0)
        )
    )
    client.expect("f6 06 90 00 05 00 00 00")
    forms = [(event.enveloped, event.form) for event in (received(client), received(client))]
    assert forms == [(True, 1), (False, 0)]
    client.expect_nothing()


# Offline


def test_an_offline_session_gets_what_matched_on_arrival(clients: Clients, topic: str) -> None:
    client = clients.connect(f"off-{topic}", clean=False)
    granted(
        client, entry(f"{topic}/near", near=1000.0, qos=1), entry(f"{topic}/box", at=BOX, qos=1)
    )
    granted(client, entry(f"{topic}/wkt", qos=1, deliver=2))
    subscribe_with(client, f"{topic}/plain", 1)
    move(client, 54.5, 8.5)
    client.disconnect()
    sensor = clients.connect()
    for number, (name, at) in enumerate(
        [("near", IN), ("near", OUT), ("box", IN), ("box", OUT), ("wkt", OUT), ("plain", IN)], 1
    ):
        sensor.send(geopublish(f"{topic}/{name}", name, at=at, time=7, qos=1, packet_id=number))
        sensor.expect(f"40 02 00 {number:02x}")
    # It comes back from somewhere else, which changes nothing any more.
    again = clients.raw()
    body = connect(f"off-{topic}", clean=False)[2:]
    again.send(framed(0x14, body[:10] + location(0.0, 0.0) + body[10:]))
    again.expect("20 02 01 00")
    found = [received(again) for _ in range(4)]
    again.expect_nothing()
    assert [(event.payload, event.enveloped, event.form) for event in found] == [
        ("near", True, 1), ("box", True, 1), ("wkt", True, 3), ("plain", False, 0),
    ]  # fmt: skip
    assert found[2].geometry == "POINT (8.5 10)"


def test_an_unacknowledged_event_comes_again_in_its_form(clients: Clients, topic: str) -> None:
    client = clients.connect(f"again-{topic}", clean=False)
    granted(client, entry(topic, at=BOX, qos=1))
    sensor = clients.connect()
    sensor.send(geopublish(topic, "x", at=IN, time=7, qos=1, packet_id=1))
    sensor.expect("40 02 00 01")
    first = received(client)
    client.drop()
    again = clients.connect(f"again-{topic}", clean=False, present=True)
    second = received(again)
    assert second.dup
    assert (second.packet_id, second.geometry, second.time) == (first.packet_id, IN, 7)


# Doors


def everything(subscriber: Raw, publisher: Raw, topic: str, wrap: object, expect: object) -> None:
    """One round through GEOSUBSCRIBE and GEOPUBLISH over whatever link."""
    subscriber.send(wrap(geosubscribe(1, entry(topic, at=BOX))))  # type: ignore[operator]
    expect(subscriber, "f6 04 90 00 01 00")  # type: ignore[operator]
    event = geopublish(topic, "x", at=IN, time=1)
    publisher.send(wrap(event + geopublish(topic, "no", at=OUT, time=1) + b"\xc0\x00"))  # type: ignore[operator]
    expect(publisher, "d0 00")  # type: ignore[operator]
    expect(subscriber, event)  # type: ignore[operator]


def test_all_of_it_over_websocket_and_tls(
    start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    config = '[[listener]]\nkind = "ws"\nport = 0\n' + certificates.listener("tls")
    broker = start_broker(config=config, listen=False)
    with clients_of(*broker.address("ws")) as clients:
        pair = []
        for name in ("ws-a", "ws-b"):
            raw = clients.raw()
            handshake(raw)
            raw.send(frame(connect(name)))
            expect_binary(raw, "20 02 00 00")
            pair.append(raw)
        everything(pair[0], pair[1], "ws", frame, expect_binary)
    with clients_of(*broker.address("tls")) as clients:
        pair = []
        for name in ("tls-a", "tls-b"):
            plain = socket.create_connection((clients.host, clients.port), 10)
            context = certificates.context()
            raw = clients.keep(context.wrap_socket(plain, server_hostname="localhost"))
            raw.send(connect(name))
            raw.expect("20 02 00 00")
            pair.append(raw)
        everything(pair[0], pair[1], "tls", bytes, Raw.expect)
