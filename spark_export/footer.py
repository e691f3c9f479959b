"""Adds key-value metadata to a finished Parquet file by rewriting its footer alone.

Spark offers no way to write the GeoParquet `geo` key, and rewriting the file through another
library would lose the GEOMETRY and VARIANT types. The footer is one Thrift struct (compact
protocol) at the end of the file, and everything in it points forwards from the
file's beginning, so that a longer one can take its place. Only what is needed to find the list
of keys is understood here; all other bytes are copied.

    file = data | footer | u32 length of footer | "PAR1"
"""

from protocol.values import value

MAGIC = b"PAR1"
TAIL = 8
_KEY_VALUES = 5  # FileMetaData.key_value_metadata

# Compact-protocol types.
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64 = 0, 1, 2, 3, 4, 5, 6
_DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 7, 8, 9, 10, 11, 12


class FooterError(ValueError):
    """The bytes are not a Parquet footer."""


@value
class _Field:
    number: int
    kind: int
    start: int  # of the field's header
    body: int
    end: int


def footer_length(tail: bytes) -> int:
    """Read the footer's length from the last eight bytes of a file."""
    if len(tail) != TAIL or tail[4:] != MAGIC:
        raise FooterError("not a Parquet file")
    return int.from_bytes(tail[:4], "little")


def add_metadata(footer: bytes, pairs: dict[str, str]) -> bytes:
    """Give the footer with these keys added, and the eight bytes that close the file."""
    try:
        fields = _fields(footer, 0)[0]
    except IndexError:
        raise FooterError("the footer is cut off") from None
    present = [field for field in fields if field.number == _KEY_VALUES]
    added = b"".join(_key_value(key, text) for key, text in pairs.items())
    if present:
        field = present[0]
        count, kind, items = _list_header(footer, field.body)
        if kind != _STRUCT:
            raise FooterError("the footer's keys are no list of structs")
        body = _write_list(count + len(pairs)) + footer[items : field.end] + added
        changed = footer[: field.body] + body + footer[field.end :]
    else:
        changed = _insert(footer, fields, _write_list(len(pairs)) + added)
    return changed + len(changed).to_bytes(4, "little") + MAGIC


def _insert(footer: bytes, fields: list[_Field], body: bytes) -> bytes:
    """Put the list of keys where its number belongs; field headers count from the one before."""
    before = [field for field in fields if field.number < _KEY_VALUES]
    after = [field for field in fields if field.number > _KEY_VALUES]
    last = before[-1].number if before else 0
    split_at = before[-1].end if before else 0
    header = bytes([(_KEY_VALUES - last) << 4 | _LIST])
    if not after:
        return footer[:split_at] + header + body + footer[split_at:]
    following = after[0]
    renumbered = bytes([(following.number - _KEY_VALUES) << 4 | following.kind])
    return footer[:split_at] + header + body + renumbered + footer[following.body :]


def _fields(data: bytes, offset: int) -> tuple[list[_Field], int]:
    """Find the fields of a struct, without reading what is in them."""
    fields: list[_Field] = []
    number = 0
    while True:
        start = offset
        header = data[offset]
        offset += 1
        kind = header & 0x0F
        if kind == _STOP:
            return fields, offset
        if header >> 4:
            number += header >> 4
        else:
            coded, offset = _varint(data, offset)
            number = coded >> 1 ^ -(coded & 1)
        end = _skip(data, offset, kind)
        fields.append(_Field(number, kind, start, offset, end))
        offset = end


def _skip(data: bytes, offset: int, kind: int) -> int:
    match kind:
        case 1 | 2:
            return offset
        case 3:
            return offset + 1
        case 4 | 5 | 6:
            return _varint(data, offset)[1]
        case 7:
            return offset + 8
        case 8:
            length, offset = _varint(data, offset)
            return offset + length
        case 9 | 10:
            count, element, offset = _list_header(data, offset)
            for _ in range(count):
                # A boolean in a list takes a byte; as a field it is in the header.
                offset = offset + 1 if element in {_TRUE, _FALSE} else _skip(data, offset, element)
            return offset
        case 12:
            return _fields(data, offset)[1]
    raise FooterError(f"unknown type {kind} in the footer")


def _list_header(data: bytes, offset: int) -> tuple[int, int, int]:
    header = data[offset]
    offset += 1
    count = header >> 4
    if count == 15:
        count, offset = _varint(data, offset)
    return count, header & 0x0F, offset


def _write_list(count: int) -> bytes:
    if count < 15:
        return bytes([count << 4 | _STRUCT])
    return bytes([0xF0 | _STRUCT]) + _write_varint(count)


def _key_value(key: str, text: str) -> bytes:
    """Write KeyValue {1: string key, 2: string value}."""
    return b"".join((b"\x18", _string(key), b"\x18", _string(text), b"\x00"))


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _write_varint(len(encoded)) + encoded


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, offset
        shift += 7


def _write_varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
