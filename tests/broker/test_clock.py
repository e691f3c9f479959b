"""A wall clock that jumps by years: deadlines, waits and sessions do not notice."""

from __future__ import annotations

import time

import pytest

from broker.config import Storage
from plugins.api import Accepted, Plugin
from protocol.message import Message
from tests.broker.live import running
from tests.conformance.raw import publish

YEAR_NS = 365 * 86_400 * 10**9


class Watcher(Plugin):
    """Keeps what was accepted."""

    def __init__(self) -> None:
        super().__init__(None)
        self.seen: list[Message] = []

    def on_accepted(self, batch: list[Accepted]) -> None:
        self.seen += [each for each in batch if isinstance(each, Message)]


@pytest.mark.parametrize("years", [10, -10])
async def test_a_clock_that_jumps_ends_no_connection_and_no_session(
    monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    async with running(storage=Storage(session_expiry_s=3600), persistence=False) as live:
        broker = live.broker
        away = await live.connect("away", clean=False)
        await away.subscribe("t", 1)
        away.send("e0 00")
        await away.expect_close()
        steady = await live.connect("steady", keep_alive=60)
        await steady.subscribe("t", 1)
        silent = await live.open()  # has not said CONNECT yet

        now_ns = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() + years * YEAR_NS)
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + years * YEAR_NS / 1e9)
        broker.deadlines.tick()
        broker.tick()
        assert broker.sessions.get("away") is not None
        assert live.counts.get("sessions_expired", 0) == 0
        assert live.counts.get("keep_alive_timeouts", 0) == 0
        assert live.counts.get("connect_timeouts", 0) == 0
        assert 0 <= broker.status()["uptime_s"] < 60
        await steady.publish("t", "still here")
        await steady.expect(publish("t", "still here", qos=1, packet_id=1))
        again = await live.connect("away", clean=False, present=True)
        await again.expect(publish("t", "still here", qos=1, packet_id=1))
        silent.send("c0 00")  # and is closed for what it says, not for the time it took
        await silent.expect_close()


async def test_messages_carry_the_time_that_the_clock_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is the operator's to set the clock; what is logged says what it said."""
    watcher = Watcher()
    async with running(plugins=[watcher]) as live:
        client = await live.connect("c1")
        for years in (0, 10, -10):
            shown_ns = 1_800_000_000 * 10**9 + years * YEAR_NS
            monkeypatch.setattr(time, "time_ns", lambda shown_ns=shown_ns: shown_ns)
            await client.publish("t", str(years))
        await client.expect_nothing()
    received = [each.received_ms for each in watcher.seen]
    base, step = 1_800_000_000_000, YEAR_NS // 10**6
    assert received == [base, base + 10 * step, base - 10 * step]
