"""Quartz cron expressions against known dates, the slow evaluator and croniter."""

from datetime import date, datetime, timedelta

import pytest
from croniter import CroniterBadDateError, croniter
from hypothesis import given
from hypothesis import strategies as st

from protocol.civil import day_date, day_number
from protocol.cron import Cron
from protocol.errors import BadTime
from tests.reference import slow_time


def fires(expression: str, start: str, count: int) -> list[str]:
    """First fire times at or after a local time, found forwards."""
    cron = Cron(expression)
    moment = datetime.fromisoformat(start)
    day: int | None = day_number(moment.year, moment.month, moment.day)
    second = moment.hour * 3600 + moment.minute * 60 + moment.second
    found: list[str] = []
    while len(found) < count:
        asked, day = day, cron.next_day(day)
        if day is None:
            break
        time = cron.next_time(second if day == asked else 0)
        while time is not None and len(found) < count:
            found.append((datetime(*day_date(day)) + timedelta(seconds=time)).isoformat(" "))
            time = cron.next_time(time + 1)
        day, second = day + 1, 0
    return found


def days(expression: str, start: str, count: int) -> list[str]:
    """First days that fire."""
    return [moment[:10] for moment in fires(expression, start, count)]


def croniter_fires(expression: str, start: datetime, count: int) -> list[str]:
    """First fire times by croniter, which gives up on what never fires."""
    theirs = croniter(expression, start - timedelta(seconds=1), second_at_beginning=True)
    try:
        return [theirs.get_next(datetime).isoformat(" ") for _ in range(count)]
    except CroniterBadDateError:
        return []


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("0 0 12 * * ?", "2026-03-28", "2026-03-28 2026-03-29 2026-03-30"),
        # 28 March 2026 is a Saturday.
        ("0 0 8 ? * MON-FRI", "2026-03-28", "2026-03-30 2026-03-31 2026-04-01"),
        ("0 0 8 ? * 2-6", "2026-03-28", "2026-03-30 2026-03-31 2026-04-01"),
        ("0 0 8 ? * 1", "2026-03-28", "2026-03-29 2026-04-05"),
        ("0 0 8 ? * sun", "2026-03-28", "2026-03-29 2026-04-05"),
        ("0 0 8 ? * 7", "2026-03-28", "2026-03-28 2026-04-04"),
        (
            "0 0 8 ? * FRI-MON",
            "2026-03-25",
            "2026-03-27 2026-03-28 2026-03-29 2026-03-30 2026-04-03",
        ),
        ("0 0 8 ? * L", "2026-03-25", "2026-03-28 2026-04-04"),
        ("0 15 10 L * ?", "2026-01-31", "2026-01-31 2026-02-28 2026-03-31 2026-04-30"),
        ("0 15 10 L-2 * ?", "2026-02-01", "2026-02-26 2026-03-29 2026-04-28"),
        ("0 15 10 L-3 * ?", "2028-02-01", "2028-02-26 2028-03-28"),
        ("0 15 10 ? * 6L", "2026-03-01", "2026-03-27 2026-04-24 2026-05-29"),
        ("0 15 10 ? * FRIL", "2026-03-01", "2026-03-27 2026-04-24 2026-05-29"),
        ("0 15 10 ? * 6L 2026-2027", "2027-12-01", "2027-12-31"),
        ("0 15 10 ? * 6#3", "2026-03-01", "2026-03-20 2026-04-17 2026-05-15"),
        ("0 15 10 ? * 6#5", "2026-01-01", "2026-01-30 2026-05-29 2026-07-31"),
        # The 15th of August 2026 is a Saturday, of November a Sunday.
        ("0 0 0 15W 8 ?", "2026-01-01", "2026-08-14 2027-08-16"),
        ("0 0 0 15W 11 ?", "2026-01-01", "2026-11-16 2027-11-15"),
        # The 1st of August 2026 is a Saturday: never back into July.
        ("0 0 0 1W 8 ?", "2026-01-01", "2026-08-03"),
        # The 31st of May 2026 is a Sunday: never on into June.
        ("0 0 0 31W 5 ?", "2026-01-01", "2026-05-29"),
        ("0 0 0 31W * ?", "2026-02-01", "2026-03-31 2026-05-29"),
        ("0 0 0 LW * ?", "2026-01-01", "2026-01-30 2026-02-27 2026-03-31 2026-04-30 2026-05-29"),
        ("0 0 0 L-1W 5 ?", "2026-01-01", "2026-05-29"),
        ("0 0 0 1 NOV-FEB ?", "2026-01-02", "2026-02-01 2026-11-01 2026-12-01 2027-01-01"),
        ("0 0 0 30-2 * ?", "2026-03-29", "2026-03-30 2026-03-31 2026-04-01 2026-04-02 2026-04-30"),
        ("0 0 0 29 2 ?", "2026-01-01", "2028-02-29 2032-02-29"),
        ("0 0 0 29 2 ?", "2096-03-01", ""),
        ("0 0 0 1 1 ? 2030/30", "2026-01-01", "2030-01-01 2060-01-01 2090-01-01"),
        ("0 0 0 1,15W,L * ?", "2026-03-01", "2026-03-01 2026-03-16 2026-03-31"),
        ("0 0 0 ? * MON#1,FRIL", "2026-03-01", "2026-03-02 2026-03-27"),
    ],
)
def test_an_expression_fires_on_the_days_quartz_names(
    expression: str, start: str, expected: str
) -> None:
    named = expected.split()
    assert days(expression, start, len(named) or 1) == named


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (
            "0 0/15 8-9 ? * *",
            "08:00:00 08:15:00 08:30:00 08:45:00 09:00:00 09:15:00 09:30:00 09:45:00",
        ),
        ("0 0 22-2 ? * *", "00:00:00 01:00:00 02:00:00 22:00:00 23:00:00"),
        ("0 0 22-2/2 ? * *", "00:00:00 02:00:00 22:00:00"),
        ("0 */25 5 ? * *", "05:00:00 05:25:00 05:50:00"),
        ("0 /25 5 ? * *", "05:00:00 05:25:00 05:50:00"),
        ("5/20 59 23 ? * *", "23:59:05 23:59:25 23:59:45"),
        ("0 0-10/5,30 14 ? * *", "14:00:00 14:05:00 14:10:00 14:30:00"),
        ("58-1 7 3 ? * *", "03:07:00 03:07:01 03:07:58 03:07:59"),
    ],
)
def test_an_expression_fires_at_the_times_quartz_names(expression: str, expected: str) -> None:
    times = [f"2026-03-28 {time}" for time in expected.split()]
    next_day = f"2026-03-29 {expected[:8]}"
    assert fires(expression, "2026-03-28", len(times) + 1) == [*times, next_day]


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * * *",
        "0 0 8 ? * * 2026 1",
        "0 0 8 * * *",
        "0 0 8 ? * ?",
        "0 0 8 1 * MON",
        "0 ? 8 1 * ?",
        "0 0 8 ?,1 * MON",
        "60 0 8 ? * *",
        "0 60 8 ? * *",
        "0 0 24 ? * *",
        "0 0 8 0 * ?",
        "0 0 8 32 * ?",
        "0 0 8 ? 0 *",
        "0 0 8 ? 13 *",
        "0 0 8 ? * 0",
        "0 0 8 ? * 8",
        "0 0 8 ? * MONDAY",
        "0 0 8 ? * 6#0",
        "0 0 8 ? * 6#6",
        "0 0 8 ? * #3",
        "0 0 8 ? * 8L",
        "0 0 8 ? * 6W",
        "0 0 8 ? * L-3",
        "0 0 8 W * ?",
        "0 0 8 32W * ?",
        "0 0 8 1-5W * ?",
        "0 0 8 L-31 * ?",
        "0 0 8 15L * ?",
        "0 0 8 ? * * 1969",
        "0 0 8 ? * * 2100",
        "0 0 8 ? * * 2030-2026",
        "0/0 0 8 ? * *",
        "0/60 0 8 ? * *",
        "0 0 8/24 ? * *",
        "0 0 8 ? * *-5",
        "0 0 8 ? * -5",
        "0 0 8 ? * 5-",
        "0 0 8 ? * 2,,3",
        "0 0 8 ? * 2,",
        "-1 0 8 ? * *",
        "0 0 8.5 ? * *",
        "0 0 99999999999999999999 ? * *",
    ],
)
def test_a_wrong_expression_is_refused(expression: str) -> None:
    with pytest.raises(BadTime):
        Cron(expression)


