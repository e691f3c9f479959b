"""mosquitto.conf, read as our configuration, so that its users switch without rewriting.

    read(path) -> Reading: the Config, and a remark for everything it asks that we cannot do

What the file does not say keeps our defaults, with three exceptions where Mosquitto's users
lean on theirs: a file with listeners lets nobody in without a password unless it says so,
packets may have any size, and WebSocket clients may use any path. An unknown directive and
a wrong value are a `ConfigError` with file, line and what was expected.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from broker.config import Config, ConfigError, Http, Limits, Listener, PluginEntry, Storage

MAX_INCLUDES = 10  # files within files
MESSAGE_OVERHEAD = 65_542  # fixed header, longest topic and packet id beside a payload

# Directives within a `connection`, beside those that begin with bridge_, local_ or remote_.
BRIDGE = {
    *("address", "addresses", "clean_session", "cleansession", "clientid", "idle_timeout"),
    *("keepalive_interval", "notification_topic", "notifications", "notifications_local_only"),
    *("password", "restart_timeout", "round_robin", "start_type", "threshold", "topic"),
    *("try_private", "username"),
}
# Done anyway, or without a meaning here: accepted in silence.
NEEDLESS = {
    *("autosave_interval", "autosave_on_changes", "packet_buffer_size", "retry_interval"),
    *("set_tcp_nodelay", "store_clean_interval", "websockets_headers_size"),
    "websockets_log_level",
}

_PLUGIN = "Mosquitto's plugins do not load: whoever it let in or kept out must be told otherwise"
_TLS = "TLS is 1.2 and up with the ciphers of the system's OpenSSL"
NOT_HONOURED = {
    "accept_protocol_versions": "MQTT 3.1 and 3.1.1 are spoken",
    "auth_plugin": _PLUGIN,
    "bind_interface": "name an address of the interface in the listener line",
    "ciphers": _TLS,
    "ciphers_tls1.3": _TLS,
    "clientid_prefixes": "client ids are not restricted",
    "dhparamfile": _TLS,
    "global_plugin": _PLUGIN,
    "http_dir": "no files are served on WebSocket listeners",
    "listener_auto_id_prefix": "client ids made by the broker begin with auto-",
    "log_facility": "the log goes to stderr or a file",
    "max_inflight_bytes": "messages in flight are limited by number",
    "max_topic_alias": "MQTT 5 is not spoken",
    "max_topic_alias_broker": "MQTT 5 is not spoken",
    "memory_limit": "memory is limited by queues, retained messages and unsent bytes",
    "plugin": _PLUGIN,
    "plugin_load": _PLUGIN,
    "plugin_use": _PLUGIN,
    "psk_file": "keys shared in advance are not supported: use certificates",
    "psk_hint": "keys shared in advance are not supported: use certificates",
    "retain_expiry_interval": "retained messages do not expire",
    "tls_engine": _TLS,
    "tls_engine_kpass_sha1": _TLS,
    "tls_keyform": _TLS,
    "websockets_origin": "the origin of WebSocket clients is not checked",
}
NOT_HONOURED_IF_TRUE = {
    "allow_duplicate_messages": "overlapping subscriptions deliver once",
    "auth_plugin_deny_special_chars": _PLUGIN,
    "check_retain_source": "who retained a message is not asked again when it is delivered",
    "disable_client_cert_date_checks": "certificates that have run out are refused",
    "enable_control_api": "there is no $CONTROL",
    "enable_proxy_protocol": "the PROXY protocol is not spoken",
    "proxy_protocol_v2_require_tls": "the PROXY protocol is not spoken",
    "upgrade_outgoing_qos": "messages are delivered at the lower of both qualities",
    "use_subject_as_username": "the user name is the common name: use_identity_as_username",
    "use_username_as_clientid": "client ids are as the clients say",
}
LOG_LEVELS = {
    "all": "debug",
    "debug": "debug",
    "error": "error",
    "information": "info",
    "internal": "info",
    "none": "error",
    "notice": "info",
    "subscribe": "info",
    "unsubscribe": "info",
    "warning": "warning",
    "websockets": "info",
}
HOURS = {"h": 1, "d": 24, "w": 168, "m": 720, "y": 8760}


class Reading(msgspec.Struct):
    """What a mosquitto.conf says in our terms, and what of it cannot be done."""

    config: Config
    remarks: list[str]
    acl_files: list[str]  # in Mosquitto's own format


class Directive(msgspec.Struct):
    """One line."""

    name: str
    text: str
    where: str  # file:line

    def wrong(self, expected: str) -> ConfigError:
        """Say what is wrong with it."""
        return ConfigError(f"{self.where}: {self.name}: expected {expected}, got {self.text!r}")

    def word(self) -> str:
        """Read a value that must be there."""
        if not self.text:
            raise self.wrong("a value")
        return self.text

    def boolean(self) -> bool:
        """Read true or false."""
        value = {"true": True, "1": True, "false": False, "0": False}.get(self.text.lower())
        if value is None:
            raise self.wrong("true or false")
        return value

    def number(self, least: int, most: int) -> int:
        """Read a whole number within bounds."""
        try:
            value = int(self.text)
        except ValueError:
            raise self.wrong("a whole number") from None
        if not least <= value <= most:
            raise self.wrong(f"a number from {least} to {most}")
        return value

    def one_of(self, *words: str) -> str:
        """Read one of some words."""
        if self.text not in words:
            raise self.wrong(" or ".join(words))
        return self.text


class Security(msgspec.Struct):
    """Who may come in and do what: for all listeners, or for one."""

    allow_anonymous: bool | None = None
    password_file: str = ""
    acl_file: str = ""


class Door(msgspec.Struct):
    """A listener on the way to being one."""

    where: str
    host: str = ""
    port: int = 1883
    unix_path: str = ""
    websockets: bool = False
    domain: str = ""
    settings: dict[str, Any] = {}
    security: Security = msgspec.field(default_factory=Security)

    def listener(self, number: int) -> Listener:
        """Make the listener; raises ConfigError if it cannot work."""
        secure = "certfile" in self.settings or "keyfile" in self.settings
        for needed in ("certfile", "keyfile"):
            if secure and needed not in self.settings:
                raise ConfigError(f"{self.where}: TLS needs certfile and keyfile: no {needed}")
        if self.unix_path:
            kind = "unix"
        elif self.websockets:
            kind = "wss" if secure else "ws"
        else:
            kind = "tls" if secure else "tcp"
        host = self.host or {"ipv4": "0.0.0.0", "ipv6": "::"}.get(self.domain, "")
        made: Listener = msgspec.convert(
            {
                "name": f"listener-{number}",
                "kind": kind,
                "host": host,
                "port": self.port,
                "path": self.unix_path,
                "ws_path": "",
                **self.settings,
            },
            Listener,
        )
        return made


class Reader:
    """Takes directives one by one, then makes the configuration."""

    def __init__(self) -> None:
        self.remarks: list[str] = []
        self._remarked: set[str] = set()
        self._top: dict[str, Any] = {}
        self._limits: dict[str, Any] = {"max_packet_size": 0}
        self._storage: dict[str, Any] = {}
        self._security = Security()
        self._per_listener = False
        self._default = Door("", settings={})
        self._default_used = False
        self._doors: list[Door] = []
        self._bridge = False
        self._log_level: str | None = None

    # What the file says

    def take(self, directive: Directive) -> None:
        """Act on one line."""
        name = directive.name
        if self._bridge and _of_bridge(name):
            return
        if name == "connection":
            self._bridge = True
            self._remark(directive, "bridges to other brokers are not supported")
        elif name in TOP:
            key, read = TOP[name]
            self._top[key] = read(directive)
        elif name in LIMITS:
            key, read = LIMITS[name]
            self._limits[key] = read(directive)
        elif name in DOOR:
            key, read = DOOR[name]
            self._door.settings[key] = read(directive)
        elif name in SPECIAL:
            SPECIAL[name](self, directive)
        elif name in NOT_HONOURED_IF_TRUE:
            if directive.boolean():
                self._remark(directive, NOT_HONOURED_IF_TRUE[name])
        elif name in NOT_HONOURED:
            self._remark(directive, NOT_HONOURED[name])
        elif name.startswith(("auth_opt_", "plugin_opt_")):
            self._remark(directive, _PLUGIN, once="plugin options")
        elif _of_bridge(name):
            raise ConfigError(f"{directive.where}: {name}: stands before any connection")
        elif name not in NEEDLESS:
            raise ConfigError(f"{directive.where}: {name!r} is no directive of mosquitto.conf")

    def _remark(self, directive: Directive, reason: str, once: str = "") -> None:
        once = once or directive.name
        if once not in self._remarked:
            self._remarked.add(once)
            self.remarks.append(f"{directive.where}: {directive.name} is not honoured: {reason}")

    @property
    def _door(self) -> Door:
        """The listener that lines speak of now."""
        if self._doors:
            return self._doors[-1]
        self._default_used = True
        return self._default

    @property
    def _guard(self) -> Security:
        if not self._per_listener:
            return self._security
        return self._door.security

    def _listener(self, directive: Directive) -> None:
        port, _, host = directive.text.partition(" ")
        host = host.strip()
        self._bridge = False
        number = Directive("listener", port, directive.where).number(0, 65_535)
        door = Door(directive.where, port=number, settings={})
        if host.startswith("/"):
            door.unix_path = host
        else:
            door.host = host
        self._doors.append(door)

    def _port(self, directive: Directive) -> None:
        self._default_used = True
        self._default.port = directive.number(0, 65_535)
        self._default.where = directive.where

    def _bind_address(self, directive: Directive) -> None:
        self._default_used = True
        self._default.host = directive.word()
        self._default.where = directive.where

    def _protocol(self, directive: Directive) -> None:
        self._door.websockets = directive.one_of("mqtt", "websockets") == "websockets"

    def _socket_domain(self, directive: Directive) -> None:
        self._door.domain = directive.one_of("ipv4", "ipv6")

    def _max_connections(self, directive: Directive) -> None:
        number = directive.number(-1, 2**31 - 1)
        self._door.settings["max_connections"] = max(number, 0)

    def _max_qos(self, directive: Directive) -> None:
        if directive.number(0, 2) < 2:
            self._remark(directive, "clients may publish with every quality")

    def _tls_version(self, directive: Directive) -> None:
        if directive.word() != "tlsv1.2":
            self._remark(directive, "TLS 1.2 and 1.3 are spoken")

    def _allow_anonymous(self, directive: Directive) -> None:
        self._guard.allow_anonymous = directive.boolean()

    def _listener_allow_anonymous(self, directive: Directive) -> None:
        self._door.security.allow_anonymous = directive.boolean()

    def _password_file(self, directive: Directive) -> None:
        self._guard.password_file = directive.word()

    def _acl_file(self, directive: Directive) -> None:
        self._guard.acl_file = directive.word()

    def _per_listener_settings(self, directive: Directive) -> None:
        wanted = directive.boolean()
        if wanted and (self._doors or self._security != Security()):
            raise ConfigError(
                f"{directive.where}: per_listener_settings: must stand before listeners, "
                "password_file, acl_file and allow_anonymous"
            )
        self._per_listener = wanted

    def _message_size_limit(self, directive: Directive) -> None:
        limit = directive.number(0, 268_435_455)
        if limit:
            size = min(limit + MESSAGE_OVERHEAD, 268_435_455)
            self._limits["max_packet_size"] = self._limits["max_packet_size"] or size
            self._remark(directive, f"packets are limited instead, to {size} bytes")

    def _persistent_client_expiration(self, directive: Directive) -> None:
        number, unit = directive.text[:-1], directive.text[-1:]
        if not (number.isascii() and number.isdigit()) or unit not in HOURS:
            raise directive.wrong("a number and h, d, w, m or y")
        self._storage["session_expiry_s"] = int(number) * HOURS[unit] * 3600

    def _persistence_file(self, directive: Directive) -> None:
        self._remark(directive, "the store has a name of its own, and Mosquitto's is not read")

    def _auto_id_prefix(self, directive: Directive) -> None:
        if directive.text != "auto-":
            self._remark(directive, "client ids made by the broker begin with auto-")

    def _connection_messages(self, directive: Directive) -> None:
        if not directive.boolean():
            self._remark(directive, "connections are logged at level info: see log_type")

    def _user(self, directive: Directive) -> None:
        if directive.word() != pwd.getpwuid(os.getuid()).pw_name:
            self._remark(directive, "the broker stays the user that starts it")

    def _log_dest(self, directive: Directive) -> None:
        kind, _, path = directive.text.partition(" ")
        if kind == "file":
            self._top["log_file"] = Directive("log_dest file", path.strip(), directive.where).word()
        elif kind == "none":
            self._top["log_file"] = os.devnull
        elif kind in ("syslog", "topic", "dlt", "stdout", "android"):
            self._remark(directive, "the log goes to stderr or a file", once=f"log_dest {kind}")
        elif kind != "stderr":
            raise directive.wrong("stderr, stdout, file <path>, syslog, topic or none")

    def _log_type(self, directive: Directive) -> None:
        level = LOG_LEVELS.get(directive.text)
        if level is None:
            raise directive.wrong(" or ".join(LOG_LEVELS))
        order = ("debug", "info", "warning", "error")
        known = self._log_level or "error"
        self._log_level = order[min(order.index(level), order.index(known))]

    # What we make of it

    def finish(self, source: str) -> Reading:
        """Make the configuration."""
        doors = list(self._doors)
        local_only = not doors and not self._default_used
        if local_only:
            self._default.host = "127.0.0.1"
        if self._default_used or local_only:
            self._default.where = self._default.where or source
            doors.insert(0, self._default)
        listeners, plugins, acl_files = [], [], []
        for number, door in enumerate(doors, 1):
            listener = door.listener(number)
            security = door.security if self._per_listener else self._security
            anonymous = door.security.allow_anonymous
            if anonymous is None:
                anonymous = security.allow_anonymous
            listener.allow_anonymous = local_only if anonymous is None else anonymous
            if self._per_listener:
                listener.users_file = security.password_file
                if security.acl_file:
                    acl_files.append(security.acl_file)
                    plugins.append(acl_entry(security.acl_file, listener.name))
            listeners.append(listener)
        top = dict(self._top)
        if self._log_level is not None:
            top["log_level"] = self._log_level
        if not self._per_listener:
            top["users_file"] = self._security.password_file
            if self._security.acl_file:
                acl_files.append(self._security.acl_file)
                plugins.append(acl_entry(self._security.acl_file))
        config = Config(
            **top,
            listener=listeners,
            limits=Limits(**self._limits),
            storage=Storage(**self._storage),
            plugin=plugins,
            http=self._http(listeners),
        )
        return Reading(config, self.remarks, acl_files)

    def _http(self, listeners: list[Listener]) -> Http:
        """Keep the other door as closed as Mosquitto's were."""
        if all(each.allow_anonymous for each in listeners):
            return Http()
        return Http(allow_anonymous=False)


