"""What can be wrong with bytes from a peer, and what follows from it.

    ProtocolError      the framing or the order of packets is wrong: close the connection
    BadValue           one value inside a well-formed packet cannot be used: refuse that value

Messages are lower case, state the facts and end without a full stop: they are shown to
people as they are, behind the client's name and address.
"""


class ProtocolError(Exception):
    """The peer broke a rule that leaves no choice but to close the connection."""


class MalformedPacket(ProtocolError):
    """The bytes are no MQTT packet."""


class PacketTooLarge(ProtocolError):
    """The packet is larger than the limit of this listener."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"packet of {size} bytes, limit is {limit}")
        self.size = size
        self.limit = limit


class TopicBeyondLimit(MalformedPacket):
    """A topic or topic filter that is longer or deeper than the limits of this listener."""


class OutOfOrder(ProtocolError):
    """A packet that is legal, but not now or not from this side."""


class ConnectRefused(ProtocolError):
    """A CONNECT that must be answered with a return code before the connection closes."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class BadValue(ValueError):
    """A value that parses as a field but means nothing: the packet is answered, not obeyed."""


class BadTopic(BadValue):
    """A topic or topic filter that breaks a rule of section 4.7."""


class BadGeometry(BadValue):
    """A geometry that does not parse, is invalid, empty or beyond a limit."""


class UnknownCrs(BadGeometry):
    """An EPSG code that nobody knows, or that cannot be brought to WGS 84."""


class BadTime(BadValue):
    """An instant, interval or temporal filter that does not parse."""
