"""Place and time of an event: as they came, to be sent on, and as they mean, to be matched.

The form numbers are those of the GeoMQTT envelope (docs/protocol.md):

    time      0 none, 1 instant, 2 interval, 3 text
    geometry  0 none, 1 point, 2 point with elevation, 3 text, 4 WKB, 5 GeoJSON

`*_raw` are the bytes of the field as published, without length prefix, so that an event
goes out "as published" without being encoded again. `place` and `fence` are the meaning,
always in EPSG:4326; `time` is (start, end) in Unix milliseconds, equal for an instant.
"""

from protocol.geometry_place import Place
from protocol.values import value


@value
class Location:
    """Where a client was last known to be (WGS 84 degrees, metres; NaN = unknown elevation)."""

    lat: float
    lon: float
    elev: float


@value
class Geo:
    """The geo part of a message."""

    time_form: int = 0
    time_raw: bytes = b""
    time: tuple[int, int] | None = None  # None: the time of receipt
    geometry_form: int = 0
    geometry_raw: bytes = b""
    epsg: int = 4326  # of the geometry: its own SRID if its text names one
    place: Place | None = None  # the place the event itself carries
    extensions: bytes = b""  # the TLVs as they came
    fence: Place | None = None  # the event geofence among them
    epsg_sent: int | None = None  # the EPSG field, if there was one
