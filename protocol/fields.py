"""The field types of MQTT: read from a buffer at an offset, or made into bytes.

Every `read_*` returns the value and the offset behind it, and raises MalformedPacket when
the field does not fit: the buffer is one packet, so a field that runs out of it is the
sender's mistake, never a matter of waiting for more.
"""

import re
from struct import Struct

from protocol.errors import MalformedPacket

U16 = Struct(">H")
U32 = Struct(">I")
I64 = Struct(">q")
F64 = Struct(">d")

MAX_VARINT = 268_435_455

# U+0000 is forbidden [MQTT-1.5.3-2]; control and non-characters may close the connection
# (section 1.5.3), and do, as with Mosquitto. Surrogates never pass the strict decoder
# [MQTT-1.5.3-1]; a BOM is an ordinary character [MQTT-1.5.3-3].
_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
    + "]"
)


def read_u8(buffer: bytes, offset: int) -> tuple[int, int]:
    """Read one byte."""
    if offset >= len(buffer):
        raise MalformedPacket("packet ends inside a field")
    return buffer[offset], offset + 1


def read_u16(buffer: bytes, offset: int) -> tuple[int, int]:
    """Read a two-byte integer."""
    if offset + 2 > len(buffer):
        raise MalformedPacket("packet ends inside a field")
    return buffer[offset] << 8 | buffer[offset + 1], offset + 2


def read_u32(buffer: bytes, offset: int) -> tuple[int, int]:
    """Read a four-byte integer."""
    if offset + 4 > len(buffer):
        raise MalformedPacket("packet ends inside a field")
    return int(U32.unpack_from(buffer, offset)[0]), offset + 4


def read_varint(buffer: bytes, offset: int) -> tuple[int, int]:
    """Read a variable byte integer; more bytes than it takes, or than four, are malformed."""
    number = 0
    for shift in (0, 7, 14, 21):
        if offset >= len(buffer):
            raise MalformedPacket("packet ends inside a length")
        byte = buffer[offset]
        offset += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift and not byte:
                raise MalformedPacket("length padded with zeros")
            return number, offset
    raise MalformedPacket("length of more than four bytes")


def read_binary(buffer: bytes, offset: int) -> tuple[bytes, int]:
    """Read bytes behind a two-byte length."""
    size, start = read_u16(buffer, offset)
    end = start + size
    if end > len(buffer):
        raise MalformedPacket("packet ends inside a field")
    return buffer[start:end], end


def read_long_binary(buffer: bytes, offset: int) -> tuple[bytes, int]:
    """Read bytes behind a variable length, as geometries have it."""
    size, start = read_varint(buffer, offset)
    end = start + size
    if end > len(buffer):
        raise MalformedPacket("packet ends inside a field")
    return buffer[start:end], end


def read_string(buffer: bytes, offset: int) -> tuple[str, int]:
    """Read a UTF-8 string behind a two-byte length."""
    raw, end = read_binary(buffer, offset)
    return decode_string(raw), end


def decode_string(raw: bytes) -> str:
    """Turn the bytes of a string field into text, or refuse them."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("string is not UTF-8") from None
    if not text.isprintable() and _FORBIDDEN.search(text):
        raise MalformedPacket("string holds a control or non-character")
    return text


def varint(number: int) -> bytes:
    """Encode a variable byte integer in as few bytes as it takes."""
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 0x20_0000:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    if number <= MAX_VARINT:
        return bytes(
            (
                number & 0x7F | 0x80,
                number >> 7 & 0x7F | 0x80,
                number >> 14 & 0x7F | 0x80,
                number >> 21,
            )
        )
    raise ValueError(f"{number} does not fit a variable byte integer")


def binary(data: bytes) -> bytes:
    """Encode bytes behind a two-byte length."""
    if len(data) > 0xFFFF:
        raise ValueError(f"{len(data)} bytes do not fit a field of 65,535")
    return U16.pack(len(data)) + data


def string(text: str) -> bytes:
    """Encode a UTF-8 string behind a two-byte length."""
    return binary(text.encode())


def long_binary(data: bytes) -> bytes:
    """Encode bytes behind a variable length."""
    return varint(len(data)) + data
