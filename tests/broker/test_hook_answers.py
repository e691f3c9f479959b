"""What plugins answer in deliveries, in place of messages and at the end, right or wrong."""

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
from plugins.api import Client, Plugin
from protocol.message import Message
from tests.broker.live import Live
from tests.conformance.raw import publish

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

    def authorise_receive(self, client: Client, message: Message) -> Any:
        return self._answer("authorise_receive", message.topic)

    def on_publish(self, client: Client, message: Message) -> Any:
        if "on_publish" in self.hooks and message.topic == "bad":
            return self.wrong()
        return message

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
