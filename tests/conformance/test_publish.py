"""PUBLISH and its acknowledgements (sections 3.3 to 3.7, 4.3, 4.6), over a socket."""

from __future__ import annotations

import pytest

from tests.conformance.raw import Clients, connect, publish, publish_with, subscribe_with
from tests.conftest import StartBroker


def test_qos_0_is_delivered_and_not_acknowledged(clients: Clients) -> None:
    """[MQTT-3.3.4-1], [MQTT-4.3.1-1], [MQTT-2.3.1-5]."""
    subscriber = clients.subscribed("q/0", 2)
    publisher = clients.connect()
    publisher.send('30 07 00 03 "q/0" "hi"')
    publisher.expect_nothing()
    subscriber.expect('30 07 00 03 "q/0" "hi"')
    subscriber.expect_nothing()


def test_qos_1_is_acknowledged_and_delivered(clients: Clients) -> None:
    """[MQTT-3.3.4-1], [MQTT-4.3.2-1], [MQTT-4.3.2-2], [MQTT-2.3.1-6]."""
    subscriber = clients.subscribed("q/1", 2)
    publisher = clients.connect()
    publisher.send('32 09 00 03 "q/1" 12 34 "hi"')
    publisher.expect("40 02 12 34")
    subscriber.expect('32 09 00 03 "q/1" 00 01 "hi"')
    subscriber.send("40 02 00 01")
    subscriber.expect_nothing()


def test_qos_2_is_delivered_in_four_steps_on_both_sides(clients: Clients) -> None:
    """[MQTT-3.3.4-1], [MQTT-4.3.3-1], [MQTT-4.3.3-2], [MQTT-2.3.1-6], [MQTT-3.6.1-1]."""
    subscriber = clients.subscribed("q/2", 2)
    publisher = clients.connect()
    publisher.send('34 09 00 03 "q/2" 12 34 "hi"')
    publisher.expect("50 02 12 34")
    publisher.send("62 02 12 34")
    publisher.expect("70 02 12 34")
    subscriber.expect('34 09 00 03 "q/2" 00 01 "hi"')
    subscriber.send("50 02 00 01")
    subscriber.expect("62 02 00 01")
    subscriber.send("70 02 00 01")
    subscriber.expect_nothing()


def test_a_qos_2_publish_repeated_before_its_release_is_delivered_once(
    clients: Clients, topic: str
) -> None:
    """[MQTT-4.3.3-2]: after PUBCOMP the id is free again."""
    subscriber = clients.subscribed(topic, 2)
    publisher = clients.connect()
    for dup in (False, True, True):
        publisher.send(publish(topic, "x", qos=2, packet_id=7, dup=dup))
        publisher.expect("50 02 00 07")
    subscriber.expect(publish(topic, "x", qos=2, packet_id=1))
    publisher.send("62 02 00 07")
    publisher.expect("70 02 00 07")
    subscriber.expect_nothing()
    publisher.send(publish(topic, "y", qos=2, packet_id=7, dup=True))
    publisher.expect("50 02 00 07")
    subscriber.expect(publish(topic, "y", qos=2, packet_id=2))


def test_a_qos_1_publish_repeated_is_a_new_one(clients: Clients, topic: str) -> None:
    """[MQTT-4.3.2-2]."""
    subscriber = clients.subscribed(topic, 1)
    publisher = clients.connect()
    for number, dup in ((1, False), (2, True)):
        publisher.send(publish(topic, "x", qos=1, packet_id=7, dup=dup))
        publisher.expect("40 02 00 07")
        subscriber.expect(publish(topic, "x", qos=1, packet_id=number))


