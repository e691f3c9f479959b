"""A Mosquitto user switches: the same files, the same clients, and the same rights."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from broker.config import load
from tests.conformance.raw import Clients, clients_of, connect, publish_with, subscribe_with
from tests.conftest import RunningBroker, StartBroker
from tests.integration.certificates import make_ca, make_certificate

CONF = """
# Place your local configuration in /etc/mosquitto/conf.d/
pid_file {folder}/mosquitto.pid
persistence true
persistence_location {folder}/lib/
log_dest file {folder}/mosquitto.log
log_type all
include_dir {folder}/conf.d
"""
LOCAL = """
password_file {folder}/passwd
acl_file {folder}/acl
max_inflight_messages 20
max_queued_messages 1000
persistent_client_expiration 1d
sys_interval 1
upgrade_outgoing_qos true

listener 0 127.0.0.1

listener 0 127.0.0.1
cafile {folder}/pki/ca.crt
certfile {folder}/pki/server.crt
keyfile {folder}/pki/server.key

listener 0 127.0.0.1
cafile {folder}/pki/ca.crt
certfile {folder}/pki/server.crt
keyfile {folder}/pki/server.key
require_certificate true
use_identity_as_username true
mount_point devices/
"""
ACL = """
user ann
topic readwrite #
topic read $SYS/#

user sensor
topic write readings/%

pattern write from/%u/#
pattern read to/%u/#
pattern readwrite devices/%u/#
"""


def mosquitto_hash(password: str) -> str:
    """Hash as mosquitto_passwd does."""
    salt = b"salt of 12 b"
    made = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
    return f"$7$101${base64.b64encode(salt).decode()}${base64.b64encode(made).decode()}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Lay out the files of a Mosquitto installation."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "lib").mkdir()
    make_ca(tmp_path / "pki")
    make_certificate(tmp_path / "pki", "server", "localhost")
    make_certificate(tmp_path / "pki", "device", "pump")
    (tmp_path / "mosquitto.conf").write_text(CONF.format(folder=tmp_path))
    (tmp_path / "conf.d" / "local.conf").write_text(LOCAL.format(folder=tmp_path))
    users = {"ann": "a", "sensor": "s"}
    (tmp_path / "passwd").write_text(
        "".join(f"{user}:{mosquitto_hash(password)}\n" for user, password in users.items())
    )
    (tmp_path / "acl").write_text(ACL.replace("readings/%", "readings/#"))
    return tmp_path


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=30, check=False
    )


class Installation:
    """The broker, its three doors, and mosquitto's clients."""

    def __init__(self, broker: RunningBroker, folder: Path) -> None:
        self.broker = broker
        pki = folder / "pki"
        ann = ("-u", "ann", "-P", "a")
        secure = ("--cafile", str(pki / "ca.crt"))
        own = ("--cert", str(pki / "device.crt"), "--key", str(pki / "device.key"))
        ports = [address.rpartition(":")[2] for address in broker.addresses["tls"]]
        # mosquitto's clients check the name that they connect to.
        self.plain = ("-h", "127.0.0.1", "-p", str(broker.port))
        self.ann = (*self.plain, *ann)
        self.tls = ("-h", "localhost", "-p", ports[0], *secure)
        self.device = ("-h", "localhost", "-p", ports[1], *secure, *own)


def messages(*arguments: str, count: int) -> list[str]:
    """Take what waits for a persistent session that `subscribed` made."""
    wanted = ("-W", "20", "-v", "-c", "-q", "1", "-C", str(count))
    return run("mosquitto_sub", *arguments, *wanted).stdout.splitlines()


def subscribed(*arguments: str) -> tuple[str, ...]:
    """Subscribe with a persistent session, and go."""
    assert run("mosquitto_sub", *arguments, "-c", "-q", "1", "-E", "-W", "20").returncode == 0
    return arguments


@pytest.fixture(params=["mosquitto.conf", "converted"])
def installation(
    request: pytest.FixtureRequest, start_broker: StartBroker, folder: Path
) -> Installation:
    """Run the broker with the file as it is, or with what convert-config makes of it."""
    if request.param == "mosquitto.conf":
        broker = start_broker("--mosquitto-conf", str(folder / "mosquitto.conf"), listen=False)
    else:
        made = convert(folder)
        assert made.returncode == 0, made.stderr
        broker = start_broker("--config", str(folder / "geomqtt.toml"), listen=False)
    return Installation(broker, folder)


def convert(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "geomqtt", "convert-config", str(folder / "mosquitto.conf"))
    return run(*command, "-o", str(folder / "geomqtt.toml"), *arguments)


