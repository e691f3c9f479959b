"""What the broker is held to, as data: each bar is compared with the medians of one run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.bench.rows import ROWS

OURS = "geomqtt"

# broker -> row -> metric -> median; a row that failed has the one key "failed"
Medians = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Bar:
    """A metric of ours against a number, so many times a peer's, or ours in another row."""

    row: str
    metric: str
    limit: float
    peer: str | None = None
    than_row: str | None = None
    at_most: bool = False
    is_aim: bool = False  # beyond what is demanded: reported, never a failure

    def __str__(self) -> str:
        sign = "at most" if self.at_most else "at least"
        against = self.peer or self.than_row
        what = f"{self.limit:g} x {against}" if against else f"{self.limit:g}"
        return f"{self.row}: {self.metric} {sign} {what}"


@dataclass(frozen=True)
class Verdict:
    """How one bar came out; `value` is a ratio where the bar compares."""

    bar: Bar
    word: str  # met, not met, not measured
    value: float | None = None


COMPARED = [row.name for row in ROWS if not row.idle and not row.only_ours]

BARS = (
    Bar("1-1-qos0", "rate", 8, "mosquitto"),
    Bar("1-1-qos1", "rate", 6, "mosquitto"),
    Bar("1-50", "rate", 15, "mosquitto"),
    Bar("50-1", "rate", 4, "mosquitto"),
    Bar("topics", "rate", 5, "mosquitto"),
    Bar("pairs-qos0", "rate", 1.1, "mosquitto"),
    Bar("pairs-qos1", "rate", 1.1, "mosquitto"),
    Bar("1-500", "rate", 1.1, "mosquitto"),
    Bar("1-1-single", "rate", 0.9, "mosquitto"),
    Bar("pairs-qos0", "p99_us", 2, "mosquitto", at_most=True),
    Bar("pairs-qos1", "p99_us", 2, "mosquitto", at_most=True),
    Bar("idle", "kib", 6, at_most=True),
    Bar("durable", "rate", 1, "nats"),
    Bar("log-plain", "rate", 2, "mosquitto", than_row="1-1-qos0"),
    Bar("warm-100k", "cpu_us", 2, than_row="warm-100", at_most=True),
    Bar("cold-100k", "cpu_us", 2, than_row="cold-100", at_most=True),
    Bar("geo-10k", "rate", 1, "mosquitto", than_row="1-1-qos0"),
    Bar("geo-10k", "rate", 5, "rtree-loop"),
    Bar("geo-100k", "cpu_us", 3, than_row="geo-100", at_most=True),
    Bar("geo-100k", "add_us", 100, at_most=True),
    Bar("moves", "broker_cores", 0.25, at_most=True),
    Bar("1-1-qos0", "rate", 0.95, than_row="1-1-no-geo"),
    *(Bar(name, "rate", 1, "amqtt") for name in COMPARED),
    *(Bar(name, "rate", 1, "nats", is_aim=True) for name in COMPARED),
)


def judge(bar: Bar, medians: Medians) -> Verdict:
    """Compare one bar with the medians; a peer that failed the row cannot be ahead of us."""
    ours = medians.get(OURS, {}).get(bar.row, {})
    if "failed" in ours:
        return Verdict(bar, "not met")
    if bar.metric not in ours:
        return Verdict(bar, "not measured")
    value = float(ours[bar.metric])
    if bar.peer or bar.than_row:
        theirs = medians.get(bar.peer or OURS, {}).get(bar.than_row or bar.row, {})
        if "failed" in theirs:
            return Verdict(bar, "met (the peer failed)" if bar.peer else "not measured")
        if not theirs.get(bar.metric):
            return Verdict(bar, "not measured")
        value /= float(theirs[bar.metric])
    met = value <= bar.limit if bar.at_most else value >= bar.limit
    return Verdict(bar, "met" if met else "not met", value)
