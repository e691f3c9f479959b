"""Weaknesses that MQTT brokers are known for, each with what this one does instead.

What the conformance tests and others show already is named in `ELSEWHERE`, so that the list
is whole and nothing is shown twice.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from plugins.passwords import make_hash
from tests.conformance.raw import (
    Clients,
    Raw,
    clients_of,
    connect,
    field,
    framed,
    publish,
    publish_with,
    subscribe,
    subscribe_with,
    unsubscribe,
)
from tests.conftest import RunningBroker, StartBroker

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20

ELSEWHERE = {
    "huge remaining length": "conformance/test_bad_input.py::"
    "test_an_oversize_packet_is_refused_before_its_body_arrives",
    "over-long or padded remaining length": "protocol/test_decode.py::"
    "test_a_length_cut_off_too_long_or_padded_is_refused",
    "server-only packets, malformed UTF-8, packets without their fields": "conformance/"
    "test_bad_input.py::test_a_bad_packet_closes_its_connection_alone",
    "deep topics at the default limit": "conformance/test_bad_input.py::"
    "test_a_topic_deeper_than_the_limit_closes",
    "QoS 2 ids never released": "conformance/test_publish.py::"
    "test_unreleased_qos_2_messages_are_bounded",
    "retained flood": "conformance/test_retained.py::"
    "test_the_number_of_retained_messages_is_bounded",
    "retained flood in bytes": "broker/test_limits.py::"
    "test_retained_messages_are_limited_in_bytes_even_when_they_only_grow",
    "subscribing to all retained messages again and again": "conformance/test_slow_peers.py::"
    "test_subscribing_to_everything_again_and_again_fills_no_memory",
    "connections that send no CONNECT": "conformance/test_keep_alive.py::"
    "test_connections_that_lead_nowhere_are_dropped",
    "a packet in drops": "conformance/test_keep_alive.py::"
    "test_bytes_of_an_unfinished_packet_are_no_sign_of_life",
    "$SYS written by a client": "conformance/test_publish.py::"
    "test_what_may_not_be_published_is_acknowledged_all_the_same",
    "$SYS written by a will": "conformance/test_wills.py::test_a_will_cannot_speak_for_the_broker",
    "empty password file": "integration/test_access.py::test_an_empty_users_file_lets_nobody_in",
    "retained messages after a right is revoked": "integration/test_access.py::"
    "test_a_revoked_right_stops_queued_messages_wills_and_deliveries",
    "a receiver that never reads": "integration/test_slow_receivers.py::"
    "test_one_stuck_receiver_among_a_thousand_costs_the_others_nothing",
}


@pytest.mark.parametrize("weakness", ELSEWHERE)
def test_what_is_shown_elsewhere_is_shown(weakness: str) -> None:
    file, _, name = ELSEWHERE[weakness].partition("::")
    assert f"def {name}(" in (ROOT / "tests" / file).read_text()


@pytest.fixture
def clients(broker: RunningBroker) -> Iterator[Clients]:
    with clients_of(broker.host, broker.port) as made:
        yield made


def memory(broker: RunningBroker) -> int:
    return int(psutil.Process(broker.process.pid).memory_info().rss)


def open_sockets(broker: RunningBroker) -> int:
    folder = f"/proc/{broker.process.pid}/fd"
    count = 0
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed in between
            count += os.readlink(f"{folder}/{name}").startswith("socket:")
    return count


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_topics_of_65_535_levels_are_only_long_where_the_operator_allows_them(
    start_broker: StartBroker,
) -> None:
    """Recursion over levels has crashed brokers; here depth is no recursion anywhere."""
    broker = start_broker(config="[limits]\nmax_topic_levels = 0\n")
    with clients_of(broker.host, broker.port) as clients:
        deep = "/" * 65_535
        client = clients.connect()
        client.send(subscribe(1, (deep, 1), ("+/#", 1), ("/" * 65_532 + "+/#", 1)))
        client.expect("90 05 00 01 01 01 01")
        publish_with(clients.connect(), deep, "x", retain=True)
        client.expect(publish(deep, "x", qos=1, packet_id=1))
        late = clients.connect()
        for topic_filter in ("#", "/" * 65_534 + "#", "+/" * 32_767 + "#"):
            late.send(subscribe(2, (topic_filter, 0)))
            late.expect("90 03 00 02 00")
            late.expect(publish(deep, "x", retain=True))
        publish_with(clients.connect(), deep, "", retain=True)
        client.send(unsubscribe(3, deep, "+/#", "/" * 65_532 + "+/#"))
        client.expect(publish(deep, "", qos=1, packet_id=2))
        client.expect("b0 02 00 03")


def test_a_flood_of_deep_retained_topics_is_counted_by_its_levels(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(config="sys_interval_s = 0\n[limits]\nmax_retained_messages = 1000\n")
    with clients_of(broker.host, broker.port) as clients:
        before = memory(broker)
        client = clients.connect()
        for number in range(900):
            publish_with(client, f"{number}" + "/a" * 199, "x", retain=True)
        assert memory(broker) - before < 30 * MIB
        watcher = clients.connect()
        watcher.send(subscribe(1, ("#", 0)) + b"\xc0\x00")
        watcher.expect("90 03 00 01 00")
        count = 0
        while watcher.packet()[0] == 0x31:
            count += 1
        assert count == 1000 * 16 // 200


def test_a_bomb_of_wildcards_delivers_once_and_holds_nobody_up(clients: Clients) -> None:
    """8,192 filters that all match one topic: one copy, and the neighbour is served."""
    bomber, neighbour = clients.connect(), clients.subscribed("quiet")
    levels = itertools.product("a+", repeat=13)
    filters = [("/".join(each), 0) for each in levels]
    for start in range(0, len(filters), 1024):
        bomber.send(subscribe(1, *filters[start : start + 1024]))
        bomber.expect(framed(0x90, b"\x00\x01" + bytes(1024)))
    topic = "/".join("a" * 13)
    publisher = clients.connect()
    started = time.monotonic()
    for number in range(20):
        publish_with(publisher, topic, str(number))
        publish_with(publisher, f"{topic}/no", "x")
        publish_with(publisher, "quiet", "x")
    assert time.monotonic() - started < 5
    bomber.expect(b"".join(publish(topic, str(number)) for number in range(20)))
    bomber.expect_nothing()
    neighbour.expect(publish("quiet", "x") * 20)


def test_deep_filters_are_counted_by_their_levels(broker: RunningBroker, clients: Clients) -> None:
    """4 MB of filters must not become half a gigabyte of tree."""
    client = clients.connect()
    before = memory(broker)
    granted = 0
    for first in range(0, 10_000, 1000):
        deep = ((f"{number}/+" + "/a" * 198, 0) for number in range(first, first + 1000))
        client.send(subscribe(1, *deep))
        granted += client.packet()[1][2:].count(0)
    assert granted == 10_000 * 16 // 200
    assert memory(broker) - before < 80 * MIB
    client.send(subscribe(2, ("shallow/+", 1)))
    client.expect("90 03 00 02 80")
    client.send(unsubscribe(3, "0/+" + "/a" * 198) + subscribe(4, ("shallow/+", 1)))
    client.expect("b0 02 00 03 90 03 00 04 01")


def test_a_subscribe_of_thousands_of_filters_is_one_answer(clients: Clients) -> None:
    client = clients.connect()
    client.send(subscribe(1, *((f"f/{number}/+", 1) for number in range(9000))))
    client.expect(framed(0x90, b"\x00\x01" + b"\x01" * 9000))
    client.send(unsubscribe(2, *(f"f/{number}/+" for number in range(9000))))
    client.expect("b0 02 00 02")


def test_connects_in_a_flood_leave_no_memory_and_no_socket(
    broker: RunningBroker, clients: Clients
) -> None:
    neighbour = clients.subscribed("t")
    sockets = open_sockets(broker)

    def flood(first: int, count: int) -> None:
        for number in range(first, first + count):
            client = clients.raw()
            client.send(connect(f"flood{number}", will=("w", "x" * 1000, 0, False)))
            client.drop()

    flood(0, 500)
    until(lambda: open_sockets(broker) == sockets)
    before = memory(broker)
    flood(500, 3000)
    until(lambda: open_sockets(broker) == sockets)
    assert memory(broker) - before < 10 * MIB
    publish_with(clients.connect(), "t", "x")
    neighbour.expect(publish("t", "x"))


def test_a_refused_connect_does_not_keep_its_socket(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Whoever is told no is closed by the broker, even if it stays on the line."""
    users = tmp_path / "users"
    users.write_text(f"ann:{make_hash(b'a')}\n")
    broker = start_broker(config=f'users_file = "{users}"\n')
    sockets = open_sockets(broker)
    level_9 = framed(0x10, field("MQTT") + b"\x09\x02\x00\x00" + field("c"))
    with clients_of(broker.host, broker.port) as clients:
        refused = []
        for number in range(200):
            client = clients.raw()
            client.send(connect(f"c{number}") if number % 2 else level_9)
            refused.append(client)
        for number, client in enumerate(refused):
            client.expect("20 02 00 05" if number % 2 else "20 02 00 01")
        until(lambda: open_sockets(broker) == sockets)


