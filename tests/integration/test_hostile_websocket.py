"""WebSocket frames that are too large, never end, or are not what they say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil
import pytest

from tests.conformance.raw import Clients, Raw, clients_of, connect, publish, subscribe
from tests.conformance.raw_websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    expect_binary,
    frame,
    handshake,
    read_frame,
)
from tests.conftest import RunningBroker, StartBroker

MIB = 2**20


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    config = '[[listener]]\nkind = "ws"\nport = 0\n[limits]\nmax_packet_size = 100000\n'
    return start_broker(config=config, listen=False)


@pytest.fixture
def clients(broker: RunningBroker) -> Iterator[Clients]:
    with clients_of(*broker.address("ws")) as made:
        yield made


def joined(clients: Clients, name: str) -> Raw:
    raw = clients.raw()
    assert handshake(raw) == (101, "mqtt")
    raw.send(frame(connect(name)))
    expect_binary(raw, "20 02 00 00")
    return raw


def memory(broker: RunningBroker) -> int:
    return int(psutil.Process(broker.process.pid).memory_info().rss)


def closes_with(raw: Raw, code: int) -> None:
    while True:
        opcode, data = read_frame(raw)
        if opcode == CLOSE:
            assert int.from_bytes(data[:2], "big") == code
            raw.expect_close()
            return


@pytest.mark.parametrize("size", [200_000, 2**31, 2**63 - 1])
def test_an_oversized_frame_is_refused_by_its_header(clients: Clients, size: int) -> None:
    raw = joined(clients, "large")
    raw.send(b"\x82\xff" + size.to_bytes(8, "big") + b"\0\0\0\0")  # and not one byte of it
    closes_with(raw, 1009)


def test_a_message_in_endless_fragments_is_refused_when_it_is_too_large(
    broker: RunningBroker, clients: Clients
) -> None:
    raw = joined(clients, "endless")
    before = memory(broker)
    raw.send(frame(publish("t", b"x" * 90_000)[:1000], BINARY, final=False))
    part = frame(bytes(1000), CONTINUATION, final=False)
    with contextlib.suppress(ConnectionError):  # it may be closed meanwhile
        for _ in range(1000):
            raw.send(part)
    raw.read(100)  # the goodbye, if a reset did not overtake it
    raw.expect_close()
    assert memory(broker) - before < 5 * MIB


def test_fragments_that_cut_packets_anywhere_are_put_together(clients: Clients) -> None:
    """And control frames may stand between them."""
    watcher = joined(clients, "watcher")
    watcher.send(frame(subscribe(1, ("t", 0))))
    expect_binary(watcher, "90 03 00 01 00")
    raw = joined(clients, "cutter")
    data = publish("t", "one") + publish("t", "two" * 100) + publish("t", "three")
    for size in (1, 3, 50):
        parts = [data[start : start + size] for start in range(0, len(data), size)]
        raw.send(frame(parts[0], BINARY, final=False))
        for part in parts[1:-1]:
            raw.send(frame(part, CONTINUATION, final=False) + frame(b"", PING))
        raw.send(frame(parts[-1], CONTINUATION))
        expect_binary(watcher, data)


def test_pings_whose_answers_nobody_reads_fill_no_memory(
    broker: RunningBroker, clients: Clients
) -> None:
    raw, neighbour = joined(clients, "pinging"), joined(clients, "neighbour")
    before = memory(broker)
    pings = frame(bytes(125), PING) * 2000
    raw.socket.settimeout(0.5)
    try:
        for _ in range(400):  # 100 MiB
            raw.send(pings)
    except (TimeoutError, ConnectionError):
        pass  # the broker reads no more, or has had enough
    neighbour.send(frame("c0 00"))
    expect_binary(neighbour, "d0 00")
    assert memory(broker) - before < 30 * MIB


def test_reserved_bits_and_large_control_frames_close(clients: Clients) -> None:
    for wrong in (
        b"\xc2" + frame("c0 00")[1:],  # compressed, which nobody agreed on
        b"\x89\xfe\x00\x80" + bytes(4 + 128),  # a ping of 128 bytes
        frame(b"", PING, final=False),
    ):
        raw = joined(clients, "wrong")
        raw.send(wrong)
        closes_with(raw, 1002)
