"""CONNECT and CONNACK (sections 3.1 and 3.2), over a socket."""

from __future__ import annotations

import pytest

from tests.conformance.raw import Clients, connect, publish_with, subscribe_with
from tests.conftest import RunningBroker, StartBroker


def test_a_valid_connect_is_accepted(clients: Clients) -> None:
    """[MQTT-3.1.4-4], [MQTT-3.2.0-1]."""
    client = clients.raw()
    client.send('10 10 00 04 "MQTT" 04 02 00 3c 00 04 "ok01"')
    client.expect("20 02 00 00")
    client.expect_nothing()


def test_a_connect_in_single_bytes_is_accepted(clients: Clients) -> None:
    client = clients.raw()
    for byte in connect("bytewise"):
        client.send(bytes((byte,)))
    client.expect("20 02 00 00")


def test_packets_behind_the_connect_in_the_same_write_are_acted_on(clients: Clients) -> None:
    client = clients.raw()
    client.send(connect("eager") + bytes.fromhex("c0 00"))
    client.expect("20 02 00 00 d0 00")


@pytest.mark.parametrize(
    "first_packet",
    [
        "c0 00",
        '30 05 00 03 "a/b"',
        '82 08 00 01 00 03 "a/b" 00',
        "e0 00",
        "20 02 00 00",
        "40 02 00 01",
        '"GET / HTTP/1.1" 0d 0a 0d 0a',
    ],
)
def test_anything_before_connect_closes_without_an_answer(
    clients: Clients, first_packet: str
) -> None:
    """[MQTT-3.1.0-1]."""
    client = clients.raw()
    client.send(first_packet)
    client.expect_close()


def test_a_second_connect_closes(clients: Clients) -> None:
    """[MQTT-3.1.0-2]."""
    client = clients.connect("twice")
    client.send(connect("twice"))
    client.expect_close()


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param('10 0e 00 04 "mqtt" 04 02 00 3c 00 02 "c1"', id="protocol name"),
        pytest.param('10 0e 00 04 "MQTT" 04 03 00 3c 00 02 "c1"', id="reserved flag"),
        pytest.param('11 0e 00 04 "MQTT" 04 02 00 3c 00 02 "c1"', id="fixed header flags"),
        pytest.param('10 11 00 04 "MQTT" 04 42 00 3c 00 02 "c1" 00 01 "p"', id="no user name"),
        pytest.param('10 0e 00 04 "MQTT" 04 0a 00 3c 00 02 "c1"', id="will QoS, no will"),
        pytest.param('10 0f 00 04 "MQTT" 04 02 00 3c 00 02 "c1" 00', id="trailing byte"),
        pytest.param('10 0e 00 04 "MQTT" 04 02 00 3c 00 02 ff ff', id="not UTF-8"),
    ],
)
def test_a_malformed_connect_closes_without_connack(clients: Clients, packet: str) -> None:
    """[MQTT-3.1.4-1], [MQTT-3.1.2-1], [MQTT-3.1.2-3], [MQTT-3.2.2-6]."""
    client = clients.raw()
    client.send(packet)
    client.expect_close()


@pytest.mark.parametrize("level", [0, 2, 3, 5, 6, 0x7F])
def test_an_unknown_protocol_level_gets_code_1(clients: Clients, level: int) -> None:
    """[MQTT-3.1.2-2], [MQTT-3.2.2-4], [MQTT-3.2.2-5]."""
    client = clients.raw()
    client.send(f'10 0e 00 04 "MQTT" {level:02x} 02 00 3c 00 02 "c1"')
    client.expect("20 02 00 01")
    client.expect_close()


