"""The daemon: listeners, timers, signals, and the order of starting and stopping.

start: store -> plugins -> listeners -> ready line
stop:  no more connections -> deliveries finish -> commit -> close -> plugins -> store
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from broker import tls
from broker.backlog import CHECK_S
from broker.broker import Broker, OpenListener
from broker.config import Config, ConfigError, Listener
from broker.deadlines import BUCKET_S
from broker.link import Link
from broker.mount import MountedLink
from broker.store import Store, StoreError
from broker.store.restore import restore
from broker.store.sqlite import SqliteStore
from broker.sys_topics import SysTopics
from broker.websocket import WebSocketProtocol
from plugins.api import Plugin, PluginError
from plugins.loader import load as load_plugin

log = logging.getLogger("geomqtt.server")

BACKLOG = 4096


class StartError(Exception):
    """Why the broker cannot start: one line for the operator."""


class Server:
    """A broker with its sockets."""

    def __init__(
        self,
        config: Config,
        plugins: list[Plugin] | None = None,
        reread: Callable[[], Config] | None = None,
    ) -> None:
        self.config = config
        self._reread = reread  # reads the configuration again, for its limits
        self._listeners: list[OpenListener] = []
        self._plugins = plugins if plugins is not None else []
        self._servers: list[asyncio.AbstractServer] = []
        self._contexts: list[tuple[ssl.SSLContext, Listener]] = []
        self._tickers: list[asyncio.Task[None]] = []
        self.addresses: list[str] = []

    async def start(self) -> None:
        """Open everything; raises StartError with one line when something is in the way."""
        try:
            for entry in self.config.plugin:
                self._plugins.append(load_plugin(entry.use, entry.settings))
            store = self._open_store()
            self.broker = Broker(self.config, self._plugins, store)
            if isinstance(store, SqliteStore):
                restore(self.broker, store)
            for plugin in self._plugins:
                await self._start(plugin)
            for listener in self.config.listener:
                await self._listen(listener)
            self.addresses += [plugin.address for plugin in self._plugins if plugin.address]
        except (PluginError, ConfigError, StoreError) as error:
            raise StartError(str(error)) from None
        self._tickers = [
            asyncio.create_task(self._every(1.0, self.broker.tick), name="tick"),
            asyncio.create_task(self._every(CHECK_S, self.broker.backlog.check), name="backlog"),
            asyncio.create_task(
                self._every(BUCKET_S, self.broker.deadlines.tick), name="deadlines"
            ),
        ]
        if self.config.persistence and self.config.storage.durability == "relaxed":
            self._tickers.append(
                asyncio.create_task(
                    self._every(self.config.storage.relaxed_ms / 1000, self._commit),
                    name="commit",
                )
            )
        if self.config.sys_interval_s > 0:
            sys_topics = SysTopics(self.broker)
            sys_topics.publish()
            self._tickers.append(
                asyncio.create_task(
                    self._every(self.config.sys_interval_s, sys_topics.publish), name="$SYS"
                )
            )

    async def _start(self, plugin: Plugin) -> None:
        try:
            await plugin.start(self.broker)
        except PluginError:
            raise
        except Exception as error:
            log.exception("plugin %s: start failed", type(plugin).__qualname__)
            raise StartError(f"plugin {type(plugin).__qualname__}: {error!r}") from None

    def _open_store(self) -> Store:
        if not self.config.persistence:
            return Store()
        data_dir = Path(self.config.data_dir)
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            probe = data_dir / f".probe-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise StartError(f"data folder {data_dir}: {error.strerror}") from None
        return SqliteStore(data_dir, self.config.storage)

    async def _listen(self, settings: Listener) -> None:
        if not settings.name:
            settings.name = settings.path or f"{settings.kind}:{settings.port}"
        limits = self.config.limits
        listener = OpenListener(settings, limits, anonymous=self.config.anonymous(settings))
        self._listeners.append(listener)

        kind = MountedLink if settings.mount_point else Link

        def make_link() -> Link:
            return kind(self.broker, listener)

        factory: Callable[[], asyncio.BaseProtocol] = make_link
        if settings.kind in ("ws", "wss"):

            def factory() -> asyncio.BaseProtocol:
                return WebSocketProtocol(make_link, settings.ws_path, self.broker.max_packet_size)

        loop = asyncio.get_running_loop()
        context = None
        if settings.secure:
            context = tls.context(settings)
            self._contexts.append((context, settings))
        try:
            if settings.kind == "unix":
                Path(settings.path).unlink(missing_ok=True)
                server = await loop.create_unix_server(factory, settings.path, backlog=BACKLOG)
                self.addresses.append(f"unix {settings.path}")
            else:
                server = await loop.create_server(
                    factory,
                    settings.host or None,
                    settings.port,
                    ssl=context,
                    backlog=BACKLOG,
                    reuse_address=True,
                    ssl_handshake_timeout=(limits.connect_timeout_s or None) if context else None,
                )
                self._note_addresses(settings, server)
        except OSError as error:
            raise StartError(_why_not(settings, error)) from None
        self._servers.append(server)

    def _note_addresses(self, settings: Listener, server: asyncio.AbstractServer) -> None:
        for socket in server.sockets:  # type: ignore[attr-defined]
            host, port = socket.getsockname()[:2]
            settings.port = port  # the one the system chose, if it was asked to
            host = f"[{host}]" if ":" in host else host
            path = settings.ws_path if settings.kind in ("ws", "wss") else ""
            name = "mqtt" if settings.kind == "tcp" else settings.kind
            self.addresses.append(f"{name} {host}:{port}{path}")

    def _commit(self) -> None:
        self.broker.store.commit()

    async def _every(self, seconds: float, call: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                call()
            except Exception:
                self.broker.counters.other["internal_errors"] += 1
                log.exception("internal error in a timer")

    def reload(self) -> None:
        """Read users, rules, certificates and limits again; what is broken stays as it was."""
        if self._reread is not None:
            try:
                limits = self._reread().limits
            except ConfigError as error:
                log.error("reload: %s: keeping the old limits", error)
            else:
                self.broker.set_limits(limits)
                for opened in self._listeners:
                    opened.set_limits(limits)
        for context, listener in self._contexts:
            try:
                tls.context(listener)  # half a pair of files must not get into the one in use
                tls.load(context, listener)
            except ConfigError as error:
                log.error("reload: %s: keeping the old certificate", error)
        for plugin in self._plugins:
            try:
                plugin.reload()
            except Exception as error:
                log.error("reload: %s: keeping what was", error)
        self.broker.forget_rights()
        log.info("reloaded")

    async def stop(self) -> None:
        """Part from everybody, within `stop_timeout_s`."""
        broker = self.broker
        broker.stopping = True
        for server in self._servers:
            server.close()
        for ticker in self._tickers:
            ticker.cancel()
        timeout_s = self.config.stop_timeout_s
        deadline = time.monotonic() + timeout_s
        # Deliveries under way may still be acknowledged; an idle broker stops at once.
        while time.monotonic() < deadline and any(
            link.session is not None and link.session.in_flight for link in broker.links
        ):
            if time.monotonic() > deadline - timeout_s + 1:
                break
            await asyncio.sleep(0.01)
        for link in broker.links:
            link.transport.pause_reading()
        broker.finish()
        for link in list(broker.links):
            link.close("broker is stopping")
        while broker.links and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for link in list(broker.links):
            link.transport.abort()
        for plugin in reversed(self._plugins):
            await self._stop(plugin, max(deadline - time.monotonic(), timeout_s / 2))
        broker.store_locations()
        broker.store.commit()
        broker.store.close()

    async def _stop(self, plugin: Plugin, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await plugin.stop()
        except TimeoutError:
            log.error("plugin %s: stop took over %.1f s", type(plugin).__qualname__, timeout_s)
        except Exception:
            log.exception("plugin %s: stop failed", type(plugin).__qualname__)


def _why_not(settings: Listener, error: OSError) -> str:
    where = settings.path or f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{where}: address already in use: is another broker running?"
    return f"{where}: {error.strerror or error}"


async def run(
    config: Config,
    plugins: list[Plugin] | None = None,
    ready: Callable[[str], None] = print,
    reread: Callable[[], Config] | None = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT."""
    server = Server(config, plugins, reread)
    await server.start()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    ready(f"geomqtt ready: {', '.join(server.addresses)}")
    await stop.wait()
    log.info("stopping")
    await server.stop()
