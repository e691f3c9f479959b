"""Events as they happen, and the seam between them and the log.

A stream subscribes first. To resume it then waits until the log holds everything that was
accepted before that, reads the log from where the reader was up to its end, and goes on
with what has queued up meanwhile, less what the log gave already. So nothing is missing
and nothing comes twice, whenever the event happened.

Every event has an id from which it can be resumed:

    2026-03-28.17                     its place in the log, if it was read from there
    2026-03-28.11~<digest>.<ordinal>  else the last place in the log known to be behind the
                                      reader, and which event after it this was

An event's place in the log is known only when the writer has written it, and nobody shall
wait for that. If the event cannot be found later (it was excluded, dropped or deleted),
the log is read from the place that is known: some events may come twice, none is missed.
"""

import asyncio
import contextlib
import logging
import re
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Iterator

from plugins.api import Broker, Client
from plugins.event_log.plugin import EventLog
from plugins.event_log.reader import Cursor
from plugins.rest_bridge.log_reader import LogReader
from plugins.rest_bridge.log_worker import Chunk, LogFault, Row, digest_of
from plugins.rest_bridge.parameters import BEGINNING, Selection
from plugins.rest_bridge.problems import BadParameter
from plugins.rest_bridge.shapes import shape_message, with_id
from plugins.rest_bridge.streaming import TooSlow
from protocol.errors import BadValue
from protocol.geo import Geo
from protocol.message import Message
from protocol.values import value

log = logging.getLogger("geomqtt.rest")

QUEUED_MESSAGES = 10_000
QUEUED_BYTES = 8 << 20
BATCH_BYTES = 256 << 10
SETTLE_S = 30.0  # how long the log may take to write what it was given
REFRESH_S = 1.0  # how old the known end of the log may be
SHOWN_KEPT = 1024

_POSITION = re.compile(r"([0-9.-]+)~([0-9a-f]{16})\.([0-9]{1,9})")


@value
class Position:
    """Where a reader was: behind a place in the log, or behind an event after it."""

    cursor: Cursor
    digest: str = ""
    ordinal: int = 0

    @classmethod
    def parse(cls, text: str, parameter: str) -> "Position":
        """Read the id of an event."""
        found = _POSITION.fullmatch(text)
        try:
            if found is None:
                return cls(Cursor.parse(text))
            return cls(Cursor.parse(found[1]), found[2], int(found[3]))
        except BadValue as error:
            raise BadParameter(parameter, str(error)) from None


@value
class Occurrence:
    """An event for a reader, as JSON with its id in it; the id is "" when there is no log."""

    event_id: str
    shown: bytes


class Log:
    """The log as the bridge uses it: what was written, and what is being written."""

    def __init__(self, reader: LogReader, writer: EventLog, broker: Broker) -> None:
        self.reader = reader
        self._writer = writer
        self._broker = broker
        self.wrote = False  # something was published here since the log was last waited for

    async def settled(self) -> None:
        """Wait until the log holds everything that was accepted so far."""
        try:
            async with asyncio.timeout(SETTLE_S):
                await self._writer.settled()
        except TimeoutError:
            raise LogFault(f"the log is more than {SETTLE_S:g} s behind") from None

    async def settle_own(self) -> None:
        """Let somebody who has just published something here find it."""
        if self.wrote:
            self.wrote = False
            await self.settled()

    async def resolve(self, selection: Selection, position: Position) -> Cursor:
        """Find the place in the log behind which to go on."""
        if not position.digest:
            return position.cursor
        what = selection.query(position.cursor, newest_first=False)
        found = await self.reader.locate(what, position.digest, position.ordinal)
        return found or position.cursor

    def judge(self, client: Client, chunk: Chunk) -> list[Row]:
        """Leave out what a client may not receive; of a chunk that came one by one."""
        if not self._broker.restricts_receiving:
            return chunk.rows
        return [row for row in chunk.rows if self._may_receive(client, row)]

    def _may_receive(self, client: Client, row: Row) -> bool:
        subject = row.subject
        geo = Geo(place=subject.place) if subject.place is not None else None
        message = Message(subject.topic, b"", client_id=subject.client_id, geo=geo)
        return self._broker.authorise_receive(client, message)


