"""Calendar arithmetic: day numbers, ISO 8601 durations, and what the clocks of a zone show.

Days are numbered from 1970-01-01, seconds and milliseconds count from its midnight: in UTC
they are *instants*, on the clocks of a zone they are *local*. Plain integers, because
events may lie far outside the years 1 to 9999 that `datetime` knows; the Gregorian
calendar repeats every 400 years to the day of the week, so any year has a twin inside.

What a local time means where the clocks are changed:

    gap       the time is never shown. A fire time there does not exist; the end of a window
              there is read with the offset from before, so 02:30 becomes 03:30
    overlap   the time is shown twice: it is the earlier of the two
"""

import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

import isodate

from protocol.errors import BadTime

DAY_S = 86_400
DAY_MS = 86_400_000

_EPOCH = datetime(1970, 1, 1)
_EPOCH_ORDINAL = _EPOCH.toordinal()
_CYCLE_YEARS = 400
_CYCLE_DAYS = 146_097
_CYCLE_S = _CYCLE_DAYS * DAY_S
_YEAR_100_S = (date(100, 1, 1).toordinal() - _EPOCH_ORDINAL) * DAY_S
_YEAR_9000_S = (date(9000, 1, 1).toordinal() - _EPOCH_ORDINAL) * DAY_S

# Two clocks of one place are never further apart than this: 24 hours when the date line
# moves, two for a double summer time.
MAX_OFFSET_CHANGE_MS = 27 * 3_600_000

_MAX_MONTHS = 12 * 300_000_000  # the years that 64 bits of milliseconds hold
_ZONE_NAME = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,3}")


def day_number(year: int, month: int, day: int) -> int:
    """Number of a day of the proleptic Gregorian calendar, in any year."""
    cycles, year = divmod(year - 2000, _CYCLE_YEARS)
    return date(2000 + year, month, day).toordinal() - _EPOCH_ORDINAL + cycles * _CYCLE_DAYS


def day_date(day: int) -> tuple[int, int, int]:
    """Year, month and day of a day number."""
    cycles, day = divmod(day, _CYCLE_DAYS)
    found = date.fromordinal(_EPOCH_ORDINAL + day)
    return found.year + cycles * _CYCLE_YEARS, found.month, found.day


