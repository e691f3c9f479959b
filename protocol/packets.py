"""The packets of MQTT 3.1.1 as values, named as the standard names them.

A `location` is MQTT-G's: where the client says it is. It rides on packets from clients
only, and is None on every packet of an ordinary client.
"""

from protocol.geo import Geo, Location
from protocol.values import value

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = range(8, 15)

NAMES = (
    "type 0", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP",
    "SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT",
    "type 15",
)  # fmt: skip

# Return codes of CONNACK, section 3.2.2.3.
ACCEPTED = 0
UNACCEPTABLE_PROTOCOL = 1
IDENTIFIER_REJECTED = 2
SERVER_UNAVAILABLE = 3
BAD_CREDENTIALS = 4
NOT_AUTHORISED = 5

SUBSCRIBE_FAILURE = 0x80


@value
class Will:
    """What shall be published for a client that goes without a word."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


@value
class Connect:
    """CONNECT, section 3.1."""

    client_id: str
    protocol_name: str = "MQTT"
    level: int = 4
    clean_session: bool = True
    keep_alive_s: int = 60
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    bridge: bool = False
    location: Location | None = None


@value
class Connack:
    """CONNACK, section 3.2."""

    code: int = ACCEPTED
    session_present: bool = False


@value
class Publish:
    """PUBLISH, section 3.3; with `geo` a GEOPUBLISH, with `location` a PUBLISHg."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0  # 0 exactly when qos is 0
    geo: Geo | None = None
    location: Location | None = None
    fault: str | None = None  # why its place or time cannot be used: acknowledged, not delivered


@value
class Puback:
    """PUBACK, section 3.4."""

    packet_id: int
    location: Location | None = None


@value
class Pubrec:
    """PUBREC, section 3.5."""

    packet_id: int
    location: Location | None = None


@value
class Pubrel:
    """PUBREL, section 3.6."""

    packet_id: int
    location: Location | None = None


@value
class Pubcomp:
    """PUBCOMP, section 3.7."""

    packet_id: int
    location: Location | None = None


@value
class Subscribe:
    """SUBSCRIBE, section 3.8."""

    packet_id: int
    filters: tuple[tuple[str, int], ...]
    location: Location | None = None


@value
class Suback:
    """SUBACK, section 3.9."""

    packet_id: int
    codes: tuple[int, ...]


@value
class Unsubscribe:
    """UNSUBSCRIBE, section 3.10."""

    packet_id: int
    filters: tuple[str, ...]
    location: Location | None = None


@value
class Unsuback:
    """UNSUBACK, section 3.11."""

    packet_id: int


@value
class Pingreq:
    """PINGREQ, section 3.12."""

    location: Location | None = None


@value
class Pingresp:
    """PINGRESP, section 3.13."""


@value
class Disconnect:
    """DISCONNECT, section 3.14."""

    location: Location | None = None
