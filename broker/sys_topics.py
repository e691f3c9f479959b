"""The `$SYS` tree with the names that Mosquitto's users know, retained, at an interval."""

from __future__ import annotations

import time
from importlib.metadata import version
from math import exp
from typing import TYPE_CHECKING

from protocol.message import Message

if TYPE_CHECKING:
    from broker.broker import Broker

# $SYS/broker/load/<name>: which counts it averages, per minute.
LOADS = {
    "messages/received": ("packets_received",),
    "messages/sent": ("control_sent", "publish_sent"),
    "publish/received": ("publish_received",),
    "publish/sent": ("publish_sent",),
    "publish/dropped": ("messages_dropped",),
    "bytes/received": ("bytes_received",),
    "bytes/sent": ("bytes_sent",),
    "connections": ("connections_total",),
}
MINUTES = (1, 5, 15)


class SysTopics:
    """Publishes what has changed since the last time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shown: dict[str, str] = {}
        self._averages: dict[tuple[str, int], float] = {}
        self._counts: dict[str, int] = {}
        self._measured_at = time.monotonic()

    def publish(self) -> None:
        """Publish every topic whose value is new."""
        now_ms = time.time_ns() // 1_000_000
        values = self._values() | self._loads()
        for topic, text in values.items():
            if self._shown.get(topic) != text:
                self._shown[topic] = text
                self._broker.publish(
                    Message(f"$SYS/broker/{topic}", text.encode(), 0, True, "", now_ms)
                )
        self._broker.flush()

    def _values(self) -> dict[str, str]:
        broker, counters = self._broker, self._broker.counters
        connected = sum(1 for session in broker.sessions if session.link is not None)
        total = len(broker.sessions)
        broker.clients_maximum = max(broker.clients_maximum, connected)
        status = broker.status()
        values = {
            "version": f"geomqtt version {version('geomqtt')}",
            "uptime": f"{int(status['uptime_s'])} seconds",
            "clients/total": total,
            "clients/connected": connected,
            "clients/active": connected,
            "clients/disconnected": total - connected,
            "clients/inactive": total - connected,
            "clients/maximum": broker.clients_maximum,
            "messages/received": counters.packets_received,
            "messages/sent": counters.control_sent + counters.publish_sent,
            "messages/stored": status["retained_messages"] + status["queued_messages"],
            "messages/inflight": status["inflight_messages"],
            "messages/queued": status["queued_messages"],
            "publish/messages/received": counters.publish_received,
            "publish/messages/sent": counters.publish_sent,
            "publish/messages/dropped": counters.messages_dropped,
            "publish/bytes/received": counters.publish_bytes_received,
            "publish/bytes/sent": counters.publish_bytes_sent,
            "bytes/received": counters.bytes_received,
            "bytes/sent": counters.bytes_sent,
            "subscriptions/count": status["subscriptions"],
            "retained messages/count": status["retained_messages"],
            "store/messages/count": status["retained_messages"] + status["queued_messages"],
            "store/messages/bytes": status["retained_bytes"],
            "store/failing": status["store_failing"],
            "store/errors": counters.store_errors,
            "protocol errors": counters.protocol_errors,
        }
        return {topic: str(text) for topic, text in values.items()}

    def _loads(self) -> dict[str, str]:
        """Average rates per minute over 1, 5 and 15 minutes, exponentially weighted."""
        now = time.monotonic()
        elapsed_s = max(now - self._measured_at, 1e-3)
        self._measured_at = now
        values = {}
        for name, counts in LOADS.items():
            total = sum(getattr(self._broker.counters, count) for count in counts)
            per_minute = (total - self._counts.get(name, 0)) * 60 / elapsed_s
            self._counts[name] = total
            for minutes in MINUTES:
                weight = exp(-elapsed_s / (minutes * 60))
                old = self._averages.get((name, minutes), 0.0)
                average = per_minute + weight * (old - per_minute)
                self._averages[name, minutes] = average
                values[f"load/{name}/{minutes}min"] = f"{average:.2f}"
        return values
