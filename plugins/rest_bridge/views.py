"""Everything that is asked for and is no event: clients, fences, positions, status.

/rest/clients            last known locations, for those who may see locations
/rest/fences             the geofences in force
/rest/latest/<filter>    the newest event with a place of every client or topic
/rest/topics/<filter>    topics of the log
/rest/status             numbers, and what is on
/rest/map                what the map needs to know
/metrics, /health        for those who watch
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Iterable
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from plugins.api import Broker, Client, SubscribeRequest
from plugins.rest_bridge.access import Access
from plugins.rest_bridge.live import Hub, Log
from plugins.rest_bridge.metrics import MEDIA_TYPE, exposition
from plugins.rest_bridge.negotiation import choose
from plugins.rest_bridge.parameters import (
    read_choice,
    read_filter,
    read_instant,
    read_integer,
    read_parameters,
)
from plugins.rest_bridge.problems import Problem
from plugins.rest_bridge.shapes import GEOJSON, shape_place, whole
from plugins.rest_bridge.streaming import Streamed
from protocol.geometry import Place
from protocol.message import Message
from protocol.temporal import MIN_MS

AT_ONCE = 500  # features made without letting go of the loop
MAX_TOPICS = 10_000
MOVING = ("near", "dynamic")  # fences that show where their client is
NOTHING: frozenset[str] = frozenset()


class Views:
    """The endpoints."""

    def __init__(
        self, broker: Broker, access: Access, hub: Hub, stall_s: float, map_settings: dict[str, Any]
    ) -> None:
        self._broker = broker
        self._access = access
        self._hub = hub
        self._stall_s = stall_s
        self._map_settings = map_settings

    @property
    def _log(self) -> Log:
        if self._hub.log is None:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE, "the event log is off: there is no history"
            )
        return self._hub.log

    async def clients(self, request: Request) -> Response:
        """Show where clients were last known to be."""
        client = await self._access.who(request)
        read_parameters(request, NOTHING)
        await self._access.may_see(client, SubscribeRequest("#", 0, sees_locations=True))
        places = (
            (
                Place(each.lon, each.lat, None if math.isnan(each.elev) else each.elev),
                {"client": client_id},
            )
            for client_id, each in list(self._broker.locations().items())
        )
        return self._features(places)

    async def fences(self, request: Request) -> Response:
        """Show the fences in force; those that move with a client like its location."""
        client = await self._access.who(request)
        read_parameters(request, NOTHING)
        await self._access.may_see(client, SubscribeRequest("#", 0))
        located = await self._broker.authorise_subscribe(
            client, SubscribeRequest("#", 0, sees_locations=True)
        )
        places = (
            (fence["place"], {key: fence[key] for key in ("client", "name", "kind", "filter")})
            for fence in list(self._broker.fences())
            if located or fence["kind"] not in MOVING
        )
        return self._features(places)

    def _features(self, places: Iterable[tuple[Place, dict[str, Any]]]) -> Response:
        return Streamed(_features(places), self._stall_s, media_type=GEOJSON.media_type)

    async def latest(self, request: Request) -> Response:
        """Show the newest event with a place of every client or topic."""
        framing = choose(request, GEOJSON, streams=False)
        client = await self._access.who(request)
        topic_filter = read_filter(request, "/rest/latest/")
        parameters = read_parameters(request, frozenset({"by", "since"}))
        by = read_choice(parameters, "by", ("client", "topic"))
        since_ms = read_instant(parameters, "since", MIN_MS)
        await self._access.may_see(client, SubscribeRequest(topic_filter, 0))
        log = self._log
        await log.settle_own()
        between = None if self._broker.restricts_receiving else framing.between
        chunks = log.reader.latest(by, topic_filter, since_ms, framing.kind, between=between)
        shown: list[bytes] = []
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                if chunk.joined:
                    shown.append(chunk.joined)
                shown += [row.shown for row in log.judge(client, chunk)]
        return Response(whole(framing, shown), media_type=framing.media_type)

    async def topics(self, request: Request) -> Response:
        """List topics of the log."""
        client = await self._access.who(request)
        topic_filter = read_filter(request, "/rest/topics/")
        parameters = read_parameters(request, frozenset({"size"}))
        size = read_integer("size", parameters.get("size", "1000"), 1, MAX_TOPICS)
        await self._access.may_see(client, SubscribeRequest(topic_filter, 0))
        names = await self._log.reader.topics(topic_filter, size)
        return _json([name for name in names if self._may_receive(client, name)])

    def _may_receive(self, client: Client, topic: str) -> bool:
        return not self._broker.restricts_receiving or self._broker.authorise_receive(
            client, Message(topic, b"")
        )

    async def status(self, request: Request) -> Response:
        """Tell what is the case and what was counted."""
        await self._access.who(request)
        read_parameters(request, NOTHING)
        return _json(
            {
                "version": version("geomqtt"),
                "event_log": self._hub.log is not None,
                "live_streams": len(self._hub),
                "status": dict(self._broker.status()),
                "counts": dict(self._broker.counts()),
            }
        )

    async def map_settings(self, request: Request) -> Response:
        """Tell the map what it needs to know."""
        client = await self._access.who(request)
        read_parameters(request, NOTHING)
        return _json(
            {
                **self._map_settings,
                "event_log": self._hub.log is not None,
                "user": client.username,
            }
        )

    async def metrics(self, request: Request) -> Response:
        """Tell Prometheus."""
        await self._access.who(request)
        return Response(exposition(self._broker), headers={"Content-Type": MEDIA_TYPE})

    async def health(self, request: Request) -> Response:
        """Tell whether the broker does its work: 200, or 503 and why not."""
        failing = bool(self._broker.status().get("store_failing"))
        status = HTTPStatus.SERVICE_UNAVAILABLE if failing else HTTPStatus.OK
        word = "what must be kept cannot be kept" if failing else "ok"
        return _json({"status": word}, status)


def _json(document: Any, status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")


async def _features(
    places: Iterable[tuple[Place, dict[str, Any]]],
) -> AsyncGenerator[bytes, None]:
    piece = bytearray(GEOJSON.head)
    for number, (place, properties) in enumerate(places):
        if number:
            piece += GEOJSON.between
        piece += shape_place(place, properties)
        if number % AT_ONCE == AT_ONCE - 1:
            yield bytes(piece)
            piece.clear()
            await asyncio.sleep(0)
    yield bytes(piece) + GEOJSON.tail
