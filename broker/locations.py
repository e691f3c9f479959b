"""Where clients were last known to be, by client id.

A location lives with its session. When a clean session ends it stays for `ttl_s`, so that
a client that comes and goes keeps its place; there are never more than `limit`.
"""

from collections.abc import Iterator, Mapping

from protocol.geo import Location


class Locations(Mapping[str, Location]):
    """Last known locations."""

    def __init__(self, ttl_s: float, limit: int) -> None:
        self._ttl_s = ttl_s
        self._limit = limit
        self._by_client: dict[str, Location] = {}
        self._leaving: dict[str, float] = {}  # client id -> when it is forgotten, oldest first
        self.changed: set[str] = set()  # since the store last asked

    def __getitem__(self, client_id: str) -> Location:
        return self._by_client[client_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_client)

    def __len__(self) -> int:
        return len(self._by_client)

    def note(self, client_id: str, location: Location) -> None:
        """Remember where a client is now."""
        if client_id not in self._by_client and len(self._by_client) >= self._limit > 0:
            self._forget(next(iter(self._leaving), None) or next(iter(self._by_client)))
        self._by_client[client_id] = location
        self.changed.add(client_id)

    def stay(self, client_id: str) -> None:
        """The client is back: its location lives with its session again."""
        self._leaving.pop(client_id, None)

    def leave(self, client_id: str, now: float) -> None:
        """The session has ended: its location has only so long to live."""
        if client_id in self._by_client:
            self._leaving.pop(client_id, None)
            self._leaving[client_id] = now + self._ttl_s

    def prune(self, now: float) -> None:
        """Forget locations whose time has come."""
        while self._leaving:
            client_id, forget_at = next(iter(self._leaving.items()))
            if forget_at > now:
                return
            self._forget(client_id)

    def _forget(self, client_id: str) -> None:
        self._leaving.pop(client_id, None)
        if self._by_client.pop(client_id, None) is not None:
            self.changed.add(client_id)
