"""mosquitto.conf in our terms: what carries over, what is named, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config import Config, ConfigError, check
from broker.mosquitto_conf import DOOR, LIMITS, NEEDLESS, NOT_HONOURED, SPECIAL, TOP, Reading, read


def reading(folder: Path, text: str) -> Reading:
    path = folder / "mosquitto.conf"
    path.write_text(text)
    made = read(path)
    check(made.config, str(path))
    return made


def config(folder: Path, text: str) -> Config:
    made = reading(folder, text)
    assert made.remarks == []
    return made.config


def test_an_empty_file_listens_on_loopback_and_lets_everybody_in(tmp_path: Path) -> None:
    [listener] = config(tmp_path, "# nothing\n\n").listener
    assert (listener.kind, listener.host, listener.port) == ("tcp", "127.0.0.1", 1883)
    assert listener.allow_anonymous is True


def test_a_file_with_a_listener_lets_nobody_in_unless_it_says_so(tmp_path: Path) -> None:
    [listener] = config(tmp_path, "listener 1884\n").listener
    assert (listener.host, listener.port, listener.allow_anonymous) == ("", 1884, False)
    [listener] = config(tmp_path, "listener 1884\nallow_anonymous true\n").listener
    assert listener.allow_anonymous is True


def test_every_listener_has_its_own_lines(tmp_path: Path) -> None:
    text = """
port 1885
bind_address 192.0.2.7
max_connections 10

listener 1883 127.0.0.1
mount_point house/
max_connections -1

listener 8883
certfile c.pem
keyfile k.pem
cafile ca.pem
crlfile crl.pem
require_certificate true
use_identity_as_username true

listener 9001
protocol websockets
socket_domain ipv6

listener 9002 ::1
protocol websockets
certfile c.pem
keyfile k.pem

listener 0 /run/mqtt.sock
"""
    plain, mounted, tls, ws, wss, unix = config(tmp_path, text).listener
    assert (plain.host, plain.port, plain.max_connections) == ("192.0.2.7", 1885, 10)
    assert (mounted.host, mounted.mount_point, mounted.max_connections) == (
        "127.0.0.1",
        "house/",
        0,
    )
    assert (tls.kind, tls.host, tls.certfile, tls.keyfile) == ("tls", "", "c.pem", "k.pem")
    assert (tls.cafile, tls.crlfile) == ("ca.pem", "crl.pem")
    assert tls.require_certificate
    assert tls.use_identity_as_username
    assert (ws.kind, ws.host, ws.port, ws.ws_path) == ("ws", "::", 9001, "")
    assert (wss.kind, wss.host) == ("wss", "::1")
    assert (unix.kind, unix.path) == ("unix", "/run/mqtt.sock")


def test_limits_carry_over(tmp_path: Path) -> None:
    text = """
max_inflight_messages 20
max_queued_messages 1000
max_queued_bytes 5000000
max_packet_size 100000
max_keepalive 3600
global_max_connections 500
"""
    limits = config(tmp_path, text).limits
    assert limits.max_inflight == 20
    assert limits.max_queued_messages == 1000
    assert limits.max_queued_bytes == 5_000_000
    assert limits.max_packet_size == 100_000
    assert limits.max_keep_alive_s == 3600
    assert limits.max_connections == 500


def test_packets_have_any_size_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    assert config(tmp_path, "").limits.max_packet_size == 0
    made = reading(tmp_path, "message_size_limit 1000\n")
    assert made.config.limits.max_packet_size == 66_542
    assert len(made.remarks) == 1


def test_persistence_and_the_rest_carry_over(tmp_path: Path) -> None:
    text = """
persistence true
persistence_location /var/lib/mosquitto/
autosave_interval 1800
autosave_on_changes false
persistent_client_expiration 2w
retain_available false
allow_zero_length_clientid false
queue_qos0_messages true
sys_interval 60
set_tcp_nodelay true
pid_file /run/mosquitto.pid
log_dest file /var/log/mosquitto/mosquitto.log
log_type warning
log_type error
log_timestamp true
log_timestamp_format %Y-%m-%dT%H:%M:%S
"""
    made = config(tmp_path, text)
    assert made.persistence
    assert made.data_dir == "/var/lib/mosquitto/"
    assert made.storage.session_expiry_s == 14 * 86_400
    assert not made.retain_available
    assert not made.allow_zero_length_clientid
    assert made.queue_qos0_messages
    assert made.sys_interval_s == 60
    assert made.pid_file == "/run/mosquitto.pid"
    assert made.log_file == "/var/log/mosquitto/mosquitto.log"
    assert made.log_level == "warning"
    assert made.log_timestamp_format == "%Y-%m-%dT%H:%M:%S"


def test_passwords_and_rules_are_for_all_listeners(tmp_path: Path) -> None:
    text = "listener 1883\nlistener 1884\npassword_file pw\nacl_file acl\n"
    made = config(tmp_path, text)
    assert made.users_file == "pw"
    [entry] = made.plugin
    assert entry.use == "plugins.mosquitto_acl:MosquittoAcl"
    assert entry.settings == {"file": "acl"}
    assert made.http.allow_anonymous is False


def test_passwords_and_rules_are_for_one_listener_if_the_file_wants_it(tmp_path: Path) -> None:
    text = """
