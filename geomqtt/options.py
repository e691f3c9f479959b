"""The options that `geomqtt pub` and `geomqtt sub` share, and the client they ask for.

Names and meanings are those of mosquitto_pub and mosquitto_sub. `-h` is the host, so help
is `--help` alone.
"""

from __future__ import annotations

import argparse
import os
import secrets
import ssl
from typing import Any
from urllib.parse import unquote, urlsplit

from geomqtt.client import Client, Will
from geomqtt.link import Transport

TLS_VERSIONS = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}
# scheme of -L -> WebSocket, TLS
SCHEMES = {
    "mqtt": (False, False),
    "mqtts": (False, True),
    "ws": (True, False),
    "wss": (True, True),
}


class UsageError(Exception):
    """One line for a user whose options cannot work together."""


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add what both commands know."""
    add = parser.add_argument
    add("--help", action="help", help="show this help and exit")
    add("-h", dest="host", metavar="HOST", help="broker to connect to (default localhost)")
    add("-p", dest="port", type=int, metavar="PORT", help="its port (default 1883, 8883 with TLS)")
    add("-u", dest="username", metavar="NAME", help="user name")
    add("-P", dest="password", metavar="PASSWORD", help="password")
    add("-i", dest="client_id", metavar="ID", help="client id (default: a random one)")
    add("-I", dest="id_prefix", metavar="PREFIX", help="client id: prefix and process id")
    add("-c", dest="persistent", action="store_true", help="keep the session (needs -i)")
    add("-k", dest="keep_alive_s", type=int, default=60, metavar="S", help="keep-alive (60)")
    add("-q", dest="qos", type=int, choices=(0, 1, 2), default=0, help="QoS (default 0)")
    add("-V", dest="version", default="mqttv311", choices=("mqttv311", "311", "mqttv31", "31"),
        help="protocol version (default mqttv311)")  # fmt: skip
    add("-A", dest="bind_address", metavar="ADDRESS", help="local address to connect from")
    add("-L", dest="url", metavar="URL", help="mqtt(s)://[user[:password]@]host[:port]/topic")
    add("--unix", metavar="PATH", help="connect to a Unix socket")
    add("--ws", action="store_true", help="speak MQTT over WebSocket")
    add("--ws-path", default="/mqtt", metavar="PATH", help="path of the WebSocket (/mqtt)")
    add("-M", dest="max_in_flight", type=int, default=20, metavar="N",
        help="publishes in flight with QoS 1 and 2 (default 20)")  # fmt: skip
    add("-d", dest="debug", action="store_true", help="say on stderr what happens")
    add("--quiet", action="store_true", help="do not print error messages")
    add("--nodelay", action="store_true", help="accepted; Nagle's algorithm is always off")
    will = parser.add_argument_group("will")
    will.add_argument("--will-topic", metavar="TOPIC", help="what the broker shall publish if")
    will.add_argument("--will-payload", metavar="TEXT", default="", help="we are cut off")
    will.add_argument("--will-qos", type=int, choices=(0, 1, 2), default=0)
    will.add_argument("--will-retain", action="store_true")
    _add_tls_options(parser.add_argument_group("TLS"))


def _add_tls_options(group: Any) -> None:
    group.add_argument("--cafile", metavar="FILE", help="trusted certificates; switches TLS on")
    group.add_argument("--capath", metavar="DIR", help="the same as a folder")
    group.add_argument("--tls-use-os-certs", action="store_true", help="trust the system's")
    group.add_argument("--cert", metavar="FILE", help="our certificate")
    group.add_argument("--key", metavar="FILE", help="its key")
    group.add_argument("--ciphers", metavar="LIST", help="ciphers, as OpenSSL names them")
    group.add_argument("--tls-version", choices=sorted(TLS_VERSIONS), help="exactly this version")
    group.add_argument("--tls-alpn", metavar="PROTOCOL", help="ALPN protocol")
    group.add_argument("--insecure", action="store_true", help="do not check the host name")


def apply_url(args: argparse.Namespace) -> str | None:
    """Spread -L over the other options; the topic it names comes back."""
    if args.url is None:
        return None
    try:
        url = urlsplit(args.url)
        port = url.port
    except ValueError as error:
        raise UsageError(f"-L {args.url}: {error}") from None
    if url.scheme not in SCHEMES or not url.hostname:
        raise UsageError(f"-L {args.url}: expected {'://, '.join(SCHEMES)}:// and a host")
    args.host = url.hostname
    args.port = port if port is not None else args.port
    if url.username is not None:
        args.username = unquote(url.username)
    if url.password is not None:
        args.password = unquote(url.password)
    websocket, secure = SCHEMES[url.scheme]
    args.ws = args.ws or websocket
    args.tls_use_os_certs = args.tls_use_os_certs or (secure and not (args.cafile or args.capath))
    # Wildcards are legal in the topic of a subscriber, though '#' starts a fragment in a URL.
    path = args.url.partition("://")[2].partition("/")[2]
    return unquote(path) or None


def make_client(args: argparse.Namespace, command: str, *, reconnect: bool) -> Client:
    """Make the client that the options describe."""
    if args.persistent and not (args.client_id or args.id_prefix):
        raise UsageError("-c needs a client id: give one with -i")
    if args.password is not None and args.username is None:
        raise UsageError("-P needs a user name: give one with -u")
    client_id = args.client_id
    if client_id is None:
        prefix = args.id_prefix
        client_id = f"{prefix}{os.getpid()}" if prefix else f"geomqtt-{command}-{_token()}"
    host, transport = args.host or "localhost", _transport(args)
    will = None
    if args.will_topic is not None:
        will = Will(args.will_topic, args.will_payload, args.will_qos, args.will_retain)
    elif args.will_payload or args.will_retain or args.will_qos:
        raise UsageError("--will-payload, --will-qos and --will-retain need --will-topic")
    return Client(
        args.unix if transport == "unix" else host,
        args.port,
        client_id,
        username=args.username,
        password=args.password,
        clean_session=not args.persistent,
        keep_alive_s=args.keep_alive_s,
        will=will,
        tls=_tls_context(args),
        transport=transport,
        ws_path=args.ws_path,
        bind_address=args.bind_address,
        version="3.1" if args.version.endswith("31") else "3.1.1",
        max_in_flight=args.max_in_flight,
        reconnect=reconnect,
    )


def _token() -> str:
    return secrets.token_hex(6)


def _transport(args: argparse.Namespace) -> Transport:
    if args.unix:
        if args.ws:
            raise UsageError("--unix and --ws do not go together")
        return "unix"
    return "websocket" if args.ws else "tcp"


def _tls_context(args: argparse.Namespace) -> ssl.SSLContext | None:
    if not (args.cafile or args.capath or args.tls_use_os_certs):
        if args.cert or args.key or args.insecure:
            raise UsageError("TLS needs --cafile, --capath or --tls-use-os-certs")
        return None
    try:
        # Given files, only these are trusted, not the system's as well.
        context = ssl.create_default_context(cafile=args.cafile, capath=args.capath)
        if args.cert or args.key:
            context.load_cert_chain(args.cert or args.key, args.key)
        if args.ciphers:
            context.set_ciphers(args.ciphers)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(f for f in (args.cafile, args.capath, args.cert, args.key) if f)
        raise UsageError(f"TLS: {error.strerror or error} ({files})") from None
    context.check_hostname = not args.insecure
    if args.tls_version:
        context.minimum_version = context.maximum_version = TLS_VERSIONS[args.tls_version]
    if args.tls_alpn:
        context.set_alpn_protocols([args.tls_alpn])
    return context
