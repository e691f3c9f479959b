"""The rows of the benchmark, as data. A further row, or a further list of rows, needs no code.

A window is the number of messages published and not yet delivered (for fan-out: to all; at
QoS 1 also not yet acknowledged), shared out evenly among the publishers.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One load: so many publishers to so many subscribers, or idle connections."""

    name: str
    title: str
    publishers: int = 1
    subscribers: int = 1
    qos: int = 0
    window: int = 1  # over all publishers
    topics: int = 1
    paired: bool = False  # publisher n to subscriber n, each pair on a topic of its own
    idle: int = 0  # connections that only subscribe; nothing is published then


ROWS = (
    Row("1-1-qos0", "1→1 QoS 0, window 1000", window=1000),
    Row("1-1-qos1", "1→1 QoS 1, window 1000", qos=1, window=1000),
    Row("1-50", "1→50 QoS 0, window 100", subscribers=50, window=100),
    Row("50-1", "50→1 QoS 0, window 1000", publishers=50, window=1000),
    Row("topics", "4→1 over 10,000 topics, QoS 0", publishers=4, window=1000, topics=10_000),
    Row("pairs-qos0", "500→500 pairs QoS 0, 1 each", 500, 500, window=500, paired=True),
    Row("pairs-qos1", "500→500 pairs QoS 1, 1 each", 500, 500, 1, window=500, paired=True),
    Row("1-500", "1→500 QoS 0, window 1", subscribers=500),
    Row("1-1-single", "1→1 QoS 0, window 1"),
    Row("idle", "5,000 idle subscribed connections", idle=5000),
)
