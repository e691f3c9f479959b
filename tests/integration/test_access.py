"""Users, ACL, TLS and reload with the real daemon, over raw sockets."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from plugins.passwords import make_hash
from tests.conformance.raw import (
    Clients,
    Raw,
    clients_of,
    connect,
    publish,
    publish_with,
    subscribe,
    subscribe_with,
)
from tests.conftest import RunningBroker, StartBroker
from tests.integration.certificates import make_ca, make_certificate

REFUSED = "20 02 00 05"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def of(stack: ExitStack, broker: RunningBroker) -> Clients:
    return stack.enter_context(clients_of(broker.host, broker.port))


def users_file(tmp_path: Path, **passwords: str) -> Path:
    path = tmp_path / "users"
    path.write_text("".join(f"{u}:{make_hash(p.encode())}\n" for u, p in passwords.items()))
    return path


def refused(clients: Clients, **wish: str | None) -> None:
    raw = clients.raw()
    raw.send(connect("refused", **wish))  # type: ignore[arg-type]
    raw.expect(REFUSED)
    raw.expect_close()


def reload(broker: RunningBroker, times: int = 1) -> None:
    """Send SIGHUP, and wait until the broker says that it has read everything again."""
    broker.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while broker.log.count("geomqtt.server: reloaded") < times:
        assert time.monotonic() < deadline, broker.log
        time.sleep(0.01)


def test_only_users_of_the_file_come_in(
    start_broker: StartBroker, tmp_path: Path, stack: ExitStack
) -> None:
    path = users_file(tmp_path, ann="secret")
    broker = start_broker(config=f'users_file = "{path}"\n')
    clients = of(stack, broker)
    clients.connect("c1", username="ann", password="secret").expect_nothing()
    refused(clients, username="ann", password="wrong")
    refused(clients, username="ann", password=None)
    refused(clients, username="bob", password="secret")
    refused(clients, username=None, password=None)
    assert "secret" not in broker.log
    assert "wrong" not in broker.log
    assert "login of 'ann' from 127.0.0.1:" in broker.log


def test_an_empty_users_file_lets_nobody_in(
    start_broker: StartBroker, tmp_path: Path, stack: ExitStack
) -> None:
    path = users_file(tmp_path)
    broker = start_broker(config=f'users_file = "{path}"\n')
    clients = of(stack, broker)
    refused(clients, username=None, password=None)
    refused(clients, username="ann", password="")
    assert "is empty: nobody can log in" in broker.log


def test_anonymous_clients_may_be_let_in_beside_users(
    start_broker: StartBroker, tmp_path: Path, stack: ExitStack
) -> None:
    path = users_file(tmp_path, ann="secret")
    config = f'users_file = "{path}"\n[[listener]]\nallow_anonymous = true\n'
    clients = of(stack, start_broker(config=config))
    clients.connect("c1").expect_nothing()
    clients.connect("c2", username="ann", password="secret").expect_nothing()
    refused(clients, username="ann", password="wrong")
    refused(clients, username="stranger", password="wrong")


def test_without_users_a_local_listener_lets_everybody_in_unless_told_otherwise(
    start_broker: StartBroker, stack: ExitStack
) -> None:
    clients = of(stack, start_broker())
    clients.connect("c1").expect_nothing()
    clients.connect("c2", username="who", password="ever").expect_nothing()
    closed = of(stack, start_broker(config="[[listener]]\nallow_anonymous = false\n"))
    refused(closed, username=None, password=None)
    refused(closed, username="who", password="ever")


def serve(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "geomqtt", "serve", "--data", str(tmp_path / "data")]
    return subprocess.run(
        [*command, "--http-port", "0", "--no-log", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_start_that_would_let_strangers_in_is_refused(tmp_path: Path, host: str) -> None:
    result = serve(tmp_path, "--host", host, "--port", "0")
    assert result.returncode == 2
    assert result.stdout == ""
    assert host in result.stderr
    assert "set users_file, or allow_anonymous = true" in result.stderr
    assert result.stderr.count("\n") == 1


def test_public_http_without_users_is_refused_too(tmp_path: Path) -> None:
    config = tmp_path / "geomqtt.toml"
    config.write_text('[[listener]]\nport = 0\n[http]\nhost = "0.0.0.0"\nport = 8080\n')
    command = [sys.executable, "-m", "geomqtt", "serve", "--config", str(config), "--no-log"]
    result = subprocess.run(
        [*command, "--data", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 2
    assert "http: 0.0.0.0 is reachable from outside" in result.stderr


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("users_file", "users file {path}: line 1: expected user:hash"),
        ("acl_file", "ACL file {path}: "),
    ],
)
def test_a_broken_file_at_start_is_one_line_and_exit_code_2(
    tmp_path: Path, setting: str, reason: str
) -> None:
    path = tmp_path / "broken"
    path.write_text("nonsense\n")
    config = tmp_path / "geomqtt.toml"
    config.write_text(f'{setting} = "{path}"\n[[listener]]\nport = 0\n')
    result = serve(tmp_path, "--config", str(config))
    assert result.returncode == 2
    assert reason.format(path=path) in result.stderr
    assert "Traceback" not in result.stderr


ACL = """
[[rule]]
users = ["ann"]
allow = ["all"]
topics = ["#", "$SYS/#"]

