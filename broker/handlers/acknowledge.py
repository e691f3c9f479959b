"""PUBACK, PUBREC, PUBREL, PUBCOMP: the second half of QoS 1 and 2.

An unsolicited PUBREC is answered with PUBREL and an unsolicited PUBREL with PUBCOMP, so
that a peer that lost our answer can finish; unsolicited PUBACK and PUBCOMP mean nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.encode import pubcomp
from protocol.packets import Puback, Pubcomp, Pubrec, Pubrel

if TYPE_CHECKING:
    from broker.link import Link


def handle_puback(link: Link, packet: Puback) -> None:
    """A subscriber has a QoS 1 message."""
    link.note_location(packet.location)
    link.joined.acknowledged(packet.packet_id)


def handle_pubrec(link: Link, packet: Pubrec) -> None:
    """A subscriber has a QoS 2 message and promises not to take it twice."""
    link.note_location(packet.location)
    link.joined.received(packet.packet_id)


def handle_pubrel(link: Link, packet: Pubrel) -> None:
    """A publisher will not send this QoS 2 message again."""
    link.note_location(packet.location)
    session = link.joined
    if session.incoming and packet.packet_id in session.incoming:
        session.incoming.discard(packet.packet_id)
        if session.row:
            # After PUBCOMP the client may use the id again: we must not know it any more.
            link.broker.store.remove_incoming(session, packet.packet_id)
            link.hold()
            link.broker.store.depends(link)
    link.send(pubcomp(packet.packet_id))


def handle_pubcomp(link: Link, packet: Pubcomp) -> None:
    """A subscriber is done with a QoS 2 message."""
    link.note_location(packet.location)
    link.joined.completed(packet.packet_id)
