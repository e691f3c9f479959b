"""How much output waits for receivers that do not take it, all links together.

Each link bounds its own backlog by dropping and queueing. Many links that are each a
little behind can still fill the memory, so above `max_unsent_bytes` nothing more is read
until half of it has gone. If that does not help within a few seconds, it is because some
receivers have stopped reading: those that hold back the most are cut off.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.broker import Broker

log = logging.getLogger("geomqtt.backlog")

CHECK_S = 0.25  # asking 10,000 transports takes about a millisecond
PATIENCE_S = 5.0


class Backlog:
    """Watches the unsent output of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._over_since: float | None = None
        self.unsent_bytes = 0

    def check(self) -> None:
        """Measure, and throttle, cut off or go on; called every `CHECK_S`."""
        broker = self._broker
        limit = broker.config.limits.max_unsent_bytes
        self.unsent_bytes = sum(link.transport.get_write_buffer_size() for link in broker.links)
        now = time.monotonic()
        if 0 < limit < self.unsent_bytes:
            if self._over_since is None:
                self._over_since = now
                broker.counters.other["publishers_throttled"] += 1
                log.warning(
                    "%d bytes unsent, limit is %d: reading nothing", self.unsent_bytes, limit
                )
            broker.pause_publishers("unsent output")
            if now > self._over_since + PATIENCE_S:
                self._cut_off(self.unsent_bytes - limit // 2)
        elif self._over_since is not None and (not limit or self.unsent_bytes <= limit // 2):
            self._over_since = None
            log.warning("%d bytes unsent: reading again", self.unsent_bytes)
            broker.resume_publishers("unsent output")

    def _cut_off(self, excess: int) -> None:
        """Part from those who hold back the most, until the rest is few enough."""
        sizes = [(link.transport.get_write_buffer_size(), link) for link in self._broker.links]
        for size, link in sorted(sizes, key=lambda each: -each[0]):
            if excess <= 0 or not size:
                return
            excess -= size
            self._broker.counters.other["receivers_cut_off"] += 1
            log.warning("client %s at %s: %d bytes unsent: cut off", link.name, link.address, size)
            link.reason = "did not read"
            link.transport.abort()
