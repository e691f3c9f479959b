"""How `geomqtt sub` prints a message: as mosquitto_sub does, to the byte.

(nothing)   the payload and a newline; nothing at all for an empty payload
-v          the topic, a blank and the payload; "(null)" stands for an empty one
-F FORMAT   whatever is asked for, with % conversions and \\ escapes
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from geomqtt.messages import Message
from protocol.geometry import DELIVER_GEOJSON, DELIVER_WKT, encode_geometry

ESCAPES = {
    "\\": "\\",
    "0": "\0",
    "a": "\a",
    "e": "\033",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}

_TOKEN = re.compile(rb"@(.)|%(.)|\\(.)|[@%\\]\Z", re.DOTALL)

Now = Callable[[], datetime]


class FormatError(ValueError):
    """A format that asks for something nobody knows."""


def _described(message: Message, now: datetime) -> dict[str, Any]:
    """Describe a message as JSON does, all but its payload."""
    described: dict[str, Any] = {
        "tst": f"{now:%Y-%m-%dT%H:%M:%S.%f%z}",
        "topic": message.topic,
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.qos:
        described["mid"] = message.packet_id
    if message.place is not None:
        described["place"] = json.loads(_geojson(message, now))
    if message.time_text is not None:
        described["time"] = message.time_text
    return described


def _json_text(message: Message, now: datetime) -> bytes:
    """Make JSON with the payload as a string."""
    payload = message.payload.decode(errors="replace")
    return _json(_described(message, now) | {"payload": payload})


def _json_value(message: Message, now: datetime) -> bytes:
    """Make JSON with the payload as the JSON it is itself."""
    try:
        payload = json.loads(message.payload) if message.payload else None
    except ValueError:
        payload = message.payload.decode(errors="replace")
    return _json(_described(message, now) | {"payload": payload})


def _json(described: dict[str, Any]) -> bytes:
    return json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()


def _wkt(message: Message, now: datetime) -> bytes:
    """Write the place as WKT; nothing if there is none."""
    return encode_geometry(message.place, DELIVER_WKT) if message.place is not None else b""


def _geojson(message: Message, now: datetime) -> bytes:
    """Write the place as GeoJSON; nothing if there is none."""
    return encode_geometry(message.place, DELIVER_GEOJSON) if message.place is not None else b""


CONVERSIONS: dict[str, Callable[[Message, datetime], bytes]] = {
    "%": lambda message, now: b"%",
    "I": lambda message, now: f"{now:%Y-%m-%dT%H:%M:%S%z}".encode(),
    "U": lambda message, now: f"{now.timestamp():.9f}".encode(),
    "j": _json_text,
    "J": _json_value,
    "l": lambda message, now: str(len(message.payload)).encode(),
    "m": lambda message, now: str(message.packet_id).encode(),
    "p": lambda message, now: message.payload,
    "q": lambda message, now: str(message.qos).encode(),
    "r": lambda message, now: str(int(message.retain)).encode(),
    "t": lambda message, now: message.topic.encode(),
    "x": lambda message, now: message.payload.hex().encode(),
    "X": lambda message, now: message.payload.hex().upper().encode(),
}
# Ours: letters that mosquitto_sub has no meaning for.
CONVERSIONS.update(g=_wkt, G=_geojson, T=lambda message, now: (message.time_text or "").encode())
# What only MQTT 5 messages have is empty here, as it is there.
CONVERSIONS.update(dict.fromkeys("ACDEFPRS", lambda message, now: b""))


def check_format(text: str) -> None:
    """Refuse a format before anything is received."""
    for match in _TOKEN.finditer(text.encode()):
        date, conversion, escape = match.groups()
        if date is None and conversion is None and escape is None:
            raise FormatError(f"format ends in {match[0].decode()!r}")
        if conversion is not None and conversion.decode("latin-1") not in CONVERSIONS:
            raise FormatError(f"format has an unknown conversion %{conversion.decode('latin-1')}")
        if escape is not None and escape.decode("latin-1") not in ESCAPES:
            raise FormatError(f"format has an unknown escape \\{escape.decode('latin-1')}")


def formatted(text: str, message: Message, now: datetime) -> bytes:
    """Print a message as a format wants it."""

    def convert(match: re.Match[bytes]) -> bytes:
        date, conversion, escape = match.groups()
        if date == b"@":
            return b"@"
        if date is not None:
            return now.strftime(f"%{date.decode('latin-1')}").encode()
        if conversion is not None:
            return CONVERSIONS[conversion.decode("latin-1")](message, now)
        return ESCAPES[escape.decode("latin-1")].encode()

    return _TOKEN.sub(convert, text.encode())


class Printer:
    """Turns messages into bytes for stdout."""

    def __init__(self, *, verbose: bool, newline: bool, format_text: str | None, now: Now) -> None:
        if format_text is not None:
            check_format(format_text)
        self._verbose = verbose
        self._end = b"\n" if newline else b""
        self._format = format_text
        self._now = now

    def line(self, message: Message) -> bytes:
        """Give what is to be written for a message."""
        if self._format is not None:
            return formatted(self._format, message, self._now()) + self._end
        if self._verbose:
            return message.topic.encode() + b" " + (message.payload or b"(null)") + self._end
        return message.payload + self._end if message.payload else b""
