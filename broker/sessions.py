"""All sessions by client id: opened by CONNECT, ended by time, by choice or by the next one."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.session import Session

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.link import Link

log = logging.getLogger("geomqtt.sessions")


class Sessions:
    """The sessions of this broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._by_id: dict[str, Session] = {}
        self._next_expiry = 0.0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._by_id.values())

    def get(self, client_id: str) -> Session | None:
        """Find a session."""
        return self._by_id.get(client_id)

    def restore(self, session: Session) -> None:
        """Put back a session that the store kept; its time away begins anew."""
        session.left_at = time.monotonic()
        self._by_id[session.client_id] = session

    def open(
        self, client_id: str, *, clean: bool, link: Link, username: str | None
    ) -> tuple[Session, bool]:
        """Give the session for a new connection, and whether it is an old one.

        A client that is connected already is taken over [MQTT-3.1.4-2]. A session never
        passes from one user to another, nor into a mount point that it does not lie in.
        """
        session = self._by_id.get(client_id)
        if session is not None and session.link is not None:
            old = session.link
            log.info("client %r taken over from %s by %s", client_id, old.address, link.address)
            self._broker.part(old)
            old.close("taken over")
            session = self._by_id.get(client_id)
        if self._broker.orphaned_wills.pop(client_id, None) is not None:
            self._broker.store.remove_will(client_id)
        present = False
        if session is not None:
            foreign = session.username != username or not link.takes(session)
            if clean or session.clean or foreign:
                if session.row:
                    link.hold()  # CONNACK says that the old session is gone for good
                self.end(session)
                session = None
            else:
                present = True
                if not link.passes_frames:
                    self._broker.router.forget_all()  # the fast lane may know the session
        if session is None:
            session = Session(self._broker, client_id, clean=clean)
            session.username = username
            self._by_id[client_id] = session
            self._broker.place_session(session)
            if not clean:
                self._broker.store.add_session(session)
                if session.row:
                    link.hold()
        session.link = link
        return session, present

    def end(self, session: Session) -> None:
        """Forget a session and everything it subscribed to."""
        self._broker.router.unsubscribe_all(session)
        if session.row:
            self._broker.store.remove_session(session)
            session.row = 0
        self._by_id.pop(session.client_id, None)
        self._broker.session_ended(session)

    def expire(self, after_s: int) -> None:
        """End persistent sessions whose clients have been away too long; 0: never."""
        now = time.monotonic()
        if not after_s or now < self._next_expiry:
            return
        self._next_expiry = now + min(max(after_s / 10, 1), 60)
        for session in list(self._by_id.values()):
            if session.link is None and now > session.left_at + after_s:
                log.info("client %r: session ended after %d s away", session.client_id, after_s)
                self._broker.counters.other["sessions_expired"] += 1
                self.end(session)

    def leave(self, session: Session) -> None:
        """The link is gone: a clean session ends [MQTT-3.1.2-6], a persistent one waits."""
        session.link = None
        session.left_at = time.monotonic()
        if session.clean:
            self.end(session)
