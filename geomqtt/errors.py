"""What can go wrong for a user of the client library.

    GeoMQTTError
      ConnectionLost     there is no connection (any more), or the client is closed
        CannotConnect    there never was one: nobody answered at that address
      ConnectRefused     the broker answered and said no
      SubscribeError     the broker refused a subscription

Arguments that cannot be sent (a wildcard in a topic, a geometry that is none) raise
ValueError before anything is sent.
"""

CONNECT_CODES = {
    1: "unacceptable protocol version",
    2: "client id rejected",
    3: "broker unavailable",
    4: "bad user name or password",
    5: "not authorised",
}

SUBSCRIBE_CODES = {
    0x80: "refused",
    0x87: "not authorised",
    0x8F: "bad topic filter",
    0x97: "too many subscriptions",
    0xC0: "bad temporal filter",
    0xC1: "bad geometry",
    0xC2: "relation unknown or unsupported",
    0xC3: "unknown coordinate reference system",
}


class GeoMQTTError(Exception):
    """The root of all errors of the client."""


class ConnectionLost(GeoMQTTError):
    """The connection ended, or the client is closed."""


class CannotConnect(ConnectionLost):
    """No connection came about: wrong address, nobody listening, no MQTT there."""


class ConnectRefused(GeoMQTTError):
    """The broker refused the connection; `code` is its CONNACK return code."""

    def __init__(self, code: int) -> None:
        super().__init__(
            f"connection refused: {CONNECT_CODES.get(code, 'unknown reason')} (code {code})"
        )
        self.code = code


class SubscribeError(GeoMQTTError):
    """The broker refused a subscription; `code` is its SUBACK or GEOSUBACK code."""

    def __init__(self, topic_filter: str, code: int, granted: tuple[int, ...] = ()) -> None:
        super().__init__(
            f"subscription to {topic_filter!r}: "
            f"{SUBSCRIBE_CODES.get(code, 'unknown reason')} (code {code:#04x})"
        )
        self.filter = topic_filter
        self.code = code
        self.granted = granted  # the codes of all filters of the call, in their order