@pytest.mark.needs("mosquitto")
@pytest.mark.needs("mosquitto")
def test_users_rules_tls_and_mount_points_work_as_they_did(
    installation: Installation, folder: Path
) -> None:
    door = installation
    log = folder / "mosquitto.log"
    everything = subscribed(*door.ann, "-i", "all", "-t", "#")
    # Nobody comes in without a password, in the clear or through TLS.
    assert run("mosquitto_pub", *door.plain, "-t", "t", "-m", "x").returncode == 5
    assert run("mosquitto_pub", *door.tls, "-t", "t", "-m", "x").returncode == 5
    wrong = ("-u", "ann", "-P", "wrong")
    assert run("mosquitto_pub", *door.plain, *wrong, "-t", "t", "-m", "x").returncode == 5
    sensor = (*door.tls, "-u", "sensor", "-P", "s")
    for topic in ("secret", "readings/1", "from/ann/1", "from/sensor/1"):
        assert run("mosquitto_pub", *sensor, "-t", topic, "-m", "x", "-q", "1").returncode == 0
    # The certificate is the user, and its clients live below the mount point.
    mine = subscribed(*door.device, "-i", "mine", "-t", "pump/#")
    assert run("mosquitto_pub", *door.device, "-t", "pump/on", "-m", "1", "-q", "1").returncode == 0
    assert messages(*mine, count=1) == ["pump/on 1"]
    assert messages(*everything, count=3) == [
        "readings/1 x",
        "from/sensor/1 x",
        "devices/pump/on 1",
    ]
    text = log.read_text()
    assert "Traceback" not in text
    assert "internal error" not in text


def test_what_is_not_honoured_is_named_once_at_start(
    start_broker: StartBroker, folder: Path
) -> None:
    broker = start_broker("--mosquitto-conf", str(folder / "mosquitto.conf"), listen=False)
    text = (folder / "mosquitto.log").read_text()
    assert text.count("upgrade_outgoing_qos is not honoured") == 1
    assert text.count("is not honoured") == 1
    assert (folder / "mosquitto.pid").read_text() == f"{broker.process.pid}\n"
    broker.stop()
    assert not (folder / "mosquitto.pid").exists()


@pytest.mark.parametrize("option", ["", "per_listener_settings true\n"])
@pytest.mark.needs("mosquitto")
def test_listeners_may_have_passwords_and_rules_of_their_own(
    start_broker: StartBroker, folder: Path, option: str
) -> None:
    text = (
        f"{option}listener 0 127.0.0.1\nallow_anonymous true\n"
        "listener 0 127.0.0.1\nallow_anonymous false\n"
        f"password_file {folder}/passwd\nacl_file {folder}/acl\n"
    )
    (folder / "own.conf").write_text(text)
    broker = start_broker("--mosquitto-conf", str(folder / "own.conf"), listen=False)
    ports = [int(address.rpartition(":")[2]) for address in broker.addresses["mqtt"]]
    with clients_of("127.0.0.1", ports[0]) as first, clients_of("127.0.0.1", ports[1]) as second:
        refuses(second)
        if not option:
            refuses(first)  # the last line counts for all
            return
        anonymous = first.connect("anonymous")
        subscribe_with(anonymous, "#", 1)
        sensor = second.connect("sensor", username="sensor", password="s")
        publish_with(sensor, "secret", "x")
        publish_with(sensor, "readings/1", "y")
        anonymous.expect('32 0f 00 0a "readings/1" 00 01 "y"')
        publish_with(anonymous, "anything", "goes")


def refuses(clients: Clients) -> None:
    raw = clients.raw()
    raw.send(connect("stranger"))
    raw.expect("20 02 00 05")
    raw.expect_close()


def test_a_mistake_is_one_line_and_exit_code_2(folder: Path) -> None:
    (folder / "conf.d" / "local.conf").write_text("\nlisten 1883\n")
    command = (sys.executable, "-m", "geomqtt")
    serve = run(*command, "serve", "--mosquitto-conf", str(folder / "mosquitto.conf"))
    line = f"geomqtt: {folder}/conf.d/local.conf:2: 'listen' is no directive of mosquitto.conf\n"
    for result in (serve, convert(folder)):
        assert (result.returncode, result.stdout, result.stderr) == (2, "", line)


def test_a_broken_acl_file_is_one_line_and_exit_code_2(folder: Path) -> None:
    (folder / "acl").write_text("user ann\ntopics #\n")
    serve = (sys.executable, "-m", "geomqtt", "serve", "--no-log", "--http-port", "0")
    result = run(*serve, "--mosquitto-conf", str(folder / "mosquitto.conf"))
    line = f"geomqtt: ACL file {folder}/acl:2: expected user, topic or pattern, not 'topics'\n"
    assert (result.returncode, result.stderr) == (2, line)


def test_convert_config_writes_rules_beside_and_replaces_nothing_unasked(folder: Path) -> None:
    made = convert(folder)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines() == [f"{folder}/geomqtt-acl.toml", f"{folder}/geomqtt.toml"]
    assert "upgrade_outgoing_qos is not honoured" in made.stderr
    config = load(folder / "geomqtt.toml")
    assert config.acl_file == f"{folder}/geomqtt-acl.toml"
    assert config.users_file == f"{folder}/passwd"
    assert [each.kind for each in config.listener] == ["tcp", "tls", "tls"]
    assert config.listener[2].mount_point == "devices/"
    assert config.storage.session_expiry_s == 86_400
    again = convert(folder)
    assert again.returncode == 2
    assert "exists: use --force" in again.stderr
    assert convert(folder, "--force").returncode == 0
