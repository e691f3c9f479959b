"""The rows of the benchmark, as data. A further row, or a further list of rows, needs no code.

A window is the number of messages published and not yet delivered (for fan-out: to all; at
QoS 1 also not yet acknowledged), shared out evenly among the publishers. Payloads have 64 bytes.
"""

from dataclasses import dataclass
from typing import Any

GEO_TOPICS = "tests.bench.geo_plan:topic_plan"
ONE_HIT = "tests.bench.geo_plan:one_hit_plan"


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
    others: int = 0  # distinct subscriptions of other connections, which match nothing
    idle: int = 0  # connections that only subscribe; nothing is published then
    only_ours: bool = False  # measured for a bar that compares us with ourselves
    persistent: bool = False  # the subscribers' sessions outlive their connections
    seconds: float = 0.0  # of its own; 0: as long as the others
    flags: tuple[str, ...] = ()  # for our command, in this row
    config: str = ""  # for our broker, in this row: TOML
    plan: str = "tests.bench.plain:plan"  # makes the frames and the subscriptions
    measure: str = ""  # a function of its own, where publishing and receiving is not the point
    beside: tuple[str, ...] = ()  # baselines that are measured in this row too
    fences: int = 0  # polygons, over all subscribers
    set_up_s: float = 0.0  # of its own; 0: as long as the others


def matching(name: str, title: str, topics: int, others: int) -> Row:
    return Row(name, title, window=1000, topics=topics, others=others, only_ours=True)


def geo(name: str, title: str, fences: int, **more: Any) -> Row:
    """Events from 4 publishers against fences of 100 subscribers, about 5 hits an event."""
    return Row(
        name,
        title,
        4,
        100,
        window=1000,
        only_ours=True,
        fences=fences,
        set_up_s=90.0,
        seconds=6.0,  # a city is learned before it is measured
        **{"plan": "tests.bench.geo_plan:plan", **more},
    )


ROWS = (
    Row("1-1-qos0", "1→1 QoS 0, window 1000", window=1000),
    # A broker may treat a run of packets on one topic as one; here no two in a row are alike.
    Row("1-1-topics", "1→1 over 10 topics in turn, QoS 0", window=1000, topics=10),
    Row("1-1-qos1", "1→1 QoS 1, window 1000", qos=1, window=1000),
    Row("1-50", "1→50 QoS 0, window 100", subscribers=50, window=100),
    Row("50-1", "50→1 QoS 0, window 1000", publishers=50, window=1000),
    Row("topics", "4→1 over 10,000 topics, QoS 0", publishers=4, window=1000, topics=10_000),
    Row("pairs-qos0", "500→500 pairs QoS 0, 1 each", 500, 500, window=500, paired=True),
    Row("pairs-qos1", "500→500 pairs QoS 1, 1 each", 500, 500, 1, window=500, paired=True),
    Row("1-500", "1→500 QoS 0, window 1", subscribers=500),
    Row("1-1-single", "1→1 QoS 0, window 1"),
    Row("durable", "1→1 QoS 1 to a persistent session", qos=1, window=1000, persistent=True),
    Row(
        "log-plain",
        "1→1 QoS 0, window 1000, every event logged",
        window=1000,
        only_ours=True,
        seconds=60.0,
        flags=("--log",),
        config='event_log_settings = { on_overload = "throttle" }',
    ),
    # Cold: more topics in turn than any cache of routes holds.
    matching("warm-100", "100 topics, 100 subscriptions", 100, 100),
    matching("warm-100k", "100 topics, 100,000 subscriptions", 100, 100_000),
    matching("cold-100", "100,000 topics, 100 subscriptions", 100_000, 100),
    matching("cold-100k", "100,000 topics, 100,000 subscriptions", 100_000, 100_000),
    Row(
        "1-1-no-geo",
        "1→1 QoS 0, window 1000, geo extensions off",
        window=1000,
        only_ours=True,
        config="[[listener]]\ngeo = false\n",
    ),
    geo("geo-0", "events, no fence, 5 subscribers", 0),
    geo("geo-100", "events against 100 fences", 100),
    geo("geo-10k", "events against 10,000 fences", 10_000, beside=("rtree-loop",)),
    geo("geo-100k", "events against 100,000 fences", 100_000),
    geo("geo-topic-100", "$geo/ against 100 fences", 100, plan=GEO_TOPICS),
    geo("geo-topic-10k", "$geo/ against 10,000 fences", 10_000, plan=GEO_TOPICS),
    geo("geo-topic-100k", "$geo/ against 100,000 fences", 100_000, plan=GEO_TOPICS),
    geo("geo-one-topic", "10,000 fences on one topic, 1 hit", 10_000, plan=ONE_HIT),
    geo("geo-topics", "10,000 topics with a fence, 1 hit", 10_000, topics=10_000, plan=ONE_HIT),
    Row(
        "moves",
        "10,000 near-me subscribers, a move a second each",
        subscribers=10_000,
        only_ours=True,
        set_up_s=60.0,
        measure="tests.bench.geo_moves:measure",
    ),
    Row("idle", "5,000 idle subscribed connections", idle=5000),
)
