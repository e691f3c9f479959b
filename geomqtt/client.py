"""The client: an asyncio face on the machine, and the one who keeps it connected.

    async with geomqtt.Client("localhost") as client:
        await client.subscribe("node/#", qos=1)
        await client.publish("node/7/temperature", b"21", qos=1)
        async for message in client.messages:
            print(message.topic, message.payload)

Protocol state is `geomqtt.machine`, sockets are `geomqtt.link`. Everything is written once
per turn of the event loop, however many calls made it.

Slow consumers: when `max_queued_messages` wait in `client.messages` the client stops reading
and the broker holds back. It reads on while a call waits for its answer, because the answer
comes behind those messages and the consumer may be the one who waits; then, beyond a hundred
times the limit, messages of QoS 0 are dropped and counted in `client.dropped`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import ssl
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from geomqtt import machine as m
from geomqtt.errors import CannotConnect, ConnectionLost, ConnectRefused, SubscribeError
from geomqtt.link import Address, Link, Transport, open_link
from geomqtt.messages import Message, Messages
from geomqtt.place_and_time import GeoConditions, GeometryLike, TimeLike, event_geo, geo_entry
from protocol import packets as p
from protocol.envelope import GeoEntry
from protocol.errors import MalformedPacket, ProtocolError
from protocol.fields import decode_string
from protocol.geo import Location
from protocol.topics import GEO_PREFIX, check_filter, check_topic
from protocol.values import value

log = logging.getLogger("geomqtt.client")

FLUSH_BYTES = 1 << 16
OVERFLOW = 100  # times max_queued_messages, while a call waits for its answer
GOODBYE_TIMEOUT_S = 2.0


@value
class Will:
    """What the broker shall publish if this client goes without a word."""

    topic: str
    payload: bytes | str = b""
    qos: int = 0
    retain: bool = False


class Client:
    """An MQTT client that stays connected until it is told to leave.

    `tls` is an `ssl.SSLContext`, or True for the system's certificates. With
    `transport="unix"` the host is the path of a socket. Without `reconnect` the end of the
    connection ends the client: calls and `messages` raise ConnectionLost.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int | None = None,
        client_id: str = "",
        *,
        username: str | None = None,
        password: str | bytes | None = None,
        clean_session: bool = True,
        keep_alive_s: int = 60,
        will: Will | None = None,
        tls: ssl.SSLContext | bool | None = None,
        transport: Transport = "tcp",
        ws_path: str = "/mqtt",
        bind_address: str | None = None,
        version: Literal["3.1.1", "3.1"] = "3.1.1",
        reconnect: bool = True,
        reconnect_min_s: float = 0.5,
        reconnect_max_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        max_in_flight: int = 100,
        max_queued_messages: int = 1000,
        max_packet_size: int = m.MAX_PACKET_SIZE,
    ) -> None:
        if not client_id and not clean_session:
            raise ValueError("a persistent session needs a client id")
        _check_text(client_id, username)
        if not 0 <= keep_alive_s <= 0xFFFF:
            raise ValueError(f"keep-alive of {keep_alive_s} s is not between 0 and 65535")
        if tls is True:
            tls = ssl.create_default_context()
        self.address = Address(
            host,
            port if port is not None else (8883 if tls else 1883),
            transport,
            tls or None,
            ws_path,
            bind_address,
        )
        self._machine = m.ClientMachine(
            p.Connect(
                client_id,
                "MQTT" if version == "3.1.1" else "MQIsdp",
                4 if version == "3.1.1" else 3,
                clean_session,
                keep_alive_s,
                username,
                password.encode() if isinstance(password, str) else password,
                _will_packet(will),
            ),
            max_packet_size,
        )
        self.messages = Messages(self._message_taken)
        self.session_present = False  # whether the broker remembered us, at the last connect
        self.dropped = 0  # messages of QoS 0 that a consumer was too slow for
        self._reconnect = reconnect
        self._reconnect_min_s = reconnect_min_s
        self._reconnect_max_s = reconnect_max_s
        self._connect_timeout_s = connect_timeout_s
        self._max_queued = max_queued_messages
        self._window = asyncio.Semaphore(max_in_flight)
        self._link: Link | None = None
        self._accepted: asyncio.Future[None] | None = None
        self._lost: asyncio.Future[Exception] | None = None
        self._changed = asyncio.Event()  # set while connected, and for good at the end
        self._waiting: dict[int, asyncio.Future[Any]] = {}  # by packet id
        self._end_error: Exception | None = None
        self._ended = False
        self._leaving = False
        self._paused = False
        self._flush_handle: asyncio.Handle | None = None
        self._keep_alive: m.KeepAlive | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._keeper: asyncio.Task[None] | None = None

    # Life

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.disconnect()

    @property
    def connected(self) -> bool:
        """Whether there is a connection right now."""
        return self._machine.connected

    async def connect(self) -> None:
        """Connect for the first time; raises CannotConnect or ConnectRefused."""
        if self._keeper is not None or self._ended:
            raise RuntimeError("a client connects once")
        await self._connect_once()
        self._keeper = asyncio.create_task(self._keep_connected(), name="geomqtt client")

    async def disconnect(self) -> None:
        """Leave with DISCONNECT: the broker does not publish the will."""
        self._leaving = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        link = self._link
        if link is not None and self._machine.connected and self._lost is not None:
            self._machine.disconnect()
            self._flush()
            self._machine.connection_lost()
            link.close()
            try:
                async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                    await self._lost
            except TimeoutError:
                link.abort()
        elif link is not None:
            link.abort()
        self._end(None)

    async def _connect_once(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                link = await open_link(self.address, self)
                if link.closed:
                    raise link.error or ConnectionResetError("closed at once")
                self._link = link
                self._lost = loop.create_future()
                self._accepted = loop.create_future()
                self._paused = False
                self._machine.connection_made()
                self._start_keep_alive()
                self._flush()
                await self._accepted
        except TimeoutError:
            self._drop_link()
            raise CannotConnect(
                f"{self.address}: no answer within {self._connect_timeout_s:g} s"
            ) from None
        except (OSError, ConnectionLost) as error:
            self._drop_link()
            raise CannotConnect(f"{self.address}: {_reason(error)}") from None
        except BaseException:
            self._drop_link()
            raise

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abort()
        self._stop_keep_alive()

    async def _keep_connected(self) -> None:
        """Connect again whenever the connection is lost, later and later."""
        loop = asyncio.get_running_loop()
        delay_s = self._reconnect_min_s
        while self._lost is not None:
            connected_at = loop.time()
            # Shielded: `disconnect` cancels this task and then awaits the same future.
            error = await asyncio.shield(self._lost)
            if not self._reconnect:
                self._end(ConnectionLost(f"{self.address}: {_reason(error)}"))
                return
            log.warning("%s: connection lost: %s", self.address, _reason(error))
            # A connection that does not last (somebody else uses our client id) is no
            # reason to start from the shortest delay again.
            if loop.time() - connected_at > delay_s:
                delay_s = self._reconnect_min_s
            while not self._machine.connected:
                await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
                delay_s = min(delay_s * 2, self._reconnect_max_s)
                try:
                    await self._connect_once()
                except CannotConnect as failure:
                    log.info("cannot reconnect: %s", failure)
                except ConnectRefused as refusal:
                    if refusal.code != p.SERVER_UNAVAILABLE:
                        self._end(refusal)
                        return
            log.info("%s: connected again", self.address)

    def _end(self, error: Exception | None) -> None:
        """Nothing will happen any more: tell everybody who waits."""
        if self._ended:
            return
        self._ended = True
        self._end_error = error
        self._stop_keep_alive()
        self._changed.set()
        self.messages.end(error)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._gone())
        self._waiting.clear()

    def _gone(self) -> Exception:
        return self._end_error or ConnectionLost("the client is disconnected")

    async def _until_connected(self) -> Link:
        while not self._machine.connected:
            if self._ended:
                raise self._gone()
            if self._keeper is None:
                raise ConnectionLost("the client is not connected yet")
            await self._changed.wait()
        assert self._link is not None
        return self._link

    # What the application asks for

    async def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        qos: int = 0,
        retain: bool = False,
        *,
        at: GeometryLike | None = None,
        time: TimeLike | None = None,
        to: GeometryLike | None = None,
        epsg: int | None = None,
    ) -> None:
        """Publish; for QoS 1 and 2, return when the broker has taken the message over.

        With `at` (where it happened), `time` (when) or `to` (only for those in there) it is a
        geo event; which values are accepted is said in `geomqtt.place_and_time`.
        """
        check_topic(topic)
        _check_text(topic)
        _check_qos(qos)
        geo = None
        if at is not None or time is not None or to is not None or epsg is not None:
            geo = event_geo(at, time, to, epsg)
        packet = p.Publish(topic, _payload(payload), qos, retain, geo=geo)
        if qos == 0:
            link = await self._until_connected()
            self._machine.publish(packet)
            if self._machine.unsent_bytes < FLUSH_BYTES:
                self._flush_soon()
            else:
                # A loop of publishes that never suspends must not outrun the socket.
                self._flush()
                await asyncio.sleep(0)
                await link.drain()
            return
        async with self._window:
            await self._until_connected()
            await self._answer(self._machine.publish(packet))

    async def subscribe(
        self,
        filters: str | Iterable[str | tuple[str, int]],
        qos: int = 0,
        **conditions: Unpack[GeoConditions],
    ) -> tuple[int, ...]:
        """Subscribe to a filter, or to several with a QoS of their own if they have one.

        Returns the granted QoS of each; raises SubscribeError for the first one refused
        (the others of the call stand). With conditions it is a geo subscription:

            await client.subscribe("node/#", covers="BBOX(8.5,54.4,8.7,54.6)",
                                   during="0 0 8 ? * MON-FRI/PT2H[Europe/Berlin]")
        """
        asked = [(each, qos) if isinstance(each, str) else each for each in _several(filters)]
        for topic_filter, wanted in asked:
            # What `$geo/` conditions hold is for the broker to judge.
            if not topic_filter.startswith(GEO_PREFIX):
                check_filter(topic_filter)
            _check_text(topic_filter)
            _check_qos(wanted)
        await self._until_connected()
        if conditions:
            entries = [geo_entry(each, wanted, conditions) for each, wanted in asked]
            packet_id = self._machine.geo_subscribe(entries)
        else:
            packet_id = self._machine.subscribe(asked)
        codes: tuple[int, ...] = await self._answer(packet_id)
        for (topic_filter, _), code in zip(asked, codes, strict=True):
            if code >= p.SUBSCRIBE_FAILURE:
                raise SubscribeError(topic_filter, code, codes)
        return codes

    async def unsubscribe(
        self,
        filters: str | Iterable[str],
        *,
        all_geo: bool = False,
        **conditions: Unpack[GeoConditions],
    ) -> None:
        """Take subscriptions back: plain ones, or the geo one that had these conditions.

        `all_geo` takes back every geo subscription on these filters.
        """
        asked = _several(filters)
        _check_text(*asked)
        await self._until_connected()
        if all_geo:
            packet_id = self._machine.geo_unsubscribe([GeoEntry(each) for each in asked])
        elif conditions:
            entries = [geo_entry(each, 0, conditions) for each in asked]
            packet_id = self._machine.geo_unsubscribe(entries)
        else:
            packet_id = self._machine.unsubscribe(asked)
        await self._answer(packet_id)

    def move(self, *, lat: float, lon: float, elev: float | None = None) -> None:
        """Tell the broker where this client is (degrees in WGS 84, metres).

        The last location is told again after every reconnect.
        """
        if not (abs(lat) <= 90 and abs(lon) <= 180):
            raise ValueError(f"lat={lat!r}, lon={lon!r} is no place on earth")
        self._machine.move(Location(lat, lon, float("nan") if elev is None else elev))
        if self._machine.connected:
            self._flush_soon()

    async def _answer(self, packet_id: int) -> Any:
        """Send what the machine has, and wait for what the broker says to a packet id."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[packet_id] = future
        self._flush_soon()
        self._resume_reading()
        try:
            return await future
        finally:
            self._waiting.pop(packet_id, None)

    # Writing

    def _flush_soon(self) -> None:
        if self._flush_handle is None:
            self._flush_handle = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        data = self._machine.data_to_send()
        if data and self._link is not None:
            self._link.write(data)
            if self._keep_alive is not None:
                self._keep_alive.sent(asyncio.get_running_loop().time())

    # Reading

    def receive_data(self, link: Link, data: bytes) -> None:
        """Take bytes from the link."""
        if link is not self._link or self._leaving:
            return
        if self._keep_alive is not None:
            self._keep_alive.received(asyncio.get_running_loop().time())
        try:
            for event in self._machine.receive_data(data):
                self._HANDLERS[type(event)](self, event)
        except ProtocolError as error:
            link.abort()
            self.link_lost(link, error)
            return
        self._flush_soon()

    def link_lost(self, link: Link, error: Exception | None) -> None:
        """Take note that the connection is gone; the keeper decides what follows."""
        if link is not self._link:
            return
        self._link = None
        self._machine.connection_lost()
        self._changed.clear()
        self._stop_keep_alive()
        reason = error or ConnectionLost("closed by the broker")
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_exception(ConnectionLost(_reason(reason)))
        elif self._lost is not None and not self._lost.done():
            self._lost.set_result(reason)

    def _on_connected(self, event: m.Connected) -> None:
        self.session_present = event.session_present
        self._changed.set()
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_result(None)

    def _on_refused(self, event: m.Refused) -> None:
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_exception(ConnectRefused(event.code))

    def _on_message(self, event: m.MessageReceived) -> None:
        queued = len(self.messages)
        if queued >= self._max_queued:
            if not self._waiting:
                if not self._paused and self._link is not None:
                    self._paused = True
                    self._link.pause_reading()
            elif queued >= OVERFLOW * self._max_queued and event.packet.qos == 0:
                self.dropped += 1
                return
        self.messages.put(Message(event.packet))

    def _message_taken(self) -> None:
        if self._paused and len(self.messages) <= self._max_queued // 2:
            self._resume_reading()

    def _resume_reading(self) -> None:
        if self._paused and self._link is not None:
            self._paused = False
            self._link.resume_reading()

    def _on_completed(self, event: m.PublishCompleted) -> None:
        self._answered(event.packet_id, None)

    def _on_given_up(self, event: m.GivenUp) -> None:
        future = self._waiting.get(event.packet_id)
        if future is not None and not future.done():
            future.set_exception(
                ConnectionLost(f"{event.reason}: nobody knows whether the broker has got it")
            )

    def _on_answered(self, event: m.RequestAnswered) -> None:
        self._answered(event.packet_id, event.codes)

    def _answered(self, packet_id: int, result: Any) -> None:
        future = self._waiting.get(packet_id)
        if future is not None and not future.done():
            future.set_result(result)

    def _on_subscription_lost(self, event: m.SubscriptionLost) -> None:
        log.error("after the reconnect: %s", SubscribeError(event.filter, event.code))

    _HANDLERS: dict[type, Callable[[Client, Any], None]] = {  # noqa: RUF012 - a table
        m.Connected: _on_connected,
        m.Refused: _on_refused,
        m.MessageReceived: _on_message,
        m.PublishCompleted: _on_completed,
        m.GivenUp: _on_given_up,
        m.RequestAnswered: _on_answered,
        m.SubscriptionLost: _on_subscription_lost,
    }

    # Keep-alive

    def _start_keep_alive(self) -> None:
        interval_s = self._machine.connect.keep_alive_s
        if interval_s:
            self._keep_alive = m.KeepAlive(interval_s, asyncio.get_running_loop().time())
            self._schedule_tick()

    def _stop_keep_alive(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._keep_alive = None

    def _schedule_tick(self) -> None:
        if self._keep_alive is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._keep_alive.next_at(), self._tick)

    def _tick(self) -> None:
        """Ping if it is time, or give the broker up."""
        if self._keep_alive is None or self._link is None:
            return
        now = asyncio.get_running_loop().time()
        if self._paused:
            self._keep_alive.received(now)  # it is we who do not listen
        if self._keep_alive.is_dead(now):
            link = self._link
            link.abort()
            self.link_lost(link, ConnectionLost("the broker does not answer"))
            return
        if self._machine.connected and self._keep_alive.must_ping(now):
            self._machine.ping()
            self._flush()
            self._keep_alive.pinged(now)
        self._schedule_tick()


def _several(filters: str | Iterable[Any]) -> Sequence[Any]:
    asked = [filters] if isinstance(filters, str) else list(filters)
    if not asked:
        raise ValueError("no topic filter given")
    return asked


def _check_text(*texts: str | None) -> None:
    """Refuse what a broker would close the connection for."""
    for text in texts:
        try:
            decode_string((text or "").encode())
        except MalformedPacket as error:
            raise ValueError(f"{text!r}: {error}") from None


def _check_qos(qos: int) -> None:
    if qos not in (0, 1, 2):
        raise ValueError(f"QoS {qos!r} is not 0, 1 or 2")


def _payload(payload: bytes | str) -> bytes:
    return payload.encode() if isinstance(payload, str) else bytes(payload)


def _will_packet(will: Will | None) -> p.Will | None:
    if will is None:
        return None
    check_topic(will.topic)
    _check_text(will.topic)
    _check_qos(will.qos)
    return p.Will(will.topic, _payload(will.payload), will.qos, will.retain)


def _reason(error: BaseException) -> str:
    """Say in one line what happened to a connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, OSError) and error.errno is not None:
        # asyncio puts its own words where the system's belong; a resolver's codes are negative.
        text = os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
        return text.lower()
    if several := re.search(r"\[Errno (\d+)\]", str(error)):  # one for each address of a name
        return os.strerror(int(several[1])).lower()
    return str(error) or type(error).__name__
