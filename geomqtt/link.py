"""One socket of a client: TCP, TLS, Unix or WebSocket, all looking the same to their owner.

    open_link(address, owner)  -->  Link, ready for MQTT bytes in both directions

A link knows no MQTT. What arrives is given to `owner.receive_data`; when the socket is gone,
for whatever reason, `owner.link_lost` is called once. WebSocket is the sans-I/O half of
the websockets library.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Literal, Protocol, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from protocol.values import value

Transport = Literal["tcp", "websocket", "unix"]

WRITE_HIGH_WATER = 1 << 18


@value
class Address:
    """Where a broker is and how to speak to it."""

    host: str  # or the path of a Unix socket
    port: int
    transport: Transport = "tcp"
    tls: ssl.SSLContext | None = None
    ws_path: str = "/mqtt"
    bind_address: str | None = None

    def __str__(self) -> str:
        if self.transport == "unix":
            return self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Owner(Protocol):
    """Who a link works for."""

    def receive_data(self, link: Link, data: bytes) -> None:
        """Take bytes of MQTT."""

    def link_lost(self, link: Link, error: Exception | None) -> None:
        """Take note that there is no socket any more."""


class Link(asyncio.Protocol):
    """A stream of MQTT bytes over a stream socket."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self.closed = False
        self.error: Exception | None = None  # why it closed, if not in peace

    async def handshake(self) -> None:
        """Wait until MQTT may be spoken."""

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait while the broker is far behind; the end of the link ends the wait."""
        if not self._writable.is_set():
            await self._writable.wait()

    def pause_reading(self) -> None:
        """Let the broker wait."""
        if self._reading and not self._transport.is_closing():
            self._transport.pause_reading()
            self._reading = False

    def resume_reading(self) -> None:
        """Take more from the broker."""
        if not self._reading and not self._transport.is_closing():
            self._transport.resume_reading()
            self._reading = True

    def close(self) -> None:
        """Send what is left and close."""
        self.resume_reading()  # a TLS or WebSocket goodbye must be heard
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        """Hand bytes on."""
        self._owner.receive_data(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        """Say that it is over."""
        self.closed = True
        self.error = error
        self._writable.set()
        self._owner.link_lost(self, error)

    def pause_writing(self) -> None:
        """The broker is behind."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The broker has caught up."""
        self._writable.set()


class WebSocketLink(Link):
    """The same, inside binary frames [MQTT-6.0.0-1]."""

    def __init__(self, owner: Owner, address: Address) -> None:
        super().__init__(owner)
        scheme = "wss" if address.tls is not None else "ws"
        self._websocket = ClientProtocol(
            parse_uri(f"{scheme}://{address}{address.ws_path}"),
            subprotocols=[Subprotocol("mqtt")],  # [MQTT-6.0.0-3]
            max_size=None,  # a frame may hold many packets; their size is checked as MQTT
            logger=logging.getLogger("geomqtt.client.websocket"),
        )
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handshake(self) -> None:
        """Wait until the broker has agreed to speak WebSocket."""
        await self._opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for WebSocket."""
        super().connection_made(transport)
        self._websocket.send_request(self._websocket.connect())
        self._send_pending()

    def data_received(self, data: bytes) -> None:
        """Unwrap frames."""
        self._websocket.receive_data(data)
        for event in self._websocket.events_received():
            if isinstance(event, Response):
                self._finish_handshake()
            elif isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.CONT):
                self._owner.receive_data(self, bytes(event.data))
        self._send_pending()

    def _finish_handshake(self) -> None:
        error = self._websocket.handshake_exc
        if self._opened.done():
            return
        if error is not None:
            self._opened.set_exception(error)
            self._transport.close()
        else:
            self._opened.set_result(None)

    def eof_received(self) -> None:
        """Let the library see an end without a goodbye."""
        self._websocket.receive_eof()
        self._send_pending()

    def connection_lost(self, error: Exception | None) -> None:
        """Say that it is over, also to who waits for the handshake."""
        if not self._opened.done():
            self._opened.set_exception(
                self._websocket.handshake_exc
                or error
                or ConnectionResetError("closed during the WebSocket handshake")
            )
        super().connection_lost(error)

    def write(self, data: bytes) -> None:
        """Send bytes as one frame."""
        if data and self._websocket.state is State.OPEN and not self._transport.is_closing():
            self._websocket.send_binary(data)
            self._send_pending()

    def close(self) -> None:
        """Say goodbye as WebSocket does, then close."""
        if self._websocket.state is State.OPEN:
            self._websocket.send_close(CloseCode.NORMAL_CLOSURE)
            self._send_pending()
        super().close()

    def _send_pending(self) -> None:
        for data in self._websocket.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()  # the library's way to say: half-close


async def open_link(address: Address, owner: Owner) -> Link:
    """Connect, or raise OSError (TLS and WebSocket refusals included)."""
    loop = asyncio.get_running_loop()

    def make_link() -> Link:
        return WebSocketLink(owner, address) if address.transport == "websocket" else Link(owner)

    if address.transport == "unix":
        _, link = await loop.create_unix_connection(make_link, address.host)
        return link
    _, link = await loop.create_connection(
        make_link,
        address.host,
        address.port,
        ssl=address.tls,
        local_addr=(address.bind_address, 0) if address.bind_address else None,
    )
    try:
        await link.handshake()
    except InvalidHandshake as error:
        raise ConnectionError(f"no MQTT over WebSocket there: {error}") from None
    except BaseException:
        link.abort()
        raise
    return link
