"""The client library against the real daemon, and beside clients we did not write."""

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

import geomqtt

TIMEOUT_S = 20


async def take(client: geomqtt.Client, count: int) -> list[geomqtt.Message]:
    messages = []
    async with asyncio.timeout(TIMEOUT_S):
        async for message in client.messages:
            messages.append(message)
            if len(messages) == count:
                return messages
    raise AssertionError(f"the client ended after {len(messages)} messages")


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_is_published_arrives_at_the_asked_qos(broker, qos):
    async with geomqtt.Client(broker.host, broker.port) as client:
        assert await client.subscribe("node/#", qos=qos) == (qos,)
        await client.publish("node/7/temperature", b"21", qos=qos)
        [message] = await take(client, 1)
    assert (message.topic, message.payload) == ("node/7/temperature", b"21")
    assert (message.qos, message.retain) == (qos, False)


async def test_several_filters_are_granted_their_own_qos(broker):
    async with geomqtt.Client(broker.host, broker.port) as client:
        assert await client.subscribe(["a", ("b", 2), ("c/#", 0)], qos=1) == (1, 2, 0)


async def test_a_retained_message_says_so(broker):
    async with geomqtt.Client(broker.host, broker.port) as client:
        await client.publish("state", "on", qos=1, retain=True)
        await client.subscribe("state")
        [message] = await take(client, 1)
    assert (message.payload, message.retain) == (b"on", True)


async def test_an_unsubscribed_filter_brings_nothing_more(broker):
    async with geomqtt.Client(broker.host, broker.port) as client:
        await client.subscribe(["a", "b"])
        await client.unsubscribe("a")
        await client.publish("a", b"1")
        await client.publish("b", b"2")
        [message] = await take(client, 1)
    assert message.topic == "b"


async def test_a_thousand_concurrent_publishes_arrive_in_order(broker):
    async with geomqtt.Client(broker.host, broker.port) as client:
        await client.subscribe("n", qos=2)
        await asyncio.gather(*(client.publish("n", b"%d" % n, qos=2) for n in range(1000)))
        messages = await take(client, 1000)
    assert [int(message.payload) for message in messages] == list(range(1000))


async def test_a_loop_of_qos_0_publishes_that_never_suspends_is_sent_all_the_same(broker):
    payload = bytes(1000)
    async with (
        geomqtt.Client(broker.host, broker.port) as publisher,
        geomqtt.Client(broker.host, broker.port, max_queued_messages=100) as subscriber,
    ):
        await subscriber.subscribe("flood")
        taking = asyncio.create_task(take(subscriber, 2000))
        for _ in range(2000):
            await publisher.publish("flood", payload)
        assert len(await taking) == 2000


async def test_iteration_ends_when_the_client_is_disconnected(broker):
    client = geomqtt.Client(broker.host, broker.port)
    await client.connect()
    await client.subscribe("a")
    await client.publish("a", b"last", qos=1)
    await take(client, 1)
    await client.disconnect()
    assert [message async for message in client.messages] == []
    with pytest.raises(geomqtt.ConnectionLost, match="the client is disconnected"):
        await client.publish("a", b"")
    await client.disconnect()  # again is harmless


async def test_a_persistent_session_keeps_what_came_while_its_client_was_away(broker):
    def make() -> geomqtt.Client:
        return geomqtt.Client(broker.host, broker.port, "keeper", clean_session=False)

    async with make() as client:
        assert not client.session_present
        await client.subscribe("a", qos=1)
    async with geomqtt.Client(broker.host, broker.port) as other:
        await other.publish("a", b"while you were away", qos=1)
    async with make() as client:
        assert client.session_present
        [message] = await take(client, 1)
    assert message.payload == b"while you were away"


async def test_the_will_is_published_for_a_client_that_is_cut_off(broker):
    will = geomqtt.Will("gone", "c1", qos=1)
    async with geomqtt.Client(broker.host, broker.port) as watcher:
        await watcher.subscribe("gone", qos=1)
        # Somebody takes the client id over: the first one never says goodbye.
        async with (
            geomqtt.Client(broker.host, broker.port, "c1", will=will, reconnect=False),
            geomqtt.Client(broker.host, broker.port, "c1"),
        ):
            [message] = await take(watcher, 1)
    assert message.payload == b"c1"


