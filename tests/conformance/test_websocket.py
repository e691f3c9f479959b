"""MQTT over WebSocket (section 6), frame by frame."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.raw import Clients, Raw, clients_of, connect, publish, subscribe
from tests.conformance.raw_websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    expect_binary,
    frame,
    handshake,
    read_frame,
)
from tests.conftest import RunningBroker, StartBroker

CONFIG = '[[listener]]\nport = 0\n[[listener]]\nkind = "ws"\nport = 0\n'


@pytest.fixture
def web_broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker(config=CONFIG + "[limits]\nmax_packet_size = 100000\n", listen=False)


@pytest.fixture
def web_clients(web_broker: RunningBroker) -> Iterator[Clients]:
    with clients_of(*web_broker.address("ws")) as made:
        yield made


def upgraded(clients: Clients, client_id: str) -> Raw:
    """Open a WebSocket and connect with MQTT on it."""
    raw = clients.raw()
    assert handshake(raw) == (101, "mqtt")
    raw.send(frame(connect(client_id)))
    expect_binary(raw, "20 02 00 00")
    return raw


def test_the_subprotocol_is_mqtt(web_clients: Clients) -> None:
    """[MQTT-6.0.0-4], [MQTT-6.0.0-3]."""
    for offered, chosen in (("mqtt", "mqtt"), ("other, mqtt", "mqtt"), ("mqttv3.1", "mqttv3.1")):
        raw = web_clients.raw()
        assert handshake(raw, subprotocol=offered) == (101, chosen)
        raw.send(frame(connect("sub")))
        expect_binary(raw, "20 02 00 00")


@pytest.mark.parametrize("subprotocol", [None, "chat"])
def test_without_the_subprotocol_there_is_no_connection(
    web_clients: Clients, subprotocol: str | None
) -> None:
    """[MQTT-6.0.0-3]."""
    raw = web_clients.raw()
    assert handshake(raw, subprotocol=subprotocol)[0] == 400


def test_another_path_is_not_found(web_clients: Clients) -> None:
    raw = web_clients.raw()
    assert handshake(raw, path="/other")[0] == 404
    raw = web_clients.raw()
    assert handshake(raw, path="/mqtt?user=7") == (101, "mqtt")


def test_messages_travel_in_binary_frames(web_broker: RunningBroker, web_clients: Clients) -> None:
    """[MQTT-6.0.0-1]: to and from clients on TCP."""
    web = upgraded(web_clients, "web")
    web.send(frame(subscribe(1, ("ws/#", 1))))
    expect_binary(web, "90 03 00 01 01")
    with clients_of(web_broker.host, web_broker.port) as clients:
        tcp = clients.subscribed("ws/#", 1)
        web.send(frame(publish("ws/a", "from the web", qos=1, packet_id=1)))
        expect_binary(
            web, b"\x40\x02\x00\x01" + publish("ws/a", "from the web", qos=1, packet_id=1)
        )
        tcp.expect(publish("ws/a", "from the web", qos=1, packet_id=1))
        tcp.send(publish("ws/b", "x" * 70_000))
        tcp.expect(publish("ws/b", "x" * 70_000))
        expect_binary(web, publish("ws/b", "x" * 70_000))


def test_a_text_frame_closes(web_clients: Clients) -> None:
    """[MQTT-6.0.0-1]."""
    raw = upgraded(web_clients, "texter")
    raw.send(frame("c0 00", TEXT))
    assert read_frame(raw) == (CLOSE, b"\x03\xeb")
    raw.expect_close()


def test_packets_and_frames_need_not_align(web_clients: Clients) -> None:
    """[MQTT-6.0.0-2]: several in one, one in several, and both at once."""
    raw = web_clients.raw()
    handshake(raw)
    packets = connect("misaligned") + b"\xc0\x00" + subscribe(1, ("m", 0)) + publish("m", "hi")
    for byte in packets:
        raw.send(frame(bytes((byte,))))
    answer = bytes.fromhex("20 02 00 00 d0 00 90 03 00 01 00") + publish("m", "hi")
    expect_binary(raw, answer)
    raw.send(frame(publish("m", "1") + publish("m", "2")[:4]) + frame(publish("m", "2")[4:]))
    expect_binary(raw, publish("m", "1") + publish("m", "2"))


def test_a_fragmented_frame_is_put_together(web_clients: Clients) -> None:
    """[MQTT-6.0.0-2]: with a ping between the fragments, as RFC 6455 allows."""
    raw = upgraded(web_clients, "fragments")
    raw.send(frame("c0", BINARY, final=False))
    raw.send(frame(b"?", PING))
    assert read_frame(raw) == (PONG, b"?")
    raw.send(frame("", CONTINUATION, final=False))
    raw.send(frame("00", CONTINUATION))
    expect_binary(raw, "d0 00")


def test_the_closing_handshake_is_answered_and_the_will_is_sent(web_clients: Clients) -> None:
    """[MQTT-3.1.2-8]: closing a WebSocket is no DISCONNECT."""
    watcher = upgraded(web_clients, "watcher")
    watcher.send(frame(subscribe(1, ("will", 0))))
    expect_binary(watcher, "90 03 00 01 00")
    raw = web_clients.raw()
    handshake(raw)
    raw.send(frame(connect("mortal", will=("will", "gone", 0, False))))
    expect_binary(raw, "20 02 00 00")
    raw.send(frame(b"\x03\xe8", CLOSE))
    assert read_frame(raw) == (CLOSE, b"\x03\xe8")
    raw.expect_close()
    expect_binary(watcher, publish("will", "gone"))


def test_disconnect_closes_the_websocket(web_clients: Clients) -> None:
    raw = upgraded(web_clients, "leaving")
    raw.send(frame("e0 00"))
    assert read_frame(raw) == (CLOSE, b"\x03\xe8")
    raw.expect_close()


def test_bad_packets_and_bad_frames_close(web_clients: Clients) -> None:
    """[MQTT-4.8.0-1]."""
    neighbour = upgraded(web_clients, "neighbour")
    for wrong in (
        frame("36 00"),
        frame("30 ff ff ff 7f"),
        frame(b"\0" * 200_000),
        b"\x82\x02\xc0\x00",  # not masked
        frame("c0 00", 3),  # a reserved opcode
        frame("c0 00", CONTINUATION),  # of nothing
    ):
        raw = upgraded(web_clients, "wrong")
        raw.send(wrong)
        opcode, _ = read_frame(raw)
        assert opcode == CLOSE
        raw.expect_close()
    neighbour.send(frame("c0 00"))
    expect_binary(neighbour, "d0 00")


def test_what_is_no_handshake_is_refused_or_given_up(start_broker: StartBroker) -> None:
    broker = start_broker(config=CONFIG + "[limits]\nconnect_timeout_s = 0.5\n", listen=False)
    with clients_of(*broker.address("ws")) as clients:
        for wrong in (connect("plain"), b"GET / HTTP/1.1\r\n\r\n", b"\r\n" * 9, b"G" * 9000):
            raw = clients.raw()
            raw.send(wrong)
            assert b"101" not in raw.read(10_000).split(b"\r\n")[0]
            raw.expect_close()
        raw = clients.raw()
        assert handshake(raw) == (101, "mqtt")  # and no CONNECT
        assert read_frame(raw)[0] == CLOSE
        raw.expect_close()
