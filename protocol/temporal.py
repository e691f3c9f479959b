"""Times of events and temporal filters as text: ISO 8601, Unix seconds, cron.

    parse_event_time   text of an event's time --> (start, end) in Unix milliseconds
    format_time        and back
    parse_filter       text of a temporal filter --> TimeFilter, which answers relations

Nothing here reads a clock. The forms of an instant:

    2026-03-28T11:15:00Z    ISO 8601, extended or basic, calendar, week or ordinal date, with
                            a fraction (cut to milliseconds) and an offset; no offset = UTC
    2026-03-28, 2026-03     the first midnight of the day or month
    1774696500              Unix seconds: digits, also 1774696500.25 and, before 1970, -1.5.
                            (So a basic date must carry a time: 20260328T00.)

An interval is `start/end`, `start/duration` or `duration/end`, with `..` for an open end and
`--` for any `/`. An event may last no time at all, and is an instant then; a filter may not,
for it would match nothing: `C0`, like the bare instant. A filter may end in a zone,
`[Europe/Berlin]`, in which its times without an offset are read and its days counted.
"""

import re
from datetime import UTC as UTC_ZONE
from datetime import date, datetime, time, timedelta

import isodate

from protocol.civil import (
    UTC,
    Duration,
    Zone,
    add_duration,
    find_zone,
    parse_duration,
    shown,
)
from protocol.cron import Cron
from protocol.errors import BadTime
from protocol.windows import (
    MAX_MS,
    MIN_MS,
    RELATION_NAMES,
    TEMPORAL_RELATIONS,
    CronWindows,
    Interval,
    Repeating,
    TimeFilter,
    relation_holds,
)

__all__ = [
    "MAX_MS",
    "MIN_MS",
    "RELATION_NAMES",
    "TEMPORAL_RELATIONS",
    "CronWindows",
    "Interval",
    "Repeating",
    "TimeFilter",
    "format_time",
    "parse_event_time",
    "parse_filter",
    "relation_holds",
]

MAX_TEXT = 2048  # enough for a cron expression that lists every number of every field

_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC_ZONE)
_FIRST_FORMATTED_MS = -62_135_596_800_000  # 0001-01-01
_END_FORMATTED_MS = 253_402_300_800_000  # 10000-01-01

