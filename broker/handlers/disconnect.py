"""PINGREQ and DISCONNECT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.encode import PINGRESP
from protocol.packets import Disconnect, Pingreq

if TYPE_CHECKING:
    from broker.link import Link


def handle_pingreq(link: Link, packet: Pingreq) -> None:
    """Answer a sign of life [MQTT-3.12.4-1]."""
    link.note_location(packet.location)
    link.send(PINGRESP)


def handle_disconnect(link: Link, packet: Disconnect) -> None:
    """Part as friends: the will is torn up [MQTT-3.14.4-3]."""
    link.note_location(packet.location)
    link.broker.drop_will(link)
    link.close("disconnected")
