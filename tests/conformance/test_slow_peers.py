"""Peers that do not read what they get: bounded memory, nothing lost above QoS 0."""

from __future__ import annotations

import socket
import time

import psutil

from tests.conformance.raw import (
    TIMEOUT_S,
    Clients,
    Raw,
    clients_of,
    connect,
    publish,
    publish_with,
    subscribe,
)
from tests.conftest import RunningBroker, StartBroker

MIB = 1_048_576


def memory(broker: RunningBroker) -> int:
    return int(psutil.Process(broker.process.pid).memory_info().rss)


def push(client: Raw, data: bytes) -> int:
    """Write until the broker takes no more for a second; give how many bytes it took."""
    client.socket.settimeout(1.0)
    sent = 0
    while sent < len(data):
        try:
            sent += client.socket.send(data[sent : sent + MIB])
        except TimeoutError:
            break
    client.socket.settimeout(TIMEOUT_S)
    return sent


def test_a_peer_that_leaves_its_answers_lying_is_read_again_when_it_takes_them(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(config="[limits]\nmax_outbox_bytes = 262144\n")
    with clients_of(broker.host, broker.port) as clients:
        neighbour = clients.connect()
        before = memory(broker)
        flooder = clients.connect()
        packet = publish("t", "", qos=1, packet_id=1)
        flood = packet * 10_000_000
        sent = push(flooder, flood)
        assert sent < len(flood)
        assert memory(broker) - before < 40 * MIB
        neighbour.expect_nothing()
        whole, part = divmod(sent, len(packet))
        flooder.expect(b"\x40\x02\x00\x01" * whole)
        flooder.send(packet[part:] + b"\xc0\x00")
        flooder.expect("40 02 00 01 d0 00")


def test_qos_0_is_dropped_for_a_slow_peer_and_qos_1_is_not(start_broker: StartBroker) -> None:
    broker = start_broker(config="[limits]\nmax_outbox_bytes = 65536\nmax_inflight = 10\n")
    with clients_of(broker.host, broker.port) as clients:
        slow = clients.subscribed("slow/#", 1)
        publisher = clients.connect()
        before = memory(broker)
        for _ in range(60):
            publisher.send(publish("slow/0", b"x" * 100_000) * 10)
            publisher.expect_nothing()
        for number in range(50):
            publish_with(publisher, "slow/1", str(number))
        assert memory(broker) - before < 20 * MIB
        got: list[int] = []
        dropped_some = 600
        while len(got) < 50:
            first, body = slow.packet()
            if first == 0x30:
                dropped_some -= 1
                continue
            assert first == 0x32
            slow.send(b"\x40\x02" + body[8:10])
            got.append(int(body[10:]))
        assert got == list(range(50))
        assert 0 < dropped_some < 600


def retain_much(clients: Clients, messages: int) -> bytes:
    """Retain a few megabytes and give them as they are sent to a subscriber of `#`."""
    publisher = clients.connect()
    for number in range(messages):
        publish_with(publisher, f"much/{number:05}", b"x" * 1000, retain=True)
    return b"".join(
        publish(f"much/{number:05}", b"x" * 1000, retain=True) for number in range(messages)
    )


def test_subscribing_to_everything_again_and_again_fills_no_memory(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(config="sys_interval_s = 0\n")
    with clients_of(broker.host, broker.port) as clients:
        retain_much(clients, 3000)
        neighbour = clients.connect()
        before = memory(broker)
        greedy = clients.connect()
        push(greedy, subscribe(1, ("#", 0)) * 1000)
        greedy = clients.connect()
        push(greedy, subscribe(1, *[("#", 0)] * 1000))
        neighbour.expect_nothing()
        assert memory(broker) - before < 60 * MIB


def test_a_large_set_of_retained_messages_arrives_whole(start_broker: StartBroker) -> None:
    """In portions, however slowly they are read, and with what is published meanwhile."""
    broker = start_broker(config="sys_interval_s = 0\n[limits]\nmax_outbox_bytes = 65536\n")
    with clients_of(broker.host, broker.port) as clients:
        expected = retain_much(clients, 3000)
        client = clients.raw()
        client.send(connect("reader", clean=False) + subscribe(1, ("much/#", 0)) + b"\xc0\x00")
        client.expect("20 02 00 00 90 03 00 01 00")
        client.expect(expected)
        client.expect("d0 00")
        other = clients.connect()
        other.send(subscribe(1, ("much/#", 0)))
        other.expect("90 03 00 01 00")
        first = other.read(len(expected) // 3000)
        assert first == expected[: len(first)]
        publisher = clients.connect()
        publish_with(publisher, "much/02999", "new", retain=True)
        other.send("c0 00")
        rest = b""
        while not rest.endswith(b"\xd0\x00"):
            rest += other.read(1)
            rest += other.socket.recv(MIB)
        assert (
            publish("much/02999", "new") in rest
            or publish("much/02999", "new", retain=True) in rest
        )
        assert rest.rfind(b"much/02999") == rest.find(b"much/02999new")


def test_a_slow_reader_is_not_cut_off_while_it_reads(start_broker: StartBroker) -> None:
    """[MQTT-3.1.2-24] is about silence: pings that we leave unread do not count against it."""
    broker = start_broker(config="sys_interval_s = 0\n[limits]\nmax_outbox_bytes = 65536\n")
    with clients_of(broker.host, broker.port) as clients:
        expected = retain_much(clients, 15_000)
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # so that the broker waits
        narrow.connect((broker.host, broker.port))
        client = clients.keep(narrow)
        client.send(connect("patient", keep_alive=1))
        client.expect("20 02 00 00")
        client.send(subscribe(1, ("much/#", 0)))
        client.expect("90 03 00 01 00")
        step = len(expected) // 8 + 1
        for start in range(0, len(expected), step):
            client.expect(expected[start : start + step])
            client.send("c0 00")
            time.sleep(0.5)  # slow by nature, not to be safe
        client.expect("d0 00 " * 8)
        client.expect_nothing()
