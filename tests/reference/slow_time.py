"""Temporal filters, slowly and obviously: every window written out, every relation spelt out.

The tests compare `protocol.temporal` with this. It shares no code with it: cron fields are
walked number by number, days of a month are picked from a list of its days, and zones are
asked by trying which instants show a given time on their clocks.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

Window = tuple[int, int]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


class Length(NamedTuple):
    """A duration: calendar months and days, exact milliseconds."""

    months: int = 0
    days: int = 0
    ms: int = 0


def ms_of(moment: datetime) -> int:
    """Unix milliseconds of an aware datetime."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def relation_is(name: str, event: Window, window: Window) -> bool:
    """Whether *event REL window*, by the book."""
    s, e = event
    a, b = window
    if name == "intersects" and s == e:
        return a <= s < b
    return {
        "any": True,
        "intersects": s < b and a < e,
        "before": e < a,
        "after": b < s,
        "meets": e == a,
        "met_by": b == s,
        "overlaps": s < a < e < b,
        "overlapped_by": a < s < b < e,
        "starts": s == a and e < b,
        "started_by": s == a and b < e,
        "during": a < s and e < b,
        "contains": s < a and b < e,
        "finishes": e == b and a < s,
        "finished_by": e == b and s < a,
        "equals": s == a and e == b,
    }[name]


def holds(name: str, event: Window, windows: Iterable[Window]) -> bool:
    """Whether the relation holds for some window; "any" asks for none."""
    return name == "any" or any(relation_is(name, event, window) for window in windows)


def instants_showing(local: datetime, zone: ZoneInfo) -> list[datetime]:
    """All instants at which the clocks of a zone show a time, in order: none, one or two."""
    guesses = {(local.replace(tzinfo=zone, fold=fold)).astimezone(UTC) for fold in (0, 1)}
    return sorted(g for g in guesses if g.astimezone(zone).replace(tzinfo=None, fold=0) == local)


def instant_of_end(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of a window's end: in a gap, by the offset from before the gap."""
    known = instants_showing(local, zone)
    if known:
        return known[0]
    before = local
    while not instants_showing(before, zone):
        before -= timedelta(minutes=1)
    last = instants_showing(before, zone)[-1]
    return last + (local - before)


def moved(local: datetime, months: int, days: int) -> datetime:
    """Move a local time by months, then days; the 31st becomes the last of a shorter month."""
    year, month = local.year, local.month
    for _ in range(abs(months)):
        month += 1 if months > 0 else -1
        if month in (0, 13):
            year, month = (year + 1, 1) if month == 13 else (year - 1, 12)
    day = min(local.day, len(days_of_month(year, month)))
    return local.replace(year=year, month=month, day=day) + timedelta(days=days)


def added(start: datetime, length: Length, zone: ZoneInfo) -> datetime:
    """Add a length to an instant, with calendar months and days in the zone."""
    end = start
    if length.months or length.days:
        local = start.astimezone(zone).replace(tzinfo=None, fold=0)
        end = instant_of_end(moved(local, length.months, length.days), zone)
    return end + timedelta(milliseconds=length.ms)


def repeating_windows(
    anchor: datetime, length: Length, zone: ZoneInfo, numbers: Iterable[int]
) -> list[Window]:
    """Windows number 0, 1, … from the anchor on, or -1, -2, … back from it."""

    def boundary(k: int) -> int:
        return ms_of(added(anchor, Length(length.months * k, length.days * k, length.ms * k), zone))

    return [(boundary(k), boundary(k + 1)) for k in numbers]


def cron_windows(
    expression: str, length: Length, zone: ZoneInfo, first: date, last: date
) -> list[Window]:
    """Windows of a cron expression whose fire times fall on local days from first to last."""
    return [
        (ms_of(start), ms_of(added(start, length, zone)))
        for local in fire_times(expression, first, last)
        for start in instants_showing(local, zone)[:1]
    ]


def fire_times(expression: str, first: date, last: date) -> Iterator[datetime]:
    """Yield the local times at which a Quartz expression fires, between two days, in order."""
    second, minute, hour, of_month, month, of_week, *year = expression.upper().split()
    hours, minutes = numbers(hour, 0, 23), numbers(minute, 0, 59)
    seconds = numbers(second, 0, 59)
    times = [(h, m, s) for h in sorted(hours) for m in sorted(minutes) for s in sorted(seconds)]
    months = numbers(month, 1, 12, MONTHS)
    years = numbers(year[0] if year else "*", 1970, 2099)
    day = first
    while day <= last:
        if day.year in years and day.month in months and fires_on(day, of_month, of_week):
            for h, m, s in times:
                yield datetime(day.year, day.month, day.day, h, m, s)
        day += timedelta(days=1)


def fires_on(day: date, of_month: str, of_week: str) -> bool:
    """Whether the day fields of an expression allow a day."""
    month = days_of_month(day.year, day.month)
    if of_week == "?":
        return any(day in days_named(item, month) for item in of_month.split(","))
    return any(day in weekdays_named(item, month) for item in of_week.split(","))


def days_named(item: str, month: list[date]) -> list[date]:
    """Days of a month that one item of day-of-month means."""
    to_weekday = item.endswith("W")
    if item.startswith("L"):
        back = int(item.strip("LW-") or 0)
        days = [month[-1 - back]] if back < len(month) else []
    elif to_weekday:
        days = [day for day in month if day.day == int(item[:-1])]
    else:
        return [day for day in month if day.day in numbers(item, 1, 31)]
    if not to_weekday:
        return days
    weekdays = [day for day in month if day.isoweekday() <= 5]
    return [min(weekdays, key=lambda weekday: abs(weekday - day)) for day in days]


def weekdays_named(item: str, month: list[date]) -> list[date]:
    """Days of a month that one item of day-of-week means."""
    if item == "L":
        item = "SAT"
    if item.endswith("L"):
        return [day for day in month if number_of(day) in numbers(item[:-1], 1, 7, WEEKDAYS)][-1:]
    if "#" in item:
        kind, nth = item.split("#")
        days = [day for day in month if number_of(day) in numbers(kind, 1, 7, WEEKDAYS)]
        return days[int(nth) - 1 : int(nth)]
    return [day for day in month if number_of(day) in numbers(item, 1, 7, WEEKDAYS)]


def number_of(day: date) -> int:
    """Return the number of a day of the week, as Quartz counts: SUN is 1."""
    return WEEKDAYS.index(day.strftime("%a").upper()) + 1


def days_of_month(year: int, month: int) -> list[date]:
    """All days of a month."""
    day, days = date(year, month, 1), []
    while day.month == month:
        days.append(day)
        day += timedelta(days=1)
    return days


def numbers(text: str, first: int, last: int, names: list[str] | None = None) -> set[int]:
    """Return the numbers that a field allows, by walking each range one by one."""

    def number(word: str) -> int:
        return names.index(word) + first if names and word in names else int(word)

    allowed = set()
    for item in text.split(","):
        bounds, _, step = item.partition("/")
        if bounds in ("*", ""):
            start, stop = first, last
        elif "-" in bounds:
            start, stop = (number(word) for word in bounds.split("-"))
        else:
            start = number(bounds)
            stop = last if step else start
        here, walked = start, 0
        while True:
            if walked % int(step or 1) == 0:
                allowed.add(here)
            if here == stop:
                break
            here, walked = (first if here == last else here + 1), walked + 1
    return allowed
