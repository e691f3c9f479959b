"""One broker behind many doors: TCP, IPv6, Unix socket, TLS, WebSocket, all at once."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from tests.conformance.certificates import Certificates
from tests.conformance.raw import Clients, Raw, clients_of, connect, publish, subscribe_with
from tests.conformance.raw_websocket import expect_binary, frame, handshake
from tests.conftest import StartBroker


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def secure(clients: Clients, context: ssl.SSLContext) -> Raw:
    """Open a TLS connection."""
    plain = socket.create_connection((clients.host, clients.port), 10)
    return clients.keep(context.wrap_socket(plain, server_hostname="localhost"))


def greet(raw: Raw, client_id: str) -> None:
    """Be let in."""
    raw.send(connect(client_id))
    raw.expect("20 02 00 00")


def test_all_kinds_of_listeners_lead_to_one_broker(
    start_broker: StartBroker, certificates: Certificates, tmp_path: Path
) -> None:
    """[MQTT-7.1.1-1]: ordered, lossless streams of several kinds."""
    path = tmp_path / "mqtt.sock"
    config = (
        '[[listener]]\nport = 0\n[[listener]]\nhost = "::1"\nport = 0\n'
        f'[[listener]]\nkind = "unix"\npath = "{path}"\n'
        '[[listener]]\nkind = "ws"\nport = 0\n'
        + certificates.listener("tls")
        + certificates.listener("wss")
    )
    broker = start_broker(config=config, listen=False)
    assert list(broker.addresses) == ["mqtt", "unix", "ws", "tls", "wss"]
    with clients_of(broker.host, broker.port) as clients:
        tcp = clients.connect("tcp")
        host, _, port = broker.addresses["mqtt"][1].rpartition(":")
        assert host == "[::1]"
        six = clients.keep(socket.create_connection(("::1", int(port)), 10))
        greet(six, "six")
        inner = socket.socket(socket.AF_UNIX)
        inner.connect(str(path))
        unix = Raw(inner)
        greet(unix, "unix")
        web = clients.keep(socket.create_connection(broker.address("ws"), 10))
        handshake(web)
        web.send(frame(connect("web")))
        expect_binary(web, "20 02 00 00")
        with (
            clients_of(*broker.address("tls")) as tls_clients,
            clients_of(*broker.address("wss")) as wss_clients,
        ):
            tls = secure(tls_clients, certificates.context())
            greet(tls, "tls")
            wss = secure(wss_clients, certificates.context())
            handshake(wss)
            wss.send(frame(connect("wss")))
            expect_binary(wss, "20 02 00 00")
            for subscriber in (tcp, six, unix, tls):
                subscribe_with(subscriber, "doors")
            for subscriber in (web, wss):
                subscriber.send(frame('82 0a 00 01 00 05 "doors" 00'))
                expect_binary(subscriber, "90 03 00 01 00")
            message = publish("doors", "x" * 50_000)
            for sender, wrap in ((tcp, bytes), (unix, bytes), (tls, bytes), (wss, frame)):
                sender.send(wrap(message))
                for subscriber in (tcp, six, unix, tls):
                    subscriber.expect(message)
                for subscriber in (web, wss):
                    expect_binary(subscriber, message)
        inner.close()


def test_a_stale_unix_socket_is_replaced(start_broker: StartBroker, tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    start_broker(config=f'[[listener]]\nkind = "unix"\npath = "{path}"\n', listen=False)
    with socket.socket(socket.AF_UNIX) as inner:
        inner.connect(str(path))
        greet(Raw(inner), "unix")


def test_bytes_that_are_no_tls_close(start_broker: StartBroker, certificates: Certificates) -> None:
    broker = start_broker(config=certificates.listener("tls"), listen=False)
    with clients_of(*broker.address("tls")) as clients:
        raw = clients.raw()
        raw.send(connect("plain"))
        while raw.read(1):
            pass  # a TLS alert, if anything
        greet(secure(clients, certificates.context()), "secure")


def test_old_tls_is_refused(start_broker: StartBroker, certificates: Certificates) -> None:
    broker = start_broker(config=certificates.listener("tls"), listen=False)
    context = certificates.context()
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        clients_of(*broker.address("tls")) as clients,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
    ):
        secure(clients, context)


def test_a_listener_can_insist_on_a_certificate(
    start_broker: StartBroker, certificates: Certificates
) -> None:
    more = (f'cafile = "{certificates.ca}"', "require_certificate = true")
    broker = start_broker(config=certificates.listener("tls", *more), listen=False)
    with clients_of(*broker.address("tls")) as clients:
        greet(secure(clients, certificates.context(with_client=True)), "known")
        with pytest.raises((ssl.SSLError, ConnectionResetError, BrokenPipeError, AssertionError)):
            greet(secure(clients, certificates.context()), "unknown")


def test_a_listener_with_a_limit_of_its_own(start_broker: StartBroker) -> None:
    config = "[[listener]]\nport = 0\n[[listener]]\nport = 0\nmax_connections = 1\n"
    broker = start_broker(config=config, listen=False)
    port = int(broker.addresses["mqtt"][1].rpartition(":")[2])
    with clients_of(broker.host, broker.port) as many, clients_of("127.0.0.1", port) as one:
        only = one.connect()
        one.raw().expect_close()
        many.connect().expect_nothing()
        many.connect().expect_nothing()
        only.expect_nothing()