per_listener_settings true
listener 1883 127.0.0.1
allow_anonymous true
listener 1884
password_file pw
acl_file acl
"""
    made = config(tmp_path, text)
    open_door, guarded = made.listener
    assert made.users_file == ""
    assert (open_door.allow_anonymous, open_door.users_file) == (True, "")
    assert (guarded.allow_anonymous, guarded.users_file) == (False, "pw")
    [entry] = made.plugin
    assert entry.use == "plugins.per_listener:ListenerAcl"
    assert entry.settings["listeners"] == [guarded.name]


def test_included_files_are_read_in_order_where_they_stand(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "b.conf").write_text("listener 1002\n")
    (folder / "a.conf").write_text("listener 1001\n")
    (folder / "readme.txt").write_text("nonsense\n")
    made = config(tmp_path, f"listener 1000\ninclude_dir {folder}\nmount_point x/\n")
    assert [(each.port, each.mount_point) for each in made.listener] == [
        (1000, ""),
        (1001, ""),
        (1002, "x/"),
    ]


def test_what_cannot_be_honoured_is_named_once_with_its_line(tmp_path: Path) -> None:
    text = """
ciphers HIGH
plugin /usr/lib/a.so
plugin_opt_one 1
plugin_opt_two 2
upgrade_outgoing_qos false
check_retain_source true
max_inflight_bytes 10
max_inflight_bytes 20
log_dest stderr
log_dest syslog
connection other
address example.org
topic # both
remote_password hush
"""
    made = reading(tmp_path, text)
    places = [remark.partition(" is not honoured: ")[0] for remark in made.remarks]
    file = tmp_path / "mosquitto.conf"
    assert places == [
        f"{file}:2: ciphers",
        f"{file}:3: plugin",
        f"{file}:4: plugin_opt_one",
        f"{file}:7: check_retain_source",
        f"{file}:8: max_inflight_bytes",
        f"{file}:11: log_dest",
        f"{file}:12: connection",
    ]
    assert "hush" not in "".join(made.remarks)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lisener 1883", "1: 'lisener' is no directive of mosquitto.conf"),
        ("\nlistener", "2: listener: expected a whole number, got ''"),
        ("listener 70000", "1: listener: expected a number from 0 to 65535, got '70000'"),
        ("port 1x", "1: port: expected a whole number, got '1x'"),
        ("allow_anonymous yes", "1: allow_anonymous: expected true or false, got 'yes'"),
        ("protocol http", "1: protocol: expected mqtt or websockets, got 'http'"),
        ("max_packet_size 5", "1: max_packet_size: expected a number from 20 to 268435455, got"),
        ("persistent_client_expiration 5", "1: persistent_client_expiration: expected a number"),
        ("log_dest paper", "1: log_dest: expected stderr, stdout, file <path>, syslog"),
        ("log_type loud", "1: log_type: expected all or debug"),
        ("password_file", "1: password_file: expected a value, got ''"),
        ("listener 8883\ncertfile c.pem", "1: TLS needs certfile and keyfile: no keyfile"),
        ("listener 1\nper_listener_settings true", "2: per_listener_settings: must stand before"),
        ("include_dir /no/such/folder", "1: include_dir: /no/such/folder is no folder"),
        ("address example.org", "1: address: stands before any connection"),
    ],
)
def test_a_mistake_is_answered_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        reading(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'mosquitto.conf'}:{reason}")


def test_a_missing_file_and_one_that_includes_itself_get_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "none.conf")
    with pytest.raises(ConfigError, match="10 files within each other"):
        reading(tmp_path, f"include_dir {tmp_path}\n")


def test_no_directive_has_two_meanings() -> None:
    kinds = [TOP, LIMITS, DOOR, SPECIAL, NEEDLESS, NOT_HONOURED]
    names = [name for kind in kinds for name in kind]
    assert len(names) == len(set(names))
