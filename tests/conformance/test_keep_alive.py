"""Keep-alive, and connections that never get anywhere. These tests wait in real time."""

from __future__ import annotations

import time

from tests.conformance.raw import Clients, clients_of, connect, publish_with
from tests.conftest import StartBroker


def seconds_until_close(clients: Clients, data: bytes, answer: str = "") -> float:
    """Send something, read the answer, and measure how long the broker then waits."""
    client = clients.raw()
    client.send(data)
    started = time.monotonic()
    if answer:
        client.expect(answer)
    client.expect_close()
    return time.monotonic() - started


def test_a_silent_client_is_cut_off_after_one_and_a_half_times(
    clients: Clients, topic: str
) -> None:
    """[MQTT-3.1.2-24]: as if the network had failed, so with its will."""
    watcher = clients.subscribed(topic)
    packet = connect("silent", keep_alive=1, will=(topic, "gone", 0, False))
    assert 1.5 <= seconds_until_close(clients, packet, "20 02 00 00") < 3.0
    watcher.expect(f'30 {6 + len(topic):02x} 00 {len(topic):02x} "{topic}" "gone"')


def test_a_client_that_pings_stays(clients: Clients) -> None:
    """[MQTT-3.12.4-1]."""
    client = clients.connect("pinging", keep_alive=1)
    lively_until = time.monotonic() + 2.2
    client.socket.settimeout(0.5)
    while time.monotonic() < lively_until:
        client.expect_nothing()
        assert client.read(1) == b""  # half a second of silence
    client.expect_nothing()


def test_bytes_of_an_unfinished_packet_are_no_sign_of_life(clients: Clients) -> None:
    """[MQTT-3.1.2-24]: what counts is a packet."""
    client = clients.connect("dripping", keep_alive=1)
    started = time.monotonic()
    client.send("30 7f 00 03")
    client.socket.settimeout(0.2)
    while time.monotonic() - started < 5:
        try:
            client.send("61")
            if client.socket.recv(1) == b"":
                break
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            break
    assert 1.4 <= time.monotonic() - started < 4.0


def test_connections_that_lead_nowhere_are_dropped(start_broker: StartBroker) -> None:
    """Half-open: nothing sent, half a CONNECT, a CONNECT in drops, half a packet afterwards."""
    broker = start_broker(config="[limits]\nconnect_timeout_s = 0.5\npacket_timeout_s = 0.5\n")
    with clients_of(broker.host, broker.port) as clients:
        assert 0.5 <= seconds_until_close(clients, b"") < 2.5
        assert 0.4 <= seconds_until_close(clients, connect("half")[:9]) < 2.5
        started = time.monotonic()
        client = clients.raw()
        client.socket.settimeout(0.1)
        for byte in connect("x" * 200):
            try:
                client.send(bytes((byte,)))
                if client.socket.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                break
        assert 0.4 <= time.monotonic() - started < 2.6
        unfinished = connect("never") + bytes.fromhex("30 7f 00 03")
        assert seconds_until_close(clients, unfinished, "20 02 00 00") < 3
        idle = clients.connect("idle")
        idle.socket.settimeout(1.3)
        assert idle.read(1) == b""
        idle.expect_nothing()
        publish_with(idle, "still", "there")
    assert "packet never finished" in broker.log
    assert "no CONNECT in time" in broker.log
