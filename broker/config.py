"""The configuration: typed, with every default in one place, read from TOML.

docker/geomqtt.toml is the annotated example. A wrong key or value is answered with its
path and what was expected (`ConfigError`), never with a traceback.
"""

import ipaddress
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

Positive = msgspec.Meta(ge=1)


class ConfigError(Exception):
    """One line for the operator: which key, what was found, what was expected."""


class Base(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What all sections share: unknown keys are errors."""


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Listener(Base):
    """One address that accepts MQTT connections."""

    name: str = ""
    kind: Literal["tcp", "tls", "ws", "wss", "unix"] = "tcp"
    host: str = "127.0.0.1"
    port: int = 1883
    path: str = ""  # of a Unix socket
    ws_path: str = "/mqtt"  # "": any
    mount_point: str = ""  # stands before all topics of this listener's clients, unseen by them
    users_file: str = ""  # instead of the one for all listeners
    acl_file: str = ""
    allow_anonymous: bool | None = None  # None: if it is local and there is no users_file
    certfile: str = ""
    keyfile: str = ""
    cafile: str = ""  # or a folder of hashed certificates
    crlfile: str = ""
    require_certificate: bool = False
    use_identity_as_username: bool = False
    max_connections: int = 0  # 0: only the limit for all listeners
    geo: bool = True
    mqttg_byte_order: Literal["big", "little"] = "big"
    mqttg_position: Literal["after-variable-header", "after-fixed-header"] = "after-variable-header"

    @property
    def secure(self) -> bool:
        """Whether the listener speaks TLS."""
        return self.kind in ("tls", "wss")

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the listener."""
        return self.kind == "unix" or _is_loopback(self.host)


class Limits(Base):
    """What a client may take. 0 switches a limit off."""

    max_connections: int = 100_000
    max_connections_per_address: int = 0
    connect_rate_per_s: int = 0
    connect_timeout_s: float = 10.0
    packet_timeout_s: float = 60.0  # for an unfinished packet of a client without keep-alive
    max_keep_alive_s: int = 0
    max_packet_size: int = 1_048_576
    max_topic_bytes: int = 65_535
    max_topic_levels: int = 200
    max_subscriptions: int = 10_000
    max_inflight: int = 1_000
    max_incoming_qos2: int = 1_000
    max_queued_messages: int = 100_000
    max_queued_bytes: int = 104_857_600
    drop: Literal["oldest", "newest"] = "newest"
    max_retained_messages: int = 1_000_000
    max_retained_bytes: int = 1_073_741_824
    max_outbox_bytes: int = 1_048_576
    max_unsent_bytes: int = 268_435_456
    messages_per_s: float = 0.0
    messages_burst: int = 1_000
    max_vertices: int = 10_000
    max_nesting: int = 16
    max_geometry_bytes: int = 1_048_576
    max_fences: int = 1_000


class Geo(Base):
    """How place is treated where the protocol leaves a choice."""

    unknown_location: Literal["pass", "drop"] = "pass"
    fence_subject: Literal["message", "subscriber"] = "message"
    location_ttl_s: int = 86_400
    max_locations: int = 1_000_000


class Storage(Base):
    """What survives, and at which price."""

    durability: Literal["commit", "power", "relaxed"] = "commit"
    relaxed_ms: int = 200
    session_expiry_s: int = 0  # 0: persistent sessions stay for good
    will_grace_s: float = 10.0  # for clients to return after a restart before their wills go out


class PluginEntry(Base):
    """One plugin: where its class is, and what it shall do."""

    use: str
    settings: dict[str, Any] = {}


class Http(Base):
    """The HTTP door: REST, map, metrics, health."""

    host: str = "127.0.0.1"
    port: int = 8080
    required: bool = False  # a taken port stops the start instead of a warning
    allow_anonymous: bool | None = None  # None: if it is local and there is no users_file
    tokens: dict[str, str] = {}  # bearer token → user
    cors_origins: list[str] = []  # other origins whose pages may ask; ["*"]: all
    max_body_bytes: int = 1_048_576
    max_streams: int = 1_000  # live streams and long polls at a time
    stall_s: float = 20.0  # a reader that takes nothing for so long is cut off
    workers: int = 2  # processes that read the log

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return _is_loopback(self.host)

    @property
    def bridge_settings(self) -> dict[str, Any]:
        """What the plugin behind the door is told; who comes in is the broker's matter."""
        settings: dict[str, Any] = msgspec.to_builtins(self)
        del settings["allow_anonymous"]
        return settings


class Config(Base):
    """Everything the broker can be told."""

    data_dir: str = "./geomqtt-data"
    persistence: bool = True
    event_log: bool = True
    event_log_settings: dict[str, Any] = {}
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_file: str = ""  # "": stderr
    log_timestamp: bool = True
    log_timestamp_format: str = ""  # as of strftime; "": with milliseconds
    pid_file: str = ""
    sys_interval_s: float = 10.0
    stop_timeout_s: float = 10.0
    plugin_timeout_s: float = 5.0
    allow_zero_length_clientid: bool = True
    retain_available: bool = True
    queue_qos0_messages: bool = False
    users_file: str = ""
    acl_file: str = ""
    listener: list[Listener] = msgspec.field(default_factory=lambda: [Listener()])
    limits: Limits = msgspec.field(default_factory=Limits)
    geo: Geo = msgspec.field(default_factory=Geo)
    storage: Storage = msgspec.field(default_factory=Storage)
    http: Http = msgspec.field(default_factory=Http)
    map_settings: dict[str, Any] = {}
    plugin: list[PluginEntry] = []

    def anonymous(self, door: Listener | Http) -> bool:
        """Whether a client without user name is let in there."""
        if door.allow_anonymous is not None:
            return door.allow_anonymous
        if isinstance(door, Listener):
            return door.local and not (door.users_file or self.users_file)
        return door.local and not self.any_users

    @property
    def any_users(self) -> bool:
        """Whether any listener asks for passwords."""
        return bool(self.users_file) or any(each.users_file for each in self.listener)


def load(path: str | Path) -> Config:
    """Read a TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    return parse(data, str(path))


def parse(data: Any, source: str) -> Config:
    """Turn the tables of a TOML file into a Config."""
    config: Config = convert(data, Config, source)
    check(config, source)
    return config


def convert(data: Any, kind: Any, source: str) -> Any:
    """Convert plain data to a Struct, with the key's path in the error."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        where = path.strip("`").removeprefix("$").lstrip(".")
        raise ConfigError(f"{source}: {where or 'top level'}: {reason}") from None


def check(config: Config, source: str) -> None:
    """Refuse what is well-formed but cannot work, or would let strangers in unasked."""
    for number, listener in enumerate(config.listener):
        where = f"{source}: listener[{number}]"
        if listener.kind == "unix" and not listener.path:
            raise ConfigError(f"{where}.path: a Unix socket needs a path")
        if listener.secure and not (listener.certfile and listener.keyfile):
            raise ConfigError(f"{where}: {listener.kind} needs certfile and keyfile")
        if listener.require_certificate and not listener.cafile:
            raise ConfigError(f"{where}.cafile: require_certificate needs the CA to check against")
        if not 0 <= listener.port <= 65_535:
            raise ConfigError(f"{where}.port: {listener.port} is no port")
        if "+" in listener.mount_point or "#" in listener.mount_point:
            raise ConfigError(f"{where}.mount_point: {listener.mount_point!r} holds a wildcard")
        if listener.mount_point.startswith("$"):
            raise ConfigError(f"{where}.mount_point: topics with $ are the broker's own")
        has_users = (
            bool(config.users_file or listener.users_file or config.plugin)
            or listener.require_certificate
        )
        if not listener.local and listener.allow_anonymous is None and not has_users:
            raise ConfigError(
                f"{where}: {listener.host} is reachable from outside and there are no users: "
                "set users_file, or allow_anonymous = true to let everybody in"
            )
    http = config.http
    has_users = config.any_users or bool(config.plugin)
    if http.port and not http.local and http.allow_anonymous is None and not has_users:
        raise ConfigError(
            f"{source}: http: {http.host} is reachable from outside and there are no users: "
            "set users_file, or allow_anonymous = true to let everybody in"
        )