def test_the_refusal_names_the_field() -> None:
    with pytest.raises(BadTime, match=r"^cron field day-of-week cannot be '9'$"):
        Cron("0 0 8 ? * 9")


@pytest.mark.parametrize(
    "expression", ["0 0 0 31 2 ?", "0 0 0 30 FEB ?", "0 0 0 29 2 ? 2026", "0 0 0 L-30 2 ?"]
)
def test_what_can_never_fire_has_no_day_before_or_after(expression: str) -> None:
    cron = Cron(expression)
    for year in (1900, 1970, 2026, 2099, 3000):
        assert cron.next_day(day_number(year, 6, 1)) is None
        assert cron.previous_day(day_number(year, 6, 1)) is None


def test_no_year_means_1970_to_2099() -> None:
    cron = Cron("0 0 0 * * ?")
    assert cron.next_day(day_number(-50_000, 1, 1)) == day_number(1970, 1, 1)
    assert cron.previous_day(day_number(50_000, 1, 1)) == day_number(2099, 12, 31)
    assert cron.next_day(day_number(2100, 1, 1)) is None
    assert cron.previous_day(day_number(1969, 12, 31)) is None


SECONDS = st.sampled_from(["0", "59", "0/20", "58-1", "7,8,30"])
MINUTES = st.sampled_from(["0", "30", "*/20", "50-5/5", "0-59/29", "59"])
HOURS = st.sampled_from(["*", "2", "0", "23", "8-17", "22-2", "1/6", "23-1,12"])
MONTHS_TEXT = st.sampled_from(["*", "2", "MAR", "NOV-FEB", "1/5", "APR,OCT", "12"])
DAYS_OF_MONTH = st.sampled_from(
    [
        "*",
        "1",
        "31",
        "29-2",
        "*/10",
        "L",
        "L-3",
        "L-29",
        "LW",
        "L-1W",
        "1W",
        "15W",
        "31W",
        "2,L,16W",
    ]
)
DAYS_OF_WEEK = st.sampled_from(
    [
        "*",
        "1",
        "SAT",
        "MON-FRI",
        "FRI-MON",
        "6-2/2",
        "L",
        "6L",
        "SUNL",
        "6#3",
        "MON#5",
        "2#1,FRIL,4",
    ]
)
DAY_FIELDS = st.one_of(
    st.tuples(DAYS_OF_MONTH, MONTHS_TEXT, st.just("?")),
    st.tuples(st.just("?"), MONTHS_TEXT, DAYS_OF_WEEK),
).map(" ".join)