@pytest.mark.parametrize("qos", [1, 2])
def test_dup_is_not_passed_on(clients: Clients, topic: str, qos: int) -> None:
    """[MQTT-3.3.1-3]."""
    subscriber = clients.subscribed(topic, qos)
    publisher = clients.connect()
    publisher.send(publish(topic, "x", qos=qos, packet_id=7, dup=True))
    publisher.expect(f"{0x30 + qos * 0x10:02x} 02 00 07")
    subscriber.expect(publish(topic, "x", qos=qos, packet_id=1))


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_delivery_is_at_the_lower_qos(
    clients: Clients, topic: str, published: int, granted: int
) -> None:
    """[MQTT-3.8.4-6]."""
    subscriber = clients.subscribed(topic, granted)
    publisher = clients.connect()
    publisher.send(publish(topic, "x", qos=published, packet_id=9))
    if published:
        publisher.expect(f"{0x30 + published * 0x10:02x} 02 00 09")
    qos = min(published, granted)
    subscriber.expect(publish(topic, "x", qos=qos, packet_id=1 if qos else 0))
    subscriber.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_acknowledgement_precedes_the_echo(clients: Clients, topic: str, qos: int) -> None:
    client = clients.subscribed(topic, qos)
    client.send(publish(topic, "echo", qos=qos, packet_id=7))
    if qos:
        client.expect(f"{0x30 + qos * 0x10:02x} 02 00 07")
    client.expect(publish(topic, "echo", qos=qos, packet_id=1 if qos else 0))


def test_messages_of_one_publisher_arrive_in_order(clients: Clients, topic: str) -> None:
    """[MQTT-4.6.0-5], [MQTT-4.6.0-6]: per QoS, over several topics and many in one write."""
    for qos in (0, 1, 2):
        subscriber = clients.subscribed(f"{topic}/#", qos)
        publisher = clients.connect()
        names = [f"{topic}/{number % 3}" for number in range(300)]
        publisher.send(
            b"".join(
                publish(name, str(number), qos=qos, packet_id=number + 1)
                for number, name in enumerate(names)
            )
        )
        for number, name in enumerate(names):
            wanted = publish(name, str(number), qos=qos, packet_id=number + 1 if qos else 0)
            subscriber.expect(wanted)
        subscriber.drop()
        publisher.drop()


def test_acknowledgements_come_in_the_order_of_the_messages(clients: Clients, topic: str) -> None:
    """[MQTT-4.6.0-2], [MQTT-4.6.0-3], [MQTT-4.6.0-4] from the broker's side as receiver."""
    client = clients.connect()
    client.send(b"".join(publish(topic, "x", qos=1, packet_id=n) for n in (5, 3, 9)))
    client.expect("40 02 00 05 40 02 00 03 40 02 00 09")
    client.send(b"".join(publish(topic, "x", qos=2, packet_id=n) for n in (5, 3, 9)))
    client.expect("50 02 00 05 50 02 00 03 50 02 00 09")
    client.send("62 02 00 09 62 02 00 05 62 02 00 03")
    client.expect("70 02 00 09 70 02 00 05 70 02 00 03")


def test_pubrels_come_in_the_order_of_the_pubrecs(clients: Clients, topic: str) -> None:
    """[MQTT-4.6.0-4]."""
    subscriber = clients.subscribed(topic, 2)
    publisher = clients.connect()
    for number in (1, 2, 3):
        publisher.send(publish(topic, "x", qos=2, packet_id=number))
        publisher.expect(f"50 02 00 0{number}")
        subscriber.expect(publish(topic, "x", qos=2, packet_id=number))
    subscriber.send("50 02 00 02 50 02 00 01 50 02 00 03")
    subscriber.expect("62 02 00 02 62 02 00 01 62 02 00 03")


def test_unsolicited_acknowledgements(clients: Clients) -> None:
    """PUBREC is answered with PUBREL, PUBREL with PUBCOMP; PUBACK and PUBCOMP are ignored."""
    client = clients.connect()
    client.send("50 02 00 63")
    client.expect("62 02 00 63")
    client.send("62 02 00 63")
    client.expect("70 02 00 63")
    client.send("40 02 00 63 70 02 00 63")
    client.expect_nothing()


