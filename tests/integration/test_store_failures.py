"""When the store cannot write: disk full, locked, read-only; and wills after the end."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.conformance.raw import (
    Clients,
    Raw,
    clients_of,
    publish,
    publish_with,
    subscribe_with,
)
from tests.conftest import RunningBroker, StartBroker

CONFIG = "sys_interval_s = 0.1\n"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def of(stack: ExitStack, broker: RunningBroker) -> Clients:
    return stack.enter_context(clients_of(broker.host, broker.port))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of two megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True, timeout=10
    )
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True, timeout=10)


def away(clients: Clients, client_id: str = "away") -> None:
    """Leave a persistent session that wants everything under t/."""
    client = clients.connect(client_id, clean=False)
    subscribe_with(client, "t/#", 2)
    client.disconnect()


def publish_until_closed(clients: Clients, *, qos: int, start: int = 0) -> list[int]:
    """Publish numbered messages one by one, and give those that were acknowledged."""
    client = clients.connect(f"p{qos}", clean=False, present=start > 0)
    acknowledged = []
    for number in range(start, start + 2_000):
        packet_id = number % 60_000 + 1
        body = b"%06d" % number + bytes(4_000)
        client.send(publish("t/x", body, qos=qos, packet_id=packet_id))
        if client.read(4) != bytes((0x40 if qos == 1 else 0x50, 2)) + packet_id.to_bytes(2, "big"):
            break
        acknowledged.append(number)
        if qos == 2:
            client.send(b"\x62\x02" + packet_id.to_bytes(2, "big"))
            if client.read(4)[:1] != b"\x70":
                break
    else:
        pytest.fail("the disk never got full")
    client.drop()
    return acknowledged


def wait_for(broker: RunningBroker, text: str, times: int = 1) -> None:
    deadline = time.monotonic() + 20
    while broker.log.count(text) < times:
        assert time.monotonic() < deadline, broker.log
        time.sleep(0.02)


def sys_value(client: Raw, topic: str, value: bytes) -> None:
    """Wait until a `$SYS` topic has a value."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        _, body = client.packet()
        end = 2 + int.from_bytes(body[:2], "big")
        if body[2:end] == topic.encode() and body[end:] == value:
            return
    pytest.fail(f"{topic} never was {value!r}")


def received(client: Raw) -> list[int]:
    """Take everything that waits for a persistent subscriber."""
    client.send("c0 00")
    numbers = []
    pinged = False
    while True:
        first, body = client.packet()
        if first == 0xD0:
            if pinged:
                return numbers
            # Whatever follows our acknowledgements stands before the answer to the next ping.
            client.send("c0 00")
            pinged = True
        elif first >> 4 == 3:
            pinged = False
            end = 2 + int.from_bytes(body[:2], "big")
            numbers.append(int(body[end + 2 : end + 8]))
            client.send(bytes((0x40 if first & 2 else 0x50, 2)) + body[end : end + 2])
        elif first == 0x62:
            pinged = False
            client.send(b"\x70\x02" + body)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_disk_closes_publishers_serves_clean_sessions_and_loses_nothing(
    start_broker: StartBroker, small_disk: Path, stack: ExitStack, qos: int
) -> None:
    broker = start_broker(config=CONFIG, data=small_disk / "data")
    clients = of(stack, broker)
    away(clients)
    watcher = clients.subscribed("$SYS/broker/store/+")
    first = publish_until_closed(clients, qos=qos)
    assert len(first) > 10
    wait_for(broker, "messages cannot be kept")
    sys_value(watcher, "$SYS/broker/store/failing", b"1")

    # Clean sessions do not notice, with any QoS.
    clean = clients.subscribed("c/#", 2)
    source = clients.connect()
    publish_with(source, "c/x", "1")
    clean.expect('32 08 00 03 "c/x" 00 01 "1"')
    source.send('34 08 00 03 "c/x" 00 05 "2"')
    source.expect("50 02 00 05")
    clean.expect('34 08 00 03 "c/x" 00 02 "2"')

    # Whoever tries again is closed again: there is no false acknowledgement.
    again = clients.connect()
    again.send(publish("t/x", "000000", qos=1, packet_id=9))
    again.expect_close()

    (small_disk / "data" / "store.sqlite").stat()
    subprocess.run(["mount", "-o", "remount,size=40m", str(small_disk)], check=True, timeout=10)
    wait_for(broker, "writing again")
    sys_value(watcher, "$SYS/broker/store/failing", b"0")
    client = clients.connect()
    publish_with(client, "t/x", "999999")
    broker.kill()

    restarted = start_broker(config=CONFIG, data=small_disk / "data")
    returning = of(stack, restarted).connect("away", clean=False, present=True)
    numbers = received(returning)
    assert set(first) <= set(numbers)
    assert 999999 in numbers
    assert numbers.count(0) == 1