def test_a_race_of_take_overs_leaves_one_connection_and_one_session(
    broker: RunningBroker, clients: Clients
) -> None:
    sockets = open_sockets(broker)
    runners = []
    survivors: list[socket.socket] = []

    def race() -> None:
        for _ in range(50):
            client = clients.raw()
            client.send(connect("one", clean=False) + subscribe(1, ("t", 1)))
            survivors.append(client.socket)

    for _ in range(4):
        runners.append(threading.Thread(target=race))
        runners[-1].start()
    for runner in runners:
        runner.join()
    until(lambda: open_sockets(broker) == sockets + 1)
    publish_with(clients.connect("other"), "t", "once")
    wanted = publish("t", "once", qos=1, packet_id=1)
    got = [Raw(each).read(4 + 5 + len(wanted)) for each in survivors]
    assert sum(data.endswith(wanted) for data in got) == 1
    assert sum(wanted in data for data in got) == 1


def test_wills_of_clients_that_take_each_other_over_end_with_the_last_one(
    clients: Clients,
) -> None:
    """Each will is published once; none of them sets off another."""
    watcher = clients.subscribed("will/#", 1)
    for number in range(100):
        client = clients.connect("loop", will=(f"will/{number}", "gone", 1, False))
        subscribe_with(client, "will/+")
    publish_with(clients.connect(), "will/end", "x")
    topics = []
    while not topics or topics[-1] != b"will/end":
        first, body = watcher.packet()
        assert first == 0x32
        size = int.from_bytes(body[:2], "big")
        topics.append(body[2 : 2 + size])
        watcher.send(b"\x40\x02" + body[2 + size : 4 + size])
    assert topics == [*(f"will/{number}".encode() for number in range(99)), b"will/end"]