[[rule]]
users = ["bob"]
allow = ["publish"]
topics = ["from/%u/#"]

[[rule]]
users = ["bob"]
allow = ["subscribe"]
topics = ["to/#"]

[[rule]]
users = ["bob"]
allow = ["receive"]
topics = ["to/bob"]
"""


@pytest.fixture
def guarded(start_broker: StartBroker, tmp_path: Path) -> RunningBroker:
    """Run a daemon with users and an ACL."""
    path = users_file(tmp_path, ann="a", bob="b")
    (tmp_path / "acl.toml").write_text(ACL)
    acl = tmp_path / "acl.toml"
    return start_broker(config=f'users_file = "{path}"\nacl_file = "{acl}"\n')


def ann(clients: Clients, client_id: str = "ann") -> Raw:
    return clients.connect(client_id, username="ann", password="a")


def test_what_is_not_allowed_is_acknowledged_and_goes_nowhere(
    guarded: RunningBroker, stack: ExitStack
) -> None:
    clients = of(stack, guarded)
    everything = ann(clients)
    subscribe_with(everything, "#")
    bob = clients.connect("bob", username="bob", password="b")
    publish_with(bob, "from/ann/x", "no")
    publish_with(bob, "from/bob/x", "yes")
    everything.expect('30 0f 00 0a "from/bob/x" "yes"')
    everything.expect_nothing()
    assert "publish to 'from/ann/x' denied: not authorised" in guarded.log


def test_a_refused_subscription_gets_80_and_the_others_are_granted(
    guarded: RunningBroker, stack: ExitStack
) -> None:
    clients = of(stack, guarded)
    bob = clients.connect("bob", username="bob", password="b")
    bob.send(subscribe(7, ("to/+", 1), ("#", 0), ("from/bob/#", 2), ("to/#", 2), ("$SYS/#", 0)))
    bob.expect("90 07 00 07 01 80 80 02 80")


def test_an_mqtt_31_client_is_closed_because_it_knows_no_80(
    guarded: RunningBroker, stack: ExitStack
) -> None:
    bob = of(stack, guarded).raw()
    bob.send('10 17 00 06 "MQIsdp" 03 c2 00 00 00 01 "b" 00 03 "bob" 00 01 "b"')
    bob.expect("20 02 00 00")
    bob.send(subscribe(7, ("#", 0)))
    bob.expect_close()


def test_a_message_reaches_only_those_who_may_receive_it(
    guarded: RunningBroker, stack: ExitStack
) -> None:
    clients = of(stack, guarded)
    bob = clients.connect("bob", username="bob", password="b")
    subscribe_with(bob, "to/#")
    source = ann(clients)
    publish_with(source, "to/cid", "no")
    publish_with(source, "to/bob", "yes")
    bob.expect('30 0b 00 06 "to/bob" "yes"')
    bob.expect_nothing()


def test_retained_messages_are_delivered_only_to_those_who_may_receive_them(
    guarded: RunningBroker, stack: ExitStack
) -> None:
    clients = of(stack, guarded)
    source = ann(clients)
    publish_with(source, "to/cid", "no", retain=True)
    publish_with(source, "to/bob", "yes", retain=True)
    bob = clients.connect("bob", username="bob", password="b")
    subscribe_with(bob, "to/#")
    bob.expect('31 0b 00 06 "to/bob" "yes"')
    bob.expect_nothing()


def test_a_revoked_right_stops_queued_messages_wills_and_deliveries(
    guarded: RunningBroker, stack: ExitStack, tmp_path: Path
) -> None:
    clients = of(stack, guarded)
    everything = ann(clients, "watcher")
    subscribe_with(everything, "from/#")
    bob = clients.connect(
        "bob",
        clean=False,
        username="bob",
        password="b",
        will=("from/bob/will", "gone", 0, False),
    )
    away = clients.connect("away", clean=False, username="bob", password="b")
    subscribe_with(bob, "to/#", 1)
    subscribe_with(away, "to/#", 1)
    away.disconnect()
    source = ann(clients)
    publish_with(source, "to/bob", "1")
    bob.expect('32 0b 00 06 "to/bob" 00 01 "1"')
    bob.send("40 02 00 01")
    rules = ACL.replace('topics = ["to/bob"]', 'topics = ["other"]')
    (tmp_path / "acl.toml").write_text(rules.replace('"from/%u/#"', '"other"'))
    reload(guarded)
    publish_with(source, "to/bob", "2")
    bob.expect_nothing()
    back = clients.connect("away", clean=False, present=True, username="bob", password="b")
    back.expect_nothing()
    bob.drop()
    publish_with(source, "from/end", "end")
    everything.expect('30 0d 00 08 "from/end" "end"')


def test_reload_takes_new_users_rules_and_limits_without_dropping_anybody(
    start_broker: StartBroker, tmp_path: Path, stack: ExitStack
) -> None:
    path = users_file(tmp_path, ann="a")
    acl = tmp_path / "acl.toml"
    acl.write_text('[[rule]]\nallow = ["all"]\ntopics = ["x"]\n')
    text = f'users_file = "{path}"\nacl_file = "{acl}"\n[limits]\nmax_packet_size = 1000\n'
    broker = start_broker(config=text)
    clients = of(stack, broker)
    stays = ann(clients)
    path.write_text(f"bob:{make_hash(b'b')}\n")
    acl.write_text('[[rule]]\nallow = ["all"]\ntopics = ["y"]\n')
    config = tmp_path / "broker-0.toml"
    config.write_text(text.replace("1000", "2000"))
    reload(broker)
    stays.send(subscribe(1, ("x", 0), ("y", 0)))
    stays.expect("90 04 00 01 80 00")
    refused(clients, username="ann", password="a")
    bob = clients.connect("bob", username="bob", password="b")
    bob.send(publish("y", "z" * 1500))
    stays.expect(publish("y", "z" * 1500))
    bob.send(publish("y", "z" * 2500))
    bob.expect_close()


def test_broken_files_at_reload_keep_what_was(
    start_broker: StartBroker, tmp_path: Path, stack: ExitStack
) -> None:
    path = users_file(tmp_path, ann="a")
    acl = tmp_path / "acl.toml"
    acl.write_text('[[rule]]\nallow = ["all"]\ntopics = ["x"]\n')
    text = f'users_file = "{path}"\nacl_file = "{acl}"\n[limits]\nmax_packet_size = 1000\n'
    broker = start_broker(config=text)
    clients = of(stack, broker)
    path.write_text("ann\n")
    acl.write_text("[[rule]\n")
    (tmp_path / "broker-0.toml").write_text(text.replace("max_packet_size = 1000", "max = 1"))
    reload(broker)
    client = ann(clients)
    client.send(subscribe(1, ("x", 0), ("y", 0)))
    client.expect("90 04 00 01 00 80")
    client.send(publish("x", "z" * 1500))
    client.expect_close()
    log = broker.log
    assert "reload: users file" in log
    assert "reload: ACL file" in log
    assert "keeping the old limits" in log


def tls_config(folder: Path, extra: str = "") -> str:
    return (
        '[[listener]]\nkind = "tls"\nport = 0\n'
        f'certfile = "{folder}/server.crt"\nkeyfile = "{folder}/server.key"\n{extra}'
    )


def tls_clients(stack: ExitStack, broker: RunningBroker) -> Clients:
    return stack.enter_context(clients_of(*broker.address("tls")))


def secure(
    clients: Clients, ca: Path, own: tuple[str, str] | None = None, **wish: ssl.TLSVersion
) -> Raw:
    context = ssl.create_default_context(cafile=str(ca))
    for name, setting in wish.items():
        setattr(context, name, setting)
    if own is not None:
        context.load_cert_chain(*own)
    sock = socket.create_connection((clients.host, clients.port), 10)
    return clients.keep(context.wrap_socket(sock, server_hostname="localhost"))


def test_tls_speaks_1_2_and_1_3_and_nothing_older(
    start_broker: StartBroker, tmp_path: Path, stack: ExitStack
) -> None:
    ca = make_ca(tmp_path / "pki")
    make_certificate(ca.parent, "server", "localhost")
    clients = tls_clients(stack, start_broker(config=tls_config(ca.parent), listen=False))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        raw = secure(clients, ca, maximum_version=version)
        raw.send(connect(f"tls{version}"))
        raw.expect("20 02 00 00")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        secure(
            clients,
            ca,
            minimum_version=ssl.TLSVersion.TLSv1_1,
            maximum_version=ssl.TLSVersion.TLSv1_1,
        )


def test_a_certificate_is_proof_of_its_common_name(
    start_broker: StartBroker, tmp_path: Path, stack: ExitStack
) -> None:
    ca = make_ca(tmp_path / "pki")
    make_certificate(ca.parent, "server", "localhost")
    mine = make_certificate(ca.parent, "mine", "ann")
    acl = tmp_path / "acl.toml"
    acl.write_text('[[rule]]\nallow = ["all"]\ntopics = ["only/%u"]\n')
    users = users_file(tmp_path, bob="b")
    extra = f'cafile = "{ca}"\nrequire_certificate = true\nuse_identity_as_username = true\n'
    config = f'acl_file = "{acl}"\nusers_file = "{users}"\n{tls_config(ca.parent, extra)}'
    clients = tls_clients(stack, start_broker(config=config, listen=False))
    raw = secure(clients, ca, mine)
    # The name in the packet counts for nothing beside the one in the certificate.
    raw.send(connect("c1", username="bob", password="b"))
    raw.expect("20 02 00 00")
    raw.send(subscribe(1, ("only/ann", 0), ("only/bob", 0)))
    raw.expect("90 04 00 01 00 80")


def test_who_shows_no_certificate_or_a_strangers_is_kept_out(
    start_broker: StartBroker, tmp_path: Path, stack: ExitStack
) -> None:
    ca = make_ca(tmp_path / "pki")
    make_certificate(ca.parent, "server", "localhost")
    make_ca(ca.parent, "stranger")
    foreign = make_certificate(ca.parent, "foreign", "ann", ca="stranger")
    extra = f'cafile = "{ca}"\nrequire_certificate = true\nuse_identity_as_username = true\n'
    clients = tls_clients(stack, start_broker(config=tls_config(ca.parent, extra), listen=False))

    def answer(own: tuple[str, str] | None) -> bytes:
        try:
            raw = secure(clients, ca, own)
            raw.send(connect("c1"))
            return raw.socket.recv(4)  # with TLS 1.3 only this shows that we are not wanted
        except (ssl.SSLError, ConnectionError):
            return b""

    assert answer(None) == b""
    assert answer(foreign) == b""
    mine = make_certificate(ca.parent, "mine", "ann")
    assert answer(mine) == bytes.fromhex("20020000")


def test_without_a_certificate_there_is_no_identity_to_use(
    start_broker: StartBroker, tmp_path: Path, stack: ExitStack
) -> None:
    ca = make_ca(tmp_path / "pki")
    make_certificate(ca.parent, "server", "localhost")
    extra = f'cafile = "{ca}"\nuse_identity_as_username = true\n'
    clients = tls_clients(stack, start_broker(config=tls_config(ca.parent, extra), listen=False))
    raw = secure(clients, ca)
    raw.send(connect("c1", username="ann", password="a"))
    raw.expect(REFUSED)


def test_reload_shows_the_new_certificate_and_keeps_the_old_one_if_that_is_broken(
    start_broker: StartBroker, tmp_path: Path, stack: ExitStack
) -> None:
    ca = make_ca(tmp_path / "pki")
    make_certificate(ca.parent, "server", "localhost")
    broker = start_broker(config=tls_config(ca.parent), listen=False)
    clients = tls_clients(stack, broker)

    def serial() -> str:
        raw = secure(clients, ca)
        raw.send(connect("c1"))
        raw.expect("20 02 00 00")
        certificate = raw.socket.getpeercert()  # type: ignore[attr-defined]
        return str(certificate["serialNumber"])

    stays = secure(clients, ca)
    stays.send(connect("stays"))
    stays.expect("20 02 00 00")
    first = serial()
    make_certificate(ca.parent, "server", "localhost")
    reload(broker)
    second = serial()
    assert second != first
    make_certificate(ca.parent, "other", "localhost")
    # A certificate without its key: half of a pair.
    (ca.parent / "server.crt").write_bytes((ca.parent / "other.crt").read_bytes())
    reload(broker, 2)
    assert serial() == second
    assert "keeping the old certificate" in broker.log
    stays.expect_nothing()