class Hub:
    """All live streams, and what they share."""

    def __init__(self, broker: Broker, log_: Log | None, limit: int) -> None:
        self.broker = broker
        self.log = log_
        self._limit = limit
        self._streams: set[Stream] = set()
        self._end = BEGINNING
        self._refreshing: asyncio.Task[None] | None = None
        self._shown: OrderedDict[int, tuple[Message, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def full(self) -> bool:
        """Whether there is no room for another stream."""
        return len(self._streams) >= self._limit

    @contextlib.contextmanager
    def open(
        self, selection: Selection, client: Client, resume: Position | None
    ) -> "Iterator[Stream]":
        """Begin to listen, behind a position in the log or from now on."""
        stream = Stream(self, selection, client, resume, self._end)
        self._streams.add(stream)
        if self.log is not None and self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh(self.log), name="log end")
        try:
            yield stream
        finally:
            stream.close()
            self._streams.discard(stream)

    async def _refresh(self, log_: Log) -> None:
        """Keep an eye on the end of the log as long as anybody listens."""
        try:
            while self._streams:
                fresh = list(self._streams)
                with contextlib.suppress(LogFault):
                    await log_.settled()
                    self._end = await log_.reader.end() or BEGINNING
                    # All that the log holds was delivered before; those who came later
                    # have nothing in the log that they could have missed.
                    for stream in fresh:
                        stream.note_end(self._end)
                await asyncio.sleep(REFRESH_S)
        finally:
            self._refreshing = None

    async def stop(self) -> None:
        """End all streams."""
        for stream in list(self._streams):
            stream.close()
        if self._refreshing is not None:
            self._refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refreshing

    def shown(self, message: Message) -> bytes:
        """Show a message; once, however many watch."""
        kept = self._shown.get(id(message))
        if kept is not None and kept[0] is message:
            return kept[1]
        shown = shape_message(message, "json")
        self._shown[id(message)] = (message, shown)
        if len(self._shown) > SHOWN_KEPT:
            self._shown.popitem(last=False)
        return shown


class Stream:
    """One reader of live events."""

    def __init__(
        self,
        hub: Hub,
        selection: Selection,
        client: Client,
        resume: Position | None,
        end: Cursor,
    ) -> None:
        self._hub = hub
        self._selection = selection
        self._client = client
        self._queue: deque[Message | Cursor] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self.caught_up = asyncio.Event()  # what the log had has been read
        self._resume = resume
        self._replaying = resume is not None
        self._missed = False  # the queue was given up while the log was read
        self._placed = False  # the reader has been told a position
        self._too_slow = False
        self._closed = False
        # Everything up to here in the log is behind the reader.
        self._base = end if resume is None else resume.cursor
        self._ordinals: Counter[str] = Counter()  # of events sent since the base
        self._awaited: Counter[str] = Counter()  # in the queue, while the log is read
        self._replayed: Counter[str] = Counter()  # in the queue, and read from the log
        if resume is None:
            self.caught_up.set()
        self._subscription = hub.broker.subscribe(selection.live_filter, self._put, client)

    @property
    def position(self) -> str:
        """Where to resume if nothing has been sent."""
        return str(self._base) if self._hub.log is not None else ""

    def close(self) -> None:
        """Stop listening."""
        if not self._closed:
            self._closed = True
            self._subscription.close()
            self._wake.set()

    def _put(self, message: Message) -> None:
        if self._closed or not self._selection.matches(message):
            return
        self._queued_bytes += len(message.payload)
        if len(self._queue) >= QUEUED_MESSAGES or self._queued_bytes > QUEUED_BYTES:
            self._give_up_queue()
            return
        self._queue.append(message)
        if self._replaying:
            self._awaited[_digest(message)] += 1
        self._wake.set()

    def _give_up_queue(self) -> None:
        """Drop what waits: it can be read from the log again, now or by a later stream."""
        self._queue.clear()
        self._queued_bytes = 0
        self._forget_replay()
        if self._replaying:
            self._missed = True
        else:
            self._too_slow = True
            self._hub.broker.count("rest_streams_dropped")
            self.close()

    def note_end(self, end: Cursor) -> None:
        """Everything in the log up to here has been put into the queue before."""
        if not self._closed and (_order(end) > _order(self._base) or not self._placed):
            self._placed = True
            self._queue.append(end)
            self._wake.set()

    def _forget_replay(self) -> None:
        self._awaited.clear()
        self._replayed.clear()

    async def events(self) -> AsyncGenerator[list[Occurrence], None]:
        """Give events in batches as they come; an empty one when the position may have moved."""
        if self._resume is not None:
            async with contextlib.aclosing(self._replay(self._resume)) as batches:
                async for batch in batches:
                    yield batch
        while not self._closed:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            yield self._drain()
        if self._too_slow:
            raise TooSlow("events came faster than they were read")

    async def _replay(self, resume: Position) -> AsyncGenerator[list[Occurrence], None]:
        log_ = self._hub.log
        assert log_ is not None
        await log_.settled()
        after = await log_.resolve(self._selection, resume)
        while True:
            what = self._selection.query(after, newest_first=False)
            chunks = log_.reader.query(what, "json")
            async with contextlib.aclosing(chunks):
                async for chunk in chunks:
                    after = chunk.last or after
                    rows = log_.judge(self._client, chunk)
                    self._note_replayed(rows)
                    if rows:
                        yield [Occurrence(str(row.cursor), row.shown) for row in rows]
            if not self._missed:
                break
            self._missed = False
            await log_.settled()
        self._base = after
        self._replaying = False
        self.caught_up.set()

    def _note_replayed(self, rows: list[Row]) -> None:
        for row in rows:
            if self._awaited[row.digest] > self._replayed[row.digest]:
                self._replayed[row.digest] += 1

    def _drain(self) -> list[Occurrence]:
        batch: list[Occurrence] = []
        size = 0
        while self._queue and size < BATCH_BYTES:
            item = self._queue.popleft()
            if isinstance(item, Cursor):
                if _order(item) > _order(self._base):
                    self._base = item
                    self._ordinals.clear()
                continue
            self._queued_bytes -= len(item.payload)
            if self._hub.log is None:
                batch.append(Occurrence("", self._hub.shown(item)))
                size += len(batch[-1].shown)
                continue
            digest = _digest(item)
            if self._replayed[digest] > 0:
                self._replayed[digest] -= 1
                continue
            self._ordinals[digest] += 1
            event_id = f"{self._base}~{digest}.{self._ordinals[digest]}"
            batch.append(Occurrence(event_id, with_id(self._hub.shown(item), event_id)))
            size += len(batch[-1].shown)
        if not self._queue:
            self._forget_replay()
        return batch


def _digest(message: Message) -> str:
    return digest_of(message.received_ms, message.topic, message.client_id, message.payload)


def _order(cursor: Cursor) -> tuple[int, int]:
    return (cursor.day.toordinal(), cursor.id)