def test_a_wrong_kind_of_acknowledgement_does_not_finish_a_message(
    clients: Clients, topic: str
) -> None:
    """[MQTT-4.3.2-1], [MQTT-4.3.3-1]: PUBACK is not for QoS 2, PUBCOMP not before PUBREC."""
    client = clients.connect("stubborn", clean=False)
    subscribe_with(client, topic, 2)
    publisher = clients.connect()
    publisher.send(publish(topic, "two", qos=2, packet_id=1))
    publisher.expect("50 02 00 01")
    publish_with(publisher, topic, "one")
    client.expect(publish(topic, "two", qos=2, packet_id=1))
    client.expect(publish(topic, "one", qos=1, packet_id=2))
    client.send("40 02 00 01 70 02 00 01 70 02 00 02")
    client.expect_nothing()
    client.drop()
    client = clients.connect("stubborn", clean=False, present=True)
    client.expect(publish(topic, "two", qos=2, packet_id=1, dup=True))
    client.expect(publish(topic, "one", qos=1, packet_id=2, dup=True))
    clients.connect("stubborn", clean=True).disconnect()


def test_both_sides_may_use_the_same_packet_id_at_once(clients: Clients, topic: str) -> None:
    """Section 2.3.1: the ids of client and server are independent."""
    client = clients.subscribed(topic, 2)
    client.send(publish(topic, "x", qos=2, packet_id=1))
    client.expect("50 02 00 01")
    client.expect(publish(topic, "x", qos=2, packet_id=1))
    client.send("62 02 00 01")
    client.expect("70 02 00 01")
    client.send("50 02 00 01")
    client.expect("62 02 00 01")
    client.send("70 02 00 01")
    client.expect_nothing()


def test_an_empty_payload_is_a_message(clients: Clients, topic: str) -> None:
    subscriber = clients.subscribed(topic)
    publish_with(clients.connect(), topic, "")
    subscriber.expect(publish(topic, ""))


@pytest.mark.parametrize("size", [0, 1, 120, 121, 127, 128, 16_370, 16_400, 70_000, 900_000])
def test_payloads_of_all_sizes_arrive_whole(clients: Clients, topic: str, size: int) -> None:
    payload = bytes(number * 7 & 0xFF for number in range(size))
    subscriber = clients.subscribed(topic, 1)
    publisher = clients.connect()
    publisher.send(publish(topic, payload))
    subscriber.expect(publish(topic, payload))
    publish_with(publisher, topic, payload)
    subscriber.expect(publish(topic, payload, qos=1, packet_id=1))


def test_what_may_not_be_published_is_acknowledged_all_the_same(clients: Clients) -> None:
    """[MQTT-3.3.5-2]."""
    watcher = clients.subscribed("$SYS/broker/forged")
    client = clients.connect()
    client.send(publish("$SYS/broker/forged", "x", qos=1, packet_id=1))
    client.expect("40 02 00 01")
    client.send(publish("$SYS/broker/forged", "x", qos=2, packet_id=2))
    client.expect("50 02 00 02")
    client.send("62 02 00 02")
    client.expect("70 02 00 02")
    watcher.expect_nothing()


def test_unreleased_qos_2_messages_are_bounded(start_broker: StartBroker) -> None:
    broker = start_broker(config="[limits]\nmax_incoming_qos2 = 2\n")
    clients = Clients(broker.host, broker.port)
    client = clients.connect()
    for number in (1, 2):
        client.send(publish("t", "x", qos=2, packet_id=number))
        client.expect(f"50 02 00 0{number}")
    client.send(publish("t", "x", qos=2, packet_id=3))
    client.expect_close()
    clients.close()


def test_a_message_split_over_many_writes_arrives_whole(clients: Clients, topic: str) -> None:
    subscriber = clients.subscribed(topic)
    publisher = clients.raw()
    for byte in connect("dropwise") + publish(topic, "drop by drop"):
        publisher.send(bytes((byte,)))
    subscriber.expect(publish(topic, "drop by drop"))
