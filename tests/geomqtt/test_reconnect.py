"""What a client does when the connection goes, against a broker that follows a script."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

import geomqtt

CONNACK = "20 02 00 00"
CONNACK_SESSION_PRESENT = "20 02 01 00"
TIMEOUT_S = 20


class Peer:
    """One connection, seen from the broker's side, in hex."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> str:
        """Read one packet; "" is the end of the connection."""
        async with asyncio.timeout(TIMEOUT_S):
            head = await self._reader.read(2)
            if not head:
                return ""
            body = await self._reader.readexactly(head[1])  # the scripts keep packets short
        return (head + body).hex(" ")

    async def expect(self, text: str) -> None:
        assert await self.read() == text

    def write(self, text: str) -> None:
        self._writer.write(bytes.fromhex(text))

    async def accept(self, connack: str = CONNACK) -> str:
        """Read CONNECT, which comes back, and accept it."""
        connect = await self.read()
        self.write(connack)
        return connect

    def close(self) -> None:
        self._writer.close()


class ScriptedBroker:
    """Listens, and gives out one connection after the other."""

    def __init__(self) -> None:
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._opened: list[Peer] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _connected(self, reader, writer) -> None:
        peer = Peer(reader, writer)
        self._opened.append(peer)
        self._peers.put_nowait(peer)

    async def peer(self) -> Peer:
        async with asyncio.timeout(TIMEOUT_S):
            return await self._peers.get()

    async def stop(self) -> None:
        for peer in self._opened:
            peer.close()
        self._server.close()


@pytest.fixture
async def script() -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker()
    await broker.start()
    yield broker
    await broker.stop()


Connect = Callable[..., geomqtt.Client]


def make_client(script: ScriptedBroker, **options) -> geomqtt.Client:
    options = {"reconnect_min_s": 0.01, "reconnect_max_s": 0.02, **options}
    return geomqtt.Client("127.0.0.1", script.port, "c1", **options)


async def connected(script: ScriptedBroker, **options) -> tuple[geomqtt.Client, Peer]:
    client = make_client(script, **options)
    connecting = asyncio.create_task(client.connect())
    peer = await script.peer()
    await peer.accept()
    await connecting
    return client, peer


async def test_a_clean_session_subscribes_again(script):
    client, peer = await connected(script)
    subscribing = asyncio.create_task(client.subscribe("a", qos=1))
    await peer.expect("82 06 00 01 00 01 61 01")
    peer.write("90 03 00 01 01")
    assert await subscribing == (1,)
    peer.close()

    peer = await script.peer()
    await peer.accept()
    await peer.expect("82 06 00 02 00 01 61 01")
    peer.write("90 03 00 02 01  30 04 00 01 61 78")
    assert (await anext(client.messages)).payload == b"x"
    await client.disconnect()
    await peer.expect("e0 00")


async def test_an_unacknowledged_publish_goes_out_again_and_its_caller_just_waits_longer(script):
    client, peer = await connected(script, clean_session=False)
    publishing = asyncio.create_task(client.publish("a", b"x", qos=1))
    await peer.expect("32 06 00 01 61 00 01 78")
    peer.close()

    peer = await script.peer()
    await peer.accept(CONNACK_SESSION_PRESENT)
    await peer.expect("3a 06 00 01 61 00 01 78")
    assert not publishing.done()
    peer.write("40 02 00 01")
    await publishing
    assert client.session_present
    await client.disconnect()


async def test_a_qos_2_publish_whose_session_is_gone_tells_its_caller(script):
    client, peer = await connected(script)
    publishing = asyncio.create_task(client.publish("a", b"x", qos=2))
    await peer.expect("34 06 00 01 61 00 01 78")
    peer.close()
    await (await script.peer()).accept()
    with pytest.raises(geomqtt.ConnectionLost, match="nobody knows"):
        await publishing
    await client.disconnect()


async def test_a_publish_while_there_is_no_connection_waits_for_one(script):
    client, peer = await connected(script)
    peer.close()
    peer = await script.peer()  # the client has noticed, and is not accepted yet
    publishing = asyncio.create_task(client.publish("a", b"x"))
    await peer.accept()
    await peer.expect("30 04 00 01 61 78")
    await publishing
    await client.disconnect()


