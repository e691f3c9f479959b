"""What the broker does with each packet: one function a packet, one file a subject.

A handler gets the link and the packet. It returns None when it is done, or an awaitable
when it must wait; then that link reads nothing until the awaitable is.
"""

from collections.abc import Callable
from typing import Any

from broker.handlers.acknowledge import (
    handle_puback,
    handle_pubcomp,
    handle_pubrec,
    handle_pubrel,
)
from broker.handlers.connect import handle_connect
from broker.handlers.disconnect import handle_disconnect, handle_pingreq
from broker.handlers.publish import handle_publish
from broker.handlers.subscribe import (
    handle_geosubscribe,
    handle_geounsubscribe,
    handle_subscribe,
    handle_unsubscribe,
)
from protocol import packets as p
from protocol.envelope import GeoSubscribe, GeoUnsubscribe

HANDLERS: dict[type, Callable[[Any, Any], Any]] = {
    p.Connect: handle_connect,
    p.Publish: handle_publish,
    p.Puback: handle_puback,
    p.Pubrec: handle_pubrec,
    p.Pubrel: handle_pubrel,
    p.Pubcomp: handle_pubcomp,
    p.Subscribe: handle_subscribe,
    p.Unsubscribe: handle_unsubscribe,
    GeoSubscribe: handle_geosubscribe,
    GeoUnsubscribe: handle_geounsubscribe,
    p.Pingreq: handle_pingreq,
    p.Disconnect: handle_disconnect,
}
