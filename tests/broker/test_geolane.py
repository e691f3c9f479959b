"""The lane for geo events delivers what the ordinary path delivers, byte for byte.

Two brokers get the same subscriptions and the same reads; one of them has its fast lane
closed. Links write to a transport that keeps what it is given.
"""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.broker import Broker, OpenListener
from broker.config import Config, Limits
from broker.geolane import forward_geo
from broker.link import Link
from plugins.api import Accepted, Plugin
from protocol.encode import encode
from protocol.envelope import GeoEntry, GeoSubscribe, geopublish, geosubscribe
from protocol.fields import F64, I64
from protocol.geo import Geo, Location
from protocol.message import Message
from protocol.packets import Connect, Pingreq, Publish, Subscribe


class Kept(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        pass


class Watcher(Plugin):
    """Keeps every accepted message."""

    takes_frames = True

    def __init__(self) -> None:
        super().__init__(None)
        self.seen: list[Accepted] = []

    def on_accepted(self, batch: list[Accepted]) -> None:
        self.seen += batch


class Side:
    """One broker with a publisher and some subscribers."""

    def __init__(self, *, fast: bool, subscribers: int, watched: bool) -> None:
        self.watcher = Watcher()
        config = Config(persistence=False)
        self.broker = Broker(config, [self.watcher] if watched else [])
        self._listener = OpenListener(config.listener[0], Limits(), anonymous=True)
        self._fast = fast
        self.publisher = self.connect("publisher")
        self.subscribers = [self.connect(f"subscriber-{n}") for n in range(subscribers)]

    def connect(self, client_id: str) -> Link:
        link = Link(self.broker, self._listener)
        link.connection_made(Kept())
        link.data_received(encode(Connect(client_id)))
        link.fast = link.fast and self._fast
        return link

    def outcome(self) -> list[bytes]:
        return [link.transport.written for link in [self.publisher, *self.subscribers]]  # type: ignore[attr-defined]


TOPICS = ("a", "a/b", "c")
coordinates = st.integers(-2, 6).map(lambda n: n / 2)


@st.composite
def events(draw: st.DrawFn) -> bytes:
    x, y = draw(coordinates), draw(coordinates)
    kind = draw(
        st.sampled_from(["lane", "lane", "lane", "untimed", "text", "qos1", "plain", "move"])
    )
    topic = draw(st.sampled_from(TOPICS))
    payload = draw(st.binary(max_size=3))
    point = F64.pack(x) + F64.pack(y)
    instant = I64.pack(draw(st.integers(0, 5)) * 1000)
    if kind == "plain":
        return encode(Publish(topic, payload))
    if kind == "move":
        return encode(Pingreq(Location(y, x, float("nan"))))
    if kind == "untimed":
        return geopublish(Publish(topic, payload, geo=Geo(geometry_form=1, geometry_raw=point)))
    if kind == "text":
        text = f"POINT({x} {y})".encode()
        return geopublish(Publish(topic, payload, geo=Geo(1, instant, None, 3, text)))
    geo = Geo(1, instant, None, 1, point)
    if kind == "qos1":
        return geopublish(Publish(topic, payload, 1, packet_id=7, geo=geo))
    return geopublish(Publish(topic, payload, geo=geo))


@st.composite
def subscriptions(draw: st.DrawFn) -> tuple[int, bytes]:
    """Give the number of a subscriber, and what it sends."""
    who = draw(st.integers(0, 2))
    topic_filter = draw(st.sampled_from(["a", "a/#", "#", "c"]))
    if draw(st.integers(0, 9)) == 0:
        return who, encode(Subscribe(1, ((topic_filter, 1),)))
    if draw(st.integers(0, 9)) == 0:
        fence = b"BBOX(-1,-1,1.5,1.5)"
        return who, encode(Publish("$/SYS/MQTT/geofence/f", fence))
    x, y = draw(coordinates), draw(coordinates)
    box = f"BBOX({x},{y},{x + draw(st.integers(1, 4))},{y + draw(st.integers(1, 4))})".encode()
    entry = GeoEntry(
        topic_filter,
        1 if draw(st.booleans()) else 0,
        draw(st.sampled_from(["", "", "1970-01-01T00:00:01Z/1970-01-01T00:00:03Z"])),
        draw(st.sampled_from([1, 1, 1, 2, 3, 10, 0x81])),
        3,
        0,
        box,
        draw(st.integers(0, 2)),
        draw(st.sampled_from([0, 0, 0, 1, 3])),
    )
    return who, geosubscribe(GeoSubscribe(1, (entry,)))


@settings(deadline=None, max_examples=150)
@given(
    asked=st.lists(subscriptions(), min_size=1, max_size=25),
    reads=st.lists(st.lists(events(), min_size=1, max_size=12), min_size=1, max_size=6),
    watched=st.booleans(),
)
async def test_the_geo_lane_and_the_ordinary_path_deliver_the_same(
    asked: list[tuple[int, bytes]], reads: list[list[bytes]], watched: bool
) -> None:
    sides = [Side(fast=fast, subscribers=3, watched=watched) for fast in (True, False)]
    # Events without a time of their own carry that of their receipt.
    with patch("broker.link.time.time_ns", return_value=1_700_000_000_000_000_000):
        for side in sides:
            for who, packet in asked:
                side.subscribers[who].data_received(packet)
            for read in reads:
                side.publisher.data_received(b"".join(read))
            await asyncio.sleep(0)
    fast, ordinary = sides
    assert fast.outcome() == ordinary.outcome()
    assert fast.broker.counters.publish_sent == ordinary.broker.counters.publish_sent
    assert fast.broker.counters.publish_received == ordinary.broker.counters.publish_received
    if watched:
        assert _shown(fast) == _shown(ordinary)


def _shown(side: Side) -> list[tuple[str, bytes, object]]:
    return [
        (each.topic, each.payload, each.geo)
        for each in side.watcher.seen
        if isinstance(each, Message) and each.geo is not None
    ]


async def test_points_with_an_instant_really_take_the_lane() -> None:
    side = Side(fast=True, subscribers=1, watched=False)
    entry = GeoEntry("a", 0, "", 1, 3, 0, b"BBOX(0,0,2,2)", 0, 0)
    side.subscribers[0].data_received(geosubscribe(GeoSubscribe(1, (entry,))))
    frame = geopublish(
        Publish("a", b"x", geo=Geo(1, I64.pack(1000), None, 1, F64.pack(1.0) + F64.pack(1.0)))
    )
    side.publisher.data_received(frame)  # the first one finds the route
    before = side.outcome()[1]
    assert forward_geo(side.publisher, frame * 3, 0) == len(frame) * 3
    side.broker.flush()
    assert side.outcome()[1] == before + frame * 3
