"""Asking plugins: who overrides which hook, and what to make of their answers.

The first plugin with an opinion decides. A hook that raises, or takes too long, says no:
it is counted and logged with its plugin's name, and the broker goes on.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from broker.counters import Counters
from plugins.api import Accepted, Client, Plugin, Verdict
from protocol.errors import BadTopic
from protocol.message import Message
from protocol.topics import check_topic

log = logging.getLogger("geomqtt.plugins")

SLOW_S = 0.05  # a synchronous hook that holds the loop this long is worth a line


class Hooks:
    """The hooks that some plugin overrides, each with its plugins in order."""

    def __init__(self, plugins: Sequence[Plugin], counters: Counters, timeout_s: float) -> None:
        self.plugins = tuple(plugins)
        self._counters = counters
        self._timeout_s = timeout_s
        self.authenticate = self._overriding("authenticate")
        self.authorise_publish = self._overriding("authorise_publish")
        self.authorise_subscribe = self._overriding("authorise_subscribe")
        self.authorise_receive = self._overriding("authorise_receive")
        self.on_publish = self._overriding("on_publish")
        self.on_accepted = self._overriding("on_accepted")
        self.on_connect = self._overriding("on_connect")
        self.on_disconnect = self._overriding("on_disconnect")
        # Frames may pass unseen only if everybody who looks understands frames.
        self.frames_suffice = (
            all(plugin.takes_frames for plugin in self.on_accepted)
            and all(plugin.settles_topics for plugin in self.authorise_publish)
            and all(plugin.settles_topics for plugin in self.authorise_receive)
            and not self.on_publish
        )

    def _overriding(self, name: str) -> tuple[Plugin, ...]:
        base = getattr(Plugin, name)
        return tuple(p for p in self.plugins if getattr(type(p), name) is not base)

    def decide(self, plugins: tuple[Plugin, ...], name: str, *args: Any) -> Verdict:
        """Ask in order until somebody has an opinion; waits only if a plugin must."""
        for position, plugin in enumerate(plugins):
            try:
                verdict = self._timed(plugin, name, *args)
            except Exception:
                self._failed(plugin, name)
                return False
            if inspect.isawaitable(verdict):
                return self._wait(plugin, name, verdict, plugins[position + 1 :], args)
            if verdict is not None:
                return self._checked(plugin, name, verdict)
        return None

    def decide_now(self, plugins: tuple[Plugin, ...], name: str, *args: Any) -> bool | None:
        """Ask in order until somebody has an opinion; whoever wants to wait has said no."""
        for plugin in plugins:
            try:
                verdict = self._timed(plugin, name, *args)
            except Exception:
                self._failed(plugin, name)
                return False
            if verdict is not None:
                return self._checked(plugin, name, verdict)
        return None

    async def _wait(
        self,
        plugin: Plugin,
        name: str,
        waiting: Awaitable[Any],
        others: tuple[Plugin, ...],
        args: tuple[Any, ...],
    ) -> bool | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                verdict = await waiting
        except TimeoutError:
            log.error("plugin %s: %s took over %s s", _name(plugin), name, self._timeout_s)
            self._counters.other["plugin_timeouts"] += 1
            return False
        except Exception:
            self._failed(plugin, name)
            return False
        if verdict is not None:
            return self._checked(plugin, name, verdict)
        rest = self.decide(others, name, *args)
        if inspect.isawaitable(rest):
            return await rest
        return rest

    def _checked(self, plugin: Plugin, name: str, verdict: Any) -> bool:
        if isinstance(verdict, bool):
            return verdict
        if inspect.iscoroutine(verdict):
            verdict.close()
        self._nonsense(plugin, name, f"{type(verdict)}, not a bool")
        return False

    def _nonsense(self, plugin: Plugin, name: str, what: str) -> None:
        log.error("plugin %s: %s answered %s", _name(plugin), name, what)
        self._counters.other["plugin_errors"] += 1

    def may_publish_all(self, client: Client, topic: str) -> bool:
        """Tell whether every message of a client on a topic is allowed until the next reload."""
        for plugin in self.authorise_publish:
            try:
                if not (plugin.settles_topics and plugin.settles_publish(client, topic) is True):
                    return False
            except Exception:
                self._failed(plugin, "settles_publish")
                return False
        return True

    def may_receive_all(self, client: Client, topic: str) -> bool | None:
        """Tell whether a client may get every message on a topic, or none; None: it depends."""
        for plugin in self.authorise_receive:
            try:
                settled = plugin.settles_receive(client, topic) if plugin.settles_topics else None
            except Exception:
                self._failed(plugin, "settles_receive")
                return None
            if settled is not True:
                return settled
        return True

    def change(self, client: Client, message: Message) -> Message | None:
        """Let plugins change or drop a message; one that fails leaves it as it was."""
        current: Message | None = message
        for plugin in self.on_publish:
            assert current is not None
            try:
                changed = self._timed(plugin, "on_publish", client, current)
            except Exception:
                self._failed(plugin, "on_publish")
                continue
            if changed is None:
                return None
            fault = _fault(changed, current)
            if fault:
                self._nonsense(plugin, "on_publish", fault)
            else:
                current = changed
        return current

    def tell(self, plugins: tuple[Plugin, ...], name: str, *args: Any) -> None:
        """Tell plugins what happened."""
        for plugin in plugins:
            try:
                self._timed(plugin, name, *args)
            except Exception:
                self._failed(plugin, name)

    def accepted(self, batch: list[Accepted]) -> None:
        """Hand over what was accepted since the last time."""
        self.tell(self.on_accepted, "on_accepted", batch)

    def _timed(self, plugin: Plugin, name: str, *args: Any) -> Any:
        started = time.perf_counter()
        try:
            return getattr(plugin, name)(*args)
        finally:
            took_s = time.perf_counter() - started
            if took_s > SLOW_S:
                self._counters.other["plugin_slow_calls"] += 1
                log.warning("plugin %s: %s held the loop for %.3f s", _name(plugin), name, took_s)

    def _failed(self, plugin: Plugin, name: str) -> None:
        self._counters.other["plugin_errors"] += 1
        log.exception("plugin %s: %s failed", _name(plugin), name)


def _fault(changed: Any, message: Message) -> str:
    """Say why a message from a plugin cannot be routed; "" if it can."""
    if not isinstance(changed, Message):
        return f"{type(changed)}, not a message"
    if changed.topic != message.topic:
        if not isinstance(changed.topic, str):
            return f"a topic that is {type(changed.topic)}"
        try:
            check_topic(changed.topic)
        except BadTopic as error:
            return f"a bad topic: {error}"
        if len(changed.topic.encode(errors="surrogatepass")) > 0xFFFF:
            return "a topic longer than MQTT can say"
    if not isinstance(changed.payload, bytes):
        return f"a payload that is {type(changed.payload)}"
    return "" if changed.qos in (0, 1, 2) else f"quality of service {changed.qos!r}"


def _name(plugin: Plugin) -> str:
    return f"{type(plugin).__module__}:{type(plugin).__qualname__}"
