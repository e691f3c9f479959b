"""Plugins that raise, hang or answer nonsense: the answer is no, and the broker goes on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.config import Config, Listener
from broker.server import Server
from plugins.api import Accepted, Client, Credentials, Plugin, SubscribeRequest
from protocol.message import Message
from tests.broker.live import Live
from tests.conformance.raw import connect, publish, subscribe

TIMEOUT_S = 0.2


class Misbehaving(Plugin):
    """Does one thing wrong whenever a client or topic called `bad` is concerned."""

    def __init__(self, wrong: Any) -> None:
        super().__init__(None)
        self.wrong = wrong
        self.hooks: set[str] = set()

    def _answer(self, hook: str, name: str | None) -> Any:
        if hook not in self.hooks or name != "bad":
            return None
        return self.wrong()

    def authenticate(self, credentials: Credentials) -> Any:
        return self._answer("authenticate", credentials.client.username)

    def authorise_publish(self, client: Client, message: Message) -> Any:
        return self._answer("authorise_publish", message.topic)

    def authorise_subscribe(self, client: Client, request: SubscribeRequest) -> Any:
        return self._answer("authorise_subscribe", request.filter)

    def authorise_receive(self, client: Client, message: Message) -> Any:
        return self._answer("authorise_receive", message.topic)

    def on_publish(self, client: Client, message: Message) -> Any:
        if "on_publish" in self.hooks and message.topic == "bad":
            return self.wrong()
        return message

    def on_accepted(self, batch: list[Accepted]) -> None:
        for each in batch:
            if isinstance(each, Message):
                self._answer("on_accepted", each.topic)

    def on_connect(self, client: Client) -> None:
        self._answer("on_connect", client.client_id)

    def on_disconnect(self, client: Client) -> None:
        self._answer("on_disconnect", client.client_id)

    async def stop(self) -> None:
        answer = self._answer("stop", "bad")
        if answer is not None:
            await answer


def raises() -> None:
    raise RuntimeError("plugin fell over")


async def hang() -> bool:
    await asyncio.sleep(10)
    return True


async def later(answer: Any) -> Any:
    await asyncio.sleep(0)
    return answer


async def raise_later() -> None:
    await asyncio.sleep(0)
    raise RuntimeError("plugin fell over")


@asynccontextmanager
async def running(plugin: Plugin, *, stop_timeout_s: float = 0.5) -> AsyncIterator[Live]:
    config = Config(
        listener=[Listener(port=0)],
        persistence=False,
        sys_interval_s=0,
        plugin_timeout_s=TIMEOUT_S,
        stop_timeout_s=stop_timeout_s,
    )
    server = Server(config, [plugin])
    await server.start()
    live = Live(server)
    try:
        yield live
    finally:
        live.close()
        await server.stop()


WRONG = {
    "raises": raises,
    "raises later": raise_later,
    "hangs": hang,
    "text": lambda: "yes",
    "a number": lambda: 1,
    "an object": object,
    "text later": lambda: later("yes"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_answer_is_no_and_concerns_nobody_else(
    wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = Misbehaving(WRONG[wrong])
    plugin.hooks = {"authenticate", "authorise_publish", "authorise_subscribe"}
    async with running(plugin) as live:
        good = await live.connect("good")
        await good.subscribe("#")
        refused = await live.open()
        refused.send(connect("c1", username="bad"))
        client = await live.connect("c2")
        client.send(subscribe(1, ("bad", 0), ("fine", 0)))
        await refused.expect("20 02 00 05")
        await refused.expect_close()
        await client.expect("90 04 00 01 80 00")
        await client.publish("bad", "x")
        await client.publish("fine", "y")
        await good.expect(publish("fine", "y"))
        await client.expect(publish("fine", "y"))
        counted = "plugin_timeouts" if wrong == "hangs" else "plugin_errors"
        assert live.counts[counted] == 3
        assert live.counts.get("internal_errors", 0) == 0
    assert "test_hooks:Misbehaving: authenticate" in caplog.text


async def test_a_hanging_plugin_holds_up_only_whom_it_is_asked_about() -> None:
    plugin = Misbehaving(hang)
    plugin.hooks = {"authorise_publish"}
    async with running(plugin) as live:
        waiting, other = await live.connect("waiting"), await live.connect("other")
        started = time.monotonic()
        waiting.send(publish("bad", "x", qos=1, packet_id=1) + publish("fine", "x"))
        await other.subscribe("fine")
        await other.publish("fine", "now")
        await other.expect(publish("fine", "now"))
        assert time.monotonic() - started < TIMEOUT_S
        await waiting.expect("40 02 00 01")
        assert time.monotonic() - started >= TIMEOUT_S * 0.9
        await other.expect(publish("fine", "x"))


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_answer_about_receiving_is_no(wrong: str) -> None:
    """It stands in the delivery, so that an answer that comes later is no answer."""
    plugin = Misbehaving(WRONG[wrong])
    plugin.hooks = {"authorise_receive"}
    async with running(plugin) as live:
        client = await live.connect("c1")
        await client.subscribe("#")
        await client.publish("bad", "x")
        await client.publish("fine", "y")
        await client.expect(publish("fine", "y"))
        assert live.counts["plugin_errors"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        raises,
        lambda: "text",
        lambda: 7,
        lambda: Message("with/#", b""),
        lambda: Message("", b""),
        lambda: Message("x" * 70_000, b""),
        lambda: Message(7, b""),  # type: ignore[arg-type]
        lambda: Message("bad", "text"),  # type: ignore[arg-type]
        lambda: Message("bad", b"", 3),
    ],
)
async def test_a_message_that_cannot_be_routed_leaves_the_old_one(wrong: Any) -> None:
    plugin = Misbehaving(wrong)
    plugin.hooks = {"on_publish"}
    async with running(plugin) as live:
        client = await live.connect("c1")
        await client.subscribe("#")
        await client.publish("bad", "as it was")
        await client.expect(publish("bad", "as it was"))
        assert live.counts["plugin_errors"] == 1


async def test_a_message_may_be_changed_and_dropped() -> None:
    plugin = Misbehaving(lambda: None)
    plugin.hooks = {"on_publish"}
    async with running(plugin) as live:
        client = await live.connect("c1")
        await client.subscribe("#")
        await client.publish("bad", "dropped")
        await client.expect_nothing()
        plugin.wrong = lambda: Message("other", b"changed", 1)
        await client.publish("bad", "x")
        await client.expect(publish("other", "changed"))


async def test_what_is_only_told_may_fail_without_harm(caplog: pytest.LogCaptureFixture) -> None:
    plugin = Misbehaving(raises)
    plugin.hooks = {"on_connect", "on_disconnect", "on_accepted"}
    async with running(plugin) as live:
        bad = await live.connect("bad")
        await bad.subscribe("bad")
        await bad.publish("bad", "x")
        await bad.expect(publish("bad", "x"))
        bad.send("e0 00")
        await bad.expect_close()
        await (await live.connect("next")).expect_nothing()
        assert live.counts["plugin_errors"] == 3
    assert caplog.text.count("RuntimeError: plugin fell over") == 3


async def test_a_hook_that_holds_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    plugin = Misbehaving(lambda: time.sleep(0.06))
    plugin.hooks = {"on_connect"}
    async with running(plugin) as live:
        await live.connect("bad")
        assert live.counts["plugin_slow_calls"] == 1
    assert "on_connect held the loop for 0.06" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "line"), [(hang, "stop took over 0.2 s"), (raise_later, "stop failed")]
)
async def test_a_plugin_that_does_not_stop_is_left_behind(
    wrong: Any, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = Misbehaving(wrong)
    plugin.hooks = {"stop"}
    started = time.monotonic()
    with caplog.at_level(logging.ERROR):
        async with running(plugin, stop_timeout_s=0.2) as live:
            await live.connect("c1")
    assert line in caplog.text
    assert time.monotonic() - started < 5
