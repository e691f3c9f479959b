"""The small arithmetic of the log: Morton numbers, and packets cut into rows."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.event_log.cells import LEVEL, cell_box, cell_of, cells_of
from plugins.event_log.frames import decode_frames, uniform
from plugins.event_log.schema import RETAIN_FLAG

longitudes = st.floats(-180, 180)
latitudes = st.floats(-90, 90)


def interleaved(x: float, y: float) -> int:
    """Number a place bit by bit, the slow way."""
    column = min(2**LEVEL - 1, int((x + 180.0) * (2**LEVEL / 360.0)))
    row = min(2**LEVEL - 1, int((y + 90.0) * (2**LEVEL / 180.0)))
    return sum(
        ((column >> bit & 1) << 2 * bit + 1) | ((row >> bit & 1) << 2 * bit) for bit in range(LEVEL)
    )


@given(longitudes, latitudes)
def test_a_cell_number_interleaves_column_and_row(x: float, y: float) -> None:
    assert cell_of(x, y) == interleaved(x, y)


@given(longitudes, latitudes, st.integers(0, LEVEL))
def test_a_place_lies_in_the_box_of_its_cell_on_every_level(x: float, y: float, level: int) -> None:
    min_x, min_y, max_x, max_y = cell_box(cell_of(x, y) >> 2 * (LEVEL - level), level)
    assert min_x - 1e-12 <= x <= max_x + 1e-12
    assert min_y - 1e-12 <= y <= max_y + 1e-12


def test_many_places_are_numbered_as_one_by_one() -> None:
    x, y = numpy.linspace(-180, 180, 37), numpy.linspace(90, -90, 37)
    assert cells_of(x, y).tolist() == [cell_of(*pair) for pair in zip(x, y, strict=True)]


# PUBLISH of "a/b" with payloads of three bytes; the same, retained; and one of 130 bytes.
ABC = bytes.fromhex("30 08 0003 612f62 313233")
RETAINED = bytes.fromhex("31 08 0003 612f62 313233")
LONG = bytes.fromhex("30 8701 0003 612f62") + bytes(130)


def test_packets_of_one_topic_and_size_are_seen_as_uniform() -> None:
    found = uniform(ABC * 9, 9)
    assert found is not None
    assert (found.topic, found.flags, found.size, found.payload_start) == (b"a/b", 0, 10, 7)


@pytest.mark.parametrize(
    ("frames", "count"),
    [
        pytest.param(ABC * 8 + RETAINED, 9, id="another first byte"),
        pytest.param(ABC * 8 + bytes.fromhex("30 08 0003 612f63 313233"), 9, id="another topic"),
        pytest.param(ABC * 8 + LONG, 9, id="another size"),
        pytest.param(
            ABC * 7 + bytes.fromhex("30 07 0003 612f62 3132") + bytes.fromhex("30 09 0003 612f62")
            + b"1234", 9, id="sizes that make good for each other",
        ),
        pytest.param(ABC * 2, 2, id="too few"),
    ],
)  # fmt: skip
def test_packets_that_differ_are_not_uniform(frames: bytes, count: int) -> None:
    assert uniform(frames, count) is None
    assert len(decode_frames(5, "c", frames)) == count


def test_packets_are_cut_into_topic_payload_and_flags() -> None:
    first, second, third = decode_frames(5, "c", ABC + RETAINED + LONG)
    assert first == (5, b"a/b", b"123", 0, "c", None, None, None, None)
    assert second[3] == RETAIN_FLAG
    assert third[2] == bytes(130)


def test_the_packet_id_of_qos_1_is_no_part_of_the_payload() -> None:
    frame = bytes.fromhex("32 0a 0003 612f62 0001 313233")
    [record] = decode_frames(5, "c", frame)
    assert record[1:4] == (b"a/b", b"123", 1)
    found = uniform(frame * 4 + bytes.fromhex("32 0a 0003 612f62 0002 343536") * 5, 9)
    assert found is not None
    assert (found.topic, found.flags, found.size, found.payload_start) == (b"a/b", 1, 12, 9)


def test_an_empty_payload_is_one() -> None:
    assert decode_frames(5, "c", bytes.fromhex("30 03 0001 61"))[0][1:3] == (b"a", b"")
