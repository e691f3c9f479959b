"""The HTTP door as a plugin: settings, the socket, start and stop.

The server runs in the broker's own loop, because events are published and delivered there;
whatever reads the log runs in other processes.
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Iterator
from typing import ClassVar
from urllib.parse import urlsplit

import msgspec
import uvicorn

from plugins.api import Broker, Plugin, PluginError
from plugins.event_log.plugin import EventLog
from plugins.rest_bridge.access import Access
from plugins.rest_bridge.app import make_app
from plugins.rest_bridge.events import Events
from plugins.rest_bridge.live import Hub, Log
from plugins.rest_bridge.log_reader import LogReader
from plugins.rest_bridge.streaming import Protocol
from plugins.rest_bridge.views import Views

log = logging.getLogger("geomqtt.rest")

BACKLOG = 1024
MAX_HEAD_BYTES = 1 << 20  # of a request: a geometry may stand in it
GRACE_S = 1  # for answers under way when the broker stops


class MapSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What the map can be told."""

    tile_url: str = ""  # https://…/{z}/{x}/{y}.png; "": the outline of the world, no network
    tile_attribution: str = ""


class RestBridgeSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say."""

    host: str = "127.0.0.1"
    port: int = 8080  # 0: one that the system chooses
    required: bool = False  # a taken port stops the start instead of a warning
    tokens: dict[str, str] = {}  # bearer token → user
    cors_origins: list[str] = []  # other origins whose pages may ask; ["*"]: all
    max_body_bytes: int = 1_048_576
    max_streams: int = 1_000  # live streams and long polls at a time
    stall_s: float = 20.0  # a reader that takes nothing for so long is cut off
    workers: int = 2  # processes that read the log
    map: MapSettings = msgspec.field(default_factory=MapSettings)


class RestBridge(Plugin):
    """Serves REST, live events and the map."""

    Settings: ClassVar[type[msgspec.Struct]] = RestBridgeSettings
    settings: RestBridgeSettings

    def __init__(self, settings: RestBridgeSettings) -> None:
        super().__init__(settings)
        _check(settings)
        self._reader: LogReader | None = None
        self._hub: Hub | None = None
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, broker: Broker) -> None:
        """Open the socket, or go on without it if it is taken and need not be had."""
        opened = self._open()
        if opened is None:
            return
        event_log = next((each for each in broker.plugins if isinstance(each, EventLog)), None)
        shared = None
        if event_log is not None and broker.data_dir is not None:
            self._reader = LogReader(broker.data_dir, self.settings.workers)
            await self._reader.start()
            shared = Log(self._reader, event_log, broker)
        self._hub = Hub(broker, shared, self.settings.max_streams)
        self._server = _Server(self._config(broker, self._hub))
        self._serving = asyncio.create_task(self._server.serve([opened]), name="http")
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
            await asyncio.sleep(0)
        host, port = opened.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http http://{shown}:{port}/"

    def _open(self) -> socket.socket | None:
        host, port = self.settings.host, self.settings.port
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            opened = socket.create_server(address[:2], family=family, backlog=BACKLOG)
            opened.setblocking(False)
            return opened
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                reason = "address already in use"
            if self.settings.required:
                raise PluginError(f"http {host}:{port}: {reason}") from None
            log.warning("http %s:%s: %s: going on without REST and map", host, port, reason)
            return None

    def _config(self, broker: Broker, hub: Hub) -> uvicorn.Config:
        settings = self.settings
        access = Access(broker, settings.tokens)
        publish, geopublish = (
            Events(
                broker,
                access,
                hub,
                geo=geo,
                max_body_bytes=settings.max_body_bytes,
                stall_s=settings.stall_s,
            )
            for geo in (False, True)
        )
        map_settings = msgspec.to_builtins(settings.map)
        views = Views(broker, access, hub, settings.stall_s, map_settings)
        app = make_app(
            publish,
            geopublish,
            views,
            broker.count,
            settings.cors_origins,
            _policy(settings.map.tile_url),
        )
        # Its complaints about requests that are no HTTP are of no use to an operator.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        return uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )

    async def stop(self) -> None:
        """End the streams, then the server, then the processes."""
        if self._hub is not None:
            await self._hub.stop()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        if self._reader is not None:
            await self._reader.stop()


def _check(settings: RestBridgeSettings) -> None:
    if not 0 <= settings.port <= 65_535:
        raise PluginError(f"http: port: {settings.port} is no port")
    for name in ("max_body_bytes", "max_streams", "stall_s", "workers"):
        number = getattr(settings, name)
        if number <= 0:
            raise PluginError(f"http: {name} is {number}, it must be above 0")


class _Server(uvicorn.Server):
    """The server without signals: those are the broker's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield


def _policy(tile_url: str) -> str:
    """Say what pages may load: our own files, and tiles if there are any."""
    tiles = ""
    if tile_url:
        parts = urlsplit(tile_url)
        # {s} stands for one of several hosts.
        tiles = f" {parts.scheme}://{parts.netloc.replace('{s}', '*')}"
    return (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; "
        f"img-src 'self' data: blob:{tiles}; object-src 'none'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
