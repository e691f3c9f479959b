"""Answers that are sent piece by piece, to readers that may stop reading.

A reader that takes nothing for `stall_s` is cut off, whatever it is being sent; one that
goes away ends the work for it at once.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping

import h11
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from plugins.rest_bridge.log_worker import LogFault

log = logging.getLogger("geomqtt.rest")


class Protocol(H11Protocol):
    """HTTP/1.1, with a way to cut a connection off."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Tell the requests of this connection how to end it without waiting for the peer."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort}


class TooSlow(Exception):
    """A reader that does not keep up."""


class Streamed(Response):
    """An answer whose body is made while it is sent."""

    def __init__(
        self,
        body: AsyncGenerator[bytes, None],
        stall_s: float,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
    ) -> None:
        self.status_code = status
        self.media_type = media_type
        self.background = None
        self._body = body
        self._stall_s = stall_s
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end, or until the reader is gone."""
        sending = asyncio.create_task(self._send(send), name="streamed answer")
        watching = asyncio.create_task(_gone(receive), name="streamed reader")
        try:
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._judge(sending, scope)

    async def _judge(self, sending: asyncio.Task[None], scope: Scope) -> None:
        try:
            await sending
        except (TooSlow, LogFault) as error:
            log.warning("answer to %s cut off: %s", scope["path"][:100], error)
            scope["state"]["abort"]()
        except h11.LocalProtocolError:
            log.debug("answer to %s: the connection had ended", scope["path"][:100])

    async def _send(self, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        async with contextlib.aclosing(self._body) as pieces:
            await send(start)
            async for piece in pieces:
                await self._pass_on(send, piece, more=True)
            await self._pass_on(send, b"", more=False)

    async def _pass_on(self, send: Send, piece: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        except TimeoutError:
            raise TooSlow(f"nothing was read for {self._stall_s:g} s") from None


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
