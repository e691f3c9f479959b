"""The event log in the real daemon: every door into it, and a kill at any time."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from plugins.event_log import reader
from plugins.event_log.reader import Query

CONFIG = '[[plugin]]\nuse = "plugins.event_log.plugin:EventLog"\n'
# CONNECT of "dev" with protocol level 4, clean session, keep-alive 60.
CONNECT = bytes.fromhex("10 0f 0004 4d515454 04 02 003c 0003 646576")
CONNACK = bytes.fromhex("20 02 00 00")
PINGREQ, PINGRESP = bytes.fromhex("c0 00"), bytes.fromhex("d0 00")

StartBroker = Callable[..., Any]


def connect(broker: Any) -> socket.socket:
    client = socket.create_connection((broker.host, broker.port), timeout=20)
    client.sendall(CONNECT)
    assert client.recv(4, socket.MSG_WAITALL) == CONNACK
    return client


def flushed(client: socket.socket) -> None:
    """Wait until the broker has read what was sent before."""
    client.sendall(PINGREQ)
    assert client.recv(2, socket.MSG_WAITALL) == PINGRESP


def test_every_door_is_logged(start_broker: StartBroker) -> None:
    broker = start_broker(config=CONFIG)
    with connect(broker) as client:
        client.sendall(b"".join(b"\x30\x06\x00\x03a/b%d" % n for n in range(10)))
        client.sendall(bytes.fromhex("31 06 0003 722f74 39"))  # retained, on r/t
        client.sendall(bytes.fromhex("32 08 0003 712f31 0001 39"))  # QoS 1, on q/1
        assert client.recv(4, socket.MSG_WAITALL) == bytes.fromhex("40 02 0001")
        # GEOPUBLISH on g/p at 13.405 52.52 at 1000 ms.
        client.sendall(
            bytes.fromhex(
                "f6 20 30 0003 672f70 09 00000000000003e8 402acf5c28f5c28f 404a428f5c28f5c3 39"
            )
        )
        # PUBLISHg on m/g from 52.52 13.405, elevation 34.
        client.sendall(
            bytes.fromhex("f0 1b 0003 6d2f67 01 404a428f5c28f5c3 402acf5c28f5c28f 42080000 39")
        )
        topic = b"$geo/at=BBOX(1,2,3,4)/d/g"
        client.sendall(bytes((0x30, len(topic) + 3, 0, len(topic))) + topic + b"9")
        # The client has said where it is; this event has not.
        client.sendall(bytes.fromhex("30 06 0003 6e2f67 39"))
        flushed(client)
    broker.stop()
    events = list(reader.query(broker.data, Query()))
    assert [event.topic for event in events] == (
        ["a/b"] * 10 + ["r/t", "q/1", "g/p", "m/g", "d/g", "n/g"]
    )
    assert [event.payload for event in events[:10]] == [b"%d" % n for n in range(10)]
    assert {event.client_id for event in events} == {"dev"}
    retained, acknowledged, point, located, area, plain = events[10:]
    assert (retained.retain, retained.qos, acknowledged.qos) == (1, 0, 1)
    assert (point.min_x, point.min_y, point.start_ms, point.geo) == (13.405, 52.52, 1000, 1)
    assert located.place is not None
    assert (located.min_x, located.min_y, located.place.z) == (13.405, 52.52, 34.0)
    assert (area.min_x, area.min_y, area.max_x, area.max_y) == (1, 2, 3, 4)
    assert (plain.geo, plain.place) == (0, None)


@pytest.mark.parametrize("overload", ["drop", "throttle"])
def test_a_flood_is_logged_whole(start_broker: StartBroker, overload: str) -> None:
    settings = f'[plugin.settings]\non_overload = "{overload}"\n'
    if overload == "throttle":
        settings += "buffer_bytes = 300000\n"
    broker = start_broker(config=CONFIG + settings)
    frames = [b"\x30\x0c\x00\x03a/b%07d" % n for n in range(200_000)]
    with connect(broker) as client:
        for start in range(0, len(frames), 5000):
            client.sendall(b"".join(frames[start : start + 5000]))
        flushed(client)
    broker.stop()
    numbers = [int(event.payload) for event in reader.query(broker.data, Query("a/b"))]
    assert numbers == list(range(200_000))


def test_a_killed_broker_is_followed_by_one_that_goes_on(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    for start in (0, 1000):
        broker = start_broker(config=CONFIG, data=data)
        children = psutil.Process(broker.process.pid).children()
        with connect(broker) as client:
            client.sendall(
                b"".join(b"\x30\x0a\x00\x03a/b%05d" % n for n in range(start, start + 1000))
            )
            flushed(client)
            # What was accepted is in the log within the time of a commit, without any stop.
            while sum(1 for _ in reader.query(data, Query("a/b"))) < start + 1000:
                flushed(client)
        broker.kill()
        assert psutil.wait_procs(children, timeout=30)[1] == []
    logged = [int(event.payload) for event in reader.query(data, Query("a/b"))]
    assert logged == list(range(2000))
