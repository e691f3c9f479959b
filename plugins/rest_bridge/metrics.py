"""What the broker counts and what is the case now, for Prometheus."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from plugins.api import Broker

MEDIA_TYPE = CONTENT_TYPE_LATEST


class BrokerCollector(Collector):
    """Reads the broker's own numbers when it is asked."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        """Give every counter and every gauge."""
        yield from _counters(self._broker.counts())
        for name, number in sorted(self._broker.status().items()):
            yield GaugeMetricFamily(f"geomqtt_{name}", f"{_words(name)}, now", number)


def _counters(counts: Mapping[str, int]) -> Iterable[Metric]:
    for name, number in sorted(counts.items()):
        base = name.removesuffix("_total")
        yield CounterMetricFamily(f"geomqtt_{base}", f"{_words(base)}, since the start", number)


def _words(name: str) -> str:
    return name.replace("_", " ")


def exposition(broker: Broker) -> bytes:
    """Write all metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(broker))
    return generate_latest(registry)
