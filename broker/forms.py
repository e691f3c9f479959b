"""The forms in which a geo event goes out, and which receiver gets which.

PLAIN               PUBLISH, place and time dropped
PrefixForm          PUBLISH under `$geo/<conditions>/<topic>`
EnvelopeForm        GEOPUBLISH: as published, or re-encoded, or re-projected
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.delivery import PLAIN, Form
from protocol.conditions import Conditions
from protocol.encode import publish_parts
from protocol.envelope import encode_fields, geo_fields, geopublish_parts
from protocol.errors import BadValue
from protocol.fields import I64, U32
from protocol.geo import Geo
from protocol.geometry import WGS84, encode_geometry, parse_form, reproject
from protocol.geometry_place import NO_LIMITS
from protocol.message import Message

if TYPE_CHECKING:
    from broker.subscription import GeoSubscription

log = logging.getLogger("geomqtt.forms")

AS_PUBLISHED, AS_PLAIN = 0, 1
REPROJECT = 0x80
_NOTHING = Geo()
# deliver value -> geometry form of the envelope, and the other way round
_FORM_OF = {2: 3, 3: 5, 4: 4}
_DELIVER_OF = {3: 2, 5: 3, 4: 4}


class PrefixForm:
    """PUBLISH under the filter's own prefix, for clients that dispatch by filter."""

    __slots__ = ("key", "prefix")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.key = b"P" + prefix.encode()

    def parts(self, message: Message, flags: int) -> tuple[bytes, bytes]:
        """Encode with the prefix before the topic."""
        topic = (self.prefix + message.topic).encode()
        if len(topic) > 0xFFFF:
            return PLAIN.parts(message, flags)
        return publish_parts(0x30 | flags, topic, message.payload)


class EnvelopeForm:
    """GEOPUBLISH with the geometry as a subscription asked for it."""

    __slots__ = ("deliver", "epsg", "key")

    def __init__(self, deliver: int, epsg: int) -> None:
        self.deliver = deliver
        self.epsg = epsg
        self.key = b"E" + bytes((deliver,)) + U32.pack(epsg)

    def parts(self, message: Message, flags: int) -> tuple[bytes, bytes]:
        """Encode place and time with the message."""
        geo = message.geo or _NOTHING
        if self.deliver and geo.geometry_form:
            fields = self._converted(geo, message.received_ms)
        else:
            fields = geo_fields(geo, message.received_ms)
        return geopublish_parts(flags, message.topic.encode(), fields, message.payload)

    def _converted(self, geo: Geo, received_ms: int) -> bytes:
        try:
            parsed = parse_form(
                geo.geometry_form, geo.geometry_raw, geo.epsg_sent or WGS84, NO_LIMITS
            )
            geometry, epsg = parsed.source, parsed.epsg
            if self.deliver & REPROJECT:
                geometry, epsg = reproject(geometry, epsg, self.epsg), self.epsg
        except BadValue as error:
            log.info("event delivered as published: %s", error)
            return geo_fields(geo, received_ms)
        form = _FORM_OF.get(self.deliver & ~REPROJECT, geo.geometry_form)
        if form in (1, 2):
            raw = struct.pack(f">{form + 1}d", *geometry.coords[0][: form + 1])
        else:
            raw = encode_geometry(geometry, _DELIVER_OF[form])
        time_form, time_raw = geo.time_form, geo.time_raw
        if not time_form:
            time_form, time_raw = 1, I64.pack(received_ms)
        named = epsg if epsg != WGS84 else None
        return encode_fields(time_form, time_raw, form, raw, named, geo.extensions)


def form_of(conditions: Conditions) -> Form:
    """Give the form for a client of which nothing but this subscription matches."""
    if conditions.envelope:
        if conditions.deliver & ~REPROJECT == AS_PLAIN:
            return PLAIN
        return EnvelopeForm(conditions.deliver, conditions.epsg)
    return PrefixForm(conditions.prefix) if conditions.prefix else PLAIN


def choose(matching: Sequence[GeoSubscription], *, plain: bool) -> Form:
    """Choose the form for a client: `matching` geo subscriptions, and maybe a plain one.

    A GEOSUBSCRIBE wins, the one made last decides; a prefix is kept only if every matching
    subscription asks for it.
    """
    if not matching:
        return PLAIN
    asked = [each for each in matching if each.geo.envelope]
    if asked:
        return max(asked, key=_order).form
    if plain or not all(each.geo.prefix for each in matching):
        return PLAIN
    return max(matching, key=_order).form


def _order(subscription: GeoSubscription) -> int:
    return subscription.order


def form_from_key(key: bytes) -> Form:
    """Find the form that the store wrote."""
    if key.startswith(b"P"):
        return PrefixForm(key[1:].decode())
    if key.startswith(b"E"):
        return EnvelopeForm(key[1], U32.unpack_from(key, 2)[0])
    return PLAIN
