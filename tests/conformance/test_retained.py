"""Retained messages (section 3.3.1.3), over a socket."""

from __future__ import annotations

import pytest

from tests.conformance.raw import (
    Clients,
    clients_of,
    publish,
    publish_with,
    subscribe,
    subscribe_with,
)
from tests.conftest import StartBroker


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_retained_message_is_sent_to_a_new_subscription(
    clients: Clients, topic: str, published: int, granted: int
) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-6], [MQTT-3.3.1-8]: with the flag, after the SUBACK."""
    publisher = clients.connect()
    publisher.send(publish(topic, "kept", qos=published, packet_id=1, retain=True))
    if published:
        publisher.expect(f"{0x30 + published * 0x10:02x} 02 00 01")
    publisher.expect_nothing()
    client = clients.connect()
    client.send(subscribe(1, (topic, granted)))
    client.expect(f"90 03 00 01 0{granted}")
    qos = min(published, granted)
    client.expect(publish(topic, "kept", qos=qos, packet_id=1 if qos else 0, retain=True))
    client.expect_nothing()


def test_an_established_subscription_gets_it_without_the_flag(clients: Clients, topic: str) -> None:
    """[MQTT-3.3.1-9]."""
    subscriber = clients.subscribed(topic, 1)
    publish_with(clients.connect(), topic, "now", retain=True)
    subscriber.expect(publish(topic, "now", qos=1, packet_id=1))
    publisher = clients.connect()
    publisher.send(publish(topic, "now", retain=True))
    subscriber.expect(publish(topic, "now"))


def test_the_last_retained_message_counts(clients: Clients, topic: str) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-7]: a QoS 0 one replaces a QoS 1 one."""
    publisher = clients.connect()
    publish_with(publisher, topic, "first", retain=True)
    publisher.send(publish(topic, "second", retain=True))
    publisher.expect_nothing()
    client = clients.connect()
    client.send(subscribe(1, (topic, 2)))
    client.expect("90 03 00 01 02")
    client.expect(publish(topic, "second", retain=True))
    client.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_retained_message_clears(clients: Clients, topic: str, qos: int) -> None:
    """[MQTT-3.3.1-10], [MQTT-3.3.1-11]: it is delivered like any other, and not kept."""
    publisher = clients.connect()
    publish_with(publisher, topic, "kept", retain=True)
    subscriber = clients.connect()
    subscriber.send(subscribe(1, (topic, 0)))
    subscriber.expect("90 03 00 01 00")
    subscriber.expect(publish(topic, "kept", retain=True))
    publisher.send(publish(topic, "", qos=qos, packet_id=1, retain=True))
    subscriber.expect(publish(topic, ""))
    later = clients.connect()
    subscribe_with(later, topic)
    later.expect_nothing()


def test_a_message_without_the_flag_leaves_the_retained_one_alone(
    clients: Clients, topic: str
) -> None:
    """[MQTT-3.3.1-12]."""
    publisher = clients.connect()
    publish_with(publisher, topic, "kept", retain=True)
    publish_with(publisher, topic, "passing")
    publish_with(publisher, topic, "")
    client = clients.connect()
    client.send(subscribe(1, (topic, 0)))
    client.expect("90 03 00 01 00")
    client.expect(publish(topic, "kept", retain=True))
    client.expect_nothing()


def test_a_message_without_the_flag_is_not_retained(clients: Clients, topic: str) -> None:
    """[MQTT-3.3.1-12]."""
    publish_with(clients.connect(), topic, "passing")
    client = clients.connect()
    subscribe_with(client, topic)
    client.expect_nothing()


def test_retained_messages_come_in_topic_order(clients: Clients, topic: str) -> None:
    publisher = clients.connect()
    names = ["c", "a/2", "b", "a/10", "a", "a/1"]
    for name in names:
        publish_with(publisher, f"{topic}/{name}", name, retain=True)
    client = clients.connect()
    client.send(subscribe(1, (f"{topic}/#", 0)))
    client.expect("90 03 00 01 00")
    for name in ["a", "a/1", "a/10", "a/2", "b", "c"]:
        client.expect(publish(f"{topic}/{name}", name, retain=True))
    client.expect_nothing()


def test_subscribing_again_sends_them_again(clients: Clients, topic: str) -> None:
    """[MQTT-3.8.4-3]."""
    publish_with(clients.connect(), topic, "kept", retain=True)
    client = clients.connect()
    for number in (1, 2):
        client.send(subscribe(number, (topic, 0)))
        client.expect(f"90 03 00 0{number} 00")
        client.expect(publish(topic, "kept", retain=True))
    client.expect_nothing()


def test_several_filters_of_one_subscribe_are_several_subscriptions(
    clients: Clients, topic: str
) -> None:
    """[MQTT-3.8.4-4], [MQTT-3.3.1-6]."""
    publish_with(clients.connect(), f"{topic}/x", "kept", retain=True)
    client = clients.connect()
    client.send(subscribe(1, (f"{topic}/x", 0), (f"{topic}/+", 1), (f"{topic}/y", 2)))
    client.expect("90 05 00 01 00 01 02")
    client.expect(publish(f"{topic}/x", "kept", retain=True))
    client.expect(publish(f"{topic}/x", "kept", qos=1, packet_id=1, retain=True))
    client.expect_nothing()


def test_a_shared_subscription_gets_none(clients: Clients, topic: str) -> None:
    publish_with(clients.connect(), topic, "kept", retain=True)
    client = clients.connect()
    subscribe_with(client, f"$share/g/{topic}")
    client.expect_nothing()


def test_the_number_of_retained_messages_is_bounded(start_broker: StartBroker) -> None:
    broker = start_broker(config="sys_interval_s = 0\n[limits]\nmax_retained_messages = 1\n")
    with clients_of(broker.host, broker.port) as clients:
        publisher = clients.connect()
        publish_with(publisher, "r/1", "a", retain=True)
        publish_with(publisher, "r/2", "b", retain=True)
        publish_with(publisher, "r/1", "c", retain=True)
        client = clients.connect()
        client.send(subscribe(1, ("r/#", 0)))
        client.expect("90 03 00 01 00")
        client.expect(publish("r/1", "c", retain=True))
        client.expect_nothing()


def test_retaining_can_be_switched_off(start_broker: StartBroker) -> None:
    broker = start_broker(config="retain_available = false\n")
    with clients_of(broker.host, broker.port) as clients:
        publish_with(clients.connect(), "r", "a", retain=True)
        client = clients.connect()
        subscribe_with(client, "r")
        client.expect_nothing()
