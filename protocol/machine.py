"""Which packet is legal when: the life of one connection, seen from the server, as data.

    AWAITING_CONNECT --CONNECT--> CONNECTING --accepted--> CONNECTED --DISCONNECT--> CLOSED
                                      |  refused                |  any error
                                      +-------> CLOSED <--------+

The machine holds no bytes and no clock. A link asks it before it acts on a packet, and
tells it what the broker decided.
"""

from enum import IntEnum

from protocol import packets as p
from protocol.errors import OutOfOrder


class State(IntEnum):
    """Where a connection is in its life."""

    AWAITING_CONNECT = 0
    CONNECTING = 1  # the broker is making up its mind; nothing is read meanwhile
    CONNECTED = 2
    CLOSED = 3


_GEO = 15

# [MQTT-3.1.0-1]: CONNECT comes first. [MQTT-3.1.0-2]: a second one is a violation.
_ALLOWED: dict[State, frozenset[int]] = {
    State.AWAITING_CONNECT: frozenset({p.CONNECT}),
    State.CONNECTING: frozenset(),
    State.CONNECTED: frozenset({*range(p.PUBLISH, p.SUBSCRIBE), p.SUBSCRIBE, p.UNSUBSCRIBE})
    | {p.PINGREQ, p.DISCONNECT, _GEO},
    State.CLOSED: frozenset(),
}

# The same, as a row of sixteen answers a state, indexed by the packet type.
LEGAL = tuple(tuple(kind in _ALLOWED[state] for kind in range(16)) for state in State)


def refuse(state: State, kind: int) -> OutOfOrder:
    """Say why a packet type is not legal now."""
    if state is State.AWAITING_CONNECT:
        return OutOfOrder(f"{p.NAMES[kind]} before CONNECT")
    if kind == p.CONNECT:
        return OutOfOrder("second CONNECT")
    return OutOfOrder(f"{p.NAMES[kind]} is not for clients to send")
