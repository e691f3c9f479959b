"""Clients nobody here wrote: paho, aiomqtt, amqtt, MQTT.js and mosquitto_pub/sub.

Each of them exchanges messages of every quality with itself over every transport it can:
TCP, TLS, WebSocket and secure WebSocket. Two of them then talk to each other.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import aiomqtt
import paho.mqtt.client as paho
import pytest
from amqtt.client import MQTTClient

from tests.conformance.certificates import Certificates
from tests.conftest import RunningBroker

TIMEOUT_S = 20
ROOT = Path(__file__).parents[2]
TRANSPORTS = ["mqtt", "tls", "ws", "wss"]

_numbers = count(1)


class Doors:
    """A broker with a listener of every kind, and the certificates to come in."""

    def __init__(self, broker: RunningBroker, certificates: Certificates) -> None:
        self.broker = broker
        self.certificates = certificates

    def port(self, transport: str) -> int:
        return self.broker.address(transport)[1]

    def secure(self, transport: str) -> bool:
        return transport in ("tls", "wss")

    def web(self, transport: str) -> bool:
        return transport in ("ws", "wss")


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("doors")
    certificates = Certificates(folder / "certificates")
    config = folder / "geomqtt.toml"
    config.write_text(
        '[[listener]]\nport = 0\n[[listener]]\nkind = "ws"\nport = 0\n'
        + certificates.listener("tls")
        + certificates.listener("wss")
    )
    command = [sys.executable, "-m", "geomqtt", "serve", "--config", str(config)]
    command += ["--data", str(folder / "data"), "--http-port", "0", "--no-log"]
    with (folder / "stderr").open("wb") as sink:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, cwd=folder)
    running = RunningBroker(process, folder / "data", folder / "stderr")
    yield Doors(running, certificates)
    running.stop()


@pytest.fixture
def prefix() -> str:
    """Give a topic level that no other test uses."""
    return f"clients{next(_numbers)}"


# paho-mqtt


class Paho:
    """paho's client with its callbacks turned into queues."""

    def __init__(self, doors: Doors, transport: str, *, clean: bool = True, name: str = "") -> None:
        self.messages: queue.Queue[tuple[str, bytes, int, bool]] = queue.Queue()
        self._events: queue.Queue[object] = queue.Queue()
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=name,
            clean_session=clean,
            protocol=paho.MQTTv311,
            transport="websockets" if doors.web(transport) else "tcp",
        )
        if doors.web(transport):
            self.client.ws_set_options(path="/mqtt")
        if doors.secure(transport):
            self.client.tls_set_context(doors.certificates.context())
        self.client.on_message = lambda c, u, m: self.messages.put(
            (m.topic, m.payload, m.qos, m.retain)
        )
        self.client.on_connect = lambda c, u, flags, code, p: self._events.put(
            (flags.session_present, code.value)
        )
        self.client.on_subscribe = lambda c, u, mid, codes, p: self._events.put(
            [code.value for code in codes]
        )
        self._address = (
            "localhost" if doors.secure(transport) else "127.0.0.1",
            doors.port(transport),
        )

    def __enter__(self) -> Paho:
        self.client.connect(*self._address, keepalive=30)
        self.client.loop_start()
        self.session_present, code = self._events.get(timeout=TIMEOUT_S)  # type: ignore[misc]
        assert code == 0
        return self

    def __exit__(self, *failure: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self.client.subscribe(topic_filter, qos)
        assert self._events.get(timeout=TIMEOUT_S) == [qos]

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos, retain).wait_for_publish(TIMEOUT_S)

    def receive(self) -> tuple[str, bytes, int, bool]:
        return self.messages.get(timeout=TIMEOUT_S)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_paho_exchanges_messages_of_every_quality(
    doors: Doors, prefix: str, transport: str
) -> None:
    with Paho(doors, transport) as client:
        client.subscribe(f"{prefix}/#", 2)
        for qos in (0, 1, 2):
            client.publish(f"{prefix}/{qos}", b"hi", qos)
            assert client.receive() == (f"{prefix}/{qos}", b"hi", qos, False)
        client.publish(f"{prefix}/large", b"x" * 300_000, 1)
        assert client.receive() == (f"{prefix}/large", b"x" * 300_000, 1, False)
        assert client.messages.empty()


def test_paho_finds_its_session_again(doors: Doors, prefix: str) -> None:
    with Paho(doors, "mqtt", clean=False, name=prefix) as client:
        assert not client.session_present
        client.subscribe(prefix, 2)
    with Paho(doors, "mqtt") as other:
        for number in range(10):
            other.publish(prefix, str(number).encode(), number % 2 + 1)
    with Paho(doors, "mqtt", clean=False, name=prefix) as client:
        assert client.session_present
        got = [client.receive() for _ in range(10)]
        # paho shows a QoS 2 message when it is released, so order holds for each QoS alone.
        for qos in (1, 2):
            numbers = [int(payload) for _, payload, its_qos, _ in got if its_qos == qos]
            assert numbers == list(range(qos - 1, 10, 2))
    with Paho(doors, "mqtt", clean=True, name=prefix):
        pass


# aiomqtt


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_aiomqtt_exchanges_messages_of_every_quality(
    doors: Doors, prefix: str, transport: str
) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with aiomqtt.Client(
            "localhost" if doors.secure(transport) else "127.0.0.1",
            doors.port(transport),
            transport="websockets" if doors.web(transport) else "tcp",
            websocket_path="/mqtt" if doors.web(transport) else None,
            tls_context=doors.certificates.context() if doors.secure(transport) else None,
            protocol=aiomqtt.ProtocolVersion.V311,
        ) as client:
            await client.subscribe(f"{prefix}/#", qos=2)
            for qos in (0, 1, 2):
                await client.publish(f"{prefix}/{qos}", "hi", qos=qos)
            got = []
            async for message in client.messages:
                got.append((str(message.topic), message.payload, message.qos))
                if len(got) == 3:
                    break
            assert sorted(got) == [(f"{prefix}/{qos}", b"hi", qos) for qos in (0, 1, 2)]


