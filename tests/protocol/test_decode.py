"""Whatever the bytes: a packet or a ProtocolError, never anything else."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.decode import decode, decode_from_server
from protocol.errors import MalformedPacket, PacketTooLarge, ProtocolError
from protocol.fields import read_varint, varint
from protocol.frames import FrameReader, next_frame
from protocol.mqttg import GEO, PLAIN, Dialect

DIALECTS = [PLAIN, GEO, Dialect(little_endian=True), Dialect(location_after_fixed_header=True)]
VECTORS = [
    bytes.fromhex(vector["hex"])
    for path in sorted((Path(__file__).parents[1] / "conformance" / "vectors").glob("*.json"))
    for vector in json.loads(path.read_text())
]

first_bytes = st.integers(0, 255)
dialects = st.sampled_from(DIALECTS)


def decode_or_refuse(first: int, body: bytes, dialect: Dialect) -> None:
    """Anything but a ProtocolError would fail the test that calls this."""
    for read in (decode, decode_from_server):
        with contextlib.suppress(ProtocolError):
            assert read(first, body, dialect) is not None


@given(first_bytes, st.binary(max_size=80), dialects)
@settings(max_examples=400, deadline=None)
def test_any_body_decodes_or_is_refused(first: int, body: bytes, dialect: Dialect) -> None:
    decode_or_refuse(first, body, dialect)


@given(
    st.sampled_from(VECTORS),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4),
    st.integers(0, 300),
    dialects,
)
@settings(max_examples=600, deadline=None)
def test_a_damaged_packet_decodes_or_is_refused(
    data: bytes, changes: list[tuple[int, int]], cut: int, dialect: Dialect
) -> None:
    """Good packets with bytes changed and the end cut off come nearer to the edges."""
    damaged = bytearray(data)
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    body = bytes(damaged[2 if data[1] < 0x80 else 3 :])
    decode_or_refuse(damaged[0], body[: max(0, len(body) - cut)] if cut < 40 else body, dialect)


@given(st.lists(st.binary(max_size=12), max_size=12))
@settings(max_examples=300, deadline=None)
def test_any_stream_is_cut_into_packets_or_refused(pieces: list[bytes]) -> None:
    """However a stream arrives, it gives the same packets up to the same error."""

    def packets(parts: list[bytes]) -> tuple[list[tuple[int, bytes]], str]:
        reader, found = FrameReader(200), []
        try:
            for part in parts:
                for packet in reader.receive_data(part):
                    found.append(packet)
        except ProtocolError as error:
            return found, str(error)
        return found, ""

    whole = b"".join(pieces)
    assert packets(pieces) == packets([whole])
    assert packets([bytes((byte,)) for byte in whole]) == packets([whole])


@given(st.integers(0, 268_435_455))
@settings(deadline=None)
@example(127)
@example(128)
@example(16_383)
@example(16_384)
@example(2_097_151)
@example(2_097_152)
@example(268_435_455)
def test_a_length_is_written_in_as_few_bytes_as_it_takes(number: int) -> None:
    written = varint(number)
    assert len(written) == 1 + (number > 127) + (number > 16_383) + (number > 2_097_151)
    assert read_varint(written, 0) == (number, len(written))


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "00"), (64, "40"), (127, "7f"), (128, "80 01"), (321, "c1 02"), (16_383, "ff 7f"),
        (16_384, "80 80 01"), (2_097_151, "ff ff 7f"), (2_097_152, "80 80 80 01"),
        (268_435_455, "ff ff ff 7f"),
    ],
)  # fmt: skip
def test_the_lengths_of_the_standards_table(number: int, written: str) -> None:
    assert varint(number) == bytes.fromhex(written)
    assert read_varint(bytes.fromhex(written), 0) == (number, len(bytes.fromhex(written)))


def test_a_length_that_does_not_fit_is_no_length() -> None:
    with pytest.raises(ValueError, match="268435456 does not fit"):
        varint(268_435_456)


@pytest.mark.parametrize("written", ["80", "ff ff ff", "80 80 80 80 01", "80 00", "ff 80 00"])
def test_a_length_cut_off_too_long_or_padded_is_refused(written: str) -> None:
    with pytest.raises(MalformedPacket):
        read_varint(bytes.fromhex(written), 0)


def test_a_packet_of_just_the_limit_passes_and_one_more_byte_does_not() -> None:
    assert next_frame(bytes.fromhex("30 08"), 0, 10) is None
    with pytest.raises(PacketTooLarge) as caught:
        next_frame(bytes.fromhex("30 09"), 0, 10)
    assert (caught.value.size, caught.value.limit) == (11, 10)


def test_an_error_keeps_what_came_before_it() -> None:
    reader = FrameReader(100)
    packets = reader.receive_data(bytes.fromhex("c0 00 30 80 80 80 80"))
    assert next(packets) == (0xC0, b"")
    with pytest.raises(MalformedPacket):
        next(packets)
