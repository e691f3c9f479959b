"""The store of a broker that was told to keep nothing on disk (`persistence = false`).

Sessions get no row, so nobody ever asks it to keep a part of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.link import Link
    from broker.session import Session
    from protocol.message import Message


class NoStore:
    """Keeps nothing, fails never."""

    failing = False
    told = 0
    keeps = False
    unkept: frozenset[Link] = frozenset()

    def add_session(self, session: Session) -> None:
        """Leave the session without a row."""

    def depends(self, link: Link) -> None:
        """Nothing to wait for."""

    def retain(self, message: Message) -> None:
        """Retained messages live in memory alone."""

    def clear_retained(self, topic: str) -> None:
        """Nothing to clear."""

    def commit(self) -> bool:
        """Nothing to commit."""
        return True

    def close(self) -> None:
        """Nothing to close."""
