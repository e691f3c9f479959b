"""Which packet is legal when, in every state and for every type."""

from __future__ import annotations

import pytest

from protocol import packets as p
from protocol.errors import OutOfOrder
from protocol.machine import LEGAL, State, refuse

FROM_CLIENTS = {
    p.PUBLISH, p.PUBACK, p.PUBREC, p.PUBREL, p.PUBCOMP, p.SUBSCRIBE, p.UNSUBSCRIBE, p.PINGREQ,
    p.DISCONNECT, 15,
}  # fmt: skip


@pytest.mark.parametrize("kind", range(16))
def test_connect_comes_first_and_only_first(kind: int) -> None:
    """[MQTT-3.1.0-1], [MQTT-3.1.0-2]."""
    assert LEGAL[State.AWAITING_CONNECT][kind] is (kind == p.CONNECT)
    assert LEGAL[State.CONNECTED][kind] is (kind in FROM_CLIENTS)
    assert not LEGAL[State.CONNECTING][kind]
    assert not LEGAL[State.CLOSED][kind]


def test_a_refusal_says_which_rule_was_broken() -> None:
    assert str(refuse(State.AWAITING_CONNECT, p.PUBLISH)) == "PUBLISH before CONNECT"
    assert str(refuse(State.CONNECTED, p.CONNECT)) == "second CONNECT"
    assert str(refuse(State.CONNECTED, p.SUBACK)) == "SUBACK is not for clients to send"
    assert isinstance(refuse(State.CONNECTED, 0), OutOfOrder)
