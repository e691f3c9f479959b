"""Times of events and the texts of temporal filters: what is read, and what is refused."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.errors import BadTime
from protocol.temporal import (
    MAX_MS,
    MIN_MS,
    RELATION_NAMES,
    TEMPORAL_RELATIONS,
    Interval,
    format_time,
    parse_event_time,
    parse_filter,
)
from tests.reference.slow_time import ms_of

INTERSECTS = TEMPORAL_RELATIONS["intersects"]
NOON_MS = 1_774_696_500_000  # 2026-03-28T11:15:00Z


def at(text: str) -> int:
    """Unix milliseconds of an instant that `datetime` reads."""
    return ms_of(datetime.fromisoformat(text).replace(tzinfo=UTC))


def matches(filter_text: str, event_text: str, relation: str = "intersects") -> bool:
    """Whether an event stands in a relation to a filter, all from text."""
    number = TEMPORAL_RELATIONS[relation]
    return parse_filter(filter_text).holds(number, *parse_event_time(event_text))


# --- times of events


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-28T11:15:00Z", "2026-03-28T11:15:00"),
        ("2026-03-28T11:15:00.123Z", "2026-03-28T11:15:00.123"),
        ("2026-03-28T11:15:00,5Z", "2026-03-28T11:15:00.500"),
        ("2026-03-28T11:15:00.123999999Z", "2026-03-28T11:15:00.123"),
        ("2026-03-28T11:15:00", "2026-03-28T11:15:00"),
        ("2026-03-28T11:15", "2026-03-28T11:15:00"),
        ("2026-03-28T11", "2026-03-28T11:00:00"),
        ("2026-03-28T11:15:00+02:00", "2026-03-28T09:15:00"),
        ("2026-03-28T11:15:00-0530", "2026-03-28T16:45:00"),
        ("2026-03-28T23:15:00-03", "2026-03-29T02:15:00"),
        ("20260328T111500Z", "2026-03-28T11:15:00"),
        ("20260328T1115", "2026-03-28T11:15:00"),
        ("2026-03-28", "2026-03-28T00:00:00"),
        ("2026-03", "2026-03-01T00:00:00"),
        ("2026-087", "2026-03-28T00:00:00"),
        ("2026-W13-6", "2026-03-28T00:00:00"),
        ("2026W136T111500Z", "2026-03-28T11:15:00"),
        ("2026-W13", "2026-03-23T00:00:00"),
        ("2020-W53-7", "2021-01-03T00:00:00"),
        ("2026-03-28T24:00:00Z", "2026-03-29T00:00:00"),
        ("2024-12-31T24:00Z", "2025-01-01T00:00:00"),
        ("2024-02-29T12:00:00Z", "2024-02-29T12:00:00"),
        ("2024-366", "2024-12-31T00:00:00"),
        ("2026-03-28T11:15.5", "2026-03-28T11:15:30"),
        ("2026-03-28T11.25", "2026-03-28T11:15:00"),
        ("2026-03-28T11:15.500000Z", "2026-03-28T11:15:30"),
        ("2026-03-28T11.250000000Z", "2026-03-28T11:15:00"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999"),
        ("1774696500", "2026-03-28T11:15:00"),
        ("1774696500.25", "2026-03-28T11:15:00.250"),
        ("0", "1970-01-01T00:00:00"),
        ("-1.5", "1969-12-31T23:59:58.500"),
        # All-digit text is Unix seconds, whatever it looks like.
        ("20260328", "1970-08-23T11:52:08"),
        ("2026", "1970-01-01T00:33:46"),
    ],
)
def test_an_instant_starts_and_ends_at_once(text: str, expected: str) -> None:
    assert parse_event_time(text) == (at(expected), at(expected))


@pytest.mark.parametrize("separator", ["/", "--"])
@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("2026-03-28T11:15:00Z", "2026-03-28T13:45:00Z", (NOON_MS, NOON_MS + 9_000_000)),
        ("2026-03-28T11:15:00Z", "PT2H30M", (NOON_MS, NOON_MS + 9_000_000)),
        ("PT2H30M", "2026-03-28T11:15:00Z", (NOON_MS - 9_000_000, NOON_MS)),
        ("2026-03-28T11:15:00Z", "..", (NOON_MS, MAX_MS)),
        ("..", "2026-03-28T11:15:00Z", (MIN_MS, NOON_MS)),
        ("..", "..", (MIN_MS, MAX_MS)),
        ("1774696500", "1774696501", (NOON_MS, NOON_MS + 1000)),
        ("-5", "-3", (-5000, -3000)),
        ("2026-03-28", "2026-03-28", (at("2026-03-28"), at("2026-03-28"))),
        ("2026-03-28", "PT0S", (at("2026-03-28"), at("2026-03-28"))),
        ("2024-01-31", "P1M", (at("2024-01-31"), at("2024-02-29"))),
        ("P1M", "2024-03-31", (at("2024-02-29"), at("2024-03-31"))),
        ("2024-02-29", "P1Y", (at("2024-02-29"), at("2025-02-28"))),
        ("2026-01-01", "P1Y2M1W3DT4H5M6.007S", (at("2026-01-01"), at("2027-03-11T04:05:06.007"))),
        ("2026-01-01", "P0.5Y", (at("2026-01-01"), at("2026-07-01"))),
        ("2026-01-01", "P0.5D", (at("2026-01-01"), at("2026-01-01T12:00:00"))),
        ("2026-01-01", "P1,5W", (at("2026-01-01"), at("2026-01-11T12:00:00"))),
        ("2026-01-01", "PT36H", (at("2026-01-01"), at("2026-01-02T12:00:00"))),
        ("2026-01-01", "PT0.0015S", (at("2026-01-01"), at("2026-01-01T00:00:00.002"))),
        # Beyond the years of `datetime`, by the same calendar.
        ("9999-12-31", "P2D", (at("9999-12-31"), at("9999-12-31") + 2 * 86_400_000)),
        ("P400Y", "0001-01-01", (at("0001-01-01") - 146_097 * 86_400_000, at("0001-01-01"))),
    ],
)
def test_an_interval_has_a_start_and_an_end(
    separator: str, start: str, end: str, expected: tuple[int, int]
) -> None:
    assert parse_event_time(start + separator + end) == expected


BAD_INSTANTS = [
    "",
    " ",
    "now",
    "..",
    "2026-02-29",
    "2026-02-29T00:00:00Z",
    "2026-13-01T00:00:00Z",
    "2026-00-01",
    "2026-00",
    "2026-13",
    "2026-03-00",
    "2026-366",
    "2026-000",
    "2026-W00-1",
    "2026-W54-1",
    "2025-W53-1",
    "2026-W10-0",
    "2026-W10-8",
    "0000-01-01T00:00:00Z",
    "12026-03-28T11:15:00Z",
    "2026-03T11:15",
    "2026-W13T11:15",
    "2026-03-28T",
    "2026-03-28Z",
    "T11:15:00Z",
    "2026-03-28 11:15:00Z",
    "2026-03-28t11:15:00z",
    "2026-03-28T25:00:00Z",
    "2026-03-28T24:00:01Z",
    "2026-03-28T24.5",
    "9999-12-31T24:00:00Z",
    "2026-03-28T11:60:00Z",
    "2026-03-28T11:15:60Z",
    "2026-03-28T11:15:00+25:00",
    "2026-03-28T11:15:00+1",
    "2026-03-28T11:15:00ZZ",
    "2026-03-28T11:15:00.Z",
    "2026-03-28T11:15:0Z",
    "2026-03-28T11:1500Z",
    "2026-03-28x11:15:00Z",
    "\N{ARABIC-INDIC DIGIT ONE}",
    "2026-03-2\N{ARABIC-INDIC DIGIT EIGHT}T11:15:00Z",
    "2026-03-28T11:15:00\0Z",
    "2026-03-28T11:15:00Z\n",
    "\ud800",
    "9" * 17,
    "9" * 16,
    "9" * 5000,
    "1774696500.",
    "+5",
    "--5",
    "PT5M",
]
BAD_INTERVALS = [
    "/",
    "//",
    "--",
    "2026-03-28/",
    "/2026-03-28",
    "2026-03-28/2026-03-29/2026-03-30",
    "2026-03-28/2026-03-27",
    "2026-03-28T11:15:00Z/2026-03-28T11:14:59.999Z",
    "../PT1H",
    "PT1H/..",
    "PT1H/PT1H",
    "2026-03-28/P",
    "2026-03-28/PT",
    "2026-03-28/P1DT",
    "2026-03-28/P1S",
    "2026-03-28/-P1D",
    "2026-03-28/P-1D",
    "2026-03-28/+P1D",
    "2026-03-28/P1D1M",
    "2026-03-28/P0001-01-01T00:00:00",
    "2026-03-28/P1.5M",
    "2026-03-28/P0.1Y",
    "2026-03-28/PTT1H",
    "2026-03-28/P1TD",
    "2026-03-28/P" + "9" * 400 + "Y",
    "2026-03-28/P" + "9" * 400 + "D",
    "2026-03-28/PT" + "9" * 400 + "S",
    "2026-03-28/P999999999Y",
    "2026-03-28/P9999999999999D",
    "P290000000000Y/2026-03-28",
    "P292300000Y/2026-03-28",
    "9223372036854775/PT1S",
]


@pytest.mark.parametrize("text", BAD_INSTANTS + BAD_INTERVALS + ["R5/2026-03-28/P1D"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadTime):
        parse_event_time(text)


def test_the_refusal_says_what_is_wrong() -> None:
    with pytest.raises(BadTime, match=r"^'2026-02-29' is no instant: day is out of range"):
        parse_event_time("2026-02-29")
    with pytest.raises(BadTime, match=r"^interval ends at '2026-01-01', before its start '2027-"):
        parse_event_time("2027-01-01/2026-01-01")
    with pytest.raises(BadTime, match=r"^time of 5000 characters, limit is 2048$"):
        parse_event_time("9" * 5000)


@given(st.integers(MIN_MS, MAX_MS), st.integers(MIN_MS, MAX_MS))
@example(MIN_MS, MAX_MS)
@example(-1, -1)
@example(-62_135_596_800_000, 253_402_300_799_999)
@example(-62_135_596_800_001, 253_402_300_800_000)
def test_what_is_written_reads_the_same(one: int, other: int) -> None:
    start, end = min(one, other), max(one, other)
    assert parse_event_time(format_time(start, end)) == (start, end)
    assert parse_event_time(format_time(start, start)) == (start, start)


@given(st.datetimes(timezones=st.just(UTC)))
def test_any_moment_that_datetime_writes_is_read_to_the_millisecond(moment: datetime) -> None:
    assert parse_event_time(moment.isoformat()) == (ms_of(moment), ms_of(moment))


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (NOON_MS, NOON_MS, "2026-03-28T11:15:00Z"),
        (NOON_MS + 7, NOON_MS + 7, "2026-03-28T11:15:00.007Z"),
        (NOON_MS, NOON_MS + 1500, "2026-03-28T11:15:00Z/2026-03-28T11:15:01.500Z"),
        (NOON_MS, MAX_MS, "2026-03-28T11:15:00Z/.."),
        (MIN_MS, NOON_MS, "../2026-03-28T11:15:00Z"),
        (MIN_MS, MAX_MS, "../.."),
        (-1, -1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_800_000, 253_402_300_800_500, "253402300800/253402300800.500"),
        (MIN_MS, MIN_MS, "-9223372036854775.808"),
    ],
)
def test_a_time_is_written_in_utc_with_milliseconds_only_when_there_are_any(
    start: int, end: int, text: str
) -> None:
    assert format_time(start, end) == text


# --- relations to one window


def test_the_relations_are_numbered_as_the_protocol_says() -> None:
    assert " ".join(RELATION_NAMES) == (
        "any intersects before after meets met_by overlaps overlapped_by starts started_by "
        "during contains finishes finished_by equals"
    )
    assert [TEMPORAL_RELATIONS[name] for name in RELATION_NAMES] == list(range(15))


@pytest.mark.parametrize(
    ("start", "end", "names"),
    [
        # Instants, against [100, 200).
        (99, 99, "before"),
        (100, 100, "intersects meets starts"),
        (101, 101, "intersects during"),
        (199, 199, "intersects during"),
        (200, 200, "met_by finishes"),
        (201, 201, "after"),
        # Intervals.
        (50, 99, "before"),
        (50, 100, "meets"),
        (50, 101, "intersects overlaps"),
        (50, 200, "intersects finished_by"),
        (50, 201, "intersects contains"),
        (100, 150, "intersects starts"),
        (100, 200, "intersects equals"),
        (100, 201, "intersects started_by"),
        (150, 199, "intersects during"),
        (150, 200, "intersects finishes"),
        (150, 201, "intersects overlapped_by"),
        (200, 250, "met_by"),
        (201, 250, "after"),
        # Open events.
        (MIN_MS, 100, "meets"),
        (MIN_MS, 150, "intersects overlaps"),
        (150, MAX_MS, "intersects overlapped_by"),
        (MIN_MS, MAX_MS, "intersects contains"),
    ],
)
def test_exactly_these_relations_hold(start: int, end: int, names: str) -> None:
    window = Interval(100, 200)
    holding = [name for n, name in enumerate(RELATION_NAMES) if window.holds(n, start, end)]
    assert holding == ["any", *names.split()]


@pytest.mark.parametrize(
    ("filter_text", "event_text", "names"),
    [
        ("../2026-01-01", "2025-12-31T23:59:59.999Z", "intersects during"),
        ("../2026-01-01", "2026-01-01", "met_by finishes"),
        ("../2026-01-01", "../2026-01-01", "intersects equals"),
        ("../2026-01-01", "../2025-01-01", "intersects starts"),
        ("2026-01-01/..", "2026-01-01", "intersects meets starts"),
        ("2026-01-01/..", "2027-01-01/..", "intersects finishes"),
        ("2026-01-01/..", "../..", "intersects finished_by"),
        ("../..", "2026-01-01", "intersects during"),
        ("../..", "../..", "intersects equals"),
        # An event of the future is no different.
        ("2026-01-01/..", "9999-01-01", "intersects during"),
    ],
)
def test_open_ends_are_equal_to_open_ends(filter_text: str, event_text: str, names: str) -> None:
    holding = [name for name in RELATION_NAMES if matches(filter_text, event_text, name)]
    assert holding == ["any", *names.split()]


# --- texts of filters


def test_the_example_of_the_paper_lasts_two_and_a_half_hours() -> None:
    text = "2016-03-28T11:15:00Z/PT2H30M"
    assert not matches(text, "2016-03-28T11:14:59.999Z")
    assert matches(text, "2016-03-28T11:15:00Z")
    assert matches(text, "2016-03-28T13:44:59.999Z")
    assert not matches(text, "2016-03-28T13:45:00Z")


@pytest.mark.parametrize(
    ("with_slashes", "with_hyphens"),
    [
        ("2026-03-28T11:15:00Z/PT2H30M", "2026-03-28T11:15:00Z--PT2H30M"),
        ("../2026-03-29", "..--2026-03-29"),
        ("R/2026-03-27T11:00:00-01:00/PT1H", "R--2026-03-27T11:00:00-01:00--PT1H"),
        ("0 0/5 11 ? * SAT/PT1M", "0 0/5 11 ? * SAT--PT1M"),
        ("0 15 11 ? * 7L/PT1M[Africa/Abidjan]", "0 15 11 ? * 7L--PT1M[Africa/Abidjan]"),
    ],
)
def test_two_hyphens_stand_for_a_slash(with_slashes: str, with_hyphens: str) -> None:
    for event in ("2026-03-28T11:15:00Z", "2026-03-28T11:17:00Z", "2026-03-29T11:15:00Z"):
        assert matches(with_slashes, event) == matches(with_hyphens, event)
    assert matches(with_hyphens, "2026-03-28T11:15:00Z")


BAD_FILTERS = [
    "2026-03-28",
    "2026-03-28T11:15:00Z",
    "1774696500",
    "2026-03-28/2026-03-28",
    "2026-03-28/PT0S",
    "2026-03-28/PT0.0001S",
    "P0D/2026-03-28",
    "R0/2026-03-28/P1D",
    "R00/2026-03-28/P1D",
    "R-1/2026-03-28/P1D",
    "R1.5/2026-03-28/P1D",
    "R/2026-03-28/..",
    "R/../2026-03-28",
    "R5/../..",
    "R/../P1D",
    "R/2026-03-28/PT0S",
    "R/2026-03-28/2026-03-28",
    "R/2026-03-28/2026-03-27",
    "R/PT0S/2026-03-28",
    "R/2026-03-28",
    "R/P1D",
    "R",
    "R/",
    "R5",
    "R" + "9" * 18 + "/2026-03-28/P1D",
    "R" + "9" * 19 + "/2026-03-28/P1D",
    "r5/2026-03-28/P1D",
    "2026-03-28/P1D/R5",
    "0 0 8 ? * MON-FRI",
    "0 0/15 8-17 ? * MON-FRI",
    "0 0 8 ? * MON-FRI/",
    "0 0 8 ? * MON-FRI/PT0S",
    "0 0 8 ? * MON-FRI/P0.0M",
    "0 0 8 ? * MON-FRI/2026-03-28",
    "0 0 8 ? * MON-FRI/PT1H/PT2H",
    "0 0 8 ? * MON-FRI/P292277000Y",
    "0 0 8 * * MON-FRI/PT1H",
    "R5/0 0 8 ? * MON-FRI/PT1H",
    "0 0 8 ? * MON-FRI[Europe/Berlin]/PT1H",
    "0 0 8 ? * MON-FRI/PT1H[]",
    "0 0 8 ? * MON-FRI/PT1H[Europe]",
    "0 0 8 ? * MON-FRI/PT1H[Europe/Nowhere]",
    "0 0 8 ? * MON-FRI/PT1H[../../etc/passwd]",
    "0 0 8 ? * MON-FRI/PT1H[/etc/localtime]",
    "0 0 8 ? * MON-FRI/PT1H[localtime]",
    "0 0 8 ? * MON-FRI/PT1H[right/UTC]",
    "0 0 8 ? * MON-FRI/PT1H[UTC][UTC]",
    "0 0 8 ? * MON-FRI/PT1HUTC]",
    "0 0 8 ? * FR\N{LATIN SMALL LETTER DOTLESS I}/PT1H",
    "0 0 8 ? *\nFRI/PT1H",
    "[Europe/Berlin]",
    "]",
]


@pytest.mark.parametrize("text", BAD_INSTANTS + BAD_INTERVALS + BAD_FILTERS)
def test_a_filter_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadTime):
        parse_filter(text)


PIECES_OF_TIME = [
    *"0123456789/-.,:[]{}+*?#LWTZRPYMDHS \t\n",
    *("--", "..", "2026-03-28", "T11:15:00Z", "PT5M", "P1M", "R", "R5", "0 0/15 8-17 ? * MON-FRI"),
    *(
        "[Europe/Berlin]",
        "[UTC]",
        "L-3",
        "6#3",
        "LW",
        "99999999999",
        "W13",
        "24:00",
        "\u0663",
        "\0",
    ),
]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES_OF_TIME), max_size=12).map("".join)))
def test_whatever_the_text_it_is_read_or_refused(text: str) -> None:
    reasons = []
    for parse in (parse_event_time, parse_filter):
        try:
            parse(text)
        except BadTime as error:
            reasons.append(str(error))
    # One line for people to read, with as much of the text as a line bears.
    assert all(re.fullmatch(r"[^\n]{5,400}[^.\n]", reason) for reason in reasons)


@given(
    st.sampled_from(
        [
            "2026-03-28T11:15:00.123+01:00",
            "R12/2026-03-28T11:15:00Z/P1Y2M3DT4H5M6.7S",
            "P1Y/2026-W13-6",
            "0 0/15 8-17 ? JAN-MAR 6#3 2026-2030/PT5M[Europe/Berlin]",
            "58-1 0 22-2/2 L-3W,15W * ?/P1M",
        ]
    ),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(PIECES_OF_TIME)), max_size=4),
)
def test_a_time_with_typing_errors_is_read_or_refused(
    text: str, errors: list[tuple[int, str]]
) -> None:
    for position, piece in errors:
        text = text[:position] + piece + text[position + 1 :]
    for parse in (parse_event_time, parse_filter):
        try:
            read = parse(text)
        except BadTime:
            continue
        if not isinstance(read, tuple):
            for relation in range(15):
                assert read.holds(relation, NOON_MS, NOON_MS + 1) in (True, False)
