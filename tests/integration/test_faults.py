"""What goes wrong around a broker: no descriptors left, half a handshake, a flood of old mail."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conformance.raw import (
    Clients,
    Raw,
    clients_of,
    connect,
    publish,
    publish_with,
    subscribe_with,
)
from tests.conftest import RunningBroker, StartBroker
from tests.integration.certificates import make_ca, make_certificate


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def of(stack: ExitStack, broker: RunningBroker) -> Clients:
    return stack.enter_context(clients_of(broker.host, broker.port))


def cpu_s(broker: RunningBroker) -> float:
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_running_out_of_file_descriptors_refuses_newcomers_and_serves_the_others(
    start_broker: StartBroker, stack: ExitStack
) -> None:
    broker = start_broker()
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (64, 64))
    clients = of(stack, broker)
    early = clients.connect("early")
    subscribe_with(early, "t", 1)
    crowd = [clients.raw() for _ in range(100)]
    let_in = 0
    for number, raw in enumerate(crowd):
        raw.socket.settimeout(0.2)
        with contextlib.suppress(OSError):
            raw.send(connect(f"crowd{number}"))
            let_in += raw.socket.recv(4) == bytes.fromhex("20020000")
    assert 10 < let_in < 64
    publish_with(early, "t", "x")
    early.expect('32 06 00 01 "t" 00 01 "x"')
    before = cpu_s(broker)
    time.sleep(1)
    assert cpu_s(broker) - before < 0.5, "it spins over what it cannot accept"
    for raw in crowd:
        raw.drop()
    late = connect_at_last(clients, "late")
    publish_with(late, "t", "y")
    early.expect('32 06 00 01 "t" 00 02 "y"')


def connect_at_last(clients: Clients, client_id: str) -> Raw:
    """Try until the broker has noticed that the crowd is gone."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        raw = clients.raw()
        with contextlib.suppress(OSError):
            raw.send(connect(client_id))
            if raw.read(4) == bytes.fromhex("20020000"):
                return raw
        time.sleep(0.05)
    pytest.fail("nobody is let in any more")


def test_a_tls_handshake_that_is_never_finished_is_given_up(
    start_broker: StartBroker, tmp_path: Path, stack: ExitStack
) -> None:
    ca = make_ca(tmp_path / "pki")
    certfile, keyfile = make_certificate(ca.parent, "server", "localhost")
    broker = start_broker(
        config=f'[limits]\nconnect_timeout_s = 1.0\n[[listener]]\nkind = "tls"\nport = 0\n'
        f'certfile = "{certfile}"\nkeyfile = "{keyfile}"\n',
        listen=False,
    )
    clients = stack.enter_context(clients_of(*broker.address("tls")))
    silent, halfway = clients.raw(), clients.raw()
    halfway.send("16 03 01 02 00 01 00")  # the head of a ClientHello of 512 bytes
    silent.expect_close()
    halfway.expect_close()


def take_all(client: Raw, count: int) -> list[int]:
    """Acknowledge so many messages as they come, many at a time; give their numbers."""
    numbers: list[int] = []
    buffer = b""
    client.socket.settimeout(60)
    while len(numbers) < count:
        buffer += client.socket.recv(2**18)
        answers = b""
        position = 0
        # 32 length 00 01 't' id id number: every packet of this test is as long as the others.
        while len(buffer) - position >= 13:
            packet = buffer[position : position + 13]
            assert packet[:5] == bytes.fromhex("320b000174"), packet.hex(" ")
            numbers.append(int(packet[7:13]))
            answers += b"\x40\x02" + packet[5:7]
            position += 13
        buffer = buffer[position:]
        client.send(answers)
    assert not buffer
    return numbers


def test_a_tracker_returns_to_100000_messages_while_others_are_served(
    start_broker: StartBroker, stack: ExitStack
) -> None:
    broker = start_broker()
    clients = of(stack, broker)
    tracker = clients.connect("tracker", clean=False)
    subscribe_with(tracker, "t", 1)
    tracker.disconnect()
    source = clients.connect("source")
    source.socket.settimeout(60)
    for start in range(0, 100_000, 1_000):
        batch = b"".join(
            publish("t", b"%06d" % number, qos=1, packet_id=number % 1_000 + 1)
            for number in range(start, start + 1_000)
        )
        source.send(batch)
        assert len(source.read(4_000)) == 4_000

    others = [clients.subscribed("others") for _ in range(50)]
    tracker = clients.connect("tracker", clean=False, present=True)
    slowest = 0.0
    numbers: list[int] = []
    for _ in range(10):
        numbers += take_all(tracker, 10_000 - len(numbers) % 10_000)
        began = time.monotonic()
        source.send(publish("others", "x"))
        for other in others:
            other.expect(publish("others", "x"))
        slowest = max(slowest, time.monotonic() - began)
    assert numbers[:100_000] == list(range(100_000))
    assert slowest < 2, f"the others waited {slowest:.2f} s"
    tracker.expect_nothing()


def test_a_mistake_of_ours_in_one_connection_ends_that_one_alone(
    start_broker: StartBroker, stack: ExitStack
) -> None:
    clients = of(stack, start_broker())
    stays = clients.subscribed("t")
    victim = clients.connect("victim")
    victim.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    victim.send(publish("t", "x" * 100_000)[:50_000])
    victim.drop()  # with a reset in the middle of a packet
    publish_with(clients.connect("other"), "t", "y")
    stays.expect('30 04 00 01 "t" "y"')
