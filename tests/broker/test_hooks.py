"""Plugins that raise, hang, hold the loop or answer nonsense: counted, named, and survived."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from broker.config import PluginEntry
from plugins.api import Accepted, Client, Credentials, Plugin, SubscribeRequest
from protocol.message import Message
from tests.broker.live import running
from tests.conformance.raw import connect, publish, subscribe


class Raises(Plugin):
    """Fails at everything but letting clients in."""

    def authorise_publish(self, client: Client, message: Message) -> Any:
        """Fail."""
        raise RuntimeError("publish")

    def authorise_subscribe(self, client: Client, request: SubscribeRequest) -> Any:
        """Fail."""
        raise RuntimeError("subscribe")

    def on_connect(self, client: Client) -> None:
        """Fail."""
        raise RuntimeError("connect")

    def on_disconnect(self, client: Client) -> None:
        """Fail."""
        raise RuntimeError("disconnect")


class Watches(Plugin):
    """Fails at looking on and at changing."""

    def on_publish(self, client: Client, message: Message) -> Message | None:
        """Fail."""
        raise RuntimeError("change")

    def on_accepted(self, batch: list[Accepted]) -> None:
        """Fail."""
        raise RuntimeError("accepted")


class Hangs(Plugin):
    """Takes ten seconds over every login and every message on one topic."""

    def authenticate(self, credentials: Credentials) -> Any:
        """Wait, for some."""
        return self._wait() if credentials.client.client_id == "slow" else True

    def authorise_publish(self, client: Client, message: Message) -> Any:
        """Wait, on one topic."""
        return self._wait() if message.topic == "slow" else True

    async def _wait(self) -> bool:
        await asyncio.sleep(10)
        return True


class Nonsense(Plugin):
    """Answers what nobody asked."""

    def authorise_publish(self, client: Client, message: Message) -> Any:
        """Answer with a text, or with an awaitable text."""
        return "yes" if message.topic == "now" else self._later()

    async def _later(self) -> Any:
        return ["yes"]

    def on_publish(self, client: Client, message: Message) -> Any:
        """Answer with a number."""
        return 42


class Holds(Plugin):
    """Sleeps on the event loop."""

    def authorise_publish(self, client: Client, message: Message) -> bool:
        """Sleep."""
        time.sleep(0.1)
        return True


def plugin(kind: type[Plugin]) -> list[PluginEntry]:
    return [PluginEntry(use=f"{kind.__module__}:{kind.__name__}")]


async def test_a_plugin_that_raises_says_no_and_the_broker_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(plugin=plugin(Raises)) as live:
        peer = await live.connect("c1")
        peer.send(subscribe(1, ("t", 0)))
        await peer.expect("90 03 00 01 80")
        await peer.publish("t", "x")
        await peer.expect_nothing()
        assert live.counts["messages_denied"] == 1
        assert live.counts["plugin_errors"] == 3
        for hook in ("authorise_publish", "authorise_subscribe", "on_connect"):
            assert f"Raises: {hook} failed" in caplog.text


async def test_a_plugin_that_fails_to_look_on_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(plugin=plugin(Watches)) as live:
        peer = await live.connect("c1")
        await peer.subscribe("t")
        peer.send(publish("t", "x") * 2)
        await peer.expect(publish("t", "x") * 2)
        await peer.expect_nothing()
        assert "Watches: on_publish failed" in caplog.text
        assert "Watches: on_accepted failed" in caplog.text


async def test_a_plugin_that_hangs_holds_up_one_connection_until_it_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(plugin=plugin(Hangs), plugin_timeout_s=0.5) as live:
        waiting = await live.open()
        waiting.send(connect("slow") + b"\xc0\x00")
        peer = await live.connect("c1")
        await peer.subscribe("#", 1)
        source = await live.connect("c2")
        source.send(publish("slow", "", qos=1, packet_id=1) + publish("t", ""))
        await peer.expect_nothing()
        other = await live.connect("c3")
        await other.publish("quick", "")
        await peer.expect('32 09 00 05 "quick" 00 01')
        await waiting.expect("20 02 00 05")
        await waiting.expect_close()
        await source.expect("40 02 00 01")  # denied, and acknowledged as MQTT 3.1.1 must
        await peer.expect('30 03 00 01 "t"')
        assert live.counts["plugin_timeouts"] == 2
        assert "Hangs: authenticate took over 0.5 s" in caplog.text


async def test_who_goes_while_a_plugin_thinks_leaves_nothing_behind() -> None:
    async with running(plugin=plugin(Hangs), plugin_timeout_s=0.5) as live:
        waiting = await live.open()
        waiting.send(connect("slow"))
        await (await live.connect("c1")).expect_nothing()
        waiting.close()
        async with asyncio.timeout(5):
            while len(live.broker.links) > 1:
                await asyncio.sleep(0.01)
        assert len(live.broker.sessions) == 1
        assert live.counts.get("internal_errors", 0) == 0


async def test_nonsense_is_no_permission_and_no_message(caplog: pytest.LogCaptureFixture) -> None:
    async with running(plugin=plugin(Nonsense)) as live:
        peer = await live.connect("c1")
        await peer.subscribe("#")
        await peer.publish("now", "x")
        await peer.publish("later", "x")
        await peer.expect_nothing()
        assert live.counts["messages_denied"] == 2
        assert live.counts["plugin_errors"] == 2
        assert "authorise_publish answered <class 'str'>, not a bool" in caplog.text
        assert "authorise_publish answered <class 'list'>, not a bool" in caplog.text


async def test_a_plugin_that_holds_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with running(plugin=plugin(Holds)) as live:
        peer = await live.connect("c1")
        await peer.publish("t", "x")
        assert live.counts["plugin_slow_calls"] == 1
        assert "Holds: authorise_publish held the loop for 0.1" in caplog.text
