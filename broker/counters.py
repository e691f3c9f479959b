"""Everything the broker counts, as plain integers: one attribute, one addition.

The names are those of the metrics (`geomqtt_<name>`); `$SYS` and REST read the same ones.
"""

from collections import Counter, defaultdict

_TABLES = ("other", "dropped_by_client")


class Counters:
    """Counts since the start."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connections_refused",
        "connections_total",
        "control_sent",
        "dropped_by_client",
        "geo_refused",
        "locations_unusable",
        "messages_denied",
        "messages_dropped",
        "other",
        "packets_received",
        "protocol_errors",
        "publish_bytes_received",
        "publish_bytes_sent",
        "publish_received",
        "publish_sent",
        "store_errors",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)
        self.dropped_by_client: Counter[str] = Counter()
        self.other: defaultdict[str, int] = defaultdict(int)  # limits hit, plugin faults, …

    bytes_received: int
    bytes_sent: int
    connections_refused: int
    connections_total: int
    geo_refused: int
    locations_unusable: int
    messages_denied: int
    messages_dropped: int
    packets_received: int
    control_sent: int
    protocol_errors: int
    publish_bytes_received: int
    publish_bytes_sent: int
    publish_received: int
    publish_sent: int
    store_errors: int

    def count_publishes(
        self, received: int, received_bytes: int, sent: int, sent_bytes: int
    ) -> None:
        """Count PUBLISH packets that came in together, and what went out for them."""
        self.publish_received += received
        self.packets_received += received
        self.publish_bytes_received += received_bytes
        self.publish_sent += sent
        self.publish_bytes_sent += sent_bytes

    def snapshot(self) -> dict[str, int]:
        """Give all counts by name."""
        counts = {name: getattr(self, name) for name in self.__slots__ if name not in _TABLES}
        return counts | dict(self.other)