@given(
    st.tuples(SECONDS, MINUTES, HOURS, DAY_FIELDS).map(" ".join),
    st.dates(date(1971, 1, 1), date(2098, 12, 31)),
)
def test_fire_times_are_those_of_the_slow_evaluator(expression: str, first: date) -> None:
    slow = slow_time.fire_times(expression, first, first + timedelta(days=70))
    expected = [moment.isoformat(" ") for moment, _ in zip(slow, range(60), strict=False)]
    last = (first + timedelta(days=71)).isoformat()
    found = [moment for moment in fires(expression, first.isoformat(), 60) if moment < last]
    assert found == expected


@given(
    st.tuples(SECONDS, MINUTES, HOURS, DAY_FIELDS).map(" ".join),
    st.dates(date(1970, 1, 1), date(2099, 12, 31)),
    st.integers(0, 86_399),
)
def test_backwards_is_the_reverse_of_forwards(expression: str, near: date, second: int) -> None:
    cron = Cron(expression)
    day = day_number(near.year, near.month, near.day)
    previous = cron.previous_day(day)
    if previous is not None:
        assert previous <= day
        assert cron.next_day(previous) == previous
        following = cron.next_day(previous + 1)
        assert following is None or following > day or day == previous
    else:
        first = cron.next_day(day_number(1970, 1, 1))
        assert first is None or first > day
    earlier = cron.previous_time(second)
    later = cron.next_time(second)
    if earlier is not None:
        assert cron.next_time(earlier) == earlier <= second
        assert earlier == second or cron.next_time(earlier + 1) == later
    else:
        assert later is not None
        assert cron.previous_time(later - 1) is None


# croniter reads names, lists, ranges and steps as Quartz does, and counts SUN as 0.
@given(
    SECONDS.filter(lambda text: text != "58-1"),
    st.sampled_from(["0", "30", "*/20", "0-59/29", "3,4"]),
    st.sampled_from(["*", "2", "8-17", "1/6", "23"]),
    st.sampled_from(["*", "1", "31", "*/10", "3-9", "L"]),
    st.sampled_from(["*", "2", "MAR", "APR,OCT", "3-5"]),
    st.datetimes(datetime(1971, 1, 1), datetime(2037, 1, 1)).map(
        lambda d: d.replace(microsecond=0)
    ),
)
def test_croniter_agrees_where_it_speaks_the_same_language(
    second: str, minute: str, hour: str, of_month: str, month: str, start: datetime
) -> None:
    theirs = f"{second} {minute} {hour} {of_month.lower()} {month} *"
    expected = croniter_fires(theirs, start, 4)
    assert fires(f"{second} {minute} {hour} {of_month} {month} ?", start.isoformat(), 4) == expected


@given(
    st.sampled_from([("MON-FRI", "1-5"), ("1", "0"), ("7", "6"), ("2,4", "1,3"), ("6#3", "5#3")]),
    st.datetimes(datetime(1971, 1, 1), datetime(2037, 1, 1)).map(
        lambda d: d.replace(microsecond=0)
    ),
)
def test_croniter_agrees_on_days_of_the_week(kinds: tuple[str, str], start: datetime) -> None:
    expected = croniter_fires(f"0 30 6 * * {kinds[1]}", start, 4)
    assert fires(f"0 30 6 ? * {kinds[0]}", start.isoformat(), 4) == expected