def _of_bridge(name: str) -> bool:
    return name in BRIDGE or name.startswith(("bridge_", "local_", "remote_"))


def acl_entry(path: str, listener: str = "") -> PluginEntry:
    """Name the plugin that reads an ACL file of Mosquitto's."""
    use, settings = "plugins.mosquitto_acl:MosquittoAcl", {"file": path}
    if not listener:
        return PluginEntry(use=use, settings=settings)
    return PluginEntry(
        use="plugins.per_listener:ListenerAcl",
        settings={"listeners": [listener], "use": use, "settings": settings},
    )


Read = Callable[[Directive], Any]


def _number(least: int, most: int = 2**31 - 1) -> Read:
    return lambda directive: directive.number(least, most)


TOP: dict[str, tuple[str, Read]] = {
    "allow_zero_length_clientid": ("allow_zero_length_clientid", Directive.boolean),
    "log_timestamp": ("log_timestamp", Directive.boolean),
    "log_timestamp_format": ("log_timestamp_format", Directive.word),
    "persistence": ("persistence", Directive.boolean),
    "persistence_location": ("data_dir", Directive.word),
    "pid_file": ("pid_file", Directive.word),
    "queue_qos0_messages": ("queue_qos0_messages", Directive.boolean),
    "retain_available": ("retain_available", Directive.boolean),
    "sys_interval": ("sys_interval_s", _number(0, 65_535)),
}
LIMITS: dict[str, tuple[str, Read]] = {
    "global_max_clients": ("max_connections", _number(0)),
    "global_max_connections": ("max_connections", _number(0)),
    "max_inflight_messages": ("max_inflight", _number(0, 65_535)),
    "max_keepalive": ("max_keep_alive_s", _number(0, 65_535)),
    "max_packet_size": ("max_packet_size", _number(20, 268_435_455)),
    "max_queued_bytes": ("max_queued_bytes", _number(0)),
    "max_queued_messages": ("max_queued_messages", _number(0)),
}
DOOR: dict[str, tuple[str, Read]] = {
    "cafile": ("cafile", Directive.word),
    "capath": ("cafile", Directive.word),
    "certfile": ("certfile", Directive.word),
    "crlfile": ("crlfile", Directive.word),
    "keyfile": ("keyfile", Directive.word),
    "mount_point": ("mount_point", Directive.word),
    "require_certificate": ("require_certificate", Directive.boolean),
    "use_identity_as_username": ("use_identity_as_username", Directive.boolean),
}
SPECIAL: dict[str, Callable[[Reader, Directive], None]] = {
    name: getattr(Reader, f"_{name}")
    for name in (
        *("acl_file", "allow_anonymous", "auto_id_prefix", "bind_address", "connection_messages"),
        *("listener", "listener_allow_anonymous", "log_dest", "log_type", "max_connections"),
        *("max_qos", "message_size_limit", "password_file", "per_listener_settings"),
        *("persistence_file", "persistent_client_expiration", "port", "protocol"),
        *("socket_domain", "tls_version", "user"),
    )
}


def lines(path: Path, depth: int = 0) -> Iterator[Directive]:
    """Give the directives of a file and of the folders it includes, in order."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8") from None
    for number, text_line in enumerate(text.splitlines(), 1):
        line = text_line.strip()
        if not line or line.startswith("#"):
            continue
        name, *rest = line.split(maxsplit=1)
        directive = Directive(name, rest[0] if rest else "", f"{path}:{number}")
        if name != "include_dir":
            yield directive
            continue
        if depth >= MAX_INCLUDES:
            raise ConfigError(f"{directive.where}: include_dir: {depth} files within each other")
        folder = Path(directive.word())
        if not folder.is_dir():
            raise ConfigError(f"{directive.where}: include_dir: {folder} is no folder")
        for each in sorted(folder.glob("*.conf")):
            yield from lines(each, depth + 1)


def read(path: str | Path) -> Reading:
    """Read a mosquitto.conf."""
    reader = Reader()
    for directive in lines(Path(path)):
        reader.take(directive)
    return reader.finish(str(path))
