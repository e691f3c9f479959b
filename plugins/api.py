"""What a plugin sees of the broker, and what the broker asks of a plugin.

A plugin is a class named `module:Class` in the configuration. It subclasses `Plugin`,
declares its settings as a msgspec Struct named `Settings` next to itself, and overrides
the hooks it cares about; hooks it leaves alone cost nothing, because the broker collects
at start which plugins override which hook.

    authenticate            who is this?            True, False, or None = no opinion
    authorise_publish       may it publish this?    True, False, or None
    authorise_subscribe     may it subscribe?       True, False, or None
    authorise_receive       may it get this?        True, False, or None
    on_publish              change, re-route or drop a message before it is routed
    on_accepted             look at what was accepted, in batches
    on_connect, on_disconnect

Plugins are asked in the order of the configuration; the first True or False decides, and
when nobody has an opinion the answer is True (for `authenticate`: what the listener's
`allow_anonymous` says). `authenticate` and the `authorise_*` hooks may return an
awaitable: only that connection waits. A hook that raises counts as False, a hook that
takes longer than `plugin_timeout_s` is given up and counts as False; both are counted and
logged with the plugin's name, and neither takes the broker down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from protocol.geo import Location
from protocol.geometry_place import Place
from protocol.message import Message
from protocol.values import value

Verdict = bool | Awaitable[bool | None] | None


class NoSettings(msgspec.Struct, forbid_unknown_fields=True):
    """The settings of a plugin that has none."""


@value
class Client:
    """Who a request comes from: an MQTT client, or a user of another door."""

    client_id: str
    username: str | None
    address: str  # host:port, or the path of a Unix socket
    listener: str  # name of the listener, "http" for REST
    anonymous: bool = False


@value
class Credentials:
    """What a client shows when it connects."""

    client: Client
    password: bytes | None
    certificate_name: str | None = None  # common name of a verified client certificate


@value
class SubscribeRequest:
    """One filter of a SUBSCRIBE, GEOSUBSCRIBE or live REST query; the inner one of `$geo/`."""

    filter: str
    qos: int
    places: tuple[Place, ...] = ()  # what is subscribed to must lie in here; () = everywhere
    sees_locations: bool = False  # it tests where publishers are


@value
class FrameRun:
    """Plain PUBLISH packets of one client, QoS 0 or 1, back to back, as they came off the wire."""

    client_id: str
    received_ms: int
    frames: bytes
    count: int


Accepted = Message | FrameRun


class Subscription(Protocol):
    """A live subscription held by a plugin."""

    def close(self) -> None:
        """Stop the deliveries."""


class Broker(Protocol):
    """The broker, as plugins see it. Everything here must be called on the event loop."""

    @property
    def data_dir(self) -> str | None:
        """The folder for everything that lasts, None when nothing shall."""

    @property
    def plugins(self) -> Sequence[Plugin]:
        """All plugins that run, in the order of the configuration."""

    def publish(self, message: Message) -> None:
        """Accept a message as if a client had published it: retain, route, log."""

    def flush(self) -> None:
        """Send what was published since the last time, and keep what must be kept."""

    async def authenticate(self, credentials: Credentials) -> bool:
        """Ask all plugins."""

    async def authorise_publish(self, client: Client, message: Message) -> bool:
        """Ask all plugins."""

    async def authorise_subscribe(self, client: Client, request: SubscribeRequest) -> bool:
        """Ask all plugins."""

    @property
    def restricts_receiving(self) -> bool:
        """Whether any plugin has a say in who gets which message."""

    def authorise_receive(self, client: Client, message: Message) -> bool:
        """Ask all plugins."""

    def subscribe(
        self,
        topic_filter: str,
        deliver: Callable[[Message], None],
        client: Client | None = None,
    ) -> Subscription:
        """Call `deliver` for every accepted message on a topic filter, plain or `$geo/`.

        Given a client, only what that client may receive.
        """

    def locations(self) -> Mapping[str, Location]:
        """The last known locations by client id."""

    def fences(self) -> Iterable[Mapping[str, Any]]:
        """The geofences in force: client, name, kind, filter and geometry."""

    def status(self) -> Mapping[str, int | float]:
        """What is the case now: connections, sessions, queued messages, …"""

    def counts(self) -> Mapping[str, int]:
        """What was counted since the start, by metric name."""

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of the plugin's own."""

    def pause_publishers(self) -> None:
        """Stop reading from connections until `resume_publishers`."""

    def resume_publishers(self) -> None:
        """Read again."""


class Plugin:
    """The base of every plugin: no opinion on anything."""

    Settings: ClassVar[type[msgspec.Struct]] = NoSettings
    takes_frames: ClassVar[bool] = False  # on_accepted understands FrameRun
    settles_topics: ClassVar[bool] = False  # settles_publish and settles_receive may be asked
    address: str = ""  # where it listens, if it does: "<kind> <address>", for the ready line

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    async def start(self, broker: Broker) -> None:
        """Called once, before connections are accepted. Raise PluginError to refuse the start."""

    async def stop(self) -> None:
        """Called once, after the last connection is closed."""

    def reload(self) -> None:
        """Read files again (SIGHUP). Raise PluginError to keep what was."""

    def authenticate(self, credentials: Credentials) -> Verdict:
        """Say whether these credentials are good."""
        return None

    def authorise_publish(self, client: Client, message: Message) -> Verdict:
        """Say whether this client may publish this message."""
        return None

    def authorise_subscribe(self, client: Client, request: SubscribeRequest) -> Verdict:
        """Say whether this client may subscribe."""
        return None

    def authorise_receive(self, client: Client, message: Message) -> bool | None:
        """Say whether this client may get this message. Never waits: it stands in the delivery."""
        return None

    def settles_publish(self, client: Client, topic: str) -> bool:
        """Say whether `authorise_publish` is True for all messages on a topic until a reload.

        Asked only of plugins with `settles_topics`, once per client and topic, so that most
        messages need not be shown to the plugin at all.
        """
        return False

    def settles_receive(self, client: Client, topic: str) -> bool | None:
        """Say what `authorise_receive` is for all messages on a topic until a reload.

        None when it depends on the message. Asked only of plugins with `settles_topics`.
        """
        return None

    def on_publish(self, client: Client, message: Message) -> Message | None:
        """Return the message, another one in its place, or None to drop it."""
        return message

    def on_accepted(self, batch: list[Accepted]) -> None:
        """Look at accepted messages. Called at most once per turn of the loop."""

    def on_connect(self, client: Client) -> None:
        """A client has been accepted."""

    def on_disconnect(self, client: Client) -> None:
        """A client has gone, gracefully or not."""


class PluginError(Exception):
    """A plugin cannot start or reload: one line for the operator."""
