"""`geomqtt pub` and `geomqtt sub` as processes, compared with mosquitto_pub and mosquitto_sub."""

import json
import signal
import socket
import subprocess
import sys
import time

import pytest

OURS = {
    "pub": [sys.executable, "-m", "geomqtt", "pub"],
    "sub": [sys.executable, "-m", "geomqtt", "sub"],
}
THEIRS = {"pub": ["mosquitto_pub"], "sub": ["mosquitto_sub"]}
BOTH = pytest.mark.parametrize("tool", [OURS, THEIRS], ids=["geomqtt", "mosquitto"])
TIMEOUT_S = 15

pytestmark = pytest.mark.needs("mosquitto")


def run(tool, command, broker, *arguments, stdin=b"", check=True):
    result = subprocess.run(
        [*tool[command], "-h", broker.host, "-p", str(broker.port), *arguments],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if check:
        assert result.returncode == 0, result.stderr.decode()
    return result


class Subscriber:
    """A subscribing process whose subscription stands when the constructor returns."""

    def __init__(self, tool, broker, *arguments):
        # Both take what is retained under this topic for the sign that they are subscribed.
        run(THEIRS, "pub", broker, "-t", "subscribed", "-m", "subscribed", "-r", "-q", "1")
        self.process = subprocess.Popen(
            [
                *tool["sub"], "-h", broker.host, "-p", str(broker.port),
                "-t", "subscribed", *arguments,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()

    def finish(self):
        output, errors = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, errors.decode()
        return output


@BOTH
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_a_message_travels_between_any_two_tools(broker, tool, qos):
    other = THEIRS if tool is OURS else OURS
    subscriber = Subscriber(tool, broker, "-t", "a/#", "-q", qos, "-v", "-C", "3")
    run(other, "pub", broker, "-t", "a/b", "-m", "grüße", "-q", qos)
    run(tool, "pub", broker, "-t", "a/c", "-n", "-q", qos)
    assert subscriber.finish() == "a/b grüße\na/c (null)\n".encode()


@BOTH
def test_every_line_of_stdin_is_a_message(broker, tool):
    subscriber = Subscriber(tool, broker, "-t", "lines", "-q", "1", "-C", "101")
    lines = b"".join(b"%d\n" % n for n in range(100))
    run(tool, "pub", broker, "-t", "lines", "-l", "-q", "1", stdin=lines)
    assert subscriber.finish() == lines


def test_a_last_line_without_newline_is_a_message_too(broker):
    subscriber = Subscriber(OURS, broker, "-t", "lines", "-C", "3")
    run(OURS, "pub", broker, "-t", "lines", "-l", stdin=b"one\ntwo")
    assert subscriber.finish() == b"one\ntwo\n"


def test_lines_may_come_from_a_file_or_from_nowhere(broker, tmp_path):
    (tmp_path / "lines").write_bytes(b"one\ntwo\n")
    subscriber = Subscriber(OURS, broker, "-t", "lines", "-C", "3")
    for source in (tmp_path / "lines", "/dev/null"):
        with open(source, "rb") as stdin:
            command = [*OURS["pub"], "-p", str(broker.port), "-t", "lines", "-l"]
            result = subprocess.run(
                command, stdin=stdin, capture_output=True, timeout=TIMEOUT_S, check=False
            )
        assert (result.returncode, result.stderr) == (0, b"")
    assert subscriber.finish() == b"one\ntwo\n"


@BOTH
def test_a_file_or_all_of_stdin_is_one_message(broker, tool, tmp_path):
    (tmp_path / "payload").write_bytes(b"\x00\xff\nbinary")
    subscriber = Subscriber(tool, broker, "-t", "a", "-C", "3")
    run(tool, "pub", broker, "-t", "a", "-f", str(tmp_path / "payload"), "-r")
    run(tool, "pub", broker, "-t", "a", "-s", stdin=b"x\ny\n")
    assert subscriber.finish() == b"\x00\xff\nbinary\nx\ny\n\n"
    assert run(tool, "sub", broker, "-t", "a", "-N", "-C", "1").stdout == b"\x00\xff\nbinary"


@BOTH
def test_repeat_says_how_often_in_all(broker, tool):
    subscriber = Subscriber(tool, broker, "-t", "a", "-t", "end", "-C", "5")
    run(tool, "pub", broker, "-t", "a", "-m", "x", "--repeat", "3", "--repeat-delay", "0.01")
    run(tool, "pub", broker, "-t", "end", "-m", "end")
    assert subscriber.finish() == b"x\nx\nx\nend\n"


@BOTH
def test_a_timeout_is_code_27(broker, tool):
    result = run(tool, "sub", broker, "-t", "nothing", "-W", "1", check=False)
    assert result.returncode == 27
    assert b"imed out" in result.stderr


@BOTH
def test_filtered_and_stale_messages_are_not_printed(broker, tool):
    run(tool, "pub", broker, "-t", "a/stale", "-m", "old", "-r")
    process = subprocess.Popen(
        [*tool["sub"], "-p", str(broker.port), "-t", "a/#", "-T", "a/+/out", "-R", "-C", "1", "-v"],
        stdout=subprocess.PIPE,
    )
    # It says nothing when it is subscribed, so it is told again until it has heard.
    while process.poll() is None:
        run(tool, "pub", broker, "-t", "a/x/out", "-m", "no")
        run(tool, "pub", broker, "-t", "a/x", "-m", "yes")
    assert process.communicate()[0] == b"a/x yes\n"


def test_retained_messages_can_be_read_and_removed(broker):
    run(OURS, "pub", broker, "-t", "a", "-m", "1", "-r")
    run(OURS, "pub", broker, "-t", "b", "-m", "2", "-r")
    retained = ("--retained-only", "--remove-retained", "-C", "2")
    output = run(OURS, "sub", broker, "-t", "a", "-t", "b", *retained).stdout
    assert output == b"1\n2\n"
    assert run(THEIRS, "sub", broker, "-t", "+", "-W", "1", check=False).stdout == b""


@BOTH
def test_a_session_is_kept_and_exit_comes_once_subscribed(broker, tool):
    run(tool, "sub", broker, "-t", "a", "-q", "1", "-c", "-i", "keeper", "-E")
    run(tool, "pub", broker, "-t", "a", "-m", "kept", "-q", "1")
    again = run(tool, "sub", broker, "-t", "a", "-q", "1", "-c", "-i", "keeper", "-C", "1")
    assert again.stdout == b"kept\n"
    run(tool, "sub", broker, "-U", "a", "-t", "other", "-q", "1", "-c", "-i", "keeper", "-E")
    run(tool, "pub", broker, "-t", "a", "-m", "lost", "-q", "1")
    run(tool, "pub", broker, "-t", "other", "-m", "other", "-q", "1")
    again = run(tool, "sub", broker, "-t", "other", "-q", "1", "-c", "-i", "keeper", "-C", "1")
    assert again.stdout == b"other\n"


@BOTH
@pytest.mark.parametrize(
    "text", ["%t|%p|%l|%q|%r|%m|%%", r"%x\t%X\\@Y@@", "%p%p", "plain", "%t %S%R"]
)
def test_formats_print_the_same(broker, tool, text):
    run(tool, "pub", broker, "-t", "a/b", "-m", "hi+", "-r", "-q", "1")
    ours = run(OURS, "sub", broker, "-t", "a/b", "-C", "1", "-q", "1", "-F", text).stdout
    theirs = run(THEIRS, "sub", broker, "-t", "a/b", "-C", "1", "-q", "1", "-F", text).stdout
    assert ours == theirs


def test_json_has_the_same_keys_and_values(broker):
    run(OURS, "pub", broker, "-t", "a/b", "-m", '{"x": 1}', "-r", "-q", "1")
    for text in ("%j", "%J"):
        arguments = ("-t", "a/b", "-C", "1", "-q", "1", "-F", text)
        ours = json.loads(run(OURS, "sub", broker, *arguments).stdout)
        theirs = json.loads(run(THEIRS, "sub", broker, *arguments).stdout)
        assert ours.keys() == theirs.keys()
        assert ours.pop("tst")[:13] <= theirs.pop("tst")[:13]  # to the hour
        assert ours == theirs


@BOTH
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_subscriber_in_peace(broker, tool, number):
    subscriber = Subscriber(
        tool, broker, "-i", "leaving", "--will-topic", "will", "--will-payload", "x"
    )
    subscriber.process.send_signal(number)
    assert subscriber.finish() == b""
    deadline = time.monotonic() + TIMEOUT_S
    while "'leaving'" not in broker.log.rpartition("gone")[0]:
        assert time.monotonic() < deadline
    result = run(tool, "sub", broker, "-t", "will", "-W", "1", check=False)
    assert result.stdout == b""


def test_a_url_names_everything(broker):
    subscriber = Subscriber(OURS, broker, "-L", f"{broker.url}/a/#", "-v", "-C", "2")
    command = [*OURS["pub"], "-L", f"{broker.url}/a/b", "-m", "x"]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    assert subscriber.finish() == b"a/b x\n"


def test_the_tools_speak_websocket(start_broker):
    broker = start_broker(config='[[listener]]\nkind = "ws"\nhost = "127.0.0.1"\nport = 0\n')
    port = str(broker.address("ws")[1])
    subscriber = Subscriber(OURS, broker, "-t", "a", "-C", "2")
    command = [*OURS["pub"], "-h", "127.0.0.1", "-p", port, "--ws", "-t", "a", "-m", "x", "-q", "2"]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    assert subscriber.finish() == b"x\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("pub", "-m", "x"), "no topic given: use -t"),
        (("pub", "-t", "a"), "nothing to publish: use -m, -f, -l, -n or -s"),
        (("pub", "-t", "a/#", "-m", "x"), "topic 'a/#' holds a wildcard"),
        (("pub", "-t", "a", "-f", "/nowhere"), "-f /nowhere: No such file or directory"),
        (("sub",), "no topic filter given: use -t"),
        (("sub", "-t", "a", "-c"), "-c needs a client id: give one with -i"),
        (("sub", "-t", "a", "-P", "x"), "-P needs a user name: give one with -u"),
        (("sub", "-t", "a", "-F", "%k"), "format has an unknown conversion %k"),
        (("sub", "-t", "a", "--cert", "x"), "TLS needs --cafile, --capath or --tls-use-os-certs"),
        (("sub", "-L", "http://x/a"),
         "-L http://x/a: expected mqtt://, mqtts://, ws://, wss:// and a host"),
    ],
)  # fmt: skip
def test_a_users_mistake_is_one_line_and_code_1(broker, arguments, reason):
    result = subprocess.run(
        [*OURS[arguments[0]], "-p", str(broker.port), *arguments[1:]],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.stderr.decode() == f"geomqtt {arguments[0]}: {reason}\n"
    assert (result.returncode, result.stdout) == (1, b"")


def test_nobody_at_the_port_is_one_line_and_code_1(broker):
    broker.stop()
    result = run(OURS, "pub", broker, "-t", "a", "-m", "x", check=False)
    assert result.stderr.decode() == (f"geomqtt pub: 127.0.0.1:{broker.port}: connection refused\n")
    assert result.returncode == 1


@pytest.mark.parametrize(
    ("code", "reason"), [(4, "bad user name or password"), (5, "not authorised")]
)
def test_a_refused_connection_is_one_line_and_the_brokers_code(code, reason):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [*OURS["sub"], "-h", "127.0.0.1", "-p", str(port), "-t", "a"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1000)[0] == 0x10
            connection.sendall(bytes((0x20, 2, 0, code)))
            _, errors = process.communicate(timeout=TIMEOUT_S)
    assert errors.decode() == f"geomqtt sub: connection refused: {reason} (code {code})\n"
    assert process.returncode == code


def test_user_and_password_and_will_are_sent():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = subprocess.Popen(
            [
                *OURS["pub"], "-L", f"mqtt://us%65r:pass@127.0.0.1:{port}/a", "-m", "x",
                "-i", "c1", "-k", "7", "--will-topic", "w", "--will-payload", "gone",
                "--will-qos", "1", "--will-retain",
            ]
        )  # fmt: skip
        connection, _ = server.accept()
        with connection:
            connect = connection.recv(1000)
            connection.sendall(bytes.fromhex("20 02 00 00"))
            assert process.wait(TIMEOUT_S) == 0
            rest = connection.recv(1000)
    assert connect.hex(" ") == (
        "10 23 00 04 4d 51 54 54 04 ee 00 07 00 02 63 31 00 01 77 00 04 67 6f 6e 65"
        " 00 04 75 73 65 72 00 04 70 61 73 73"
    )
    assert rest.hex(" ") == "30 04 00 01 61 78 e0 00"


def test_the_reader_of_the_output_may_leave(broker):
    subscriber = Subscriber(OURS, broker, "-t", "a")
    assert subscriber.process.stdout is not None
    subscriber.process.stdout.close()
    run(OURS, "pub", broker, "-t", "a", "-m", "x", "-q", "1")
    assert subscriber.process.wait(TIMEOUT_S) == 0
    assert subscriber.process.stderr is not None
    assert subscriber.process.stderr.read() == b""
