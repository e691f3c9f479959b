"""Quartz cron expressions: when they fire on a clock, without zones and without windows.

    second  minute  hour  day-of-month  month  day-of-week  [year]

An expression is compiled once into the numbers each field allows. Asking then costs a few
look-ups: the days of a month are worked out when first needed and kept, the time of day is
found in three short sorted tuples, and no time is ever tried that cannot fire. An
expression that can never fire, such as 31 February, just has no days.

Quartz's rules, where they differ from Unix cron: day-of-week counts from 1 = SUN; exactly
one of day-of-month and day-of-week is `?`; a range may wrap (FRI-MON, 22-2); `a/n` runs
from a to the end of the field; years are 1970 to 2099, also when none are given.
Quartz allows `L`, `W` and `#` only alone in their field; here they may stand in lists.
`31W` does not fire in a month without a 31st.
"""

import re
from bisect import bisect_left, bisect_right
from datetime import date
from typing import NamedTuple

from protocol.civil import day_date, day_number, days_in_month, shown
from protocol.errors import BadTime

FIRST_YEAR = 1970
LAST_YEAR = 2099

_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class _Field(NamedTuple):
    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()
    wraps: bool = True


_SECOND = _Field("second", 0, 59)
_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY_OF_MONTH = _Field("day-of-month", 1, 31)
_MONTH = _Field("month", 1, 12, _MONTH_NAMES)
_DAY_OF_WEEK = _Field("day-of-week", 1, 7, _DAY_NAMES)
_YEAR = _Field("year", FIRST_YEAR, LAST_YEAR, wraps=False)

_RANGE = re.compile(r"(?P<first>[0-9A-Z]+|\*|)(?:-(?P<last>[0-9A-Z]+))?(?:/(?P<step>[0-9]{1,4}))?")
_LAST_DAY = re.compile(r"L(?:-(?P<back>[0-9]{1,2}))?(?P<weekday>W)?")
_NEAREST_WEEKDAY = re.compile(r"(?P<day>[0-9]{1,2})W")
_LAST_OF_KIND = re.compile(r"(?P<day>[0-9A-Z]+?)L")
_NTH_OF_KIND = re.compile(r"(?P<day>[0-9A-Z]+)#(?P<nth>[0-9])")


class _DayRules:
    """Which days of a month fire: numbers, and the rules that depend on the month."""

    def __init__(self) -> None:
        self.days: frozenset[int] = frozenset()
        self.weekdays: frozenset[int] = frozenset()  # 1 = SUN
        self.before_last: set[tuple[int, bool]] = set()  # days before the last; to a weekday?
        self.nearest: set[int] = set()
        self.last_of_kind: set[int] = set()
        self.nth_of_kind: set[tuple[int, int]] = set()

    def in_month(self, year: int, month: int) -> tuple[int, ...]:
        """Return the days of one month that fire, in order."""
        length = days_in_month(year, month)
        sunday = date(year, month, 1).isoweekday() % 7  # days from a Sunday to the 1st

        def weekday(day: int) -> int:
            return (sunday + day - 1) % 7 + 1

        def nearest_weekday(day: int) -> int:
            if weekday(day) == 7:
                return day - 1 if day > 1 else day + 2
            if weekday(day) == 1:
                return day + 1 if day < length else day - 2
            return day

        found = {day for day in self.days if day <= length}
        if self.weekdays:
            found.update(day for day in range(1, length + 1) if weekday(day) in self.weekdays)
        for back, to_weekday in self.before_last:
            if back < length:
                found.add(nearest_weekday(length - back) if to_weekday else length - back)
        found.update(nearest_weekday(day) for day in self.nearest if day <= length)
        found.update(length - (weekday(length) - kind) % 7 for kind in self.last_of_kind)
        for kind, nth in self.nth_of_kind:
            day = 1 + (kind - weekday(1)) % 7 + 7 * (nth - 1)
            if day <= length:
                found.add(day)
        return tuple(sorted(found))