def test_a_store_that_somebody_else_locks_is_a_store_that_fails_and_recovers(
    start_broker: StartBroker, stack: ExitStack
) -> None:
    broker = start_broker(config=CONFIG)
    clients = of(stack, broker)
    away(clients)
    with closing(sqlite3.connect(broker.data / "store.sqlite")) as other:
        other.execute("BEGIN IMMEDIATE")
        source = clients.connect()
        source.send(publish("t/x", "000001", qos=1, packet_id=9))
        source.expect_close()
        fresh = clients.subscribed("c")
        publish_with(clients.connect(), "c", "still here")
        fresh.expect('30 0d 00 01 "c" "still here"')
        assert "database is locked: messages cannot be kept" in broker.log
        other.rollback()
    wait_for(broker, "writing again")
    publish_with(clients.connect(), "t/x", "000002")
    numbers = received(clients.connect("away", clean=False, present=True))
    assert numbers[-1] == 2
    assert set(numbers) <= {1, 2}


def test_a_qos_2_message_that_could_not_be_kept_is_not_acknowledged_when_it_is_sent_again(
    start_broker: StartBroker, stack: ExitStack
) -> None:
    broker = start_broker(config=CONFIG)
    clients = of(stack, broker)
    away(clients)
    with closing(sqlite3.connect(broker.data / "store.sqlite")) as other:
        source = clients.connect("source", clean=False)
        other.execute("BEGIN IMMEDIATE")
        source.send(publish("t/x", "000001", qos=2, packet_id=9))
        source.expect_close()
        source = clients.connect("source", clean=False, present=True)
        source.send(publish("t/x", "000001", qos=2, packet_id=9, dup=True))
        source.expect_close()
        other.rollback()
    wait_for(broker, "writing again")
    source = clients.connect("source", clean=False, present=True)
    source.send(publish("t/x", "000001", qos=2, packet_id=9, dup=True))
    source.expect("50 02 00 09")
    source.send("62 02 00 09")
    source.expect("70 02 00 09")
    assert received(clients.connect("away", clean=False, present=True)) == [1]


def test_an_unwritable_data_folder_is_one_line_and_exit_code_2(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True, timeout=10)
    command = [sys.executable, "-m", "geomqtt", "serve", "--port", "0", "--http-port", "0"]
    result = subprocess.run(
        [*command, "--no-log", "--data", str(small_disk / "data")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr == f"geomqtt: data folder {small_disk}/data: Read-only file system\n"


WILLS = "[storage]\nwill_grace_s = 1.0\n"


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_the_will_of_a_client_cut_off_by_our_end_is_published_after_the_restart(
    start_broker: StartBroker, stack: ExitStack, end: str
) -> None:
    broker = start_broker(config=WILLS)
    clients = of(stack, broker)
    clients.connect("gone", will=("w/gone", "!", 1, False))
    clients.connect("back", will=("w/back", "!", 1, False))
    polite = clients.connect("polite", will=("w/polite", "!", 1, False))
    polite.disconnect()
    watcher = clients.connect("watcher", clean=False)
    subscribe_with(watcher, "w/#", 1)
    if end == "kill":
        broker.kill()
    else:
        broker.stop()
    restarted = of(stack, start_broker(config=WILLS, data=broker.data))
    back = restarted.connect("back")
    watcher = restarted.connect("watcher", clean=False, present=True)
    watcher.expect('32 0b 00 06 "w/gone" 00 01 "!"')
    watcher.send("40 02 00 01")
    watcher.expect_nothing()
    back.disconnect()
    watcher.expect_nothing()


def test_a_will_is_published_once_however_often_we_are_killed_afterwards(
    start_broker: StartBroker, stack: ExitStack
) -> None:
    config = WILLS.replace("1.0", "0.0")
    broker = start_broker(config=config)
    clients = of(stack, broker)
    clients.connect("gone", will=("w/gone", "!", 1, True))
    broker.kill()
    second = start_broker(config=config, data=broker.data)
    watcher = of(stack, second).subscribed("w/#", 1)
    _, body = watcher.packet()  # as it comes, or retained: both say it was published
    assert body.startswith(b"\x00\x06w/gone")
    publish_with(of(stack, second).connect(), "other", "committed behind it", retain=True)
    second.kill()
    third = start_broker(config=config, data=broker.data)
    watcher = of(stack, third).subscribed("w/#", 1)
    watcher.expect('33 0b 00 06 "w/gone" 00 01 "!"')
    wait_for(third, "restored 0 sessions with 0 messages under way, 2 retained messages, 0 wills")
    watcher.expect_nothing()
