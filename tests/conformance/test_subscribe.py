"""SUBSCRIBE, UNSUBSCRIBE and what filters match (sections 3.8 to 3.11, 4.7), over a socket."""

from __future__ import annotations

import pytest

from tests.conformance.raw import (
    Clients,
    clients_of,
    publish,
    publish_with,
    subscribe,
    subscribe_with,
    unsubscribe,
)
from tests.conftest import RunningBroker, StartBroker


def test_the_standards_example_is_granted(clients: Clients) -> None:
    """[MQTT-3.8.4-1], [MQTT-3.8.4-2], [MQTT-3.8.4-5], [MQTT-2.3.1-7], [MQTT-3.9.3-1]."""
    client = clients.connect()
    client.send('82 0e 00 0a 00 03 "a/b" 01 00 03 "c/d" 02')
    client.expect("90 04 00 0a 01 02")


def test_a_filter_that_cannot_be_granted_fails_alone(clients: Clients) -> None:
    """[MQTT-3.9.3-1], [MQTT-3.9.3-2], [MQTT-3.8.4-5]."""
    client = clients.connect()
    client.send(subscribe(9, ("a", 2), ("$share/g", 1), ("$share//x", 0), ("b", 0)))
    client.expect("90 06 00 09 02 80 80 00")
    client.expect_nothing()


@pytest.mark.parametrize(
    ("topic_filter", "name", "matched"),
    [
        ("#", "x", True),
        ("#", "/", True),
        ("+", "x", True),
        ("+", "x/y", False),
        ("+", "/x", False),
        ("/+", "/x", True),
        ("+/+", "/x", True),
        ("x/#", "x", True),
        ("x/#", "x/y/z", True),
        ("x/#", "xy", False),
        ("x/+", "x", False),
        ("x/+", "x/", True),
        ("x/+/z", "x/y/z", True),
        ("x/+/z", "x/y/y/z", False),
        ("+/y/#", "x/y", True),
        ("x", "X", False),
        ("x/", "x", False),
        ("/x", "x", False),
        ("x y", "x y", True),
        ("x/y", "x/y", True),
    ],
)
def test_wildcards(
    clients: Clients, topic: str, topic_filter: str, name: str, matched: bool
) -> None:
    """[MQTT-4.7.1-1], [MQTT-4.7.1-2], [MQTT-4.7.1-3], [MQTT-3.3.2-3], [MQTT-3.8.3-2]."""
    # Below a level of its own, so that no other test's messages are matched.
    subscriber = clients.subscribed(f"{topic}/{topic_filter}")
    publish_with(clients.connect(), f"{topic}/{name}", "x")
    if matched:
        subscriber.expect(publish(f"{topic}/{name}", "x"))
    subscriber.expect_nothing()


def test_wildcards_at_the_start_do_not_see_dollar_topics(broker: RunningBroker) -> None:
    """[MQTT-4.7.2-1]: live, and retained."""
    with clients_of(broker.host, broker.port) as clients:
        wild = clients.subscribed("#")
        wild_level = clients.subscribed("+/dollar")
        exact = clients.subscribed("$own/dollar")
        below = clients.subscribed("$own/#")
        publish_with(clients.connect(), "$own/dollar", "x", retain=True)
        exact.expect(publish("$own/dollar", "x"))
        below.expect(publish("$own/dollar", "x"))
        wild.expect_nothing()
        wild_level.expect_nothing()
        subscribe_with(wild, "#")
        wild.expect_nothing()


def test_topics_are_not_normalised(clients: Clients, topic: str) -> None:
    """[MQTT-4.7.3-4]: an umlaut in one code point is not the same as in two."""
    composed = clients.subscribed(f"{topic}/\u00e4")
    decomposed = clients.subscribed(f"{topic}/a\u0308")
    publish_with(clients.connect(), f"{topic}/\u00e4", "x")
    composed.expect(publish(f"{topic}/\u00e4", "x"))
    decomposed.expect_nothing()


def test_a_byte_order_mark_is_a_character(clients: Clients, topic: str) -> None:
    """[MQTT-1.5.3-3]."""
    with_mark = clients.subscribed(f"{topic}/\ufeffx")
    without = clients.subscribed(f"{topic}/x")
    publish_with(clients.connect(), f"{topic}/\ufeffx", "x")
    with_mark.expect(publish(f"{topic}/\ufeffx", "x"))
    without.expect_nothing()


def test_the_longest_topic_is_delivered(clients: Clients) -> None:
    """[MQTT-4.7.3-3]: 65,535 bytes is what fits."""
    name = "long/" + "x" * 65_530
    subscriber = clients.subscribed("long/+")
    publish_with(clients.connect(), name, "x")
    subscriber.expect(publish(name, "x"))