class Cron:
    """A compiled expression."""

    __slots__ = ("_hours", "_minutes", "_month_days", "_months", "_rules", "_seconds", "_years")

    def __init__(self, expression: str) -> None:
        fields = expression.upper().split()
        if len(fields) not in (6, 7):
            raise BadTime(f"cron expression of {len(fields)} fields, 6 or 7 are needed")
        self._seconds = tuple(sorted(_numbers(fields[0], _SECOND)))
        self._minutes = tuple(sorted(_numbers(fields[1], _MINUTE)))
        self._hours = tuple(sorted(_numbers(fields[2], _HOUR)))
        self._rules = _day_rules(fields[3], fields[5])
        self._months = _numbers(fields[4], _MONTH)
        self._years = _numbers(fields[6] if len(fields) == 7 else "*", _YEAR)
        self._month_days: dict[int, tuple[int, ...]] = {}

    def next_day(self, day: int) -> int | None:
        """First day that fires, at or after this one, as a day number."""
        year, month, day_of_month = day_date(day)
        index = year * 12 + month - 1
        if index < FIRST_YEAR * 12:
            index, day_of_month = FIRST_YEAR * 12, 1
        while index < (LAST_YEAR + 1) * 12:
            days = self._days_of(index)
            at = bisect_left(days, day_of_month)
            if at < len(days):
                return day_number(index // 12, index % 12 + 1, days[at])
            index, day_of_month = index + 1, 1
        return None

    def previous_day(self, day: int) -> int | None:
        """Last day that fires, at or before this one, as a day number."""
        year, month, day_of_month = day_date(day)
        index = year * 12 + month - 1
        if index >= (LAST_YEAR + 1) * 12:
            index, day_of_month = LAST_YEAR * 12 + 11, 31
        while index >= FIRST_YEAR * 12:
            days = self._days_of(index)
            at = bisect_right(days, day_of_month)
            if at:
                return day_number(index // 12, index % 12 + 1, days[at - 1])
            index, day_of_month = index - 1, 31
        return None

    def next_time(self, second: int) -> int | None:
        """First second of a day that fires, at or after this one."""
        hour, second = divmod(second, 3600)
        minute, second = divmod(second, 60)
        at_hour = bisect_left(self._hours, hour)
        if at_hour == len(self._hours):
            return None
        if self._hours[at_hour] != hour:
            return self._hours[at_hour] * 3600 + self._minutes[0] * 60 + self._seconds[0]
        at_minute = bisect_left(self._minutes, minute)
        if at_minute < len(self._minutes) and self._minutes[at_minute] == minute:
            at_second = bisect_left(self._seconds, second)
            if at_second < len(self._seconds):
                return hour * 3600 + minute * 60 + self._seconds[at_second]
            at_minute += 1
        if at_minute < len(self._minutes):
            return hour * 3600 + self._minutes[at_minute] * 60 + self._seconds[0]
        if at_hour + 1 < len(self._hours):
            return self._hours[at_hour + 1] * 3600 + self._minutes[0] * 60 + self._seconds[0]
        return None

    def previous_time(self, second: int) -> int | None:
        """Last second of a day that fires, at or before this one."""
        if second < 0:
            return None
        hour, second = divmod(second, 3600)
        minute, second = divmod(second, 60)
        at_hour = bisect_right(self._hours, hour) - 1
        if at_hour < 0:
            return None
        if self._hours[at_hour] != hour:
            return self._hours[at_hour] * 3600 + self._minutes[-1] * 60 + self._seconds[-1]
        at_minute = bisect_right(self._minutes, minute) - 1
        if at_minute >= 0 and self._minutes[at_minute] == minute:
            at_second = bisect_right(self._seconds, second) - 1
            if at_second >= 0:
                return hour * 3600 + minute * 60 + self._seconds[at_second]
            at_minute -= 1
        if at_minute >= 0:
            return hour * 3600 + self._minutes[at_minute] * 60 + self._seconds[-1]
        if at_hour > 0:
            return self._hours[at_hour - 1] * 3600 + self._minutes[-1] * 60 + self._seconds[-1]
        return None

    def _days_of(self, index: int) -> tuple[int, ...]:
        # At most 1560 months are ever asked for: the cache needs no bound of its own.
        days = self._month_days.get(index)
        if days is None:
            year, month = divmod(index, 12)
            fires = year in self._years and month + 1 in self._months
            days = self._rules.in_month(year, month + 1) if fires else ()
            self._month_days[index] = days
        return days


def _day_rules(of_month: str, of_week: str) -> _DayRules:
    if (of_month == "?") == (of_week == "?"):
        raise BadTime("exactly one of day-of-month and day-of-week must be ?")
    rules = _DayRules()
    plain = []
    if of_month != "?":
        for item in of_month.split(","):
            if match := _LAST_DAY.fullmatch(item):
                back = int(match["back"] or 0)
                if back > 30:
                    raise _refusal(item, _DAY_OF_MONTH)
                rules.before_last.add((back, match["weekday"] is not None))
            elif match := _NEAREST_WEEKDAY.fullmatch(item):
                rules.nearest.add(_number(match["day"], item, _DAY_OF_MONTH))
            else:
                plain.append(item)
        rules.days = _numbers(",".join(plain), _DAY_OF_MONTH) if plain else frozenset()
        return rules
    for item in of_week.split(","):
        if item == "L":  # alone, it is the last day of the week
            plain.append("SAT")
        elif match := _LAST_OF_KIND.fullmatch(item):
            rules.last_of_kind.add(_number(match["day"], item, _DAY_OF_WEEK))
        elif match := _NTH_OF_KIND.fullmatch(item):
            nth = int(match["nth"])
            if not 1 <= nth <= 5:
                raise _refusal(item, _DAY_OF_WEEK)
            rules.nth_of_kind.add((_number(match["day"], item, _DAY_OF_WEEK), nth))
        else:
            plain.append(item)
    rules.weekdays = _numbers(",".join(plain), _DAY_OF_WEEK) if plain else frozenset()
    return rules


def _numbers(text: str, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for item in text.split(","):
        found.update(_range(item, field))
    return frozenset(found)


def _range(item: str, field: _Field) -> list[int]:
    match = _RANGE.fullmatch(item)
    if match is None or not item:
        raise _refusal(item, field)
    step = 1
    if match["step"] is not None:
        step = int(match["step"])
        if not 1 <= step <= field.last:
            raise _refusal(item, field)
    if match["first"] in ("", "*"):
        # A bare /15 is */15; a range cannot begin with either.
        if match["last"] is not None:
            raise _refusal(item, field)
        return list(range(field.first, field.last + 1, step))
    first = _number(match["first"], item, field)
    if match["last"] is not None:
        last = _number(match["last"], item, field)
    else:
        last = first if match["step"] is None else field.last
    if last >= first:
        return list(range(first, last + 1, step))
    if not field.wraps:
        raise _refusal(item, field)
    span = field.last - field.first + 1
    return [
        (number - field.first) % span + field.first
        for number in range(first, last + span + 1, step)
    ]


def _number(text: str, item: str, field: _Field) -> int:
    if text in field.names:
        return field.names.index(text) + field.first
    if not text.isdecimal() or len(text) > 4 or not field.first <= int(text) <= field.last:
        raise _refusal(item, field)
    return int(text)


def _refusal(item: str, field: _Field) -> BadTime:
    return BadTime(f"cron field {field.name} cannot be {shown(item)}")
