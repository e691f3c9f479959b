"""Spark's pushed-down filters as SQL for a segment, and as a choice of segments.

A pushed filter may let through too much and must never drop a row that Spark would keep: Spark
applies every filter again to what comes. So times are widened to whole milliseconds,
and what is not understood is left alone.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

_TIMES = {"received": "received_ms", "time": "coalesce(start_ms, received_ms)"}
_TEXTS = {"topic": "topic", "client_id": "client"}
_HIGHEST = "\U0010ffff"


class Pushed:
    """The part of a query's filters that the segments themselves can apply."""

    def __init__(self) -> None:
        self._conditions: list[tuple[str, tuple[Any, ...]]] = []
        self._first_day = "0000-01-01"
        self._last_day = "9999-12-31"

    @property
    def where(self) -> tuple[str, tuple[Any, ...]]:
        """Give the SQL condition on the table `packed`, and the values for its marks."""
        sql = " AND ".join(f"({condition})" for condition, _ in self._conditions)
        return sql, tuple(value for _, values in self._conditions for value in values)

    def wants(self, day: str) -> bool:
        """Tell whether a segment of that day of receipt can hold a wanted row."""
        return self._first_day <= day <= self._last_day

    def push(self, given: Filter) -> bool:
        """Take a filter over if the segments can apply it."""
        path: tuple[str, ...] = getattr(given, "attribute", ())
        column = path[0] if len(path) == 1 else ""
        if column in _TIMES:
            return self._push_time(column, given)
        if column in _TEXTS:
            return self._push_text(column, given)
        if column == "segment" and isinstance(given, EqualTo) and isinstance(given.value, str):
            self._between(given.value, given.value)
            return True
        return False

    def exact(self, bound: GreaterThanOrEqual | LessThan) -> None:
        """Apply a bound that nobody will test again."""
        column, moment = bound.attribute[0], bound.value.timestamp()
        milliseconds = math.ceil(moment * 1000)
        low = isinstance(bound, GreaterThanOrEqual)
        self._conditions.append((f"{_TIMES[column]} {'>=' if low else '<'} ?", (milliseconds,)))
        if column == "received":
            self._between(
                _utc_day(moment) if low else self._first_day,
                self._last_day if low else _utc_day(moment),
            )

    def _push_time(self, column: str, given: Filter) -> bool:
        value = getattr(given, "value", None)
        if not isinstance(value, datetime):
            return False
        seconds = value.timestamp()
        moment = int(seconds * 1000)
        low = isinstance(given, GreaterThan | GreaterThanOrEqual | EqualTo)
        high = isinstance(given, LessThan | LessThanOrEqual | EqualTo)
        if low:
            self._conditions.append((f"{_TIMES[column]} >= ?", (moment - 1,)))
        if high:
            self._conditions.append((f"{_TIMES[column]} <= ?", (moment + 1,)))
        if column == "received":
            self._between(
                _utc_day(seconds - 0.001) if low else self._first_day,
                _utc_day(seconds + 0.001) if high else self._last_day,
            )
        return low or high

    def _push_text(self, column: str, given: Filter) -> bool:
        if isinstance(given, EqualTo) and isinstance(given.value, str):
            self._named(column, "name = ?", (given.value,))
        elif isinstance(given, In) and _all_text(given.value):
            marks = ", ".join("?" * len(given.value))
            self._named(column, f"name IN ({marks})", tuple(given.value))
        elif isinstance(given, StringStartsWith) and given.value:
            bounds = (given.value, given.value + _HIGHEST)
            self._named(column, "name BETWEEN ? AND ?", bounds)
        else:
            return False
        return True

    def _named(self, column: str, condition: str, values: tuple[str, ...]) -> None:
        """Choose the names first: rows have their numbers only."""
        table = _TEXTS[column]
        self._conditions.append((f"{table} IN (SELECT id FROM {table} WHERE {condition})", values))

    def _between(self, first: str, last: str) -> None:
        self._first_day = max(self._first_day, first)
        self._last_day = min(self._last_day, last)


def _all_text(values: Sequence[Any]) -> bool:
    return 0 < len(values) <= 1000 and all(isinstance(value, str) for value in values)


def _utc_day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