def days_in_month(year: int, month: int) -> int:
    """Length of a month."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def add_months(day: int, months: int) -> int:
    """Move a day by whole months; the 31st becomes the last day of a shorter month."""
    if not months:
        return day
    year, month, day_of_month = day_date(day)
    year, month = divmod(year * 12 + month - 1 + months, 12)
    return day_number(year, month + 1, min(day_of_month, days_in_month(year, month + 1)))


class Duration(NamedTuple):
    """Calendar months and days, which have no fixed length, and exact milliseconds."""

    months: int
    days: int
    exact_ms: int

    def times(self, count: int) -> "Duration":
        """Repeat it, or reverse it with a negative count."""
        return Duration(self.months * count, self.days * count, self.exact_ms * count)

    def shortest_ms(self, zone: "Zone") -> int:
        """No addition of this duration in the zone moves a time by less."""
        return self._about_ms(-1, zone)

    def longest_ms(self, zone: "Zone") -> int:
        """No addition of this duration in the zone moves a time by more."""
        return self._about_ms(1, zone)

    def _about_ms(self, side: int, zone: "Zone") -> int:
        ms = self.days * DAY_MS + self.exact_ms
        if self.months:
            # Three days at most from month lengths, and the leap days of a century.
            ms += (self.months * _CYCLE_DAYS // (_CYCLE_YEARS * 12) + side * 5) * DAY_MS
        if zone.changes and (self.months or self.days):
            ms += side * MAX_OFFSET_CHANGE_MS
        return ms


def parse_duration(text: str) -> Duration:
    """Read an ISO 8601 duration such as P1M, P2W, P1DT12H or PT0.5S, to the millisecond."""
    # isodate puts P1D and PT24H into one timedelta, but a calendar day can have 23 hours:
    # the two sides of the T are read apart. It would also take a sign, a bare T, and the
    # alternative form P0001-01-01T00:00:00.
    calendar_text, has_time, exact_text = text.partition("T")
    if not text.startswith("P") or (has_time and not exact_text) or len(text) < 3:
        raise BadTime(f"{shown(text)} is no duration")
    years = months = Decimal(0)
    calendar = exact = timedelta(0)
    try:
        if calendar_text != "P":
            parsed = isodate.parse_duration(calendar_text, as_timedelta_if_possible=False)
            years, months, calendar = parsed.years, parsed.months, parsed.tdelta
        if has_time:
            exact = isodate.parse_duration("PT" + exact_text)
    except OverflowError:
        raise BadTime(f"duration {shown(text)} is too long") from None
    except ValueError:
        raise BadTime(f"{shown(text)} is no duration") from None
    all_months = years * 12 + months
    if all_months > _MAX_MONTHS:
        raise BadTime(f"duration {shown(text)} is too long")
    if all_months != int(all_months):
        raise BadTime(f"duration {shown(text)} has a fraction of a month")
    # Half a calendar day is twelve hours.
    exact_us = exact // timedelta(microseconds=1) + calendar.seconds * 1_000_000
    exact_us += calendar.microseconds
    return Duration(int(all_months), calendar.days, (exact_us + 500) // 1000)


class Piece(NamedTuple):
    """A stretch of a local day with one offset: local seconds from `start` up to `end`."""

    start: int
    end: int
    offset: int  # local minus UTC, in seconds; in a gap, the one from before
    gap: bool


class Zone(Protocol):
    """What temporal filters ask of a time zone."""

    @property
    def changes(self) -> bool:
        """Whether its offset from UTC ever changes."""

    def offset_at(self, instant_s: int) -> int:
        """Seconds to add to an instant for what the clocks show then."""

    def offset_of(self, local_s: int) -> int:
        """Seconds to take off a local time for its instant."""

    def pieces(self, day: int) -> tuple[Piece, ...]:
        """Cut a local day where the clocks are changed."""


class Utc:
    """The zone of everything that names no zone."""

    changes = False

    def offset_at(self, instant_s: int) -> int:
        """Return zero, as everywhere in UTC."""
        return 0

    def offset_of(self, local_s: int) -> int:
        """Return zero, as everywhere in UTC."""
        return 0

    def pieces(self, day: int) -> tuple[Piece, ...]:
        """Return the whole day."""
        return (Piece(day * DAY_S, (day + 1) * DAY_S, 0, False),)


UTC = Utc()


class NamedZone:
    """A zone of the IANA database."""

    changes = True

    def __init__(self, info: ZoneInfo) -> None:
        self._info = info
        self._pieces: dict[int, tuple[Piece, ...]] = {}

    def offset_at(self, instant_s: int) -> int:
        """Seconds to add to an instant for what the clocks show then."""
        moment = _EPOCH + timedelta(seconds=_in_known_years(instant_s))
        return _seconds(self._info.fromutc(moment.replace(tzinfo=self._info)).utcoffset())

    def offset_of(self, local_s: int) -> int:
        """Seconds to take off a local time for its instant, by the rules of this module."""
        moment = _EPOCH + timedelta(seconds=_in_known_years(local_s))
        return _seconds(moment.replace(tzinfo=self._info).utcoffset())

    def pieces(self, day: int) -> tuple[Piece, ...]:
        """Cut a local day where the clocks are changed."""
        found = self._pieces.get(day)
        if found is None:
            if len(self._pieces) >= 4096:
                self._pieces.clear()
            found = self._pieces[day] = self._cut(day)
        return found

    def _cut(self, day: int) -> tuple[Piece, ...]:
        # The instants of a local day lie within a day either side of the same day in UTC.
        # No zone has ever changed its clocks twice between two midnights in UTC.
        first, last = day * DAY_S, (day + 1) * DAY_S
        probes = range(first - DAY_S, last + DAY_S + 1, DAY_S)
        offset = self.offset_at(probes[0])
        cuts: list[Piece] = []
        start = first
        for before, after in pairwise(probes):
            changed = self.offset_at(after)
            if changed == offset:
                continue
            change = self._first_instant_with(changed, before, after)
            # Up to the change the clocks show the old offset, and in an overlap the
            # earlier instant counts: the new offset begins where the old one ended.
            cuts.append(Piece(start, change + offset, offset, False))
            start = change + offset
            if changed > offset:
                cuts.append(Piece(start, change + changed, offset, True))
                start = change + changed
            offset = changed
        cuts.append(Piece(start, last, offset, False))
        clipped = [
            piece._replace(start=max(piece.start, first), end=min(piece.end, last))
            for piece in cuts
        ]
        return tuple(piece for piece in clipped if piece.start < piece.end)

    def _first_instant_with(self, offset: int, before: int, after: int) -> int:
        while after - before > 1:
            middle = (before + after) // 2
            if self.offset_at(middle) == offset:
                after = middle
            else:
                before = middle
        return after


@lru_cache(maxsize=128)
def find_zone(name: str) -> Zone:
    """Look up a zone of the IANA database by its name."""
    # "localtime" is whatever this machine stands in, "right/…" counts leap seconds.
    if not _ZONE_NAME.fullmatch(name) or name == "localtime" or name.startswith("right/"):
        raise BadTime(f"unknown time zone {shown(name)}")
    if name == "UTC":
        return UTC
    try:
        return NamedZone(ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        raise BadTime(f"unknown time zone {shown(name)}") from None


def add_duration(instant_ms: int, duration: Duration, zone: Zone) -> int:
    """Add months, then days on the clocks of the zone, then exact time."""
    if duration.months or duration.days:
        local_ms = instant_ms + zone.offset_at(instant_ms // 1000) * 1000
        day, of_day_ms = divmod(local_ms, DAY_MS)
        local_ms = (add_months(day, duration.months) + duration.days) * DAY_MS + of_day_ms
        instant_ms = local_ms - zone.offset_of(local_ms // 1000) * 1000
    return instant_ms + duration.exact_ms


def shown(text: str) -> str:
    """Quote text from a peer in an error, cut to a readable length."""
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def _in_known_years(seconds: int) -> int:
    # Far in the future the rules of today go on, and repeat with the calendar; before the
    # year 100 as ever before standard time, the sun's own offset holds.
    if seconds > _YEAR_9000_S:
        return _YEAR_9000_S - _CYCLE_S + (seconds - _YEAR_9000_S) % _CYCLE_S
    return max(seconds, _YEAR_100_S)


def _seconds(offset: timedelta | None) -> int:
    # ZoneInfo answers None only for a time without a date.
    return 0 if offset is None else offset.days * DAY_S + offset.seconds