async def test_a_broker_that_is_unavailable_is_asked_again(script):
    client, peer = await connected(script)
    peer.close()
    for _ in range(3):
        peer = await script.peer()
        await peer.accept("20 02 00 03")
    peer = await script.peer()
    await peer.accept()
    await client.publish("a", b"x")
    await peer.expect("30 04 00 01 61 78")
    await client.disconnect()


async def test_a_client_that_is_no_longer_welcome_ends_with_the_reason(script):
    client, peer = await connected(script)
    subscribing = asyncio.create_task(client.subscribe("a"))
    await peer.read()
    peer.close()
    await (await script.peer()).accept("20 02 00 05")
    with pytest.raises(geomqtt.ConnectRefused, match=r"not authorised \(code 5\)"):
        await anext(client.messages)
    with pytest.raises(geomqtt.ConnectRefused):
        await subscribing
    await client.disconnect()


async def test_a_refused_first_connection_is_raised(script):
    client = make_client(script)
    connecting = asyncio.create_task(client.connect())
    await (await script.peer()).accept("20 02 00 04")
    with pytest.raises(geomqtt.ConnectRefused, match="bad user name or password") as caught:
        await connecting
    assert caught.value.code == 4


async def test_a_server_that_never_answers_is_given_up(script):
    client = make_client(script, connect_timeout_s=0.05)
    with pytest.raises(geomqtt.CannotConnect, match=r"no answer within 0.05 s"):
        await client.connect()


async def test_a_server_that_speaks_no_mqtt_is_left(script):
    client = make_client(script)
    connecting = asyncio.create_task(client.connect())
    (await script.peer()).write("48 54 54 50 2f")  # HTTP/
    with pytest.raises(geomqtt.CannotConnect):
        await connecting


async def test_a_broken_packet_ends_the_connection_and_starts_another(script):
    client, peer = await connected(script)
    peer.write("30 03 00 01 61 36 03 00 01 61")  # a message, then QoS 3
    assert (await anext(client.messages)).topic == "a"
    assert await peer.read() in ("", "e0 00")
    await (await script.peer()).accept()
    await client.disconnect()


async def test_a_broker_that_falls_silent_is_left_after_two_intervals(script):
    client, peer = await connected(script, keep_alive_s=1)
    await peer.expect("c0 00")
    peer.write("d0 00")
    await peer.expect("c0 00")
    assert await peer.read() == ""  # no answer this time, so the client went
    await (await script.peer()).accept()
    await client.disconnect()


async def test_calls_made_in_one_turn_are_written_at_once(script):
    client, peer = await connected(script)
    await asyncio.gather(*(client.publish("a", b"%d" % n) for n in range(3)))
    data = await peer._reader.read(1000)
    assert data.hex(" ") == "30 04 00 01 61 30 30 04 00 01 61 31 30 04 00 01 61 32"
    await client.disconnect()


async def test_a_cancelled_publish_keeps_its_packet_id_until_it_is_acknowledged(script):
    client, peer = await connected(script)
    publishing = asyncio.create_task(client.publish("a", b"x", qos=1))
    await peer.expect("32 06 00 01 61 00 01 78")
    publishing.cancel()
    await asyncio.wait([publishing])
    second = asyncio.create_task(client.publish("a", b"y", qos=1))
    await peer.expect("32 06 00 01 61 00 02 79")
    peer.write("40 02 00 01 40 02 00 02")
    await second
    await client.disconnect()


async def test_no_more_than_the_window_is_in_flight(script):
    client, peer = await connected(script, max_in_flight=2)
    publishing = [asyncio.create_task(client.publish("a", b"x", qos=1)) for _ in range(3)]
    await peer.expect("32 06 00 01 61 00 01 78")
    await peer.expect("32 06 00 01 61 00 02 78")
    await client.publish("b", b"")  # passes the one that waits
    await peer.expect("30 03 00 01 62")
    peer.write("40 02 00 01")
    await peer.expect("32 06 00 01 61 00 03 78")
    peer.write("40 02 00 02 40 02 00 03")
    await asyncio.gather(*publishing)
    await client.disconnect()
