"""One socket: bytes in, bytes out, and the order in which things happen to a connection.

    data_received -> fast lane | frame -> decode -> legal now? -> handler
    send -> outbox -> (store commit, if held) -> flush: one write per connection and read

A handler that must wait returns an awaitable; then this link alone stops reading until it
is done. What the peer does wrong closes this link alone, with one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from broker.fastlane import forward
from broker.handlers import HANDLERS
from protocol.decode import decode
from protocol.encode import connack
from protocol.errors import ConnectRefused, PacketTooLarge, ProtocolError, TopicBeyondLimit
from protocol.frames import next_frame
from protocol.geo import Location
from protocol.machine import LEGAL, State, refuse
from protocol.message import Message

if TYPE_CHECKING:
    from broker.broker import Broker, OpenListener
    from broker.session import Session
    from plugins.api import Client

log = logging.getLogger("geomqtt.link")

# What is counted for itself as well, because it may be no fault of the peer's.
LIMIT_COUNTERS = {PacketTooLarge: "packets_too_large", TopicBeyondLimit: "topics_beyond_limit"}

LINGER_S = 5.0  # how long a closed link may take to send its last bytes


class Link(asyncio.Protocol):
    """One connection of one client."""

    __slots__ = (
        "_closed_at",
        "_drained",
        "_left",
        "_need",
        "_pieces",
        "_rest",
        "_task",
        "address",
        "allowance",
        "blamed",
        "broker",
        "bucket",
        "client",
        "congested",
        "dropped",
        "fast",
        "held",
        "keep_alive_s",
        "last_packet",
        "listener",
        "outbox",
        "reason",
        "session",
        "settled",
        "state",
        "throttled",
        "transport",
        "v31",
        "will",
    )

    handlers: ClassVar = HANDLERS
    passes_frames = True  # packets may pass this link as the bytes they came in

    def __init__(self, broker: Broker, listener: OpenListener) -> None:
        self.broker = broker
        self.listener = listener
        self.state = State.AWAITING_CONNECT
        self.outbox: list[bytes] = []
        self.session: Session | None = None
        self.client: Client | None = None
        self.will: Message | None = None
        self.fast = False  # the fast lane may look at this link's frames
        # Topics, as bytes, that the client may publish to without asking; None: nobody asks.
        self.settled: set[bytes] | None = None
        self.held = False  # nothing leaves before the store has committed
        self.congested = False  # the peer does not read fast enough
        self.throttled = False  # and we read no more of what it sends meanwhile
        self.dropped = 0
        self.keep_alive_s = 0.0
        self.bucket = -1  # of its deadline
        self.v31 = False
        self.reason = ""
        self.blamed = False  # the log has said already why it was closed
        self.allowance: tuple[float, float] | None = None  # of the message rate: tokens, as of
        self._rest = b""
        self._pieces: list[bytes] | None = None
        self._need = 0
        self._task: asyncio.Task[None] | None = None
        self._closed_at: float | None = None
        self._drained: asyncio.Future[None] | None = None
        self._left = -1  # unsent bytes when the deadline was last looked at

    # The socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self.broker.max_outbox_bytes)
        self.address = _address(transport)
        self.last_packet = time.monotonic()
        self.broker.link_opened(self)

    def data_received(self, data: bytes) -> None:
        """Act on everything that one read brought, then send what came of it."""
        broker = self.broker
        broker.counters.bytes_received += len(data)
        if self._pieces is not None:
            # A packet larger than a read is collected, not copied again with every read.
            self._pieces.append(data)
            self._need -= len(data)
            if self._need > 0:
                # Whole packets are signs of life, and so is a large one that makes progress;
                # a small one that comes in drops is not.
                if self._need > 1000 and self.state is State.CONNECTED:
                    self.last_packet = time.monotonic()
                return
            data = b"".join(self._pieces)
            self._pieces = None
        elif self._rest:
            data = self._rest + data
        if self._task is not None:
            self._rest = data
            return
        broker.read_ms = time.time_ns() // 1_000_000
        self._process(data)
        broker.flush()
        if self.congested:
            self.throttle()

    def throttle(self) -> None:
        """Read no more from a peer that leaves our answers to it lying.

        QoS 0 is dropped for a congested peer and the rest is queued, so that only answers
        can bring it here.
        """
        limit = 2 * self.broker.max_outbox_bytes
        if self.state is not State.CLOSED and self.transport.get_write_buffer_size() > limit:
            self.broker.counters.other["links_throttled"] += 1
            self.throttled = True
            self.transport.pause_reading()

    def _process(self, buffer: bytes) -> None:
        max_packet_size = self.broker.max_packet_size
        dialect = self.listener.dialect
        handlers = self.handlers
        size = len(buffer)
        offset = 0
        count = 0
        try:
            while offset < size:
                if self.fast:
                    offset = forward(self, buffer, offset)
                    if offset == size:
                        break
                found = next_frame(buffer, offset, max_packet_size)
                if found is None:
                    break
                start, end = found
                first = buffer[offset]
                if not LEGAL[self.state][first >> 4]:
                    raise refuse(self.state, first >> 4)
                offset = end
                count += 1
                packet = decode(first, buffer[start:end], dialect)
                waiting = handlers[type(packet)](self, packet)
                if waiting is not None:
                    self._wait(waiting, buffer[offset:])
                    return
                if self.state is State.CLOSED:
                    return
            self._rest = b""
            if offset < size:
                self._keep(buffer, offset)
        except ProtocolError as error:
            self.protocol_error(error)
        except Exception:
            log.exception("client %s at %s: internal error", self.name, self.address)
            self.broker.counters.other["internal_errors"] += 1
            self.close("internal error")
        finally:
            if count:
                self.broker.counters.packets_received += count
            if offset:
                self.last_packet = time.monotonic()

    def _keep(self, buffer: bytes, offset: int) -> None:
        """Keep the unfinished packet at the end of a read for the next one."""
        self._rest = rest = buffer[offset:]
        if not LEGAL[self.state][rest[0] >> 4]:
            raise refuse(self.state, rest[0] >> 4)  # before its body is held
        if len(rest) > 4:
            length, shift, position = 0, 0, 1
            while True:
                byte = rest[position]
                length |= (byte & 0x7F) << shift
                shift += 7
                position += 1
                if byte < 0x80:
                    break
            self._need = position + length - len(rest)
            if self._need > 0:
                self._pieces = [rest]
                self._rest = b""

    def _wait(self, waiting: Awaitable[None], rest: bytes) -> None:
        """Stop reading until a handler is done, then go on with the rest of the read."""
        self.transport.pause_reading()
        self._rest = rest
        self._task = asyncio.create_task(self._finish(waiting), name=f"link {self.address}")

    async def _finish(self, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except ProtocolError as error:
            self.protocol_error(error)
        except Exception:
            log.exception("client %s at %s: internal error", self.name, self.address)
            self.broker.counters.other["internal_errors"] += 1
            self.close("internal error")
        self._task = None
        if self.state is not State.CLOSED:
            rest, self._rest = self._rest, b""
            self.broker.read_ms = time.time_ns() // 1_000_000
            self._process(rest)
            self.unpause()
        self.broker.flush()

    def unpause(self) -> None:
        """Read again, unless a handler or the whole broker has a reason to wait."""
        if (
            self._task is None
            and self.state is not State.CLOSED
            and not self.throttled
            and not self.broker.publishers_paused
        ):
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """The peer is behind: from now on QoS 0 is dropped, QoS 1 and 2 are queued."""
        self.congested = True

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.congested = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self.throttled:
            self.throttled = False
            self.unpause()
        if self.dropped:
            log.info("client %s: caught up, %d QoS 0 messages dropped", self.name, self.dropped)
            self.dropped = 0
        if self.session is not None:
            self.session.pump()
            self.broker.flush()

    async def drained(self) -> None:
        """Send what is in the outbox and wait until the peer has taken most of it."""
        # At least once, so that others get their turn; and until the commit, if held.
        await asyncio.sleep(0)
        while self.held:
            await asyncio.sleep(0)
        self.broker.flush()
        while self.congested:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        self.state = State.CLOSED
        self._closed_at = None
        if self._task is not None:
            self._task.cancel()
        self.outbox = []
        self.broker.link_lost(self)
        self.broker.flush()

    # The broker's side

    @property
    def joined(self) -> Session:
        """The session of a connected link; only CONNECT is handled without one."""
        assert self.session is not None
        return self.session

    @property
    def host(self) -> str:
        """The address without its port."""
        return self.address.rpartition(":")[0] or self.address

    def certificate_name(self) -> str | None:
        """The common name of the client's certificate, if it showed one that was verified."""
        certificate = self.transport.get_extra_info("peercert")
        for part in (certificate or {}).get("subject", ()):
            for key, text in part:
                if key == "commonName":
                    return str(text)
        return None

    def takes(self, session: Session) -> bool:
        """Tell whether a session may be continued here."""
        return True

    def seen(self, topic: str) -> str:
        """Give a topic as this client knows it."""
        return topic

    def note_geo_aware(self) -> None:
        """Remember that the client has sent a type-15 packet and understands envelopes."""
        session = self.joined
        if not session.geo_aware:
            session.geo_aware = True
            if session.row:
                self.broker.store.update_session(session)

    def note_location(self, location: Location | None) -> None:
        """Remember where the client says it is."""
        if location is not None:
            self.broker.note_location(self.joined, location)

    def send(self, packet: bytes) -> None:
        """Put a packet into the outbox."""
        if not self.outbox:
            self.broker.unsent.append(self)
        self.outbox.append(packet)
        self.broker.counters.control_sent += 1

    def send_publish(self, packet: bytes) -> None:
        """Put a message into the outbox."""
        if not self.outbox:
            self.broker.unsent.append(self)
        self.outbox.append(packet)
        counters = self.broker.counters
        counters.publish_sent += 1
        counters.publish_bytes_sent += len(packet)

    def send_or_drop(self, packet: bytes, count: int) -> None:
        """Put QoS 0 messages into the outbox, or drop them if the peer is behind."""
        if self.congested:
            self.drop(count)
        else:
            self.send_publish(packet)

    def drop(self, count: int) -> None:
        """Count QoS 0 messages that a congested peer does not get."""
        if not self.dropped:
            log.warning("client %s at %s: too slow, dropping QoS 0", self.name, self.address)
        self.dropped += count
        self.broker.counters.messages_dropped += count

    def hold(self) -> None:
        """Let nothing leave before the store has committed what it was told."""
        if not self.held and self.broker.store.holds:
            self.held = True
            self.broker.held.append(self)

    def write(self) -> None:
        """Write the outbox: all of it, at once."""
        pieces = self.outbox
        if pieces and not self.transport.is_closing():
            self.outbox = []
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self.broker.counters.bytes_sent += len(data)
            self.transport.write(data)

    def protocol_error(self, error: ProtocolError) -> None:
        """Close a connection whose peer broke a rule, with one line that names it."""
        counters = self.broker.counters
        if isinstance(error, ConnectRefused):
            counters.connections_refused += 1
            self.send(connack(error.code))
        else:
            counters.protocol_errors += 1
            if type(error) in LIMIT_COUNTERS:
                counters.other[LIMIT_COUNTERS[type(error)]] += 1
        log.warning("client %s at %s: %s: closed", self.name, self.address, error)
        self.blamed = True
        self.close(str(error))

    def close(self, reason: str) -> None:
        """Send what is in the outbox and close."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self.fast = False
        self.reason = reason
        self._rest = b""
        self._pieces = None
        if not self.held:
            self.write()
        self._closed_at = time.monotonic()
        self.transport.close()
        self.broker.deadlines.watch(self)

    # Deadlines

    def due_at(self) -> float | None:
        """Tell when this link ends if nothing more is heard of it."""
        if self._closed_at is not None:
            return self._closed_at + LINGER_S
        if self.state is State.AWAITING_CONNECT:
            timeout_s = self.broker.config.limits.connect_timeout_s
            return self.last_packet + timeout_s if timeout_s else None
        if self.state is State.CONNECTED:
            # [MQTT-3.1.2-24]. Without keep-alive, only an unfinished packet has a deadline.
            return self.last_packet + (
                self.keep_alive_s * 1.5 or self.broker.config.limits.packet_timeout_s
            )
        return None

    def expire(self) -> None:
        """End a link that is silent, or that cannot get rid of its last bytes."""
        if self._closed_at is not None:
            self._closed_at = None
            self.transport.abort()
        elif self.state is State.AWAITING_CONNECT:
            self.broker.counters.other["connect_timeouts"] += 1
            log.warning("client at %s: no CONNECT in time: closed", self.address)
            self.close("no CONNECT in time")
        elif self._takes_bytes():
            self.last_packet = time.monotonic()
            self.broker.deadlines.watch(self)
        elif not self.keep_alive_s:
            if self._rest or self._pieces is not None:
                self.broker.counters.other["packet_timeouts"] += 1
                log.warning(
                    "client %s at %s: packet never finished: closed", self.name, self.address
                )
                self.close("packet never finished")
            else:
                self.last_packet = time.monotonic()
                self.broker.deadlines.watch(self)
        else:
            self.broker.counters.other["keep_alive_timeouts"] += 1
            log.info("client %s at %s: keep-alive exceeded: closed", self.name, self.address)
            self.close("keep-alive exceeded")

    def _takes_bytes(self) -> bool:
        """Tell whether a peer that we do not read from shows life by taking bytes."""
        if self.broker.publishers_paused:
            return True
        if self._task is None and not self.throttled:
            return False
        before, self._left = self._left, self.transport.get_write_buffer_size()
        return self._left != before

    @property
    def name(self) -> str:
        """The client id for the log."""
        return repr(self.client.client_id) if self.client is not None else "(unknown)"


def _address(transport: asyncio.BaseTransport) -> str:
    peer: Any = transport.get_extra_info("peername")
    if isinstance(peer, tuple) and len(peer) >= 2:
        host = f"[{peer[0]}]" if ":" in peer[0] else peer[0]
        return f"{host}:{peer[1]}"
    return str(transport.get_extra_info("sockname") or "unix socket")
