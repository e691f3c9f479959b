"""A client's side of MQTT as a state machine without I/O.

    bytes --> receive_data() --> events           (what the client must act on)
    publish(), subscribe(), … --> data_to_send()  (what the link must write)

The machine outlives connections: `connection_made` starts a CONNECT, `connection_lost`
keeps what the next connection must finish. Who owns it decides when to connect and reads
the clock; the machine does neither.

What happens to unfinished business when the next connection is accepted:

    the session is still there     PUBLISH again with DUP and PUBREL again, same packet ids
    it is gone (or was clean)      subscribe again; QoS 1 publishes go out again; a QoS 2
                                   publish is given up, because sending it again could
                                   deliver it twice: `GivenUp`
    a SUBSCRIBE without answer     is sent again in both cases

A packet that a broker hangs up on (it may be too large for it) would be sent again for ever:
after `MAX_ATTEMPTS` connections without an answer it is given up as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from protocol import packets as p
from protocol.decode import decode_from_server
from protocol.encode import PINGREQ, encode, puback, pubcomp, pubrec, pubrel
from protocol.envelope import (
    GeoEntry,
    GeoSuback,
    GeoSubscribe,
    GeoUnsuback,
    GeoUnsubscribe,
    geopublish,
    geosubscribe,
    geounsubscribe,
)
from protocol.errors import OutOfOrder, ProtocolError
from protocol.frames import FrameReader
from protocol.geo import Location
from protocol.geometry_place import NO_LIMITS
from protocol.mqttg import Dialect
from protocol.values import value

MAX_PACKET_SIZE = 268_435_460  # the largest that MQTT can express
# A broker may limit the size of a packet: many filters go out in several SUBSCRIBEs.
FILTERS_PER_PACKET = 500
MAX_ATTEMPTS = 5
# What a broker delivers has passed the limits of that broker; the client adds none.
DIALECT = Dialect(geometry=NO_LIMITS)


@value
class Connected:
    """CONNACK accepted the connection."""

    session_present: bool


@value
class Refused:
    """CONNACK refused the connection."""

    code: int


@value
class MessageReceived:
    """A message to hand to the application, exactly once if its QoS is 2."""

    packet: p.Publish


@value
class PublishCompleted:
    """PUBACK or PUBCOMP: the broker has the message."""

    packet_id: int


@value
class GivenUp:
    """A publish or request that will not be sent again, with an unknown fate."""

    packet_id: int
    reason: str


@value
class RequestAnswered:
    """The answer to a request; UNSUBSCRIBE alone has no codes in its answer."""

    packet_id: int
    codes: tuple[int, ...]


@value
class SubscriptionLost:
    """A subscription that the broker granted before and refused after a reconnect."""

    filter: str
    code: int


Event = (
    Connected
    | Refused
    | MessageReceived
    | PublishCompleted
    | GivenUp
    | RequestAnswered
    | SubscriptionLost
)


class ClientMachine:
    """The protocol state of one client, over all its connections."""

    def __init__(self, connect: p.Connect, max_packet_size: int = MAX_PACKET_SIZE) -> None:
        self.connect = connect
        self.connected = False
        self.unsent_bytes = 0  # of publishes since the last data_to_send
        self.subscriptions: dict[str, int] = {}  # filter -> QoS asked for
        self.geo_subscriptions: dict[bytes, GeoEntry] = {}  # by their identity
        self._max_packet_size = max_packet_size
        self._reader = FrameReader(max_packet_size)
        self._outbox: list[bytes] = []
        self._last_id = 0
        self._in_flight: dict[int, p.Publish] = {}  # sent, not acknowledged, in sending order
        self._released: dict[int, None] = {}  # PUBREC came, PUBCOMP did not, in that order
        self._received: set[int] = set()  # QoS 2 ids between PUBLISH and PUBREL
        self._requests: dict[int, Any] = {}  # subscriptions and the like without answer
        self._restored: set[int] = set()  # those of them that the machine made itself
        self._attempts: dict[int, int] = {}  # of what was sent more than once, by packet id
        self._first_data = True

    # Connections

    def connection_made(self) -> None:
        """Start over on a new connection: the first thing to send is CONNECT."""
        self._reader = FrameReader(self._max_packet_size)
        self._outbox = [encode(self.connect)]
        self._first_data = True
        self.connected = False

    def connection_lost(self) -> None:
        """Keep what the next connection must finish, forget what belonged to this one."""
        self._outbox.clear()
        self.connected = False
        for packet_id in self._restored:
            del self._requests[packet_id]
        self._restored.clear()

    def data_to_send(self) -> bytes:
        """Take everything that is to be written now."""
        data = b"".join(self._outbox)
        self._outbox.clear()
        self.unsent_bytes = 0
        return data

    def receive_data(self, data: bytes) -> Iterator[Event]:
        """Read bytes from the broker; ProtocolError means that it is none.

        Each event is given out before the next packet is looked at, so that nothing is
        taken for delivered that stood before a broken packet.
        """
        # Seen at once, because the rest of what looks like a packet may never come.
        if self._first_data and data and data[0] >> 4 != p.CONNACK:
            raise OutOfOrder("not an MQTT broker")
        self._first_data = False
        events: list[Event] = []
        for first, body in self._reader.receive_data(data):
            packet = decode_from_server(first, body, DIALECT)
            kind = type(packet)
            if not self.connected and kind is not p.Connack:
                raise OutOfOrder(f"{kind.__name__.upper()} before CONNACK")
            handler = self._HANDLERS.get(kind)
            if handler is None:
                raise OutOfOrder(f"unexpected {kind.__name__.upper()}")
            handler(self, packet, events)
            yield from events
            events.clear()

    # What the application asks for

    @property
    def in_flight(self) -> int:
        """How many publishes wait for their acknowledgement."""
        return len(self._in_flight) + len(self._released)

    def publish(self, packet: p.Publish) -> int:
        """Send a PUBLISH; its packet id (0 for QoS 0) comes back in PublishCompleted."""
        if packet.qos:
            packet = replace(packet, packet_id=self._new_id())
        data = self._encoded(packet)
        if packet.qos:
            self._in_flight[packet.packet_id] = packet
        if self.connected:
            self._outbox.append(data)
            self.unsent_bytes += len(data)
        return packet.packet_id

    def subscribe(self, filters: Iterable[tuple[str, int]]) -> int:
        """Send a SUBSCRIBE; its packet id comes back in RequestAnswered."""
        return self._request(p.Subscribe(self._new_id(), tuple(filters)))

    def unsubscribe(self, filters: Iterable[str]) -> int:
        """Send an UNSUBSCRIBE; its packet id comes back in RequestAnswered."""
        return self._request(p.Unsubscribe(self._new_id(), tuple(filters)))

    def geo_subscribe(self, entries: Iterable[GeoEntry]) -> int:
        """Send a GEOSUBSCRIBE; its packet id comes back in RequestAnswered."""
        return self._request(GeoSubscribe(self._new_id(), tuple(entries)))

    def geo_unsubscribe(self, entries: Iterable[GeoEntry]) -> int:
        """Send a GEOUNSUBSCRIBE; its packet id comes back in RequestAnswered."""
        return self._request(GeoUnsubscribe(self._new_id(), tuple(entries)))

    def ping(self) -> None:
        """Send a PINGREQ."""
        self._outbox.append(PINGREQ)

    def move(self, location: Location) -> None:
        """Tell the broker where this client is, now and with every CONNECT to come."""
        self.connect = replace(self.connect, location=location)
        if self.connected:
            self._outbox.append(encode(p.Pingreq(location)))

    def disconnect(self) -> None:
        """Send DISCONNECT: no will, no more packets."""
        self._outbox.append(encode(p.Disconnect()))

    def _request(self, packet: Any) -> int:
        data = self._encoded(packet)
        packet_id: int = packet.packet_id
        self._requests[packet_id] = packet
        if self.connected:
            self._outbox.append(data)
        return packet_id

    def _encoded(self, packet: Any) -> bytes:
        data = _encode(packet)
        if len(data) > self._max_packet_size:
            raise ValueError(f"packet of {len(data)} bytes, limit is {self._max_packet_size}")
        return data

    def _new_id(self) -> int:
        for _ in range(0xFFFF):
            self._last_id = self._last_id % 0xFFFF + 1
            if (
                self._last_id not in self._in_flight
                and self._last_id not in self._released
                and self._last_id not in self._requests
            ):
                self._attempts.pop(self._last_id, None)  # those of its last owner
                return self._last_id
        raise ProtocolError("all packet ids are in flight")

    # What the broker sends

    def _receive_connack(self, packet: p.Connack, events: list[Event]) -> None:
        if self.connected:
            raise OutOfOrder("second CONNACK")
        if packet.code:
            events.append(Refused(packet.code))
            return
        self.connected = True
        events.append(Connected(packet.session_present))
        self._give_up_on_hopeless(events)
        if not packet.session_present:
            self._start_without_session(events)
        self._outbox.extend(pubrel(packet_id) for packet_id in self._released)
        # What was subscribed first, then what was asked since, then what that may deliver.
        for packet_id in sorted(self._requests, key=lambda each: each not in self._restored):
            self._outbox.append(_encode(self._requests[packet_id]))
        for publish in self._in_flight.values():
            self._outbox.append(_encode(replace(publish, dup=True)))  # [MQTT-3.3.1-1]

    def _start_without_session(self, events: list[Event]) -> None:
        """Bring a broker that remembers nothing to where we think we are."""
        self._received.clear()
        lost = [*self._released, *(i for i, packet in self._in_flight.items() if packet.qos == 2)]
        for packet_id in lost:
            self._give_up(packet_id, "the session is gone", events)
        filters, entries = tuple(self.subscriptions.items()), tuple(self.geo_subscriptions.values())
        for start in range(0, len(filters), FILTERS_PER_PACKET):
            self._restore(p.Subscribe(self._new_id(), filters[start : start + FILTERS_PER_PACKET]))
        for entry in entries:  # one by one: a fence may be large
            self._restore(GeoSubscribe(self._new_id(), (entry,)))

    def _give_up_on_hopeless(self, events: list[Event]) -> None:
        """Count connections, and give up what has seen too many without an answer."""
        waiting = [*self._released, *self._in_flight, *self._requests]
        self._attempts = {each: self._attempts.get(each, 1) + 1 for each in waiting}
        for packet_id, attempts in list(self._attempts.items()):
            if attempts > MAX_ATTEMPTS:
                reason = f"no answer over {MAX_ATTEMPTS} connections"
                self._give_up(packet_id, reason, events)

    def _give_up(self, packet_id: int, reason: str, events: list[Event]) -> None:
        self._in_flight.pop(packet_id, None)
        self._released.pop(packet_id, None)
        self._requests.pop(packet_id, None)
        self._attempts.pop(packet_id, None)
        events.append(GivenUp(packet_id, reason))

    def _restore(self, request: Any) -> None:
        self._requests[request.packet_id] = request
        self._restored.add(request.packet_id)

    def _receive_publish(self, packet: p.Publish, events: list[Event]) -> None:
        if packet.qos == 0:
            events.append(MessageReceived(packet))
        elif packet.qos == 1:
            events.append(MessageReceived(packet))
            self._outbox.append(puback(packet.packet_id))
        else:
            if packet.packet_id not in self._received:
                self._received.add(packet.packet_id)
                events.append(MessageReceived(packet))
            self._outbox.append(pubrec(packet.packet_id))

    def _receive_puback(self, packet: p.Puback, events: list[Event]) -> None:
        publish = self._in_flight.get(packet.packet_id)
        if publish is not None and publish.qos == 1:
            del self._in_flight[packet.packet_id]
            events.append(PublishCompleted(packet.packet_id))

    def _receive_pubrec(self, packet: p.Pubrec, events: list[Event]) -> None:
        publish = self._in_flight.get(packet.packet_id)
        if publish is not None and publish.qos == 2:
            del self._in_flight[packet.packet_id]
            self._released[packet.packet_id] = None
        # Answered even if we do not know the id, or the broker would ask for ever.
        self._outbox.append(pubrel(packet.packet_id))

    def _receive_pubrel(self, packet: p.Pubrel, events: list[Event]) -> None:
        self._received.discard(packet.packet_id)
        self._outbox.append(pubcomp(packet.packet_id))

    def _receive_pubcomp(self, packet: p.Pubcomp, events: list[Event]) -> None:
        if packet.packet_id in self._released:
            del self._released[packet.packet_id]
            events.append(PublishCompleted(packet.packet_id))

    def _receive_suback(self, packet: p.Suback, events: list[Event]) -> None:
        request = self._answered_request(packet, p.Subscribe)
        self._check_codes(packet, len(request.filters))
        for (topic_filter, qos), code in zip(request.filters, packet.codes, strict=True):
            if code < p.SUBSCRIBE_FAILURE:
                self.subscriptions[topic_filter] = qos
            elif packet.packet_id in self._restored:
                self.subscriptions.pop(topic_filter, None)
                events.append(SubscriptionLost(topic_filter, code))
        self._tell_answer(packet.packet_id, packet.codes, events)

    def _receive_geosuback(self, packet: GeoSuback, events: list[Event]) -> None:
        request = self._answered_request(packet, GeoSubscribe)
        self._check_codes(packet, len(request.entries))
        for entry, code in zip(request.entries, packet.codes, strict=True):
            if code < p.SUBSCRIBE_FAILURE:
                self.geo_subscriptions[entry.identity] = entry
            elif packet.packet_id in self._restored:
                self.geo_subscriptions.pop(entry.identity, None)
                events.append(SubscriptionLost(entry.topic_filter, code))
        self._tell_answer(packet.packet_id, packet.codes, events)

    def _receive_unsuback(self, packet: p.Unsuback, events: list[Event]) -> None:
        for topic_filter in self._answered_request(packet, p.Unsubscribe).filters:
            self.subscriptions.pop(topic_filter, None)
        self._tell_answer(packet.packet_id, (), events)

    def _receive_geounsuback(self, packet: GeoUnsuback, events: list[Event]) -> None:
        request = self._answered_request(packet, GeoUnsubscribe)
        self._check_codes(packet, len(request.entries))
        for entry in request.entries:
            for identity, held in list(self.geo_subscriptions.items()):
                if identity == entry.identity or (
                    entry.names_all and held.topic_filter == entry.topic_filter
                ):
                    del self.geo_subscriptions[identity]
        self._tell_answer(packet.packet_id, packet.codes, events)

    def _answered_request(self, packet: Any, kind: type) -> Any:
        request = self._requests.get(packet.packet_id)
        if not isinstance(request, kind):
            raise OutOfOrder(f"{type(packet).__name__.upper()} that answers no request of ours")
        return request

    def _check_codes(self, packet: Any, count: int) -> None:
        if len(packet.codes) != count:
            raise OutOfOrder(f"{type(packet).__name__.upper()} with {len(packet.codes)} codes")

    def _tell_answer(self, packet_id: int, codes: tuple[int, ...], events: list[Event]) -> None:
        del self._requests[packet_id]
        if packet_id in self._restored:
            self._restored.discard(packet_id)
        else:
            events.append(RequestAnswered(packet_id, codes))

    def _receive_pingresp(self, packet: p.Pingresp, events: list[Event]) -> None:
        """Any byte from the broker shows that it lives: nothing else to do."""

    _HANDLERS: dict[type, Any] = {  # noqa: RUF012 - a table, made once
        p.Connack: _receive_connack,
        p.Publish: _receive_publish,
        p.Puback: _receive_puback,
        p.Pubrec: _receive_pubrec,
        p.Pubrel: _receive_pubrel,
        p.Pubcomp: _receive_pubcomp,
        p.Suback: _receive_suback,
        p.Unsuback: _receive_unsuback,
        GeoSuback: _receive_geosuback,
        GeoUnsuback: _receive_geounsuback,
        p.Pingresp: _receive_pingresp,
    }


def _encode(packet: Any) -> bytes:
    """Encode a packet, in an envelope if it has something for one."""
    if isinstance(packet, GeoSubscribe):
        return geosubscribe(packet)
    if isinstance(packet, GeoUnsubscribe):
        return geounsubscribe(packet)
    if isinstance(packet, p.Publish) and packet.geo is not None:
        return geopublish(packet)
    return encode(packet)


class KeepAlive:
    """When to ping, and when to give a silent broker up; whoever owns it passes the time in.

    A ping goes out when nothing was sent for the interval, and also when nothing came for as
    long, so that a dead connection is noticed by a client that only publishes QoS 0. A broker
    that has not said anything one interval after a ping is gone.
    """

    def __init__(self, interval_s: float, now: float) -> None:
        self.interval_s = interval_s
        self._sent_at = now
        self._received_at = now
        self._pinged_at: float | None = None

    def sent(self, now: float) -> None:
        """Note that something was written."""
        self._sent_at = now

    def received(self, now: float) -> None:
        """Note that something came: the broker lives."""
        self._received_at = now
        self._pinged_at = None

    def pinged(self, now: float) -> None:
        """Note that a ping was written."""
        self._sent_at = now
        if self._pinged_at is None:
            self._pinged_at = now

    def must_ping(self, now: float) -> bool:
        """Tell whether a ping is due."""
        if now >= self._sent_at + self.interval_s:
            return True
        return self._pinged_at is None and now >= self._received_at + self.interval_s

    def is_dead(self, now: float) -> bool:
        """Tell whether the broker has been silent for too long."""
        return self._pinged_at is not None and now >= self._pinged_at + self.interval_s

    def next_at(self) -> float:
        """Say when to ask again."""
        due = self._sent_at + self.interval_s
        if self._pinged_at is None:
            return min(due, self._received_at + self.interval_s)
        return min(due, self._pinged_at + self.interval_s)