def test_nothing_behind_a_refused_connect_is_acted_on(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.4-5]."""
    watcher = clients.subscribed("early/#")
    client = clients.raw()
    client.send('10 0e 00 04 "MQTT" 05 02 00 3c 00 02 "c1" 30 0b 00 07 "early/x" "hi" c0 00')
    client.expect("20 02 00 01")
    client.expect_close()
    watcher.expect_nothing()


@pytest.mark.parametrize("level", [0x84, 0x83])
def test_the_bridge_bit_is_accepted(clients: Clients, level: int) -> None:
    name = '00 04 "MQTT"' if level == 0x84 else '00 06 "MQIsdp"'
    client = clients.raw()
    client.send(f'10 {0x0E if level == 0x84 else 0x10:02x} {name} {level:02x} 02 00 3c 00 02 "br"')
    client.expect("20 02 00 00")
    client.expect_nothing()


def test_an_mqtt_3_1_client_is_served(clients: Clients) -> None:
    client = clients.raw()
    client.send('10 11 00 06 "MQIsdp" 03 02 00 3c 00 03 "old"')
    client.expect("20 02 00 00")
    client.send('82 09 00 01 00 04 "v3/1" 01')
    client.expect("90 03 00 01 01")
    client.send('32 0a 00 04 "v3/1" 00 07 "hi"')
    client.expect('40 02 00 07 32 0a 00 04 "v3/1" 00 01 "hi"')


def test_an_mqtt_3_1_client_is_not_told_of_its_session(clients: Clients) -> None:
    for _ in range(2):
        client = clients.raw()
        client.send('10 12 00 06 "MQIsdp" 03 00 00 3c 00 04 "old2"')
        client.expect("20 02 00 00")
        client.disconnect()


def test_an_mqtt_3_1_client_without_an_id_gets_code_2(clients: Clients) -> None:
    """[MQTT-3.1.3-9]."""
    client = clients.raw()
    client.send('10 0e 00 06 "MQIsdp" 03 02 00 3c 00 00')
    client.expect("20 02 00 02")
    client.expect_close()


def test_a_refused_subscription_closes_an_mqtt_3_1_client(clients: Clients) -> None:
    client = clients.raw()
    client.send('10 12 00 06 "MQIsdp" 03 02 00 3c 00 04 "old3"')
    client.expect("20 02 00 00")
    client.send('82 0d 00 01 00 08 "$share/g" 01')
    client.expect_close()


def test_an_empty_client_id_with_a_clean_session_gets_one_of_its_own(clients: Clients) -> None:
    """[MQTT-3.1.3-6]: two of them do not take each other over."""
    first = clients.connect("")
    second = clients.connect("")
    first.expect_nothing()
    second.expect_nothing()


def test_an_empty_client_id_with_a_persistent_session_gets_code_2(clients: Clients) -> None:
    """[MQTT-3.1.3-8]."""
    client = clients.raw()
    client.send('10 0c 00 04 "MQTT" 04 00 00 3c 00 00')
    client.expect("20 02 00 02")
    client.expect_close()


def test_empty_client_ids_can_be_switched_off(start_broker: StartBroker) -> None:
    """[MQTT-3.1.3-9]."""
    broker = start_broker(config="allow_zero_length_clientid = false\n")
    with_clients = Clients(broker.host, broker.port)
    client = with_clients.raw()
    client.send('10 0c 00 04 "MQTT" 04 02 00 3c 00 00')
    client.expect("20 02 00 02")
    client.expect_close()
    with_clients.close()


@pytest.mark.parametrize(
    "client_id",
    [
        "a",
        "0123456789abcdefghijklm",
        "nopqrstuvwxyzABCDEFGHIJ",
        "KLMNOPQRSTUVWXYZ",
        "x" * 65_535,
        "with blanks/and+wild#cards",
        "größe-\U0001f30d",
    ],
)
def test_client_ids_of_all_kinds_are_allowed(clients: Clients, client_id: str) -> None:
    """[MQTT-3.1.3-5], and beyond."""
    clients.connect(client_id).expect_nothing()


def test_a_clean_session_is_never_present(clients: Clients) -> None:
    """[MQTT-3.2.2-1], [MQTT-3.1.2-6]."""
    clients.connect("tidy", clean=False).disconnect()
    clients.connect("tidy", clean=True).disconnect()
    clients.connect("tidy", clean=False).disconnect()


def test_a_persistent_session_is_present_the_second_time(clients: Clients) -> None:
    """[MQTT-3.2.2-2], [MQTT-3.2.2-3], [MQTT-3.1.2-4]."""
    clients.connect("keeper", clean=False).disconnect()
    clients.connect("keeper", clean=False, present=True).disconnect()
    clients.connect("keeper", clean=True).disconnect()


def test_a_client_of_the_same_id_takes_the_connection_over(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.4-2]."""
    old = clients.connect("twin")
    new = clients.connect("twin")
    old.expect_close()
    subscribe_with(new, topic)
    publish_with(new, topic, "still here")
    new.expect(f'30 {2 + len(topic) + 10:02x} 00 {len(topic):02x} "{topic}" "still here"')


def test_a_taken_over_persistent_session_goes_on(clients: Clients, topic: str) -> None:
    """[MQTT-3.1.4-2], [MQTT-3.1.4-3], [MQTT-3.1.3-2]."""
    old = clients.connect("twin2", clean=False)
    subscribe_with(old, topic)
    new = clients.connect("twin2", clean=False, present=True)
    old.expect_close()
    publish_with(new, topic, "x")
    new.expect(f'30 {3 + len(topic):02x} 00 {len(topic):02x} "{topic}" "x"')
    new.disconnect()
    clients.connect("twin2").disconnect()


def test_client_ids_differ_byte_for_byte(clients: Clients) -> None:
    """[MQTT-3.1.3-2]."""
    one = clients.connect("Case")
    two = clients.connect("case")
    one.expect_nothing()
    two.expect_nothing()


def test_a_user_name_is_welcome_where_nobody_checks_it(clients: Clients) -> None:
    """[MQTT-3.1.2-19], [MQTT-3.1.2-21]."""
    clients.connect("named", username="somebody", password="secret").expect_nothing()


def test_a_connection_that_ends_within_connect_harms_nobody(
    clients: Clients, daemon: RunningBroker
) -> None:
    whole = connect("halfway")
    for cut in range(len(whole)):
        client = clients.raw()
        client.send(whole[:cut])
        client.drop()
    clients.connect("afterwards").expect_nothing()
    assert daemon.process.poll() is None
