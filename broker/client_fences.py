"""MQTT-G's geofences: what a client wants to hear of, by place, on top of its subscriptions.

static    stays where it was drawn
dynamic   kept as metres east and north of the client, and re-placed when it moves
"""

from __future__ import annotations

import json
from typing import Any

from protocol.errors import BadGeometry, BadTopic, BadValue
from protocol.geo import Location
from protocol.geometry import Place, from_offsets, parse_geojson, parse_text, to_offsets
from protocol.geometry_place import Limits
from protocol.relations import INTERSECTS, spatial
from protocol.topics import check_filter, matches


class ClientFence:
    """One geofence of one client."""

    __slots__ = ("_offsets", "anchor", "payload", "place", "topics")

    def __init__(
        self,
        payload: bytes,
        place: Place,
        topics: tuple[str, ...],
        anchor: Location | None = None,
    ) -> None:
        self.payload = payload  # as submitted, and where: for the store
        self.anchor = anchor
        self.place = place
        self.topics = topics
        self._offsets = None
        if anchor is not None:
            self._offsets = to_offsets(place, anchor.lat, anchor.lon)

    @property
    def dynamic(self) -> bool:
        """Whether it moves with its client."""
        return self._offsets is not None

    def move(self, location: Location) -> None:
        """Re-place a dynamic fence round the client's new location."""
        if self._offsets is not None:
            self.place = from_offsets(self._offsets, location.lat, location.lon)

    def concerns(self, topic: str) -> bool:
        """Tell whether the fence filters a topic."""
        return not self.topics or any(matches(each, topic) for each in self.topics)


def parse_fence(
    payload: bytes, location: Location | None, limits: Limits, max_levels: int
) -> ClientFence:
    """Read the payload of a geofence publish; `location` is where the client is."""
    try:
        text = payload.decode().strip()
    except UnicodeDecodeError:
        raise BadGeometry("geofence is not UTF-8") from None
    geometry: Any = text
    mode: Any = "static"
    topics: Any = []
    if text.startswith("{"):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise BadGeometry("geofence is no JSON") from None
        if "geometry" in document and document.get("type") != "Feature":
            unknown = document.keys() - {"geometry", "mode", "topics"}
            if unknown:
                raise BadValue(f"unknown key {min(unknown)[:40]!r} in geofence")
            geometry = document["geometry"]
            mode = document.get("mode", "static")
            topics = document.get("topics", [])
        else:
            geometry = document
    if mode not in ("static", "dynamic"):
        raise BadValue(f"geofence mode {str(mode)[:20]!r}, expected static or dynamic")
    if not isinstance(topics, list) or not all(isinstance(each, str) for each in topics):
        raise BadTopic("geofence topics must be a list of topic filters")
    for each in topics:
        check_filter(each, max_levels)
    if isinstance(geometry, str):
        place = parse_text(geometry, 4326, limits).place
    elif isinstance(geometry, dict):
        place = parse_geojson(geometry, 4326, limits).place
    else:
        raise BadGeometry("geofence geometry is neither text nor GeoJSON")
    if mode == "static":
        return ClientFence(payload, place, tuple(topics))
    if location is None:
        raise BadGeometry("a dynamic geofence needs a known location")
    return ClientFence(payload, place, tuple(topics), location)


def admits(
    fences: dict[str, ClientFence], topic: str, place: Place | None, *, unknown: bool
) -> bool:
    """Tell whether a client with these fences wants a message of this topic and place.

    `unknown` is the answer for a message that nobody can place. Topics of the broker's own
    are never filtered.
    """
    if topic.startswith("$"):
        return True
    concerned = [fence for fence in fences.values() if fence.concerns(topic)]
    if not concerned:
        return True
    if place is None:
        return unknown
    return any(spatial(INTERSECTS, fence.place, place) for fence in concerned)


def parse_location(payload: bytes) -> Location:
    """Read the payload of `$/SYS/MQTT/location`: POINT(lon lat) or {"lat": …, "lon": …}."""
    try:
        text = payload.decode().strip()
    except UnicodeDecodeError:
        raise BadGeometry("location is not UTF-8") from None
    if text.startswith("{"):
        try:
            document = json.loads(text)
            lat, lon = float(document["lat"]), float(document["lon"])
            elev = float(document.get("elev", "nan"))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise BadGeometry('location is not {"lat": number, "lon": number}') from None
        place = Place(lon, lat)
        return Location(place.y, place.x, elev)
    place = parse_text(text).place
    if not place.is_point:
        raise BadGeometry("location is no point")
    return Location(place.y, place.x, place.z if place.z is not None else float("nan"))
