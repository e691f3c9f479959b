"""QoS 1 for persistent sessions in the fast lane: kept before it is acknowledged, sent again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker import fastlane
from tests.broker.live import Live, Peer, running
from tests.conformance.raw import publish


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many bytes of each run of QoS 1 the fast lane took."""
    taken: list[int] = []
    original = fastlane._forward_qos1

    def noted(link: Any, buffer: bytes, offset: int) -> int:
        end = original(link, buffer, offset)
        taken.append(end - offset)
        return end

    monkeypatch.setattr(fastlane, "_forward_qos1", noted)
    return taken


async def send(source: Peer, *numbers: int) -> None:
    """Publish numbered messages in one read, and see them acknowledged."""
    source.send(b"".join(publish("t", b"%d" % n, qos=1, packet_id=n) for n in numbers))
    await source.expect(b"".join(b"\x40\x02" + n.to_bytes(2, "big") for n in numbers))


def message(number: int, packet_id: int, *, dup: bool = False) -> bytes:
    return publish("t", b"%d" % number, qos=1, packet_id=packet_id, dup=dup)


async def subscriber(live: Live, name: str, *, clean: bool, present: bool = False) -> Peer:
    peer = await live.connect(name, clean=clean, present=present)
    if not present:
        await peer.subscribe("t", 1)
    return peer


async def test_what_the_lane_forwards_is_kept_and_sent_again_to_whoever_returns(
    tmp_path: Path, passed: list[int]
) -> None:
    async with running(persistence=True, data_dir=str(tmp_path)) as live:
        keeps = await subscriber(live, "keeps", clean=False)
        forgets = await subscriber(live, "forgets", clean=True)
        source = await live.connect("source")
        await send(source, 1)
        await send(source, 2, 3, 4)
        assert passed[-1] == 3 * len(message(1, 1))
        for peer in (keeps, forgets):
            await peer.expect(b"".join(message(n, n) for n in (1, 2, 3, 4)))
        keeps.send("40 02 00 01 40 02 00 03")
        await keeps.expect_nothing()
        session = live.broker.sessions.get("keeps")
        assert session is not None
        assert list(session.in_flight) == [2, 4]
        assert all(row for _, row in session.in_flight.values())
        keeps.send("e0 00")
        await keeps.expect_close()
        await send(source, 5)  # nobody is there: the ordinary path queues it
        back = await subscriber(live, "keeps", clean=False, present=True)
        await back.expect(message(2, 2, dup=True) + message(4, 4, dup=True) + message(5, 5))
        back.send("40 02 00 02 40 02 00 04 40 02 00 05")
        await back.expect_nothing()
        assert not session.in_flight
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as db:
        for table in ("outgoing", "message", "journal"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0


async def test_nothing_is_acknowledged_by_the_lane_when_the_store_fails(
    tmp_path: Path, passed: list[int]
) -> None:
    async with running(persistence=True, data_dir=str(tmp_path)) as live:
        await subscriber(live, "keeps", clean=False)
        source = await live.connect("source")
        await send(source, 1)
        await send(source, 2)
        assert passed[-1] > 0
        with closing(sqlite3.connect(tmp_path / "store.sqlite")) as other:
            other.execute("BEGIN IMMEDIATE")
            source.send(publish("t", "3", qos=1, packet_id=3))
            await source.expect_close()
            assert live.broker.store.failing
            again = await live.connect("again")
            again.send(publish("t", "3", qos=1, packet_id=3))
            await again.expect_close()
            assert passed[-1] == 0
            other.rollback()
        assert live.broker.store.commit()
        source = await live.connect("source")
        await send(source, 4)