def test_the_same_qos_2_message_again_and_again_costs_no_memory(
    broker: RunningBroker, clients: Clients
) -> None:
    """Duplicates of an unreleased message, from a client that never answers PUBREC."""
    client = clients.connect(clean=False)
    packet = publish("t", "x" * 1000, qos=2, packet_id=7, dup=True)
    answer = b"\x50\x02\x00\x07"

    def repeat(times: int) -> None:
        for _ in range(times):
            client.send(packet * 100)
            client.expect(answer * 100)

    repeat(20)
    before = memory(broker)
    repeat(300)
    assert memory(broker) - before < 5 * MIB


def test_packet_ids_of_a_client_that_never_acknowledges_are_not_exhausted(
    start_broker: StartBroker,
) -> None:
    """All 65,535 ids in flight: the next message waits, and the first acknowledgement frees it."""
    broker = start_broker(config="[limits]\nmax_inflight = 0\n")
    with clients_of(broker.host, broker.port) as clients:
        silent, publisher = clients.subscribed("t", 1), clients.connect()
        size = len(publish("t", "", qos=1, packet_id=1))
        for _ in range(65_536 // 4096):
            publisher.send(publish("t", "", qos=1, packet_id=1) * 4096)
            publisher.expect(b"\x40\x02\x00\x01" * 4096)
        got = silent.read(65_535 * size)
        assert got[-2:] == b"\xff\xff"
        silent.expect_nothing()
        silent.send("40 02 00 05")
        silent.expect(publish("t", "", qos=1, packet_id=5))


def test_topics_that_are_only_half_a_dollar_topic_harm_nobody(clients: Clients) -> None:
    halves = "$ $/ $SYS $SYS/ $share $share/ $share/g $share/g/ $geo $geo/ $geo// $/SYS"
    for topic in halves.split():
        client = clients.connect(clean=False)
        publish_with(client, topic, "x", retain=True)
        client.send(publish(topic, "x", qos=2, packet_id=1))
        client.expect("50 02 00 01")
        client.send(subscribe(9, (topic, 1)))
        first, body = client.packet()
        assert (first, body[:2]) == (0x90, b"\x00\x09"), topic


def test_retained_messages_of_the_broker_cannot_be_cleared(clients: Clients) -> None:
    client = clients.connect()
    publish_with(client, "$SYS/broker/version", "", retain=True)
    subscribe_with(client, "$SYS/broker/version")
    first, body = client.packet()
    assert first == 0x31
    assert b"geomqtt version" in body


def test_a_reply_topic_of_the_broker_cannot_be_forged(clients: Clients) -> None:
    """What is wrong with a place is told by the broker, to the one it concerns, and nobody else."""
    listening = clients.subscribed("$/SYS/MQTT/error")
    forger = clients.connect()
    publish_with(forger, "$/SYS/MQTT/error", '{"topic": "t", "reason": "forged"}', retain=True)
    publish_with(forger, "$/SYS/anything", "x")
    listening.expect_nothing()
    clients.subscribed("$/SYS/MQTT/error").expect_nothing()


def test_rights_are_asked_of_the_filter_inside_share_and_geo(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """A prefix in front of a filter has been a way round rules that name the filter."""
    acl = tmp_path / "acl.toml"
    acl.write_text('[[rule]]\nallow = ["all"]\ntopics = ["open/#", "$share/#", "$geo/#"]\n')
    broker = start_broker(config=f'acl_file = "{acl}"\n')
    with clients_of(broker.host, broker.port) as clients:
        client = clients.connect()
        client.send(
            subscribe(
                1,
                ("$share/g/open/1", 0),
                ("$share/g/secret/1", 0),
                ("$geo/covers=BBOX(0,0,1,1)/open/1", 0),
                ("$geo/covers=BBOX(0,0,1,1)/secret/1", 0),
                ("$share/g/$geo/covers=BBOX(0,0,1,1)/secret/1", 0),
            )
        )
        client.expect("90 07 00 01 00 80 00 80 80")
        watcher = clients.subscribed("open/#")
        publish_with(client, "$geo/at=POINT(0 0)/secret/1", "x")
        watcher.expect_nothing()


def test_a_client_id_writes_no_lines_into_the_log_and_no_files(
    broker: RunningBroker, clients: Clients
) -> None:
    """Control characters are refused; separators beyond ASCII are written as escapes."""
    forged = "x{}ERROR geomqtt.store: everything is lost"
    for name in (forged.format("\n"), forged.format("\r"), forged.format("\x85")):
        client = clients.raw()
        client.send(connect(name))
        client.expect_close()
    name = forged.format("\u2028")
    clients.connect(name, clean=False, username=name).disconnect()
    clients.connect("../../../escaped", clean=False).disconnect()
    publish_with(clients.connect(), f"$SYS/{name}", "x")
    assert "everything is lost" in broker.log
    assert not [line for line in broker.log.splitlines() if line.startswith("ERROR")]
    assert not list(broker.data.parent.rglob("*escaped*"))
