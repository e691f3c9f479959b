"""Every limit: what it holds back, what it counts, what it writes into the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.config import Limits, Listener, Storage
from tests.broker.live import Live, Peer, running
from tests.conformance.raw import connect, publish, subscribe


async def test_connections_in_all_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    async with running({"max_connections": 2}) as live:
        first = await live.connect("c1")
        await live.connect("c2")
        await (await live.open()).expect_close()
        assert "refused: limit of 2 connections" in caplog.text
        assert live.counts["connection_limits_hit"] == 1
        assert live.counts["connections_refused"] == 1
        first.close()
        await until(lambda: len(live.broker.links) == 1)
        await live.connect("c3")


async def test_connections_of_one_address_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    async with running({"max_connections_per_address": 1}) as live:
        first = await live.connect("c1")
        await (await live.open()).expect_close()
        assert "refused: limit of 1 connections per address" in caplog.text
        assert live.counts["connection_limits_hit"] == 1
        first.close()
        await until(lambda: not live.broker.links)
        await live.connect("c2")


async def test_connections_of_one_listener_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    listeners = [Listener(port=0, max_connections=1), Listener(port=0)]
    async with running(listener=listeners) as live:
        await live.connect("c1")
        await (await live.open()).expect_close()
        await live.open(1)
        assert "refused: limit of 1 connections on this listener" in caplog.text
        assert live.counts["connection_limits_hit"] == 1


async def test_new_connections_a_second_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    async with running({"connect_rate_per_s": 5}) as live:
        refused = 0
        for number in range(20):
            peer = await live.open()
            peer.send(connect(f"c{number}"))
            try:
                refused += (await peer.reader.read(4)) == b""
            except ConnectionResetError:
                refused += 1
        # Twenty take less than two seconds, of which each lets five in.
        assert refused >= 5
        assert live.counts["connection_limits_hit"] == refused
        assert "limit of 5 connections a second" in caplog.text


async def test_a_client_that_sends_no_connect_is_closed_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running({"connect_timeout_s": 0.3}) as live:
        silent = await live.open()
        dripping = await live.open()
        dripping.send("10 10")
        connected = await live.connect("c1")
        await silent.expect_close()
        await dripping.expect_close()
        await connected.expect_nothing()
        assert live.counts["connect_timeouts"] == 2
        assert "no CONNECT in time: closed" in caplog.text


async def test_a_keep_alive_beyond_the_ceiling_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with running({"max_keep_alive_s": 60}) as live:
        await live.connect("c1", keep_alive=60)
        for keep_alive in (61, 0):
            peer = await live.open()
            peer.send(connect("c2", keep_alive=keep_alive))
            await peer.expect("20 02 00 02")
            await peer.expect_close()
        assert live.counts["keep_alive_refused"] == 2
        assert "keep-alive of 61 s, limit is 60" in caplog.text


async def test_a_packet_that_is_too_large_closes_before_its_body_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running({"max_packet_size": 100}) as live:
        peer = await live.connect("c1")
        peer.send(publish("t", "x" * 95))
        await peer.expect_nothing()
        peer.send("30 63 00 01")  # 101 bytes in all, of which four have come
        await peer.expect_close()
        assert live.counts["packets_too_large"] == 1
        assert "packet of 101 bytes, limit is 100" in caplog.text


@pytest.mark.parametrize("limits", [{"max_topic_bytes": 5}, {"max_topic_levels": 3}])
async def test_topics_and_filters_beyond_a_limit_close(
    limits: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    async with running(limits) as live:
        good = await live.connect("c1")
        await good.subscribe("a/b/c")
        await good.publish("a/b/c", "1")
        await good.expect('30 08 00 05 "a/b/c" "1"')
        for packet in (publish("a/b/c/d", ""), subscribe(1, ("a/b/c/d", 0))):
            peer = await live.connect("c2")
            peer.send(packet)
            await peer.expect_close()
        assert live.counts["topics_beyond_limit"] == 2
        text = "topic of 7 bytes, limit is 5"
        assert (text if "max_topic_bytes" in limits else "topic of 4 levels") in caplog.text
        await good.expect_nothing()


async def test_new_limits_hold_for_topics_that_were_known_before() -> None:
    async with running() as live:
        peer = await live.connect("c1")
        await peer.publish("a/b/c/d", "")
        peer.send(publish("a/b/c/d", "") * 3)
        await peer.expect_nothing()
        limits = Limits(max_topic_levels=3)
        live.broker.set_limits(limits)
        for listener in live.server._listeners:
            listener.set_limits(limits)
        peer.send(publish("a/b/c/d", ""))
        await peer.expect_close()


async def test_subscriptions_of_a_client_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running({"max_subscriptions": 2}) as live:
        peer = await live.connect("c1")
        peer.send(subscribe(1, ("a", 0), ("b", 0), ("c", 0)))
        await peer.expect("90 05 00 01 00 00 80")
        await peer.subscribe("a", 1)  # in place of the old one
        assert live.counts["subscriptions_exceeded"] == 1
        assert "limit of 2 subscriptions" in caplog.text


async def test_no_more_messages_are_in_flight_than_allowed() -> None:
    async with running({"max_inflight": 2}) as live:
        peer = await live.connect("c1")
        await peer.subscribe("t", 1)
        source = await live.connect("c2")
        for number in range(4):
            await source.publish("t", str(number))
        await peer.expect('32 06 00 01 "t" 00 01 "0" 32 06 00 01 "t" 00 02 "1"')
        await peer.expect_nothing()
        assert live.broker.status()["queued_messages"] == 2
        peer.send("40 02 00 02")
        await peer.expect('32 06 00 01 "t" 00 03 "2"')
        await peer.expect_nothing()


async def test_unreleased_incoming_qos_2_messages_are_limited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running({"max_incoming_qos2": 2}) as live:
        peer = await live.connect("c1")
        for number in (1, 2):
            peer.send(publish("t", "", qos=2, packet_id=number))
            await peer.expect(f"50 02 00 0{number}")
        peer.send("62 02 00 01")
        await peer.expect("70 02 00 01")
        peer.send(publish("t", "", qos=2, packet_id=3))
        await peer.expect("50 02 00 03")
        peer.send(publish("t", "", qos=2, packet_id=4))
        await peer.expect_close()
        assert live.counts["incoming_qos2_exceeded"] == 1
        assert "2 QoS 2 messages unreleased" in caplog.text


@pytest.mark.parametrize(
    ("drop", "limits", "kept"),
    [
        ("newest", {"max_queued_messages": 3}, [0, 1, 2]),
        ("oldest", {"max_queued_messages": 3}, [3, 4, 5]),
        ("newest", {"max_queued_bytes": 2_100}, [0, 1]),
        ("oldest", {"max_queued_bytes": 2_100}, [4, 5]),
    ],
)
async def test_a_full_queue_drops_as_set_and_counts_by_client(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    drop: str,
    limits: dict[str, int],
    kept: list[int],
) -> None:
    async with running(
        limits | {"drop": drop}, persistence=True, data_dir=str(tmp_path / "data")
    ) as live:
        away = await live.connect("away", clean=False)
        await away.subscribe("t", 1)
        away.send("e0 00")
        await away.expect_close()
        source = await live.connect("source")
        for number in range(6):
            await source.publish("t", b"%d" % number + bytes(999))
        assert live.counts["messages_dropped"] == 6 - len(kept)
        assert live.broker.counters.dropped_by_client == {"away": 6 - len(kept)}
        assert caplog.text.count("client 'away': message dropped: queue is full") == 1
        back = await live.connect("away", clean=False, present=True)
        numbers = [int((await back.packet())[1][5:6]) for _ in kept]
        assert numbers == kept
        await back.expect_nothing()


async def test_retained_messages_are_limited_in_number(caplog: pytest.LogCaptureFixture) -> None:
    async with running({"max_retained_messages": 2}) as live:
        source = await live.connect("c1")
        for topic in ("a", "b", "c", "a"):
            await source.publish(topic, "x", retain=True)
        assert live.broker.status()["retained_messages"] == 2
        assert live.counts["retained_refused"] == 1
        assert "'c' not retained: limit reached" in caplog.text
        await source.publish("a", "", retain=True)
        await source.publish("c", "x", retain=True)
        assert live.counts["retained_refused"] == 1


async def test_retained_messages_are_limited_in_bytes_even_when_they_only_grow() -> None:
    async with running({"max_retained_bytes": 1_000}) as live:
        source = await live.connect("c1")
        await source.publish("a", "x" * 400, retain=True)
        await source.publish("b", "x" * 400, retain=True)
        await source.publish("c", "x" * 400, retain=True)
        await source.publish("a", "x" * 800, retain=True)
        assert live.counts["retained_refused"] == 2
        assert live.broker.status()["retained_bytes"] <= 1_000
        await source.publish("a", "x" * 100, retain=True)
        await source.publish("c", "x" * 400, retain=True)
        assert live.counts["retained_refused"] == 2


async def test_a_client_that_publishes_too_fast_is_slowed_not_closed() -> None:
    async with running({"messages_per_s": 50.0, "messages_burst": 5}) as live:
        fast = await live.connect("fast")
        other = await live.connect("other")
        await other.subscribe("t")
        began = time.monotonic()
        fast.send(publish("t", "x") * 15)
        await other.expect(publish("t", "x") * 5)
        await other.expect_nothing()  # others are not slowed
        await other.expect(publish("t", "x") * 10)
        took_s = time.monotonic() - began
        assert 0.15 < took_s < 5
        assert live.counts["messages_throttled"] >= 1
        await fast.expect_nothing()


async def test_a_session_ends_when_its_client_has_been_away_too_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with running(
        persistence=True, data_dir=str(tmp_path), storage=Storage(session_expiry_s=1)
    ) as live:
        stays = await live.connect("stays", clean=False)
        away = await live.connect("away", clean=False)
        await away.subscribe("t", 1)
        away.send("e0 00")
        await away.expect_close()
        await until(lambda: live.broker.sessions.get("away") is None)
        assert live.counts["sessions_expired"] == 1
        assert "client 'away': session ended after 1 s away" in caplog.text
        assert live.broker.status()["subscriptions"] == 0
        await stays.expect_nothing()
        await live.connect("away", clean=False, present=False)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def stuck(live: Live, name: str, topic_filter: str, qos: int) -> Peer:
    """Subscribe, and never read again."""
    peer = await live.connect(name)
    await peer.subscribe(topic_filter, qos)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    return peer


async def test_a_stuck_receiver_loses_qos_0_and_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with running({"max_outbox_bytes": 100_000}) as live:
        peer = await stuck(live, "stuck", "t", 0)
        others = [await live.connect(f"c{number}") for number in range(20)]
        for other in others:
            await other.subscribe("t")
        source = await live.connect("source")
        packet = publish("t", bytes(1_000))
        for _ in range(1_000):
            source.send(packet * 10)
            await source.writer.drain()
            for other in others:
                await other.expect(packet * 10)
        dropped = live.counts["messages_dropped"]
        assert dropped > 1_000
        assert "client 'stuck' at" in caplog.text
        assert "too slow, dropping QoS 0" in caplog.text
        unsent = max(link.transport.get_write_buffer_size() for link in live.broker.links)
        assert unsent < 100_000 + 300_000
        # It reads again, and gets what was under way and all that follows.
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        got = 0
        while got < 10_000 - dropped:
            first, body = await peer.packet()
            assert (first, body) == (0x30, packet[3:])
            got += 1
        await peer.expect_nothing()
        await source.publish("t", "end")
        await peer.expect('30 06 00 01 "t" "end"')
        assert "caught up" in caplog.text


async def test_a_stuck_receiver_gets_its_queued_messages_when_it_reads_again() -> None:
    async with running({"max_outbox_bytes": 100_000, "max_inflight": 0}) as live:
        peer = await stuck(live, "stuck", "t", 1)
        source = await live.connect("source")
        for number in range(3_000):
            await source.publish("t", b"%06d" % number + bytes(4_000))
        assert live.broker.status()["queued_messages"] > 0
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(3_000):
            first, body = await peer.packet()
            assert first == 0x32
            assert int(body[5:11]) == number
            peer.send(b"\x40\x02" + body[3:5])
        await peer.expect_nothing()
        assert live.counts["messages_dropped"] == 0


async def test_too_much_unsent_output_in_all_stops_reading_and_then_cuts_off_the_stuck(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.backlog.PATIENCE_S", 1.0)
    limits = {"max_outbox_bytes": 4_000_000, "max_unsent_bytes": 10_000_000}
    async with running(limits) as live:
        for number in range(6):
            await stuck(live, f"stuck{number}", "t", 0)
        fine = await live.connect("fine", keep_alive=1)
        source = await live.connect("source")
        packet = publish("t", bytes(100_000))

        async def feed() -> None:
            while not live.counts.get("publishers_throttled"):
                source.send(packet)
                await source.writer.drain()

        feeding = asyncio.create_task(feed())
        await until(lambda: live.broker.publishers_paused)
        assert live.counts["publishers_throttled"] == 1
        assert "reading nothing" in caplog.text
        await until(lambda: not live.broker.publishers_paused)
        assert live.counts["receivers_cut_off"] >= 1
        assert "bytes unsent: cut off" in caplog.text
        assert "reading again" in caplog.text
        await feeding
        # Nobody was taken for silent because we did not listen.
        await fine.expect_nothing()
        await source.expect_nothing()
        assert live.counts.get("keep_alive_timeouts", 0) == 0
