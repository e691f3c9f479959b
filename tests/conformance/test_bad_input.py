"""What a client does wrong closes that connection alone, with one line that says why."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.raw import Clients, clients_of, connect, publish, publish_with
from tests.conftest import StartBroker

BAD = [
    pytest.param(vector, id=f"{path.stem}: {vector['name']}")
    for path in sorted((Path(__file__).parent / "vectors").glob("*.json"))
    for vector in json.loads(path.read_text())
    if "error" in vector and vector["from"] == "client"
]


@pytest.mark.parametrize("vector", BAD)
def test_a_bad_packet_closes_its_connection_alone(
    clients: Clients, doors: dict[str, Clients], vector: dict[str, Any]
) -> None:
    """[MQTT-4.8.0-1], [MQTT-2.2.2-2], [MQTT-1.5.3-1], [MQTT-1.5.3-2], and what each one shows."""
    data = bytes.fromhex(vector["hex"])
    neighbour = clients.connect()
    door = doors[vector.get("listener", "plain")]
    client = door.raw() if data[0] >> 4 == 1 else door.connect()
    client.send(data)
    if vector["error"] == "ConnectRefused":
        client.expect(f"20 02 00 0{vector['code']}")
    client.expect_close()
    neighbour.expect_nothing()


def test_the_log_names_client_address_and_rule(start_broker: StartBroker) -> None:
    broker = start_broker()
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect("sinner")
        host, port = client.socket.getsockname()
        client.send('36 09 00 03 "a/b" 00 0a "hi"')
        client.expect_close()
    lines = [line for line in broker.log.splitlines() if "PUBLISH with QoS 3" in line]
    assert len(lines) == 1
    assert "'sinner'" in lines[0]
    assert f"{host}:{port}" in lines[0]


def test_an_oversize_packet_is_refused_before_its_body_arrives(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(config="[limits]\nmax_packet_size = 1000\n")
    with clients_of(broker.host, broker.port) as clients:
        subscriber = clients.subscribed("size")
        fits = publish("size", b"x" * (1000 - 3 - 6))
        assert len(fits) == 1000
        publisher = clients.connect()
        publisher.send(fits)
        subscriber.expect(fits)
        publisher.send(publish("size", b"x" * (1001 - 3 - 6))[:3])  # its length, and no more
        publisher.expect_close()
        publisher = clients.raw()
        publisher.send("10 ff ff ff 7f")
        publisher.expect_close()
        subscriber.expect_nothing()


def test_a_topic_deeper_than_the_limit_closes(start_broker: StartBroker) -> None:
    broker = start_broker(config="[limits]\nmax_topic_levels = 3\n")
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect()
        publish_with(client, "a/b/c", "x")
        client.send(publish("a/b/c/d", "x"))
        client.expect_close()


def test_packets_before_a_bad_one_are_acted_on_and_those_behind_are_not(
    clients: Clients, topic: str
) -> None:
    """[MQTT-4.8.0-1]."""
    watcher = clients.subscribed(topic)
    client = clients.connect()
    good = publish(topic, "before", qos=1, packet_id=1)
    client.send(good + bytes.fromhex("36 00") + publish(topic, "behind"))
    client.expect("40 02 00 01")
    client.expect_close()
    watcher.expect(publish(topic, "before"))
    watcher.expect_nothing()


@pytest.mark.parametrize("packet_type", range(16))
def test_every_first_byte_before_and_after_connect_is_survived(
    clients: Clients, packet_type: int
) -> None:
    """[MQTT-4.8.0-1]: with an empty body, and with one that fits nothing."""
    neighbour = clients.connect()
    for flags in range(16):
        for body in ("00", "02 ff ff", "05 00 00 00 00 00"):
            for connected in (False, True):
                client = clients.connect() if connected else clients.raw()
                client.send(f"{packet_type << 4 | flags:02x} {body}")
                client.socket.shutdown(socket.SHUT_WR)
                while client.read(4096):
                    pass
                client.drop()
    neighbour.expect_nothing()


def test_a_flood_of_connections_that_are_cut_harms_nobody(clients: Clients, topic: str) -> None:
    """[MQTT-4.8.0-2]: whatever breaks off ends its own connection."""
    subscriber = clients.subscribed(topic)
    whole = connect("flooding") + publish(topic, "whole") + publish(topic, "broken")
    for cut in range(0, len(whole), 3):
        client = clients.raw()
        client.send(whole[:cut])
        client.drop()
    client = clients.connect("flooding")  # ends the last of them
    publish_with(client, topic, "end")
    while subscriber.packet()[1][-3:] != b"end":
        pass
    subscriber.expect_nothing()


def test_the_number_of_connections_is_bounded(start_broker: StartBroker) -> None:
    """[MQTT-3.2.2-6]: closed at the door, without a CONNACK."""
    broker = start_broker(config="[limits]\nmax_connections = 2\n")
    with clients_of(broker.host, broker.port) as clients:
        first, second = clients.connect(), clients.connect()
        refused = clients.raw()
        refused.expect_close()
        first.expect_nothing()
        second.disconnect()
        first.expect_nothing()
        clients.connect().expect_nothing()
