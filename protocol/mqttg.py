"""MQTT-G's location block: 21 bytes between the variable header and the payload of a packet.

    version u8 = 1 | lat f64 | lon f64 | elev f32      (packed; big-endian unless set otherwise)

The paper leaves offset and byte order open; a listener's `Dialect` says which reading it
speaks. A block of another version is skipped; one with an impossible latitude or longitude
is no location either, but is worth counting: that is `UNUSABLE`.
"""

from dataclasses import field
from math import isfinite, isnan
from struct import Struct

from protocol.errors import MalformedPacket
from protocol.geo import Location
from protocol.geometry_place import NO_LIMITS, Limits
from protocol.values import value

LOCATION_SIZE = 21
LOCATION_FLAG = 0x04

_BIG = Struct(">Bddf")
_LITTLE = Struct("<Bddf")

UNUSABLE = Location(lat=float("nan"), lon=float("nan"), elev=float("nan"))


@value
class Dialect:
    """Which extensions a listener reads, and in which way."""

    geo: bool = True
    little_endian: bool = False
    location_after_fixed_header: bool = False
    max_levels: int = 200
    max_topic_bytes: int = 65_535
    geometry: Limits = field(default_factory=Limits)


PLAIN = Dialect(geo=False)
GEO = Dialect()
# For reading back what a listener has accepted: limits are for what arrives.
ACCEPTED = Dialect(max_levels=1 << 31, geometry=NO_LIMITS)


def read_location(
    buffer: bytes, offset: int, *, little_endian: bool = False
) -> tuple[Location | None, int]:
    """Read a location block; None when its version is not ours."""
    end = offset + LOCATION_SIZE
    if end > len(buffer):
        raise MalformedPacket("packet too short for its location")
    version, lat, lon, elev = (_LITTLE if little_endian else _BIG).unpack_from(buffer, offset)
    if version != 1:
        return None, end
    if not (isfinite(lat) and isfinite(lon) and abs(lat) <= 90 and abs(lon) <= 180):
        return UNUSABLE, end
    return Location(lat, lon, elev), end


def location_block(location: Location) -> bytes:
    """Encode a location block as our own clients send it."""
    return _BIG.pack(1, location.lat, location.lon, location.elev)


def has_elevation(location: Location) -> bool:
    """Tell whether the client knew its elevation."""
    return not isnan(location.elev)
