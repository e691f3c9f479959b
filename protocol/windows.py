"""Temporal filters as sets of windows, and the fifteen relations of an event to them.

    Interval      one window, perhaps open at an end
    Repeating     windows that follow one another without a gap: R5/2026-01-01/P1M
    CronWindows   a window of one length at every fire time of a cron expression

Event and window are half-open intervals in Unix milliseconds, the event read first:
*event REL window*. An instant is an interval of length zero and gets no rules of its own
but one: it intersects the window that starts with it. So an instant at a window's start
both meets and starts it, and one at a window's end is met by it and finishes it.

Every relation says between which times the window must start and between which it must
end. Such a `Region` is all that a filter of many windows has to search, so no window but
the few that could answer is ever worked out, and no relation has a case of its own.

An open end is the first or last 64-bit number, and equal to another open end.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from protocol.civil import DAY_MS, DAY_S, Duration, Zone, add_duration, add_months, day_number
from protocol.cron import FIRST_YEAR, LAST_YEAR, Cron
from protocol.errors import BadTime

MIN_MS = -(2**63)  # an interval open at its start
MAX_MS = 2**63 - 1  # an interval open at its end

RELATION_NAMES = (
    "any",
    "intersects",
    "before",
    "after",
    "meets",
    "met_by",
    "overlaps",
    "overlapped_by",
    "starts",
    "started_by",
    "during",
    "contains",
    "finishes",
    "finished_by",
    "equals",
)
TEMPORAL_RELATIONS = {name: number for number, name in enumerate(RELATION_NAMES)}

_ANY = TEMPORAL_RELATIONS["any"]
_INTERSECTS = TEMPORAL_RELATIONS["intersects"]
_MS_PER_MONTH = 2_629_746_000  # 400 years have 4800 months and 146097 days
_WITHOUT_END = 2**70  # an index beyond every window


class Region(NamedTuple):
    """Where a window must start and where it must end, all four bounds included."""

    start_min: int
    start_max: int
    end_min: int
    end_max: int


# In the order of their numbers; s and e are the event's start and end.
_REGIONS: tuple[Callable[[int, int], Region], ...] = (
    lambda s, e: Region(MIN_MS, MAX_MS, MIN_MS, MAX_MS),  # any
    lambda s, e: Region(MIN_MS, max(s, e - 1), s + 1, MAX_MS),  # intersects
    lambda s, e: Region(e + 1, MAX_MS, MIN_MS, MAX_MS),  # before
    lambda s, e: Region(MIN_MS, MAX_MS, MIN_MS, s - 1),  # after
    lambda s, e: Region(e, e, MIN_MS, MAX_MS),  # meets
    lambda s, e: Region(MIN_MS, MAX_MS, s, s),  # met_by
    lambda s, e: Region(s + 1, e - 1, e + 1, MAX_MS),  # overlaps
    lambda s, e: Region(MIN_MS, s - 1, s + 1, e - 1),  # overlapped_by
    lambda s, e: Region(s, s, e + 1, MAX_MS),  # starts
    lambda s, e: Region(s, s, MIN_MS, e - 1),  # started_by
    lambda s, e: Region(MIN_MS, s - 1, e + 1, MAX_MS),  # during
    lambda s, e: Region(s + 1, MAX_MS, MIN_MS, e - 1),  # contains
    lambda s, e: Region(MIN_MS, s - 1, e, e),  # finishes
    lambda s, e: Region(s + 1, MAX_MS, e, e),  # finished_by
    lambda s, e: Region(s, s, e, e),  # equals
)


def relation_holds(
    relation: int, start_ms: int, end_ms: int, window_start: int, window_end: int
) -> bool:
    """Whether an event stands in a relation to one window."""
    region = _REGIONS[relation](start_ms, end_ms)
    return (
        region.start_min <= window_start <= region.start_max
        and region.end_min <= window_end <= region.end_max
    )


class TimeFilter(ABC):
    """A set of windows that events are compared with."""

    __slots__ = ()

    @abstractmethod
    def holds(self, relation: int, start_ms: int, end_ms: int) -> bool:
        """Whether an event stands in a relation to some window; an instant ends as it starts."""


class Interval(TimeFilter):
    """One window."""

    __slots__ = ("end_ms", "start_ms")

    def __init__(self, start_ms: int, end_ms: int) -> None:
        self.start_ms = start_ms
        self.end_ms = end_ms

    def holds(self, relation: int, start_ms: int, end_ms: int) -> bool:
        """Whether an event stands in a relation to the window."""
        if relation == _INTERSECTS:
            return start_ms < self.end_ms and (self.start_ms <= start_ms or self.start_ms < end_ms)
        return relation_holds(relation, start_ms, end_ms, self.start_ms, self.end_ms)


class Repeating(TimeFilter):
    """Consecutive windows, the k-th from the k-th boundary to the next.

    The k-th boundary is the anchor plus k times the duration, by the calendar and never
    from the boundary before it: monthly steps from 31 January come back to the 31st.
    """

    __slots__ = (
        "_anchor",
        "_boundaries",
        "_duration",
        "_end",
        "_first",
        "_last",
        "_start",
        "_zone",
    )

    def __init__(
        self, anchor_ms: int, duration: Duration, zone: Zone, count: int | None, *, backwards: bool
    ) -> None:
        self._anchor = anchor_ms
        self._duration = duration
        self._zone = zone
        self._boundaries: dict[int, int] = {}
        # Numbers of the first window and of the last; windows before the anchor are negative.
        reach = _WITHOUT_END if count is None else count
        self._first, self._last = (-reach, -1) if backwards else (0, reach - 1)
        self._start = MIN_MS
        self._end = MAX_MS
        if count is not None or not backwards:
            self._start = self._within_time(self._first)
        if count is not None or backwards:
            self._end = self._within_time(self._last + 1)

    def holds(self, relation: int, start_ms: int, end_ms: int) -> bool:
        """Whether an event stands in a relation to some window."""
        if relation == _INTERSECTS:
            # No gap between the windows: together they are one.
            return start_ms < self._end and (self._start <= start_ms or self._start < end_ms)
        if relation == _ANY:
            return True
        region = _REGIONS[relation](start_ms, end_ms)
        # Starts and ends both grow with the number of the window.
        first = max(self._first, self._at(region.start_min), self._at(region.end_min) - 1)
        last = min(self._last, self._at(region.start_max + 1) - 1, self._at(region.end_max + 1) - 2)
        return first <= last

    def _at(self, time_ms: int) -> int:
        """Number of the first boundary at or after a time."""
        # An open end is later than every window of an endless row, an open start earlier.
        if time_ms <= max(self._start, MIN_MS + 1):
            return self._first
        if time_ms > min(self._end, MAX_MS - 1):
            return self._last + 2
        duration = self._duration
        calendar_ms = duration.months * _MS_PER_MONTH + duration.days * DAY_MS
        number = -((self._anchor - time_ms) // (calendar_ms + duration.exact_ms))
        if calendar_ms:
            # Months and days differ in length, but never by as much as two steps.
            while self._boundary(number - 1) >= time_ms:
                number -= 1
            while self._boundary(number) < time_ms:
                number += 1
        return number

    def _within_time(self, number: int) -> int:
        boundary = self._boundary(number)
        if not MIN_MS < boundary < MAX_MS:
            raise BadTime("repeating interval runs out of time")
        return boundary

    def _boundary(self, number: int) -> int:
        found = self._boundaries.get(number)
        if found is None:
            if len(self._boundaries) >= 64:
                self._boundaries.clear()
            found = add_duration(self._anchor, self._duration.times(number), self._zone)
            self._boundaries[number] = found
        return found


class CronWindows(TimeFilter):
    """A window at every fire time, of a length that the calendar may vary.

    Windows overlap when they are longer than the time between two. With months or days in
    the duration a later window may even end earlier (a month from 30 and from 31 January),
    so starts are looked up in order, but ends are only bounded: a window that starts
    between two times surely ends between two others, and where this leaves a doubt, for a
    few days at most, each day is asked by itself.
    """

    __slots__ = (
        "_cron",
        "_duration",
        "_earliest",
        "_latest",
        "_longest",
        "_shortest",
        "_spans",
        "_zone",
    )

    def __init__(self, cron: Cron, duration: Duration, zone: Zone) -> None:
        self._cron = cron
        self._duration = duration
        self._zone = zone
        self._shortest = duration.shortest_ms(zone)
        self._longest = duration.longest_ms(zone)
        first = cron.next_day(day_number(FIRST_YEAR, 1, 1))
        last = cron.previous_day(day_number(LAST_YEAR, 12, 31))
        # A day off at either side, for the zone. Without any fire time: nothing between.
        self._earliest = MAX_MS if first is None else (first - 1) * DAY_MS
        self._latest = MIN_MS if last is None else (last + 2) * DAY_MS
        if self._latest + self._longest > MAX_MS:
            raise BadTime("cron windows run out of time")
        # The stretch of time asked about last and the one before, for events come close
        # together: (from, until, whether one window is open all the while). A stretch
        # without a window ends where the next one opens.
        nothing = (0, 0, False)
        self._spans = (nothing, nothing)

    def holds(self, relation: int, start_ms: int, end_ms: int) -> bool:
        """Whether an event stands in a relation to some window."""
        if relation == _INTERSECTS:
            since, until, is_open = self._spans[0]
            if not since <= start_ms < until:
                since, until, is_open = self._span(start_ms)
            return is_open or end_ms > until
        if relation == _ANY:
            return True
        return self._find(_REGIONS[relation](start_ms, end_ms)) is not None

    def _span(self, time_ms: int) -> tuple[int, int, bool]:
        current, span = self._spans
        if not span[0] <= time_ms < span[1]:
            window = self._find(_REGIONS[_INTERSECTS](time_ms, time_ms))
            if window is not None:
                span = (*window, True)
            else:
                span = (time_ms, self._next_start(time_ms), False)
        self._spans = (span, current)
        return span

    def _find(self, region: Region) -> tuple[int, int] | None:
        """Find a window that starts and ends inside a region."""
        low = max(region.start_min, region.end_min - self._longest, self._earliest)
        high = min(region.start_max, region.end_max - self._shortest, self._latest)
        # Whatever starts between these two ends inside the region.
        sure_low = max(low, region.end_min - self._shortest)
        sure_high = min(high, region.end_max - self._longest)
        if sure_low > sure_high:
            return self._find_by_day(low, high, region)
        start = self._last_start(sure_high)
        if start is not None and start >= sure_low:
            return start, add_duration(start, self._duration, self._zone)
        return self._find_by_day(low, sure_low - 1, region) or self._find_by_day(
            sure_high + 1, high, region
        )

    def _find_by_day(self, low: int, high: int, region: Region) -> tuple[int, int] | None:
        if low > high:
            return None
        day = self._cron.next_day(low // DAY_MS - 1)
        while day is not None and day <= high // DAY_MS + 1:
            window = self._find_on(day, region)
            if window is not None:
                return window
            day = self._cron.next_day(day + 1)
        return None

    def _find_on(self, day: int, region: Region) -> tuple[int, int] | None:
        """Find a window that starts on a local day, and starts and ends inside a region."""
        duration = self._duration
        midnight = day * DAY_S
        end_day = add_months(day, duration.months) + duration.days
        moved = end_day * DAY_S - midnight
        # A window ends at the time of day it started, but for the exact part: between two
        # changes of the clocks, everything here is one addition.
        end_min = -((duration.exact_ms - region.end_min) // 1000)
        end_max = (region.end_max - duration.exact_ms) // 1000
        for opens in self._zone.pieces(day):
            if opens.gap:
                continue
            for closes in self._zone.pieces(end_day):
                earliest = max(
                    opens.start,
                    closes.start - moved,
                    -(-region.start_min // 1000) + opens.offset,
                    end_min + closes.offset - moved,
                )
                latest = min(
                    opens.end - 1,
                    closes.end - 1 - moved,
                    region.start_max // 1000 + opens.offset,
                    end_max + closes.offset - moved,
                )
                time = self._cron.next_time(earliest - midnight)
                if time is not None and midnight + time <= latest:
                    local = midnight + time
                    end_s = local + moved - closes.offset
                    return (local - opens.offset) * 1000, end_s * 1000 + duration.exact_ms
        return None

    def _next_start(self, time_ms: int) -> int:
        """Start of the first window that opens at a time or later; the end of time if none."""
        instant = -(-time_ms // 1000)
        if time_ms > self._latest:
            return MAX_MS
        # No earlier local day can hold a later fire time, even where days overlap.
        instant = max(instant, self._earliest // 1000)
        day = self._cron.next_day((instant + self._zone.offset_at(instant)) // DAY_S)
        while day is not None:
            midnight = day * DAY_S
            for piece in self._zone.pieces(day):
                if not piece.gap:
                    earliest = max(piece.start, instant + piece.offset)
                    time = self._cron.next_time(earliest - midnight)
                    if time is not None and midnight + time < piece.end:
                        return (midnight + time - piece.offset) * 1000
            day = self._cron.next_day(day + 1)
        return MAX_MS

    def _last_start(self, time_ms: int) -> int | None:
        """Start of the last window that opens at a time or earlier."""
        instant = time_ms // 1000
        # A clock put back over midnight shows yesterday after today has begun.
        day = self._cron.previous_day((instant + self._zone.offset_at(instant)) // DAY_S + 1)
        while day is not None:
            midnight = day * DAY_S
            for piece in reversed(self._zone.pieces(day)):
                if not piece.gap:
                    latest = min(piece.end - 1, instant + piece.offset)
                    time = self._cron.previous_time(latest - midnight)
                    if time is not None and midnight + time >= piece.start:
                        return (midnight + time - piece.offset) * 1000
            day = self._cron.previous_day(day - 1)
        return None
