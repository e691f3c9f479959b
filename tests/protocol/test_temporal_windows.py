"""Windows of repeating intervals and cron: known cases, and all relations, slowly."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from protocol.civil import (
    DAY_MS,
    DAY_S,
    Duration,
    add_duration,
    day_date,
    day_number,
    find_zone,
)
from protocol.civil import (
    UTC as UTC_ZONE,
)
from protocol.temporal import (
    MAX_MS,
    MIN_MS,
    RELATION_NAMES,
    TEMPORAL_RELATIONS,
    TimeFilter,
    parse_event_time,
    parse_filter,
)
from tests.reference import slow_time
from tests.reference.slow_time import Length, Window, ms_of

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",  # southern, changes at midnight
    "Australia/Lord_Howe",  # half an hour of summer time
    "Pacific/Apia",  # had no 30 December 2011
    "Africa/Casablanca",  # four changes a year
    "Asia/Kathmandu",
]


def matches(filter_text: str, event_text: str, relation: str = "intersects") -> bool:
    """Whether an event stands in a relation to a filter, all from text."""
    number = TEMPORAL_RELATIONS[relation]
    return parse_filter(filter_text).holds(number, *parse_event_time(event_text))


def has_window(filter_text: str, start: str, end: str) -> bool:
    """Whether a filter has exactly this window."""
    return matches(filter_text, f"{start}/{end}", "equals")


def edges(filter_text: str, start: str, end: str) -> None:
    """Assert that events match from start up to end, and not just outside."""
    first, last = parse_event_time(start)[0], parse_event_time(end)[0]
    asked = parse_filter(filter_text)
    answers = [asked.holds(1, ms, ms) for ms in (first - 1, first, last - 1, last)]
    assert answers == [False, True, True, False]


# --- repeating intervals


def test_repeated_intervals_follow_one_another_n_times_in_all() -> None:
    text = "R3/2026-01-01/P1D"
    edges(text, "2026-01-01", "2026-01-04")
    assert has_window(text, "2026-01-03", "2026-01-04")
    assert not has_window(text, "2026-01-04", "2026-01-05")
    assert not has_window(text, "2025-12-31", "2026-01-01")
    assert not has_window(text, "2026-01-01", "2026-01-03")


def test_monthly_steps_stay_on_their_day() -> None:
    text = "R/2026-01-31/P1M"
    assert has_window(text, "2026-01-31", "2026-02-28")
    assert has_window(text, "2026-02-28", "2026-03-31")
    assert has_window(text, "2026-03-31", "2026-04-30")
    assert has_window(text, "2028-01-31", "2028-02-29")
    assert has_window(text, "2028-02-29", "2028-03-31")


def test_yearly_steps_from_a_leap_day_come_back_to_it() -> None:
    text = "R/2024-02-29/P1Y"
    assert has_window(text, "2025-02-28", "2026-02-28")
    assert has_window(text, "2027-02-28", "2028-02-29")


def test_repeats_of_duration_and_end_count_back_from_the_end() -> None:
    text = "R3/P1M/2026-03-31"
    edges(text, "2025-12-31", "2026-03-31")
    assert has_window(text, "2026-02-28", "2026-03-31")
    assert has_window(text, "2026-01-31", "2026-02-28")
    assert has_window(text, "2025-12-31", "2026-01-31")
    assert not has_window(text, "2025-11-30", "2025-12-31")


def test_repeats_of_start_and_end_have_the_length_between() -> None:
    text = "R/2026-02-01/2026-03-01"
    assert has_window(text, "2026-03-01", "2026-03-29")
    assert not matches(text, "2026-01-31T23:59:59Z")


@pytest.mark.parametrize(
    ("text", "event", "holding"),
    [
        # Without end there is always a later window, and never an earlier one.
        ("R/2026-01-01/P1D", "2030-01-01T12:00:00Z", "before after"),
        ("R/2026-01-01/P1D", "2026-01-01T12:00:00Z", "before"),
        ("R2/2026-01-01/P1D", "2026-01-01T12:00:00Z", "before"),
        ("R2/2026-01-01/P1D", "2026-01-02T12:00:00Z", "after"),
        ("R1/2026-01-01/P1D", "2026-01-01T12:00:00Z", ""),
        ("R/P1D/2026-01-01", "2025-12-31T12:00:00Z", "after"),
        ("R/P1D/2026-01-01", "1600-01-01T12:00:00Z", "before after"),
        ("R/P1M/2026-01-01", "-9000000000000000", "before after"),
        ("R/2026-01-01/P1M", "9000000000000000", "before after"),
        ("0 0 0 ? * MON/PT1H", "2099-12-27T12:00:00Z", "before after"),
        ("0 0 0 ? * MON/PT1H", "2099-12-28T12:00:00Z", "after"),
        ("0 0 0 ? * MON 2026/PT1H", "2026-12-28T12:00:00Z", "after"),
        ("0 0 0 ? * MON 2026/PT1H", "2026-01-05T00:30:00Z", "before"),
        ("0 0 0 31 2 ?/PT1H", "2026-01-05T00:30:00Z", ""),
    ],
)
def test_before_and_after_ask_for_the_last_and_the_first_window(
    text: str, event: str, holding: str
) -> None:
    found = [relation for relation in ("before", "after") if matches(text, event, relation)]
    assert found == holding.split()


def test_any_time_holds_even_for_a_cron_that_never_fires() -> None:
    asked = parse_filter("0 0 0 31 2 ?/PT1H")
    holding = [n for n in range(15) if asked.holds(n, 0, 1) or asked.holds(n, MIN_MS, MAX_MS)]
    assert holding == [TEMPORAL_RELATIONS["any"]]


def test_steps_in_a_zone_are_days_on_its_clocks() -> None:
    text = "R3/2026-03-28T08:00/P1D[Europe/Berlin]"
    assert has_window(text, "2026-03-28T07:00:00Z", "2026-03-29T06:00:00Z")
    assert has_window(text, "2026-03-29T06:00:00Z", "2026-03-30T06:00:00Z")
    exact = "R3/2026-03-28T08:00/PT24H[Europe/Berlin]"
    assert has_window(exact, "2026-03-28T07:00:00Z", "2026-03-29T07:00:00Z")


# --- cron windows


def test_the_cron_example_opens_for_five_minutes_every_quarter_of_an_hour() -> None:
    text = "0 0/15 8-17 ? * MON-FRI/PT5M"
    edges(text, "2026-03-27T08:15:00Z", "2026-03-27T08:20:00Z")
    edges(text, "2026-03-27T17:45:00Z", "2026-03-27T17:50:00Z")
    assert not matches(text, "2026-03-27T18:00:00Z")
    assert not matches(text, "2026-03-28T08:15:00Z")  # a Saturday


def test_a_zone_moves_the_windows_with_its_summer_time() -> None:
    text = "0 0 8 ? * MON-FRI/PT2H[Europe/Berlin]"
    edges(text, "2026-03-27T07:00:00Z", "2026-03-27T09:00:00Z")
    edges(text, "2026-03-30T06:00:00Z", "2026-03-30T08:00:00Z")


@pytest.mark.parametrize(
    ("text", "next_window"),
    [
        # 02:30 does not exist on these days.
        ("0 30 2 * * ?/PT10M[Europe/Berlin]", "2026-03-30T00:30:00Z"),
        ("0 30 2 * * ?/PT10M[America/New_York]", "2026-03-09T06:30:00Z"),
        ("0 30 2 * * ?/PT10M[Australia/Sydney]", "2026-10-04T15:30:00Z"),
        ("0 15 2 * * ?/PT10M[Australia/Lord_Howe]", "2026-10-04T15:15:00Z"),
        # Midnight to one o'clock does not.
        ("0 30 0 * * ?/PT10M[America/Santiago]", "2026-09-07T03:30:00Z"),
    ],
)
def test_a_fire_time_in_a_gap_is_skipped(text: str, next_window: str) -> None:
    start = parse_event_time(next_window)[0]
    asked = parse_filter(text)
    assert asked.holds(1, start, start)
    assert not asked.holds(1, start - DAY_MS + 600_000, start)
    assert asked.holds(1, start - 2 * DAY_MS, start)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        # 02:30 is shown twice on these days: at 00:30Z and 01:30Z in Berlin.
        ("0 30 2 * * ?/PT10M[Europe/Berlin]", "2026-10-25T00:30:00Z", "2026-10-25T00:40:00Z"),
        ("0 30 1 * * ?/PT10M[America/New_York]", "2026-11-01T05:30:00Z", "2026-11-01T05:40:00Z"),
        ("0 30 2 * * ?/PT10M[Australia/Sydney]", "2026-04-04T15:30:00Z", "2026-04-04T15:40:00Z"),
        ("0 45 1 * * ?/PT10M[Australia/Lord_Howe]", "2026-04-04T14:45:00Z", "2026-04-04T14:55:00Z"),
        ("0 30 23 * * ?/PT10M[America/Santiago]", "2026-04-05T02:30:00Z", "2026-04-05T02:40:00Z"),
    ],
)
def test_a_fire_time_in_an_overlap_opens_once_at_the_earlier_instant(
    text: str, start: str, end: str
) -> None:
    edges(text, start, end)
    asked = parse_filter(text)
    last = parse_event_time(end)[0]
    assert not asked.holds(1, last, last + 20 * 3_600_000)


def test_a_dense_cron_is_silent_while_an_overlap_is_shown_again() -> None:
    # Every second of the hour from 02:00 fires the first time, from 00:00Z, none from 01:00Z.
    text = "* * * * * ?/PT0.5S[Europe/Berlin]"
    assert matches(text, "2026-10-25T00:59:59Z")
    assert not matches(text, "2026-10-25T01:00:00Z/2026-10-25T02:00:00Z")
    assert matches(text, "2026-10-25T02:00:00Z")


def test_days_in_a_duration_are_days_on_the_clocks_and_hours_are_exact() -> None:
    # The night to 29 March 2026 is an hour short in Berlin, that to 25 October an hour long.
    edges("0 0 12 28 3 ?/P1D[Europe/Berlin]", "2026-03-28T11:00:00Z", "2026-03-29T10:00:00Z")
    edges("0 0 12 28 3 ?/PT24H[Europe/Berlin]", "2026-03-28T11:00:00Z", "2026-03-29T11:00:00Z")
    edges("0 0 12 24 10 ?/P1D[Europe/Berlin]", "2026-10-24T10:00:00Z", "2026-10-25T11:00:00Z")
    edges("0 0 12 31 1 ?/P1M[Europe/Berlin]", "2026-01-31T11:00:00Z", "2026-02-28T11:00:00Z")


def test_a_window_that_ends_in_a_gap_ends_by_the_clock_from_before() -> None:
    edges("0 30 2 28 3 ?/P1D[Europe/Berlin]", "2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z")


def test_windows_longer_than_their_period_overlap() -> None:
    text = "0 0 * * * ? 2026/PT150M"
    edges(text, "2026-01-01T00:00:00Z", "2027-01-01T01:30:00Z")
    for hour in ("10", "11", "12"):
        assert matches(text, f"2026-05-05T{hour}:00:00Z", "starts")
        assert matches(text, f"2026-05-05T{hour}:30:00Z", "finishes")
    assert matches(text, "2026-05-05T10:30:00Z/2026-05-05T11:30:00Z", "during")
    assert not matches(text, "2026-05-05T10:00:00Z/2026-05-05T12:31:00Z", "during")


def test_a_later_window_may_end_earlier() -> None:
    # A month from 23:00 on the 30th ends after a month from 01:00 on the 31st.
    text = "0 0 1,23 30,31 1 ? 2026/P1M"
    assert has_window(text, "2026-01-30T23:00:00Z", "2026-02-28T23:00:00Z")
    assert has_window(text, "2026-01-31T01:00:00Z", "2026-02-28T01:00:00Z")
    assert matches(text, "2026-01-31T00:00:00Z/2026-02-28T02:00:00Z", "contains")
    assert not matches(text, "2026-02-28T22:30:00Z/2026-02-28T23:00:00Z", "met_by")
    assert matches(text, "2026-02-28T22:30:00Z", "intersects")


def test_a_leap_day_window_opens_every_four_years() -> None:
    text = "0 0 0 29 2 ?/P1D"
    edges(text, "2028-02-29", "2028-03-01")
    assert not matches(text, "2026-02-28/2026-03-02")


# --- every relation, against the slow evaluator

LENGTHS = [
    (Length(ms=1000), "PT1S"),
    (Length(ms=1_500_500), "PT25M0.5S"),
    (Length(ms=3_600_000), "PT1H"),
    (Length(ms=86_400_000), "PT24H"),
    (Length(ms=100 * 3_600_000), "PT100H"),
    (Length(days=1), "P1D"),
    (Length(days=7), "P1W"),
    (Length(days=2, ms=5_400_000), "P2DT1H30M"),
    (Length(months=1), "P1M"),
    (Length(months=1, days=1, ms=1), "P1M1DT0.001S"),
    (Length(months=13), "P1Y1M"),
]

CRONS = st.tuples(
    st.sampled_from(["0", "59", "0,30"]),
    st.sampled_from(["0", "30", "15,45", "59"]),
    st.sampled_from(["2", "0-3", "23-1", "1/6", "*", "12"]),
    st.sampled_from(
        [
            *("? 3 SUN", "? 3,10 1L", "? 10,11 1#1", "28-2 JAN-MAR ?", "L 1-4 ?", "1-8 4,9 ?"),
            *("29-31 12 ?", "LW * ?", "1 1/3 ?", "15W * ?", "8 3 ?", "29 2 ?", "31 2 ?"),
        ]
    ),
).map(" ".join)


def compare(asked: TimeFilter, windows: list[Window], event: Window) -> None:
    """Assert that all relations of an event are those of the slow evaluator."""
    for number, name in enumerate(RELATION_NAMES):
        expected = slow_time.holds(name, event, windows)
        assert asked.holds(number, *event) == expected, (name, event)


@st.composite
def events_near(draw: st.DrawFn, windows: list[Window]) -> Window:
    """Draw an event that begins and ends at or close to the edges of windows."""
    if not windows:
        start = draw(st.integers(1_300_000_000_000, 1_900_000_000_000))
        return start, start + draw(st.integers(0, 10**10))
    # Hypothesis would rather draw the first windows than the interesting ones.
    steps = st.sampled_from([0, 0, 1, -1, 1000, 600_000, 1_800_000, -1_800_000, 3_600_000, DAY_MS])
    index = draw(st.integers(0, len(windows) - 1))
    other = min(len(windows) - 1, index + draw(st.integers(0, 30)))
    start = windows[index][draw(st.integers(0, 1))] + draw(steps)
    end = windows[other][draw(st.integers(0, 1))] + draw(steps)
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return MIN_MS, end
    if kind == 1:
        return start, MAX_MS
    return (start, start) if kind < 5 or end < start else (start, end)


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_every_relation_to_cron_windows_is_that_of_the_slow_evaluator(data: st.DataObject) -> None:
    zone = data.draw(st.sampled_from(ZONES))
    year = data.draw(st.sampled_from([1971, 2011, 2024, 2026, 2099]))
    expression = f"{data.draw(CRONS)} {year}"
    length, length_text = data.draw(st.sampled_from(LENGTHS))
    asked = parse_filter(f"{expression}/{length_text}[{zone}]")
    windows = slow_time.cron_windows(
        expression, length, ZoneInfo(zone), date(year, 1, 1), date(year, 12, 31)
    )
    for _ in range(8):
        compare(asked, windows, data.draw(events_near(windows)))


@settings(max_examples=150, deadline=None)
@given(
    CRONS,
    st.sampled_from(LENGTHS[:8]),
    st.sampled_from(ZONES),
    st.integers(0, 4_070_908_800),
    st.lists(st.integers(0, 3 * DAY_S), min_size=10, max_size=10),
)
def test_a_stream_of_events_gets_the_answers_of_the_slow_evaluator(
    expression: str, length: tuple[Length, str], zone: str, near: int, steps: list[int]
) -> None:
    asked = parse_filter(f"{expression}/{length[1]}[{zone}]")
    day = date(1970, 1, 1) + timedelta(seconds=near)
    windows = slow_time.cron_windows(
        expression, length[0], ZoneInfo(zone), day - timedelta(days=14), day + timedelta(days=5)
    )
    # An instant needs only the windows that could still be open.
    for step in steps:
        ms = (near + step) * 1000
        assert asked.holds(1, ms, ms) == slow_time.holds("intersects", (ms, ms), windows)


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_every_relation_to_repeats_is_that_of_the_slow_evaluator(data: st.DataObject) -> None:
    zone = data.draw(st.sampled_from(ZONES))
    count = data.draw(st.sampled_from([None, 1, 2, 7]))
    backwards = data.draw(st.booleans())
    length, length_text = data.draw(st.sampled_from(LENGTHS[1:]))
    day = data.draw(st.dates(date(1972, 1, 1), date(2098, 12, 31)))
    day = data.draw(st.sampled_from([day, day.replace(day=31, month=1), date(2011, 12, 1)]))
    hour = data.draw(st.sampled_from(["00:00", "02:30", "23:59:59.999"]))
    anchor = datetime.fromisoformat(f"{day}T{hour}").replace(tzinfo=UTC)

    reach = 150 if count is None else count
    numbers = range(-reach, 0) if backwards else range(reach)
    windows = slow_time.repeating_windows(anchor, length, ZoneInfo(zone), numbers)
    anchor_text = f"{day}T{hour}Z"
    parts = (length_text, anchor_text) if backwards else (anchor_text, length_text)
    asked = parse_filter(f"R{count or ''}/{'/'.join(parts)}[{zone}]")

    near_anchor = windows[-60:] if backwards else windows[:60]
    for _ in range(8):
        event = data.draw(events_near(near_anchor))
        if count is None:
            # Beyond the windows written out there are more.
            assume(event[0] == MIN_MS or event[0] > windows[0][1] or not backwards)
            assume(event[1] == MAX_MS or event[1] < windows[-1][0] or backwards)
        compare(asked, windows, event)


def test_far_from_today_the_calendar_goes_on() -> None:
    # 400,000 years from the anchor, and as far from the years that datetime knows.
    years = 400_000
    start = day_number(2026 + years, 1, 31) * DAY_MS
    february = day_number(2026 + years, 2, 28) * DAY_MS
    asked = parse_filter("R/2026-01-31/P1M")
    assert asked.holds(TEMPORAL_RELATIONS["equals"], start, february)
    assert asked.holds(TEMPORAL_RELATIONS["during"], start + 1, february - 1)
    assert not asked.holds(TEMPORAL_RELATIONS["during"], start + 1, february)


# --- calendar and zones


@given(st.integers(-(10**12), 10**12))
@example(0)
def test_days_of_any_year_have_one_number(day: int) -> None:
    year, month, day_of_month = day_date(day)
    assert day_number(year, month, day_of_month) == day
    assert day_date(day + 1) > (year, month, day_of_month)


@given(st.dates())
def test_days_are_counted_from_1970(day: date) -> None:
    assert day_number(day.year, day.month, day.day) == (day - date(1970, 1, 1)).days


# Days near which clocks were changed, one way or the other.
CHANGES = [
    ("Europe/Berlin", date(2026, 3, 29)),
    ("Europe/Berlin", date(2026, 10, 25)),
    ("America/Santiago", date(2026, 4, 5)),
    ("America/Santiago", date(2026, 9, 6)),
    ("America/Toronto", date(2006, 4, 2)),
    ("America/St_Johns", date(2010, 3, 14)),  # at one minute past midnight
    ("America/St_Johns", date(2010, 11, 7)),  # back over midnight
    ("Australia/Lord_Howe", date(2026, 4, 5)),
    ("Pacific/Apia", date(2011, 12, 30)),
    ("Pacific/Kwajalein", date(1993, 8, 21)),
    ("Africa/Monrovia", date(1972, 1, 7)),  # 44 minutes and 30 seconds
    ("Asia/Kathmandu", date(1986, 1, 1)),
]


@given(
    st.one_of(
        st.tuples(st.sampled_from(CHANGES), st.integers(-2, 2)).map(
            lambda drawn: (drawn[0][0], drawn[0][1] + timedelta(days=drawn[1]))
        ),
        st.tuples(st.sampled_from(ZONES[1:]), st.dates(date(1970, 1, 2), date(2150, 1, 1))),
    ),
    st.lists(st.integers(0, DAY_S - 1), min_size=5, max_size=5),
)
def test_a_day_is_cut_where_its_clocks_are_changed(
    place: tuple[str, date], seconds: list[int]
) -> None:
    name, day = place
    zone, info = find_zone(name), ZoneInfo(name)
    number = day_number(day.year, day.month, day.day)
    pieces = zone.pieces(number)
    assert [pieces[0].start, pieces[-1].end] == [number * DAY_S, (number + 1) * DAY_S]
    assert [piece.end for piece in pieces[:-1]] == [piece.start for piece in pieces[1:]]
    edges_of_pieces = [piece.start % DAY_S for piece in pieces]
    for second in [*edges_of_pieces, *((edge - 1) % DAY_S for edge in edges_of_pieces), *seconds]:
        local = number * DAY_S + second
        shown_at = datetime(1970, 1, 1) + timedelta(seconds=local)
        [piece] = [piece for piece in pieces if piece.start <= local < piece.end]
        known = slow_time.instants_showing(shown_at, info)
        assert piece.gap == (not known)
        assert (local - piece.offset) * 1000 == ms_of(slow_time.instant_of_end(shown_at, info))
        assert zone.offset_of(local) == piece.offset


def test_the_clocks_of_a_far_year_follow_the_rules_of_today() -> None:
    berlin = find_zone("Europe/Berlin")
    for year in (2400, 8999, 9000, 9999, 12_026, 1_002_026):
        assert berlin.offset_at(day_number(year, 7, 1) * DAY_S) == 7200
        assert berlin.offset_of(day_number(year, 1, 1) * DAY_S) == 3600
    assert berlin.offset_at(day_number(-5000, 7, 1) * DAY_S) == 3208  # by the sun


@given(
    st.integers(0, 4_102_444_800_000),
    st.sampled_from(ZONES),
    st.builds(Duration, st.integers(0, 5000), st.integers(0, 100), st.integers(0, DAY_MS)),
)
def test_a_duration_is_between_its_shortest_and_its_longest(
    start: int, name: str, duration: Duration
) -> None:
    zone = UTC_ZONE if name == "UTC" else find_zone(name)
    length = add_duration(start, duration, zone) - start
    assert duration.shortest_ms(zone) <= length <= duration.longest_ms(zone)


def test_months_differ_from_their_mean_by_less_than_the_bound() -> None:
    for months in range(1, 4801, 7):
        duration = Duration(months, 0, 0)
        for start in range(0, 146_097, 97):
            length = add_duration(start * DAY_MS, duration, UTC_ZONE) - start * DAY_MS
            assert duration.shortest_ms(UTC_ZONE) <= length <= duration.longest_ms(UTC_ZONE)
