"""MQTT over WebSocket (section 6): a link that believes it has an ordinary socket.

`WebSocketProtocol` owns the real transport and speaks WebSocket on it with the sans-I/O
half of the websockets library; the link behind it is given `WebSocketTransport`, which
looks like a transport and wraps what is written into binary frames.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from broker.link import Link

log = logging.getLogger("geomqtt.websocket")

SUBPROTOCOLS = [Subprotocol("mqtt"), Subprotocol("mqttv3.1")]
FRAME_OVERHEAD = 65_536  # a client may put several packets into one frame


class WebSocketTransport(asyncio.Transport):
    """What a link writes to: everything goes out as binary frames [MQTT-6.0.0-4]."""

    def __init__(self, protocol: WebSocketProtocol, inner: asyncio.Transport) -> None:
        super().__init__()
        self._protocol = protocol
        self._inner = inner

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes as one frame."""
        self._protocol.send_binary(bytes(data))

    def close(self) -> None:
        """Say goodbye as WebSocket does, then close."""
        self._protocol.send_close(CloseCode.NORMAL_CLOSURE)

    def abort(self) -> None:
        """Drop the connection."""
        self._inner.abort()

    def is_closing(self) -> bool:
        """Tell whether nothing more can be written."""
        return self._inner.is_closing() or self._protocol.closing

    def pause_reading(self) -> None:
        """Stop reading from the socket."""
        if not self._inner.is_closing():
            self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if not self._inner.is_closing():
            self._inner.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say when the link counts as congested."""
        self._inner.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Tell how many bytes the peer has not taken yet."""
        return self._inner.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Ask the real transport."""
        return self._inner.get_extra_info(name, default)


class WebSocketProtocol(asyncio.Protocol):
    """The WebSocket side of one connection."""

    def __init__(self, make_link: Callable[[], Link], path: str, max_packet_size: int) -> None:
        self._make_link = make_link
        self._path = path
        self._websocket = ServerProtocol(
            subprotocols=SUBPROTOCOLS,
            max_size=max_packet_size + FRAME_OVERHEAD,
            logger=logging.getLogger("geomqtt.websocket.frames"),
        )
        self._link: Link
        self._open = False
        self.closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make the link at once, so that connect limits and timeouts hold for handshakes too."""
        self._transport = cast(asyncio.Transport, transport)
        self._link = self._make_link()
        self._link.connection_made(WebSocketTransport(self, self._transport))

    def data_received(self, data: bytes) -> None:
        """Unwrap frames and hand their contents to the link."""
        self._websocket.receive_data(data)
        for event in self._websocket.events_received():
            if isinstance(event, Request):
                self._handshake(event)
            elif isinstance(event, Frame):
                self._frame(event)
        self._send_pending()
        if self._link.congested:
            self._link.throttle()  # pings are answered as well, read or not

    def _handshake(self, request: Request) -> None:
        if self._path and request.path.partition("?")[0] != self._path:
            response = self._websocket.reject(
                HTTPStatus.NOT_FOUND, f"MQTT over WebSocket is at {self._path}\n"
            )
        else:
            response = self._websocket.accept(request)
            self._open = response.status_code == HTTPStatus.SWITCHING_PROTOCOLS
        self._websocket.send_response(response)
        if not self._open:
            log.warning(
                "client at %s: handshake refused: %s", self._link.address, response.status_code
            )

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.TEXT:  # [MQTT-6.0.0-1]
            log.warning("client at %s: WebSocket text frame: closed", self._link.address)
            self.send_close(CloseCode.UNSUPPORTED_DATA)
        elif frame.opcode in (Opcode.BINARY, Opcode.CONT) and not self.closing:
            self._link.data_received(bytes(frame.data))

    def send_binary(self, data: bytes) -> None:
        """Send one binary frame."""
        if self._websocket.state is State.OPEN and not self.closing:
            self._websocket.send_binary(data)
            self._send_pending()

    def send_close(self, code: CloseCode) -> None:
        """Start the closing handshake, or just close if there was no opening one."""
        if not self.closing:
            self.closing = True
            # A peer whose own goodbye came in the same read has been answered already.
            if self._websocket.state is State.OPEN:
                self._websocket.send_close(code)
                self._send_pending()
            self._transport.close()

    def _send_pending(self) -> None:
        for data in self._websocket.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()  # the library's way to say: half-close

    def eof_received(self) -> None:
        """The peer will send nothing more."""
        self._websocket.receive_eof()
        self._send_pending()

    def pause_writing(self) -> None:
        """Pass on that the peer is behind."""
        self._link.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the peer has caught up."""
        self._link.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Pass on that the socket is gone."""
        self.closing = True
        self._link.connection_lost(error)
