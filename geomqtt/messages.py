"""Received messages, and the bounded queue in which they wait for the application."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime

from geomqtt.place_and_time import moment
from protocol import packets as p
from protocol.geometry import WGS84, Geometry, parse_form
from protocol.geometry_place import NO_LIMITS
from protocol.temporal import MAX_MS, MIN_MS, format_time


class Message:
    """One received message.

    Place and time are there when it came through a geo subscription and the event has them:
    a plain subscription brings plain messages.
    """

    __slots__ = ("_packet",)

    def __init__(self, packet: p.Publish) -> None:
        self._packet = packet

    @property
    def topic(self) -> str:
        """The topic it was published under."""
        return self._packet.topic

    @property
    def payload(self) -> bytes:
        """What was published."""
        return self._packet.payload

    @property
    def qos(self) -> int:
        """The QoS at which it was delivered."""
        return self._packet.qos

    @property
    def retain(self) -> bool:
        """Whether the broker had kept it: it was there before the subscription."""
        return self._packet.retain

    @property
    def packet_id(self) -> int:
        """The packet id of the delivery; 0 for QoS 0."""
        return self._packet.packet_id

    @property
    def place(self) -> Geometry | None:
        """The event's place as a shapely geometry, in WGS 84 whatever system it was sent in.

        A geometry over the antimeridian is in one piece: its longitudes go on beyond 180.
        """
        geo = self._packet.geo
        return geo.place.geometry if geo is not None and geo.place is not None else None

    @property
    def geometry(self) -> Geometry | None:
        """The event's place as a shapely geometry in the system that `epsg` names."""
        geo = self._packet.geo
        if geo is None or not geo.geometry_form:
            return None
        return parse_form(
            geo.geometry_form, geo.geometry_raw, geo.epsg_sent or WGS84, NO_LIMITS
        ).source

    @property
    def epsg(self) -> int:
        """The coordinate reference system of `geometry`."""
        return self._packet.geo.epsg if self._packet.geo is not None else 4326

    @property
    def fence(self) -> Geometry | None:
        """The event geofence, in WGS 84: the event was only for those inside."""
        geo = self._packet.geo
        return geo.fence.geometry if geo is not None and geo.fence is not None else None

    @property
    def time(self) -> datetime | tuple[datetime | None, datetime | None] | None:
        """When the event was: an instant, or (start, end) with None for an open end."""
        if self._packet.geo is None or self._packet.geo.time is None:
            return None
        start, end = self._packet.geo.time
        if start == end:
            return moment(start)
        return (
            None if start == MIN_MS else moment(start),
            None if end == MAX_MS else moment(end),
        )

    @property
    def time_text(self) -> str | None:
        """The same as ISO 8601."""
        if self._packet.geo is None or self._packet.geo.time is None:
            return None
        return format_time(*self._packet.geo.time)

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, payload={self.payload[:40]!r}, qos={self.qos}, "
            f"retain={self.retain})"
        )


class Messages(AsyncIterator[Message]):
    """`async for message in client.messages`: ends when the client is disconnected.

    Several tasks may iterate at once; each message goes to one of them. When the queue is
    full the client lets the broker wait (see `Client`).
    """

    def __init__(self, taken: Callable[[], None]) -> None:
        self._queue: deque[Message] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._taken = taken
        self._ended = False
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> Message:
        while not self._queue:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            await self._wait()
        message = self._queue.popleft()
        self._taken()
        return message

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # Woken and cancelled at once: somebody else must take the message.
            if waiter.done() and not waiter.cancelled():
                self._wake()
            raise

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def put(self, message: Message) -> None:
        """Add a message; for the client."""
        self._queue.append(message)
        if self._waiters:
            self._wake()

    def end(self, error: Exception | None) -> None:
        """Say that nothing more will come, and why if it is not for a good reason."""
        self._ended = True
        self._error = error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