@pytest.mark.parametrize("published", [0, 1, 2])
def test_overlapping_subscriptions_deliver_once_with_the_highest_qos(
    clients: Clients, topic: str, published: int
) -> None:
    """[MQTT-3.3.5-1]."""
    client = clients.connect()
    client.send(subscribe(1, (f"{topic}/x", 0), (f"{topic}/+", 2), (f"{topic}/#", 1)))
    client.expect("90 05 00 01 00 02 01")
    publisher = clients.connect()
    publisher.send(publish(f"{topic}/x", "once", qos=published, packet_id=1))
    if published:
        publisher.expect(f"{0x30 + published * 0x10:02x} 02 00 01")
    client.expect(publish(f"{topic}/x", "once", qos=published, packet_id=1 if published else 0))
    client.expect_nothing()


def test_subscribing_again_replaces_the_subscription(clients: Clients, topic: str) -> None:
    """[MQTT-3.8.4-3]: one copy, at the QoS granted last."""
    client = clients.subscribed(topic, 2)
    subscribe_with(client, topic, 0)
    publish_with(clients.connect(), topic, "x")
    client.expect(publish(topic, "x"))
    client.expect_nothing()


def test_the_same_filter_twice_in_one_packet(clients: Clients, topic: str) -> None:
    """[MQTT-3.8.4-4]: as if they had come one after the other."""
    client = clients.connect()
    client.send(subscribe(1, (topic, 2), (topic, 0)))
    client.expect("90 04 00 01 02 00")
    publish_with(clients.connect(), topic, "x")
    client.expect(publish(topic, "x"))
    client.expect_nothing()


def test_unsubscribe_is_acknowledged_and_ends_deliveries(clients: Clients, topic: str) -> None:
    """[MQTT-3.10.4-1], [MQTT-3.10.4-2], [MQTT-3.10.4-4], [MQTT-2.3.1-7]."""
    client = clients.subscribed(topic)
    client.send(unsubscribe(0x1234, topic))
    client.expect("b0 02 12 34")
    publish_with(clients.connect(), topic, "x")
    client.expect_nothing()


def test_unsubscribing_from_what_was_never_subscribed(clients: Clients, topic: str) -> None:
    """[MQTT-3.10.4-5]."""
    client = clients.connect()
    client.send(unsubscribe(5, topic))
    client.expect("b0 02 00 05")


def test_filters_are_unsubscribed_byte_for_byte(clients: Clients, topic: str) -> None:
    """[MQTT-3.10.4-1]: not by what they match."""
    client = clients.subscribed(f"{topic}/x")
    client.send(unsubscribe(5, f"{topic}/+", f"{topic}/X", f"{topic}/x/"))
    client.expect("b0 02 00 05")
    publish_with(clients.connect(), f"{topic}/x", "x")
    client.expect(publish(f"{topic}/x", "x"))


def test_several_filters_are_unsubscribed_with_one_answer(clients: Clients, topic: str) -> None:
    """[MQTT-3.10.4-6]."""
    client = clients.connect()
    client.send(subscribe(1, (f"{topic}/1", 0), (f"{topic}/2", 0), (f"{topic}/3", 0)))
    client.expect("90 05 00 01 00 00 00")
    client.send(unsubscribe(2, f"{topic}/1", f"{topic}/3"))
    client.expect("b0 02 00 02")
    publisher = clients.connect()
    for number in (1, 2, 3):
        publish_with(publisher, f"{topic}/{number}", "x")
    client.expect(publish(f"{topic}/2", "x"))
    client.expect_nothing()


def test_what_is_under_way_is_finished_after_unsubscribe(clients: Clients, topic: str) -> None:
    """[MQTT-3.10.4-3]: also across a reconnect."""
    client = clients.connect("finish", clean=False)
    subscribe_with(client, topic, 2)
    publisher = clients.connect()
    publisher.send(publish(topic, "x", qos=2, packet_id=1))
    publisher.expect("50 02 00 01")
    client.expect(publish(topic, "x", qos=2, packet_id=1))
    client.send(unsubscribe(3, topic))
    client.expect("b0 02 00 03")
    client.drop()
    client = clients.connect("finish", clean=False, present=True)
    client.expect(publish(topic, "x", qos=2, packet_id=1, dup=True))
    client.send("50 02 00 01")
    client.expect("62 02 00 01")
    client.send("70 02 00 01")
    client.expect_nothing()
    clients.connect("finish", clean=True).disconnect()


