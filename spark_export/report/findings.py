"""What the page shows, as plain values: filled by build.py, read by page.py."""

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

Row = dict[str, Any]


@dataclass(slots=True)
class Totals:
    """The day in five numbers."""

    events: int = 0
    bytes: int = 0
    placed: int = 0
    topics: int = 0
    clients: int = 0


@dataclass(slots=True)
class Findings:
    """The results of one day, cut to what a page can hold."""

    day: date
    made_at: datetime
    source: str
    now: Totals = field(default_factory=Totals)
    before: Totals | None = None  # None: nothing is known of the day before
    hours: list[int] = field(default_factory=lambda: [0] * 24)
    hours_before: list[int] | None = None
    topics: list[Row] = field(default_factory=list)
    clients: list[Row] = field(default_factory=list)
    topic_hours: list[tuple[str, list[int]]] = field(default_factory=list)
    topic_changes: list[Row] = field(default_factory=list)
    client_changes: list[Row] = field(default_factory=list)
    new_topics: int = 0
    gone_topics: int = 0
    new_clients: int = 0
    gone_clients: int = 0
    view: tuple[float, float, float, float] | None = None  # west, south, east, north
    tiles: dict[int, list[list[int]]] = field(default_factory=dict)  # zoom: [x, y, events, clients]
    lines: list[tuple[str, list[list[float]]]] = field(default_factory=list)
    fences: list[tuple[str, Any]] = field(default_factory=list)  # name, GeoJSON geometry
    tracks: list[Row] = field(default_factory=list)
    movers: int = 0
    distance_m: float = 0.0
    stops: list[Row] = field(default_factory=list)
    stop_count: int = 0
    dwell: list[Row] = field(default_factory=list)
    visits: list[Row] = field(default_factory=list)
    pairs: list[Row] = field(default_factory=list)
    series: list[Row] = field(default_factory=list)  # with `profile`: 24 × (mean, min, max) | None
    series_count: int = 0
    outliers: list[Row] = field(default_factory=list)
    outlier_count: int = 0
    silent: list[Row] = field(default_factory=list)
    silent_count: int = 0
