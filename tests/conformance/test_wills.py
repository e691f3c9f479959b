"""Wills (section 3.1.2.5): when they are sent, and as what."""

from __future__ import annotations

import pytest

from tests.conformance.raw import Clients, clients_of, publish, subscribe, subscribe_with
from tests.conftest import RunningBroker


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_sent_when_its_client_goes_without_a_word(
    clients: Clients, topic: str, qos: int
) -> None:
    """[MQTT-3.1.2-8], [MQTT-3.1.2-9], [MQTT-3.1.2-16]."""
    watcher = clients.subscribed(topic, 2)
    clients.connect(will=(topic, "gone", qos, False)).drop()
    watcher.expect(publish(topic, "gone", qos=qos, packet_id=1 if qos else 0))
    later = clients.connect()
    subscribe_with(later, topic)
    later.expect_nothing()


def test_a_will_is_sent_after_a_protocol_error(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.2-8]."""
    watcher = clients.subscribed(topic)
    client = clients.connect(will=(topic, "gone", 0, False))
    client.send("36 00")
    client.expect_close()
    watcher.expect(publish(topic, "gone"))


def test_a_will_is_sent_when_its_client_is_taken_over(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.2-8]."""
    watcher = clients.subscribed(topic)
    old = clients.connect("heir", will=(topic, "taken over", 0, False))
    new = clients.connect("heir")
    old.expect_close()
    watcher.expect(publish(topic, "taken over"))
    new.disconnect()
    watcher.expect_nothing()


def test_a_will_is_torn_up_by_disconnect(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.2-10], [MQTT-3.14.4-3]."""
    watcher = clients.subscribed(topic)
    clients.connect(will=(topic, "gone", 0, False)).disconnect()
    watcher.expect_nothing()


def test_a_will_is_sent_once(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.2-10]: the next connection of that client has none of it."""
    watcher = clients.subscribed(topic)
    clients.connect("mortal", clean=False, will=(topic, "gone", 0, False)).drop()
    watcher.expect(publish(topic, "gone"))
    client = clients.connect("mortal", clean=False, present=True)
    client.expect_nothing()
    client.drop()
    clients.connect("mortal", clean=True).disconnect()
    watcher.expect_nothing()


def test_without_a_will_nothing_is_sent(broker: RunningBroker) -> None:
    """[MQTT-3.1.2-12]."""
    with clients_of(broker.host, broker.port) as clients:
        watcher = clients.subscribed("#")
        clients.connect("willless").drop()
        clients.connect("willless").disconnect()  # takes over: by now the other is gone
        watcher.expect_nothing()


def test_a_retained_will_stays(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.2-17]: a live subscriber gets it without the flag, a later one with it."""
    watcher = clients.subscribed(topic, 1)
    clients.connect(will=(topic, "gone", 1, True)).drop()
    watcher.expect(publish(topic, "gone", qos=1, packet_id=1))
    later = clients.connect()
    later.send(subscribe(1, (topic, 1)))
    later.expect("90 03 00 01 01")
    later.expect(publish(topic, "gone", qos=1, packet_id=1, retain=True))


def test_an_empty_retained_will_clears(clients: Clients, topic: str) -> None:
    """[MQTT-3.3.1-10] holds for wills too."""
    watcher = clients.subscribed(topic)
    client = clients.connect(will=(topic, "", 0, True))
    client.send(publish(topic, "alive", qos=1, packet_id=1, retain=True))
    client.expect("40 02 00 01")
    watcher.expect(publish(topic, "alive"))
    client.drop()
    watcher.expect(publish(topic, ""))
    later = clients.connect()
    subscribe_with(later, topic)
    later.expect_nothing()


def test_a_refused_client_leaves_no_will(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.2-8]: only an accepted CONNECT has one."""
    watcher = clients.subscribed("late/will")
    client = clients.raw()
    client.send('10 1a 00 04 "MQTT" 04 04 00 3c 00 00 00 09 "late/will" 00 01 "x"')
    client.expect("20 02 00 02")
    client.expect_close()
    watcher.expect_nothing()


def test_a_will_cannot_speak_for_the_broker(clients: Clients) -> None:
    """`$SYS` is the broker's own, in a will as in a PUBLISH."""
    watcher = clients.subscribed("$SYS/broker/forged")
    clients.connect("forger", will=("$SYS/broker/forged", "x", 0, True)).drop()
    clients.connect("forger").disconnect()
    watcher.expect_nothing()