# amqtt


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_amqtts_client_exchanges_messages_of_every_quality(
    doors: Doors, prefix: str, transport: str
) -> None:
    scheme = {"mqtt": "mqtt", "tls": "mqtts", "ws": "ws", "wss": "wss"}[transport]
    host = "localhost" if doors.secure(transport) else "127.0.0.1"
    path = "/mqtt" if doors.web(transport) else "/"
    client = MQTTClient(config={"auto_reconnect": False, "check_hostname": True})
    async with asyncio.timeout(TIMEOUT_S):
        await client.connect(
            f"{scheme}://{host}:{doors.port(transport)}{path}",
            cafile=str(doors.certificates.ca) if doors.secure(transport) else None,
        )
        assert await client.subscribe([(f"{prefix}/#", 2)]) == [2]
        for qos in (0, 1, 2):
            await client.publish(f"{prefix}/{qos}", b"hi", qos)
            message = await client.deliver_message()
            assert message is not None
            assert (message.topic, bytes(message.data), message.qos) == (
                f"{prefix}/{qos}",
                b"hi",
                qos,
            )
        await client.unsubscribe([f"{prefix}/#"])
        await client.ping()
        await client.disconnect()


# MQTT.js


@pytest.mark.needs("mqttjs")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_mqttjs_exchanges_messages_of_every_quality(
    doors: Doors, prefix: str, transport: str
) -> None:
    modules = ROOT / ".tools" / "node" / "node_modules"
    scheme = {"mqtt": "mqtt", "tls": "mqtts", "ws": "ws", "wss": "wss"}[transport]
    path = "/mqtt" if doors.web(transport) else ""
    command = ["node", str(Path(__file__).parent / "mqttjs.cjs")]
    command += [f"{scheme}://localhost:{doors.port(transport)}{path}", prefix]
    if doors.secure(transport):
        command.append(str(doors.certificates.ca))
    environment = os.environ | {"NODE_PATH": str(modules)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"sessionPresent": False},
        [[f"{prefix}/#", 2]],
        [f"{prefix}/0", "q0", 0, False],
        [f"{prefix}/1", "q1", 1, False],
        [f"{prefix}/2", "q2", 2, False],
        [f"{prefix}/large", "x" * 100_000, 1, False],
    ]


# mosquitto_pub and mosquitto_sub


def mosquitto(doors: Doors, program: str, transport: str, *arguments: str) -> list[str]:
    """Build a command line of mosquitto-clients."""
    command = [program, "-p", str(doors.port(transport))]
    if doors.secure(transport):
        command += ["-h", "localhost", "--cafile", str(doors.certificates.ca)]
    else:
        command += ["-h", "127.0.0.1"]
    return [*command, *arguments]


@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize("version", ["mqttv31", "mqttv311"])
@pytest.mark.parametrize("transport", ["mqtt", "tls"])
def test_mosquitto_clients_exchange_messages(
    doors: Doors, prefix: str, transport: str, version: str
) -> None:
    """A retained message first, so that the subscriber tells when it is there."""
    for qos in ("0", "1", "2"):
        publish = ("-V", version, "-t", f"{prefix}/{qos}", "-q", qos, "-i", f"{prefix}-pub")
        subprocess.run(
            mosquitto(doors, "mosquitto_pub", transport, *publish, "-r", "-m", "retained"),
            check=True,
            timeout=TIMEOUT_S,
        )
        subscribe = ("-V", version, "-t", f"{prefix}/{qos}", "-q", "2", "-i", f"{prefix}-sub")
        subscriber = subprocess.Popen(
            mosquitto(
                doors, "mosquitto_sub", transport, *subscribe, "-C", "2", "-F", "%t %q %r %p"
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert subscriber.stdout is not None
        with subscriber:
            assert subscriber.stdout.readline() == f"{prefix}/{qos} {qos} 1 retained\n"
            subprocess.run(
                mosquitto(doors, "mosquitto_pub", transport, *publish, "-m", "live"),
                check=True,
                timeout=TIMEOUT_S,
            )
            assert subscriber.stdout.readline() == f"{prefix}/{qos} {qos} 0 live\n"
            assert subscriber.wait(TIMEOUT_S) == 0


@pytest.mark.needs("mosquitto")
def test_mosquitto_clients_speaking_mqtt_5_are_told_that_it_is_not_served(
    doors: Doors, prefix: str
) -> None:
    done = subprocess.run(
        mosquitto(doors, "mosquitto_pub", "mqtt", "-V", "mqttv5", "-t", prefix, "-m", "x"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode != 0
    assert "protocol version" in done.stderr.lower()


@pytest.mark.needs("mosquitto")
def test_mosquitto_and_paho_talk_to_each_other(doors: Doors, prefix: str) -> None:
    with Paho(doors, "wss") as client:
        client.subscribe(f"{prefix}/#", 1)
        lines = "".join(f"{number}\n" for number in range(200))
        subprocess.run(
            mosquitto(doors, "mosquitto_pub", "tls", "-t", f"{prefix}/x", "-q", "1", "-l"),
            input=lines,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        )
        got = [client.receive()[1].decode() for _ in range(200)]
        assert got == [str(number) for number in range(200)]