_UNIX = re.compile(r"(?P<sign>-?)(?P<seconds>[0-9]{1,16})(?:[.,](?P<fraction>[0-9]{1,30}))?")
_DATE = (
    r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?|(?P<basic_month>[0-9]{2})[0-9]{2}"
    r"|-?W(?P<week>[0-9]{2})(?:-?(?P<weekday>[0-9]))?|-?(?P<day_of_year>[0-9]{3}))"
)
_TIME = (
    r"(?P<hour>[0-9]{2})(?P<rest>(?::?[0-9]{2}){0,2}(?:[.,][0-9]{1,30})?)"
    r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_INSTANT = re.compile(f"{_DATE}(?:T{_TIME})?")
_REPEAT = re.compile(r"R(?P<count>[0-9]{0,18})")


def parse_event_time(text: str) -> tuple[int, int]:
    """Read the time of an event; an instant ends as it starts."""
    # The common forms, with seconds or milliseconds, in well under a microsecond; whatever is
    # wrong with them is told below. The punctuation is checked first because `datetime` reads
    # the fraction of a minute or an hour as one of a second.
    size = len(text)
    if (
        (size == 20 or (size == 24 and text[19] == "."))
        and text[10] == "T"
        and text[16] == ":"
        and text[-1] == "Z"
    ):
        try:
            since = datetime.fromisoformat(text) - _EPOCH_UTC
        except ValueError:
            pass
        else:
            ms = since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
            return ms, ms
    _check_characters(text)
    parts = _split(text)
    if len(parts) == 1:
        ms = _parse_instant(text, UTC)
        return ms, ms
    if len(parts) != 2:
        raise BadTime(f"{shown(text)} is no instant or interval")
    start, end, _ = _parse_interval(parts[0], parts[1], UTC)
    return start, end


def format_time(start_ms: int, end_ms: int) -> str:
    """Write the time of an event as ISO 8601; as Unix seconds beyond the year 9999."""
    if start_ms == end_ms:
        return _format_instant(start_ms)
    start = ".." if start_ms == MIN_MS else _format_instant(start_ms)
    end = ".." if end_ms == MAX_MS else _format_instant(end_ms)
    return f"{start}/{end}"


def parse_filter(text: str) -> TimeFilter:
    """Read a temporal filter: an interval, a repeating interval, or cron and a duration."""
    _check_characters(text)
    zone: Zone = UTC
    if text.endswith("]"):
        text, _, name = text[:-1].rpartition("[")
        zone = find_zone(name)
    text = text.strip()
    if " " in text or "\t" in text:
        return _parse_cron(text, zone)
    parts = _split(text)
    repeat = _REPEAT.fullmatch(parts[0])
    if repeat is not None and len(parts) == 3:
        return _parse_repeating(repeat["count"], parts[1], parts[2], zone)
    if len(parts) != 2:
        raise BadTime(f"{shown(text)} is no interval, repeating interval or cron expression")
    start, end, _ = _parse_interval(parts[0], parts[1], zone)
    if start == end:
        raise BadTime(f"interval {shown(text)} has no length")
    return Interval(start, end)


def _check_characters(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise BadTime(f"time of {len(text)} characters, limit is {MAX_TEXT}")
    # Case folding and digits of other scripts would let odd text pass for a time.
    if not text.isascii() or not text.isprintable():
        raise BadTime(f"{shown(text)} has characters that no time has")


def _split(text: str) -> list[str]:
    return text.replace("--", "/").split("/")


def _parse_cron(text: str, zone: Zone) -> CronWindows:
    # Steps have slashes too, but no step begins with a P.
    at = max(text.rfind("/P"), text.rfind("--P"))
    if at < 0:
        raise BadTime(f"cron expression {shown(text)} needs a duration after it: …/PT5M")
    duration = parse_duration(text[at:].lstrip("/-"))
    if duration == Duration(0, 0, 0):
        raise BadTime("cron windows have no length")
    return CronWindows(Cron(text[:at]), duration, zone)


def _parse_repeating(count_text: str, first: str, second: str, zone: Zone) -> Repeating:
    count = int(count_text) if count_text else None
    if count == 0:
        raise BadTime("an interval cannot be repeated no times")
    start, end, duration = _parse_interval(first, second, zone)
    if start == MIN_MS or end == MAX_MS:
        raise BadTime("an open interval cannot be repeated")
    if start == end:
        raise BadTime("repeating interval has no length")
    backwards = first.startswith("P")
    if duration is None:
        duration = Duration(0, 0, end - start)
    return Repeating(end if backwards else start, duration, zone, count, backwards=backwards)


def _parse_interval(first: str, second: str, zone: Zone) -> tuple[int, int, Duration | None]:
    duration = None
    if first.startswith("P"):
        duration = parse_duration(first)
        end = _parse_instant(second, zone)
        start = add_duration(end, duration.times(-1), zone)
    elif second.startswith("P"):
        duration = parse_duration(second)
        start = _parse_instant(first, zone)
        end = add_duration(start, duration, zone)
    else:
        start = MIN_MS if first == ".." else _parse_instant(first, zone)
        end = MAX_MS if second == ".." else _parse_instant(second, zone)
    if start < MIN_MS or end > MAX_MS:
        raise BadTime(f"interval of {shown(first)} and {shown(second)} runs out of time")
    if end < start:
        raise BadTime(f"interval ends at {shown(second)}, before its start {shown(first)}")
    return start, end, duration


def _parse_instant(text: str, zone: Zone) -> int:
    match = _UNIX.fullmatch(text)
    if match is not None:
        ms = int(match["seconds"]) * 1000 + int((match["fraction"] or "0").ljust(3, "0")[:3])
        if match["sign"]:
            ms = -ms
        if not MIN_MS <= ms <= MAX_MS:
            raise BadTime(f"Unix time {shown(text)} is out of range")
        return ms
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise BadTime(f"{shown(text)} is no instant")
    try:
        moment = _read_iso(text, match)
        if moment.tzinfo is not None:
            return (moment - _EPOCH_UTC) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as error:
        raise BadTime(f"{shown(text)} is no instant: {error}") from None
    local_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    return local_ms - zone.offset_of(local_ms // 1000) * 1000


def _read_iso(text: str, match: re.Match[str]) -> datetime:
    date_text, _, time_text = text.partition("T")
    day = isodate.parse_date(date_text)
    _check_date(day, match)
    if not time_text:
        return datetime.combine(day, time())
    if (match["month"] and not match["day"]) or (match["week"] and not match["weekday"]):
        raise ValueError("a time of day needs a day")
    # The midnight that ends a day.
    if match["hour"] == "24":
        if match["rest"].strip(":.,0"):
            raise ValueError("hour must be in 0..23")
        return datetime.combine(day, isodate.parse_time("00" + time_text[2:])) + timedelta(days=1)
    return datetime.combine(day, isodate.parse_time(time_text))


def _check_date(day: date, match: re.Match[str]) -> None:
    # isodate lets week 60 and day 400 run into the next year, and takes month 00 for January.
    if match["week"] is not None:
        named = (int(match["year"]), int(match["week"]), int(match["weekday"] or 1))
        if tuple(day.isocalendar()) != named:
            raise ValueError("no such week date")
    elif match["day_of_year"] is not None:
        if day.year != int(match["year"]) or day.timetuple().tm_yday != int(match["day_of_year"]):
            raise ValueError("no such day of the year")
    elif (match["month"] or match["basic_month"]) == "00":
        raise ValueError("month must be in 1..12")


def _format_instant(ms: int) -> str:
    if not _FIRST_FORMATTED_MS <= ms < _END_FORMATTED_MS:
        seconds, fraction = divmod(abs(ms), 1000)
        return f"{'-' if ms < 0 else ''}{seconds}" + (f".{fraction:03}" if fraction else "")
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds" if ms % 1000 else "seconds") + "Z"