async def test_a_client_that_must_not_reconnect_ends_with_the_connection(broker):
    async with (
        geomqtt.Client(broker.host, broker.port, "c1", reconnect=False) as client,
        geomqtt.Client(broker.host, broker.port, "c1"),
    ):
        with pytest.raises(geomqtt.ConnectionLost, match="closed by the broker"):
            await take(client, 1)
        with pytest.raises(geomqtt.ConnectionLost):
            await client.subscribe("a")


async def test_nobody_at_the_address_is_said_in_one_line(broker):
    broker.stop()
    with pytest.raises(geomqtt.CannotConnect) as caught:
        await geomqtt.Client(broker.host, broker.port).connect()
    assert str(caught.value) == f"127.0.0.1:{broker.port}: connection refused"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("a/+", b""), "wildcard"),
        (("", b""), "empty"),
        (("a\x00b", b""), "control"),
        (("a", b"", 3), "QoS"),
    ],
)
async def test_what_cannot_be_published_is_refused_before_it_is_sent(broker, arguments, reason):
    async with geomqtt.Client(broker.host, broker.port) as client:
        with pytest.raises(ValueError, match=reason):
            await client.publish(*arguments)
        with pytest.raises(ValueError, match="wildcard inside a level"):
            await client.subscribe("a/b+")
        assert client.connected


async def test_a_refused_subscription_names_its_filter(broker):
    async with geomqtt.Client(broker.host, broker.port) as client:
        with pytest.raises(geomqtt.SubscribeError) as caught:
            await client.subscribe(["fine", "$geo/covers=NOTHING/a"], qos=1)
    assert caught.value.filter == "$geo/covers=NOTHING/a"
    assert caught.value.granted == (1, 0x80)


async def test_a_persistent_session_without_client_id_is_refused_at_once():
    with pytest.raises(ValueError, match="client id"):
        geomqtt.Client("localhost", clean_session=False)


async def test_an_mqtt_3_1_client_is_served(broker):
    async with geomqtt.Client(broker.host, broker.port, "old", version="3.1") as client:
        await client.subscribe("a")
        await client.publish("a", b"x")
        assert len(await take(client, 1)) == 1


async def test_pings_keep_a_silent_client_connected(start_broker):
    broker = start_broker()
    async with (
        geomqtt.Client(broker.host, broker.port, "quiet", keep_alive_s=1, reconnect=False) as quiet,
        geomqtt.Client(broker.host, broker.port) as other,
    ):
        await quiet.subscribe("a")
        # Twice as long as the broker waits for a client with this keep-alive.
        await asyncio.sleep(3)
        await other.publish("a", b"still there?")
        assert len(await take(quiet, 1)) == 1


async def test_a_full_queue_makes_the_broker_wait_and_loses_no_acknowledged_message(broker):
    async with (
        geomqtt.Client(broker.host, broker.port, max_queued_messages=10) as slow,
        geomqtt.Client(broker.host, broker.port) as publisher,
    ):
        await slow.subscribe("n", qos=1)
        payload = bytes(100_000)
        for _ in range(300):
            await publisher.publish("n", payload, qos=1)
        # Not all of it fits into the sockets' buffers, so some of it is still at the broker.
        assert len(slow.messages) < 300
        # A call that needs an answer gets it, though it stands behind all those messages.
        await slow.publish("other", b"", qos=1)
        assert len(await take(slow, 300)) == 300
        assert slow.dropped == 0


async def test_a_websocket_carries_the_same(start_broker):
    broker = start_broker(config='[[listener]]\nkind = "ws"\nhost = "127.0.0.1"\nport = 0\n')
    host, port = broker.address("ws")
    async with geomqtt.Client(host, port, transport="websocket") as client:
        await client.subscribe("a", qos=2)
        await client.publish("a", bytes(100_000), qos=2)
        [message] = await take(client, 1)
    assert message.payload == bytes(100_000)


async def test_a_wrong_websocket_path_is_said_in_one_line(start_broker):
    broker = start_broker(config='[[listener]]\nkind = "ws"\nhost = "127.0.0.1"\nport = 0\n')
    host, port = broker.address("ws")
    with pytest.raises(geomqtt.CannotConnect, match="404"):
        await geomqtt.Client(host, port, transport="websocket", ws_path="/other").connect()


