"""What survives: sessions, subscriptions, messages under way, retained messages, wills.

`Store` is what the broker talks to. As it stands here it keeps nothing, which is what
`persistence = false` asks for; `broker.store.sqlite` is the one that keeps.

The broker tells the store of every change at the moment it makes it, in plain calls that
never touch the disk; `commit` makes all of them last, once per turn of the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.client_fences import ClientFence
    from broker.delivery import Delivery
    from broker.link import Link
    from broker.session import Session
    from broker.subscription import Subscription
    from protocol.geo import Location
    from protocol.message import Message


class StoreError(Exception):
    """The store cannot be opened: one line for the operator."""


class Store:
    """Keeps nothing, fails never: sessions get no row, so nobody asks it to keep their parts."""

    keeps = False  # whether anything told to it survives
    holds = False  # whether output waits for the commit
    dirty = False  # whether there is something to commit
    failing = False  # whether the last commit went wrong
    told = 0  # counts what an acknowledgement must wait for

    def __init__(self) -> None:
        self.unkept: set[Link] = set()  # publishers that wait for the next commit

    def depends(self, link: Link) -> None:
        """A publisher's acknowledgement depends on the next commit."""
        self.unkept.add(link)

    def add_session(self, session: Session) -> None:
        """Keep a persistent session: gives it a row."""

    def update_session(self, session: Session) -> None:
        """Keep what has changed about a session itself."""

    def remove_session(self, session: Session) -> None:
        """Forget a session with all that is its own."""

    def add_subscription(self, subscription: Subscription) -> None:
        """Keep a subscription, in place of the one with the same key."""

    def remove_subscription(self, subscription: Subscription) -> None:
        """Forget a subscription."""

    def add_outgoing(self, session: Session, delivery: Delivery, packet_id: int) -> int:
        """Keep a message for a session (packet id 0: queued), and give its row."""
        return 0

    def mark_sent(self, row: int, packet_id: int) -> None:
        """A queued message has been given its packet id."""

    def mark_released(self, row: int) -> None:
        """A QoS 2 message has been received: only its packet id matters now."""

    def remove_outgoing(self, row: int) -> None:
        """A message has arrived, or will never be sent."""

    def add_incoming(self, session: Session, packet_id: int) -> None:
        """A QoS 2 message of this id has been taken and must not be taken again."""

    def remove_incoming(self, session: Session, packet_id: int) -> None:
        """The client has released the id."""

    def retain(self, message: Message) -> None:
        """Keep a retained message."""

    def clear_retained(self, topic: str) -> None:
        """Forget the retained message of a topic."""

    def add_will(self, client_id: str, username: str | None, will: Message) -> None:
        """Keep the will of a connected client, in case we go first."""

    def remove_will(self, client_id: str) -> None:
        """The will has been published or torn up."""

    def note_location(self, client_id: str, location: Location | None) -> None:
        """Keep where a client is; None: nobody knows any more."""

    def add_fence(self, session: Session, name: str, fence: ClientFence) -> None:
        """Keep an MQTT-G geofence of a persistent session."""

    def remove_fence(self, session: Session, name: str) -> None:
        """Forget a geofence."""

    def commit(self) -> bool:
        """Make everything told so far last; False if that failed."""
        self.unkept.clear()
        return True

    def tick(self) -> None:
        """Do what is due; called once a second."""

    def close(self) -> None:
        """Let go of the files."""
