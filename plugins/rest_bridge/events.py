"""`/rest/publish/<topic>` and `/rest/geopublish/<topic>`: what the paper has, and past it.

    GET      events of the log, the newest first; live as text/event-stream; `wait` for a
             long poll
    PUT      publish
    DELETE   what GET would find, gone from the log

Events that carry a place are in `geopublish`, the others in `publish`.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from plugins.api import Broker, Client
from plugins.event_log.reader import Cursor, Query
from plugins.rest_bridge.access import CLIENT_ID, Access
from plugins.rest_bridge.live import Hub, Log, Occurrence, Position, Stream
from plugins.rest_bridge.log_worker import Row
from plugins.rest_bridge.negotiation import EVENT_STREAM, choose
from plugins.rest_bridge.parameters import (
    MAX_WAIT_S,
    Selection,
    read_choice,
    read_filter,
    read_geometry,
    read_integer,
    read_number,
    read_parameters,
    read_selection,
    read_size,
    read_switch,
    read_time,
    read_topic,
)
from plugins.rest_bridge.problems import BadParameter, Problem
from plugins.rest_bridge.shapes import GEOJSON, JSON, Framing, whole
from plugins.rest_bridge.streaming import Streamed
from protocol.geo import Geo
from protocol.geometry import FORM_GEOJSON, FORM_TEXT
from protocol.message import Message
from protocol.values import value

FIND = frozenset({"from", "to"})
PLACE = frozenset({"geometry", "relation", "tolerance"})
PAGE = frozenset({"size", "order", "after", "wait"})
PUBLISH = frozenset({"qos", "retain"})

BUFFERED_BYTES = 1 << 20  # up to here an answer is sent whole, and knows its next page
HEARTBEAT_S = 15.0
RETRY = b"retry: 1000\n\n"
ORDERS = ("newest", "oldest")


@value
class Piece:
    """Some events of an answer, joined."""

    shown: bytes
    count: int
    last: Cursor | None


class Events:
    """One of the two endpoints."""

    def __init__(
        self,
        broker: Broker,
        access: Access,
        hub: Hub,
        *,
        geo: bool,
        max_body_bytes: int,
        stall_s: float,
    ) -> None:
        self._broker = broker
        self._access = access
        self._hub = hub
        self._geo = geo
        self._max_body_bytes = max_body_bytes
        self._stall_s = stall_s
        self.prefix = "/rest/geopublish/" if geo else "/rest/publish/"
        self._find = FIND | PLACE if geo else FIND

    @property
    def _log(self) -> Log:
        if self._hub.log is None:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE, "the event log is off: there is no history"
            )
        return self._hub.log

    async def _select(
        self, request: Request, known: frozenset[str]
    ) -> tuple[Client, dict[str, str], Selection]:
        client = await self._access.who(request)
        await asyncio.sleep(0)  # deliveries first: a request is never dealt with in one go
        topic_filter = read_filter(request, self.prefix)
        parameters = read_parameters(request, known)
        selection = read_selection(topic_filter, parameters, geo=self._geo)
        await self._access.may_see(client, selection.request)
        await asyncio.sleep(0)
        return client, parameters, selection

    # GET

    async def get(self, request: Request) -> Response:
        """Answer with events of the log, or with those to come."""
        framing = choose(request, GEOJSON if self._geo else JSON, streams=True)
        client, parameters, selection = await self._select(request, self._find | PAGE)
        after = parameters.get("after")
        position = None if after is None else Position.parse(after, "after")
        size = read_size(parameters)
        newest_first = read_choice(parameters, "order", ORDERS) == "newest"
        if framing is EVENT_STREAM:
            return self._live(request, client, selection, position)
        if "wait" in parameters:
            wait_s = read_number("wait", parameters["wait"], MAX_WAIT_S)
            return await self._long_poll(client, selection, framing, position, wait_s, size)
        log = self._log
        if request.method == "HEAD":
            return Response(media_type=framing.media_type)
        await log.settle_own()
        cursor = None if position is None else await log.resolve(selection, position)
        what = selection.query(cursor, newest_first=newest_first)
        pieces = self._pieces(client, what, framing, size)
        return await self._answer(request, pieces, framing, parameters, size)

    async def _pieces(
        self, client: Client, what: Query, framing: Framing, size: int | None
    ) -> AsyncGenerator[Piece, None]:
        log = self._log
        # What everybody may see need not be looked at here, event by event.
        between = None if self._broker.restricts_receiving else framing.between
        left = size
        chunks = log.reader.query(what, framing.kind, between=between, rows=size)
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                if between is not None:
                    yield Piece(chunk.joined, chunk.count, chunk.last)
                    continue
                rows = log.judge(client, chunk)[:left]
                yield _piece(framing, rows)
                if left is not None:
                    left -= len(rows)
                    if not left:
                        return

    async def _answer(
        self,
        request: Request,
        pieces: AsyncGenerator[Piece, None],
        framing: Framing,
        parameters: dict[str, str],
        size: int | None,
    ) -> Response:
        """Answer whole, with a link to the next page, or bit by bit if it is long."""
        first: list[Piece] = []
        buffered = 0
        async for piece in pieces:
            first.append(piece)
            buffered += len(piece.shown)
            if buffered >= BUFFERED_BYTES:
                return Streamed(
                    _framed(framing, first, pieces), self._stall_s, media_type=framing.media_type
                )
        await asyncio.sleep(0)
        headers = {}
        last = next((piece.last for piece in reversed(first) if piece.last), None)
        if last is not None and sum(piece.count for piece in first) == size:
            query = urlencode(parameters | {"after": str(last)})
            path = request.scope["raw_path"].partition(b"?")[0].decode("ascii")
            headers["Link"] = f'<{path}?{query}>; rel="next"'
        body = whole(framing, [piece.shown for piece in first if piece.count])
        return Response(body, headers=headers, media_type=framing.media_type)

    # Live

    def _live(
        self, request: Request, client: Client, selection: Selection, position: Position | None
    ) -> Response:
        last = request.headers.get("last-event-id")
        if last:
            position = Position.parse(last, "Last-Event-ID")
        self._check_room(position)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type=EVENT_STREAM.media_type)
        return Streamed(
            self._sent(client, selection, position),
            self._stall_s,
            headers=headers,
            media_type=EVENT_STREAM.media_type,
        )

    def _check_room(self, position: Position | None) -> None:
        if position is not None and self._hub.log is None:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE, "the event log is off: there is nothing to resume"
            )
        if self._hub.full:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "too many live streams")

    async def _sent(
        self, client: Client, selection: Selection, position: Position | None
    ) -> AsyncGenerator[bytes, None]:
        with self._hub.open(selection, client, position) as stream:
            yield RETRY
            sent = False
            async with contextlib.aclosing(_beating(stream)) as batches:
                async for batch in batches:
                    if batch:
                        sent = True
                        yield b"".join(map(_server_sent, batch))
                    elif batch is None:
                        yield b":\n\n"
                    elif not sent:
                        # A position without an event: where to resume if none ever comes.
                        yield f"id: {stream.position}\n\n".encode()

    async def _long_poll(
        self,
        client: Client,
        selection: Selection,
        framing: Framing,
        position: Position | None,
        wait_s: float,
        size: int | None,
    ) -> Response:
        if framing.kind != "json":
            raise Problem(HTTPStatus.NOT_ACCEPTABLE, "a long poll answers in JSON", "Accept")
        self._check_room(position)
        with self._hub.open(selection, client, position) as stream:
            found = (await _first(stream, wait_s))[:size]
            last = found[-1].event_id if found else stream.position
        headers = {"Last-Event-ID": last} if last else {}
        body = whole(framing, [event.shown for event in found])
        return Response(body, headers=headers, media_type=framing.media_type)

    # DELETE

    async def delete(self, request: Request) -> Response:
        """Delete what GET would find, and answer with it."""
        framing = choose(request, GEOJSON if self._geo else JSON, streams=False)
        client, _, selection = await self._select(request, self._find)
        log = self._log
        await log.settle_own()
        return Streamed(
            _framed(framing, [], self._deleted(client, selection, framing)),
            self._stall_s,
            media_type=framing.media_type,
        )

    async def _deleted(
        self, client: Client, selection: Selection, framing: Framing
    ) -> AsyncGenerator[Piece, None]:
        """Delete chunk by chunk: never much more than the reader has been told of."""
        log = self._log
        chunks = log.reader.query(selection.query(None, newest_first=False), framing.kind)
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                rows = log.judge(client, chunk)
                rows = [row for row in rows if await self._may_delete(client, row)]
                deleted = await log.reader.delete([row.cursor for row in rows])
                yield _piece(framing, [row for row in rows if str(row.cursor) in deleted])

    async def _may_delete(self, client: Client, row: Row) -> bool:
        """Whoever may publish an event may delete it."""
        geo = Geo(place=row.subject.place) if row.subject.place is not None else None
        return await self._broker.authorise_publish(
            client, Message(row.subject.topic, b"", geo=geo)
        )

    # PUT

    async def put(self, request: Request) -> Response:
        """Publish the body of the request."""
        client = await self._access.who(request)
        topic = read_topic(request, self.prefix)
        known = PUBLISH | {"time", "geometry"} if self._geo else PUBLISH
        parameters = read_parameters(request, known)
        message = Message(
            topic,
            b"",
            read_integer("qos", parameters.get("qos", "0"), 0, 2),
            read_switch(parameters, "retain"),
            CLIENT_ID if client.username is None else f"{CLIENT_ID}:{client.username}",
            geo=_read_geo(parameters) if self._geo else None,
        )
        await self._access.may_publish(client, message)
        message = message.replace(
            payload=await self._body(request), received_ms=time.time_ns() // 1_000_000
        )
        self._broker.publish(message)
        self._broker.flush()
        if self._hub.log is not None:
            self._hub.log.wrote = True
        await asyncio.sleep(0)  # what must be kept is kept at the end of this turn
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _body(self, request: Request) -> bytes:
        limit = self._max_body_bytes
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > limit:
                raise Problem(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"body of more than {limit} bytes",
                    "body",
                    {"Connection": "close"},
                )
        return body


def _read_geo(parameters: dict[str, str]) -> Geo:
    for name in ("time", "geometry"):
        if name not in parameters:
            raise BadParameter(name, "is required here")
    time_text, geometry = parameters["time"].replace(" ", "+"), parameters["geometry"]
    parsed = read_geometry(geometry)
    return Geo(
        time_form=3,
        time_raw=time_text.encode(),
        time=read_time("time", time_text),
        geometry_form=FORM_GEOJSON if geometry.lstrip().startswith("{") else FORM_TEXT,
        geometry_raw=geometry.encode(),
        epsg=parsed.epsg,
        place=parsed.place,
    )


async def _beating(stream: Stream) -> AsyncGenerator[list[Occurrence] | None, None]:
    """Give the batches of a stream, and None when there was none for a while."""
    async with contextlib.aclosing(stream.events()) as batches:
        coming = asyncio.ensure_future(anext(batches, None))
        try:
            while True:
                done, _ = await asyncio.wait((coming,), timeout=HEARTBEAT_S)
                if not done:
                    yield None
                    continue
                batch = coming.result()
                if batch is None:
                    return
                yield batch
                coming = asyncio.ensure_future(anext(batches, None))
        finally:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await coming


async def _first(stream: Stream, wait_s: float) -> list[Occurrence]:
    """Wait for the first events; the time that reading the log takes does not count."""

    async def wait() -> list[Occurrence]:
        async with contextlib.aclosing(stream.events()) as batches:
            async for batch in batches:
                if batch:
                    return batch
        return []

    waiting = asyncio.create_task(wait(), name="long poll")
    caught_up = asyncio.create_task(stream.caught_up.wait(), name="long poll of the log")
    try:
        await asyncio.wait((waiting, caught_up), return_when=asyncio.FIRST_COMPLETED)
        done, _ = await asyncio.wait((waiting,), timeout=wait_s)
        return waiting.result() if done else []
    finally:
        for task in (waiting, caught_up):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _server_sent(event: Occurrence) -> bytes:
    named = f"id: {event.event_id}\n".encode() if event.event_id else b""
    return named + b"data: " + event.shown + b"\n\n"


def _piece(framing: Framing, rows: list[Row]) -> Piece:
    shown = framing.between.join([row.shown for row in rows])
    return Piece(shown, len(rows), rows[-1].cursor if rows else None)


async def _framed(
    framing: Framing, first: list[Piece], rest: AsyncGenerator[Piece, None]
) -> AsyncGenerator[bytes, None]:
    between = framing.between
    begun = [piece.shown for piece in first if piece.count]
    empty = not begun
    yield framing.head + between.join(begun)
    async with contextlib.aclosing(rest):
        async for piece in rest:
            if piece.count:
                yield piece.shown if empty else between + piece.shown
                empty = False
    if not empty or framing.closes:
        yield framing.tail