async def test_a_port_that_speaks_no_websocket_is_said_in_one_line(broker):
    client = geomqtt.Client(broker.host, broker.port, transport="websocket")
    with pytest.raises(geomqtt.CannotConnect):
        await client.connect()


async def test_a_unix_socket_carries_the_same(start_broker, tmp_path):
    path = tmp_path / "socket"
    start_broker(config=f'[[listener]]\nkind = "unix"\npath = "{path}"\n')
    async with geomqtt.Client(str(path), transport="unix") as client:
        await client.subscribe("a")
        await client.publish("a", b"x")
        assert len(await take(client, 1)) == 1


async def test_a_client_outlives_a_broker_that_is_killed_and_started_again(start_broker):
    broker = start_broker()
    async with (
        geomqtt.Client(
            broker.host, broker.port, "s", clean_session=False, reconnect_min_s=0.05
        ) as subscriber,
        geomqtt.Client(
            broker.host, broker.port, "p", clean_session=False, reconnect_min_s=0.05
        ) as publisher,
    ):
        await subscriber.subscribe("n", qos=2)
        before = [publisher.publish("n", b"%d" % n, qos=2) for n in range(100)]
        await asyncio.gather(*before)
        broker.kill()
        during = asyncio.gather(
            *(publisher.publish("n", b"%d" % n, qos=2) for n in range(100, 200))
        )
        start_broker(data=broker.data, port=broker.port)
        await during
        messages = await take(subscriber, 200)
        assert sorted(int(message.payload) for message in messages) == list(range(200))
        await publisher.publish("n", b"last", qos=2)
        [message] = await take(subscriber, 1)
        assert message.payload == b"last"  # and nothing came twice before it


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    """A certificate for localhost that is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@pytest.mark.parametrize(("kind", "transport"), [("tls", "tcp"), ("wss", "websocket")])
async def test_tls_carries_the_same(start_broker, certificate, kind, transport):
    cert, key = certificate
    broker = start_broker(
        config=f'[[listener]]\nkind = "{kind}"\nhost = "127.0.0.1"\nport = 0\n'
        f'certfile = "{cert}"\nkeyfile = "{key}"\n'
    )
    host, port = broker.address(kind)
    trusting = ssl.create_default_context(cafile=str(cert))
    async with geomqtt.Client(host, port, tls=trusting, transport=transport) as client:
        await client.subscribe("a", qos=1)
        await client.publish("a", bytes(50_000), qos=1)
        assert len(await take(client, 1)) == 1
        publisher = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "geomqtt", "pub", "-h", "localhost", "-p", str(port),
            "--cafile", str(cert), *(["--ws"] if kind == "wss" else []), "-t", "a", "-m", "x",
        )  # fmt: skip
        assert await publisher.wait() == 0
        [message] = await take(client, 1)
        assert message.payload == b"x"
    with pytest.raises(geomqtt.CannotConnect, match="certificate not accepted"):
        await geomqtt.Client(host, port, tls=True, transport=transport).connect()


@pytest.mark.needs("mosquitto")
async def test_mosquitto_and_our_client_understand_each_other(broker):
    async with geomqtt.Client(broker.host, broker.port) as client:
        await client.subscribe("from/mosquitto", qos=2)
        publisher = await asyncio.create_subprocess_exec(
            "mosquitto_pub", "-h", broker.host, "-p", str(broker.port), "-q", "2",
            "-t", "from/mosquitto", "-m", "grüße",
        )  # fmt: skip
        assert await publisher.wait() == 0
        [message] = await take(client, 1)
        assert message.payload.decode() == "grüße"

        await client.publish("to/mosquitto", b"hello", qos=1, retain=True)
        subscriber = await asyncio.create_subprocess_exec(
            "mosquitto_sub", "-h", broker.host, "-p", str(broker.port), "-q", "1",
            "-t", "to/mosquitto", "-v", "-C", "1", "-W", "10",
            stdout=subprocess.PIPE,
        )  # fmt: skip
        output, _ = await subscriber.communicate()
        assert output == b"to/mosquitto hello\n"
