"""One subscriber: what it subscribed to, what is on its way to it, what it sent twice.

A session outlives its link when it is persistent. Everything that must survive a crash is
told to the store in the same breath; the link's bytes leave after the store's commit.

    deliver -> in flight (packet id given, sent) -> acknowledged
            -> queued (window full, link congested, or nobody there) -> in flight -> …
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from broker.delivery import Delivery
from protocol.encode import pubrel

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.client_fences import ClientFence
    from broker.link import Link
    from broker.matching.fences import FenceIndex
    from broker.subscription import GeoSubscription, Subscription
    from protocol.geo import Location
    from protocol.geometry_place import Place

InFlight = tuple[Delivery | None, int]  # None: released, PUBCOMP is awaited. And its store row


class Session:
    """The state of one client id."""

    __slots__ = (
        "broker",
        "clean",
        "client_id",
        "fences",
        "geo_aware",
        "in_flight",
        "incoming",
        "left_at",
        "levels",
        "link",
        "location",
        "near",
        "next_id",
        "place",
        "queue",
        "queued_bytes",
        "row",
        "subscriptions",
        "username",
    )

    observes = False  # stands nowhere, so that event geofences do not concern it

    def __init__(self, broker: Broker, client_id: str, *, clean: bool) -> None:
        self.broker = broker
        self.client_id = client_id
        self.clean = clean
        self.link: Link | None = None
        self.subscriptions: dict[Any, Subscription] = {}
        self.levels = 0  # of their filters
        self.in_flight: dict[int, InFlight] = {}
        self.queue: deque[tuple[Delivery, int]] | None = None  # made on first use: it is large
        self.queued_bytes = 0
        # Packet ids of QoS 2 messages that we have and the client has not released.
        self.incoming: set[int] | None = None
        self.next_id = 0
        self.geo_aware = False
        self.fences: dict[str, ClientFence] | None = None  # MQTT-G's
        self.location: Location | None = None  # where the client was last known to be
        self.place: Place | None = None  # the same, to be matched
        # "Near me" subscriptions, which move along, and where they are indexed.
        self.near: dict[GeoSubscription, FenceIndex[GeoSubscription]] | None = None
        self.row = 0  # of the store; 0: not stored
        self.username: str | None = None
        self.left_at = 0.0  # monotonic time of the last disconnect

    def deliver(self, delivery: Delivery) -> None:
        """Send, or keep for later, or drop and count."""
        link = self.link
        if not delivery.qos:
            if link is None:
                if self.broker.config.queue_qos0_messages and not self.clean:
                    self._enqueue(delivery)
                return
            link.send_or_drop(delivery.packet(), 1)
            return
        if (
            link is None
            or link.congested
            or self.queue
            or len(self.in_flight) >= self.broker.max_inflight
        ):
            self._enqueue(delivery)
        else:
            packet_id = self.take_id()
            row = 0
            if self.row:
                row = self.broker.store.add_outgoing(self, delivery, packet_id)
                link.hold()
            self.in_flight[packet_id] = (delivery, row)
            link.send_publish(delivery.packet(packet_id))

    def _enqueue(self, delivery: Delivery) -> None:
        broker = self.broker
        limits = broker.config.limits
        queue = self.queue
        if queue is None:
            queue = self.queue = deque()
        size = delivery.size
        while queue and (
            0 < limits.max_queued_messages <= len(queue)
            or 0 < limits.max_queued_bytes < self.queued_bytes + size
        ):
            broker.note_drop(self, "queue is full")
            if limits.drop == "newest":
                return
            old, row = queue.popleft()
            self.queued_bytes -= old.size
            if row:
                broker.store.remove_outgoing(row)
        row = broker.store.add_outgoing(self, delivery, 0) if self.row and delivery.qos else 0
        queue.append((delivery, row))
        self.queued_bytes += size

    def pump(self) -> None:
        """Send from the queue as far as the window and the link allow."""
        link, queue = self.link, self.queue
        if link is None or not queue:
            return
        broker = self.broker
        room = broker.max_outbox_bytes  # a long queue must not become one huge write
        while queue and room > 0 and len(self.in_flight) < broker.max_inflight:
            if link.congested:
                break
            delivery, row = queue.popleft()
            room -= delivery.size
            self.queued_bytes -= delivery.size
            if not broker.may_receive(self, delivery.message):
                if row:
                    broker.store.remove_outgoing(row)
                continue
            if not delivery.qos:
                link.send_or_drop(delivery.packet(), 1)
                continue
            packet_id = self.take_id()
            if row:
                broker.store.mark_sent(row, packet_id)
                link.hold()
            self.in_flight[packet_id] = (delivery, row)
            link.send_publish(delivery.packet(packet_id))
        if not queue:
            self.queue = None
        elif room <= 0:
            asyncio.get_running_loop().call_soon(self._pump_on)

    def _pump_on(self) -> None:
        """Go on when what was sent before has been written."""
        if self.link is not None and self.link.held:
            asyncio.get_running_loop().call_soon(self._pump_on)
            return
        self.pump()
        self.broker.flush()

    def take_id(self) -> int:
        """Give the next free packet id; they count up from 1."""
        packet_id = self.next_id % 65_535 + 1
        while packet_id in self.in_flight:
            packet_id = packet_id % 65_535 + 1
        self.next_id = packet_id
        return packet_id

    def acknowledged(self, packet_id: int) -> None:
        """PUBACK: a QoS 1 message has arrived."""
        entry = self.in_flight.get(packet_id)
        if entry is None or entry[0] is None or entry[0].qos != 1:
            return
        self._finish(packet_id, entry[1])

    def received(self, packet_id: int) -> None:
        """PUBREC: a QoS 2 message has arrived; from now on only its id matters."""
        entry = self.in_flight.get(packet_id)
        if entry is not None and entry[0] is not None and entry[0].qos == 2:
            self.in_flight[packet_id] = (None, entry[1])
            if entry[1]:
                self.broker.store.mark_released(entry[1])
        link = self.link
        if link is not None:
            if entry is not None and entry[1]:
                # PUBREL lets the client forget the id. If we forgot the PUBREC afterwards, the
                # message would go out again and be taken for a new one.
                link.hold()
            link.send(pubrel(packet_id))

    def completed(self, packet_id: int) -> None:
        """PUBCOMP: a QoS 2 message is done."""
        entry = self.in_flight.get(packet_id)
        if entry is not None and entry[0] is None:
            self._finish(packet_id, entry[1])

    def give_up(self, packet_id: int) -> None:
        """Forget a message that its client cannot get."""
        entry = self.in_flight.get(packet_id)
        if entry is not None:
            self._finish(packet_id, entry[1])

    def _finish(self, packet_id: int, row: int) -> None:
        del self.in_flight[packet_id]
        if row:
            self.broker.store.remove_outgoing(row)
        if self.queue:
            self.pump()

    def resume(self, link: Link) -> None:
        """Send again what the client may have missed [MQTT-4.4.0-1], then what is queued."""
        for packet_id, (delivery, row) in list(self.in_flight.items()):
            if delivery is None:
                link.send(pubrel(packet_id))
            elif self.broker.may_receive(self, delivery.message):
                link.send_publish(delivery.again(packet_id))
            else:
                del self.in_flight[packet_id]
                if row:
                    self.broker.store.remove_outgoing(row)
        self.pump()

    @property
    def takes_frames(self) -> bool:
        """Whether messages may be put into its link's outbox as the bytes they came in."""
        if not self.clean and self.broker.config.queue_qos0_messages:
            return False
        return self.link is None or self.link.passes_frames

    @property
    def queued(self) -> int:
        """How many messages wait for their turn."""
        return len(self.queue) if self.queue else 0
