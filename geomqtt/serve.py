"""`geomqtt serve`: from flags and a configuration file to a running broker."""

import argparse
import gc
import logging
import os
import resource
import sys
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from broker.config import Config, ConfigError, Listener, PluginEntry, check, load
from broker.mosquitto_conf import read as read_mosquitto_conf

log = logging.getLogger("geomqtt.serve")


def add_parsers(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "serve", help="run the broker", description="Run the broker.", add_help=False
    )
    parser.add_argument("--help", action="help", help="show this help and exit")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--config", metavar="FILE", help="TOML configuration")
    source.add_argument("--mosquitto-conf", metavar="FILE", help="a mosquitto.conf to obey")
    parser.add_argument("--host", metavar="H", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, metavar="N", help="MQTT port (default 1883)")
    parser.add_argument("--ws-port", type=int, metavar="N", help="WebSocket port (default 0: off)")
    parser.add_argument("--http-port", type=int, metavar="N", help="REST and map (default 8080)")
    parser.add_argument("--data", metavar="DIR", help="data folder (default ./geomqtt-data)")
    parser.add_argument(
        "--log",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="write the event log (default: yes)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the broker until it is told to stop."""
    remarks: list[str] = []
    try:
        config = configure(args, remarks)
        start_logging(config)
        if config.pid_file:
            write_pid(config.pid_file)
    except ConfigError as error:
        print(f"geomqtt: {error}", file=sys.stderr)
        return 2
    for remark in remarks:
        log.warning("%s", remark)
    raise_file_limit()
    import uvloop

    from broker.server import StartError
    from broker.server import run as run_server

    # The broker makes few cycles and many short-lived objects: look for cycles rarely.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    try:
        uvloop.run(
            run_server(
                config,
                ready=lambda line: print(line, flush=True),
                reread=lambda: configure(args),
            )
        )
    except StartError as error:
        print(f"geomqtt: {error}", file=sys.stderr)
        return 2
    finally:
        if config.pid_file:
            Path(config.pid_file).unlink(missing_ok=True)
    return 0


def start_logging(config: Config) -> None:
    """Log to stderr, or to a file that may be rotated while it is written."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if config.log_file:
        try:
            handler = WatchedFileHandler(config.log_file, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"log_file {config.log_file}: {error.strerror}") from None
    text = "%(levelname)s %(name)s: %(message)s"
    if config.log_timestamp:
        text = f"%(asctime)s {text}"
    logging.basicConfig(
        level=config.log_level.upper(),
        format=text,
        datefmt=config.log_timestamp_format or None,
        handlers=[handler],
    )


def write_pid(path: str) -> None:
    """Tell others which process it is."""
    try:
        Path(path).write_text(f"{os.getpid()}\n", encoding="ascii")
    except OSError as error:
        raise ConfigError(f"pid_file {path}: {error.strerror}") from None


def configure(args: argparse.Namespace, remarks: list[str] | None = None) -> Config:
    """Put flags over the configuration file over the defaults."""
    if args.mosquitto_conf:
        reading = read_mosquitto_conf(args.mosquitto_conf)
        config = reading.config
        if remarks is not None:
            remarks += reading.remarks
    else:
        config = load(args.config) if args.config else Config()
    if args.host is not None or args.port is not None:
        plain = next((each for each in config.listener if each.kind == "tcp"), None)
        if plain is None:
            plain = Listener()
            config.listener.insert(0, plain)
        plain.host = args.host if args.host is not None else plain.host
        plain.port = args.port if args.port is not None else plain.port
    if args.ws_port:
        host = args.host or config.listener[0].host
        config.listener.append(Listener(kind="ws", host=host, port=args.ws_port))
    if args.http_port is not None:
        config.http.port = args.http_port
        config.http.required = args.http_port != 0
    if args.host is not None:
        config.http.host = args.host
    if args.data is not None:
        config.data_dir = args.data
    if args.log is not None:
        config.event_log = args.log
    check(config, args.config or args.mosquitto_conf or "command line")
    config.plugin = shipped_plugins(config) + config.plugin
    return config


def shipped_plugins(config: Config) -> list[PluginEntry]:
    """Name the plugins that are on unless they are switched off."""
    entries = []
    for number, listener in enumerate(config.listener):
        if not listener.name and (listener.users_file or listener.acl_file):
            listener.name = f"listener-{number}"
        for kind, use, file in (
            ("ListenerUsers", "plugins.auth:Users", listener.users_file),
            ("ListenerAcl", "plugins.acl:Acl", listener.acl_file),
        ):
            if file:
                inner = {"listeners": [listener.name], "use": use, "settings": {"file": file}}
                entries.append(PluginEntry(use=f"plugins.per_listener:{kind}", settings=inner))
    if config.users_file:
        entries.append(PluginEntry(use="plugins.auth:Users", settings={"file": config.users_file}))
    if config.acl_file:
        entries.append(PluginEntry(use="plugins.acl:Acl", settings={"file": config.acl_file}))
    if config.event_log:
        entries.append(
            PluginEntry(use="plugins.event_log.plugin:EventLog", settings=config.event_log_settings)
        )
    if config.http.port:
        settings = {**config.http.bridge_settings, "map": config.map_settings}
        entries.append(PluginEntry(use="plugins.rest_bridge.plugin:RestBridge", settings=settings))
    return entries


def raise_file_limit() -> None:
    """Allow as many connections as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
