"""Received messages, and the bounded queue in which they wait for the application."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from protocol import packets as p


class Message:
    """One received message."""

    __slots__ = ("_packet",)

    def __init__(self, packet: p.Publish) -> None:
        self._packet = packet

    @property
    def topic(self) -> str:
        """The topic it was published under."""
        return self._packet.topic

    @property
    def payload(self) -> bytes:
        """What was published."""
        return self._packet.payload

    @property
    def qos(self) -> int:
        """The QoS at which it was delivered."""
        return self._packet.qos

    @property
    def retain(self) -> bool:
        """Whether the broker had kept it: it was there before the subscription."""
        return self._packet.retain

    @property
    def packet_id(self) -> int:
        """The packet id of the delivery; 0 for QoS 0."""
        return self._packet.packet_id

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, payload={self.payload[:40]!r}, qos={self.qos}, "
            f"retain={self.retain})"
        )


class Messages(AsyncIterator[Message]):
    """`async for message in client.messages`: ends when the client is disconnected.

    Several tasks may iterate at once; each message goes to one of them. When the queue is
    full the client lets the broker wait (see `Client`).
    """

    def __init__(self, taken: Callable[[], None]) -> None:
        self._queue: deque[Message] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._taken = taken
        self._ended = False
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def __aiter__(self) -> Messages:
        return self

    async def __anext__(self) -> Message:
        while not self._queue:
            if self._ended:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            await self._wait()
        message = self._queue.popleft()
        self._taken()
        return message

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # Woken and cancelled at once: somebody else must take the message.
            if waiter.done() and not waiter.cancelled():
                self._wake()
            raise

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def put(self, message: Message) -> None:
        """Add a message; for the client."""
        self._queue.append(message)
        if self._waiters:
            self._wake()

    def end(self, error: Exception | None) -> None:
        """Say that nothing more will come, and why if it is not for a good reason."""
        self._ended = True
        self._error = error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