def test_a_ping_is_answered(clients: Clients) -> None:
    """[MQTT-3.12.4-1]."""
    client = clients.connect()
    client.send("c0 00 c0 00")
    client.expect("d0 00 d0 00")


def test_disconnect_is_answered_by_closing(clients: Clients, topic: str) -> None:
    """[MQTT-3.14.4-1], [MQTT-3.14.4-2]: what comes behind it is not acted on."""
    watcher = clients.subscribed(topic)
    client = clients.connect()
    client.send(b"\xe0\x00" + publish(topic, "too late"))
    client.expect_close()
    watcher.expect_nothing()


def test_the_number_of_subscriptions_is_bounded(start_broker: StartBroker) -> None:
    broker = start_broker(config="[limits]\nmax_subscriptions = 2\n")
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect()
        client.send(subscribe(1, ("a", 0), ("b", 1), ("c", 2)))
        client.expect("90 05 00 01 00 01 80")
        client.send(subscribe(2, ("d", 0), ("a", 2)))
        client.expect("90 04 00 02 80 02")


# Shared subscriptions


def test_a_shared_message_goes_to_one_member_in_turn(clients: Clients, topic: str) -> None:
    members = [clients.subscribed(f"$share/g/{topic}", 1) for _ in range(3)]
    publisher = clients.connect()
    for number in range(6):
        publish_with(publisher, topic, str(number))
    got = []
    for member in members:
        for _ in range(2):
            first, body = member.packet()
            assert first == 0x32
            got.append(body[-1:].decode())
        member.expect_nothing()
    assert sorted(got) == list("012345")


def test_each_group_and_each_ordinary_subscriber_gets_its_own(clients: Clients, topic: str) -> None:
    one = clients.subscribed(f"$share/one/{topic}/+")
    two = clients.subscribed(f"$share/two/{topic}/#")
    plain = clients.subscribed(f"{topic}/x")
    publish_with(clients.connect(), f"{topic}/x", "x")
    for client in (one, two, plain):
        client.expect(publish(f"{topic}/x", "x"))
        client.expect_nothing()


def test_a_member_that_leaves_is_passed_over(clients: Clients, topic: str) -> None:
    stays = clients.subscribed(f"$share/g/{topic}", 1)
    leaves = clients.subscribed(f"$share/g/{topic}", 1)
    quits = clients.subscribed(f"$share/g/{topic}", 1)
    leaves.disconnect()
    quits.send(unsubscribe(1, f"$share/g/{topic}"))
    quits.expect("b0 02 00 01")
    publisher = clients.connect()
    for number in (1, 2, 3):
        publish_with(publisher, topic, "x")
        stays.expect(publish(topic, "x", qos=1, packet_id=number))
    quits.expect_nothing()


def test_a_shared_message_waits_when_all_members_are_away(clients: Clients, topic: str) -> None:
    client = clients.connect("sharer", clean=False)
    subscribe_with(client, f"$share/g/{topic}", 1)
    client.disconnect()
    publish_with(clients.connect(), topic, "x")
    client = clients.connect("sharer", clean=False, present=True)
    client.expect(publish(topic, "x", qos=1, packet_id=1))
    clients.connect("sharer", clean=True).disconnect()


# $SYS


def test_the_broker_tells_about_itself(start_broker: StartBroker) -> None:
    broker = start_broker(config="sys_interval_s = 0.2\n")
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect()
        client.send(subscribe(1, ("$SYS/#", 0)))
        client.expect("90 03 00 01 00")
        seen: dict[str, tuple[bool, str]] = {}
        while seen.get("clients/connected", (True, ""))[0]:  # until one comes without the flag
            first, body = client.packet()
            assert first in (0x30, 0x31)
            size = int.from_bytes(body[:2], "big")
            name = body[2 : 2 + size].decode().removeprefix("$SYS/broker/")
            seen[name] = (first == 0x31, body[2 + size :].decode())
        assert seen["clients/connected"][1] == "1"
        assert seen["version"][1].startswith("geomqtt version ")
        assert seen["uptime"][1].endswith(" seconds")
        wanted = {
            "clients/total", "clients/disconnected", "clients/maximum", "messages/received",
            "messages/sent", "bytes/received", "bytes/sent", "publish/messages/received",
            "publish/messages/sent", "subscriptions/count", "retained messages/count",
            "load/messages/received/1min", "load/messages/sent/5min", "load/bytes/received/15min",
            "load/connections/1min", "load/publish/sent/1min",
        }  # fmt: skip
        assert wanted <= set(seen)
