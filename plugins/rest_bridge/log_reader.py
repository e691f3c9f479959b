"""Questions to the log from the broker's side; the answers come from worker processes.

The first worker is started with the bridge, the second when the first is busy. A worker
that dies fails the questions it had, and another is started with the next question.
"""

import asyncio
import contextlib
import logging
import os
import pickle
import sys
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path
from typing import Any

from plugins.event_log.reader import Cursor, Query
from plugins.rest_bridge.log_worker import CHUNK_ROWS, LENGTH, Chunk, LogFault
from plugins.rest_bridge.shapes import Kind

log = logging.getLogger("geomqtt.rest")

STOP_S = 5.0


class LogReader:
    """All workers."""

    def __init__(self, data_dir: str, workers: int) -> None:
        self._data_dir = str(Path(data_dir).absolute())
        self._limit = workers
        self._workers: list[_Worker] = []
        self._keys = count(1)
        self._told: set[str] = set()

    async def start(self) -> None:
        """Start the first worker, so that the first question need not wait for it."""
        await self._least_busy()

    async def stop(self) -> None:
        """End all workers."""
        for worker in self._workers:
            await worker.stop()
        self._workers.clear()

    async def _least_busy(self) -> "_Worker":
        self._workers = [worker for worker in self._workers if worker.alive]
        least = min(self._workers, key=lambda worker: len(worker.waiting), default=None)
        if least is None or (least.waiting and len(self._workers) < self._limit):
            least = _Worker()
            self._workers.append(least)
            await least.start(self._data_dir)
        return least

    async def end(self) -> Cursor | None:
        """Tell where the log ends now."""
        found: Cursor | None = await (await self._least_busy()).ask("end")
        return found

    async def locate(self, what: Query, digest: str, ordinal: int) -> Cursor | None:
        """Find an event by its digest."""
        worker = await self._least_busy()
        found: Cursor | None = await worker.ask("locate", what, digest, ordinal)
        return found

    async def delete(self, cursors: list[Cursor]) -> set[str]:
        """Delete events, and tell which were still there."""
        deleted: set[str] = await (await self._least_busy()).ask("delete", cursors)
        return deleted

    async def topics(self, topic_filter: str, limit: int) -> list[str]:
        """Give names of topics in the log."""
        names: list[str] = await (await self._least_busy()).ask("topics", topic_filter, limit)
        return names

    def query(
        self, what: Query, kind: Kind, *, between: bytes | None = None, rows: int | None = None
    ) -> AsyncGenerator[Chunk, None]:
        """Give the events of a query, chunk by chunk.

        Joined by `between` there are exactly `rows` of them, if there are so many; one by
        one it is up to the caller when it has enough.
        """
        return self._chunks("open", between, rows, (kind, what))

    def latest(
        self, by: str, topic_filter: str, since_ms: int, kind: Kind, *, between: bytes | None
    ) -> AsyncGenerator[Chunk, None]:
        """Give the newest event with a place of every client or topic."""
        return self._chunks("open_latest", between, None, (kind, by, topic_filter, since_ms))

    async def _chunks(
        self, operation: str, between: bytes | None, rows: int | None, arguments: tuple[Any, ...]
    ) -> AsyncGenerator[Chunk, None]:
        worker = await self._least_busy()
        key = next(self._keys)
        left = CHUNK_ROWS if rows is None else rows
        try:
            opened = worker.ask(operation, key, between, *arguments)
            chunk: Chunk
            _, chunk = await asyncio.gather(opened, worker.ask("next", key, min(left, CHUNK_ROWS)))
            while True:
                self._tell(chunk.faults)
                yield chunk
                if rows is not None and between is not None:
                    left -= chunk.count
                if chunk.ended or not left:
                    return
                chunk = await worker.ask("next", key, min(left, CHUNK_ROWS))
        finally:
            worker.tell("close", key)

    def _tell(self, faults: list[str]) -> None:
        for fault in faults:
            if fault not in self._told:
                self._told.add(fault)
                log.warning("left out: %s", fault)


class _Worker:
    """One worker process, and who waits for which of its answers."""

    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count(1)
        self._process: asyncio.subprocess.Process | None = None
        self._started = asyncio.Event()
        self.alive = True

    async def start(self, data_dir: str) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from plugins.rest_bridge.log_worker import main; main()",
            data_dir,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
            start_new_session=True,  # Ctrl-C in the terminal is for the broker
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._reading = asyncio.create_task(self._read(), name="log answers")
        self._started.set()

    def _send(self, operation: str, arguments: tuple[Any, ...]) -> int:
        assert self._process is not None
        assert self._process.stdin is not None
        number = next(self._numbers)
        data = pickle.dumps((number, operation, arguments), pickle.HIGHEST_PROTOCOL)
        self._process.stdin.write(LENGTH.pack(len(data)) + data)
        return number

    async def ask(self, operation: str, *arguments: Any) -> Any:
        """Ask, and wait for the answer."""
        await self._started.wait()
        if not self.alive:
            raise LogFault("the process that reads the log has ended")
        number = self._send(operation, arguments)
        answer = asyncio.get_running_loop().create_future()
        self.waiting[number] = answer
        try:
            return await answer
        finally:
            self.waiting.pop(number, None)

    def tell(self, operation: str, *arguments: Any) -> None:
        """Ask without waiting."""
        if self.alive and self._started.is_set():
            self._send(operation, arguments)

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        answers = self._process.stdout
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                (length,) = LENGTH.unpack(await answers.readexactly(LENGTH.size))
                number, answer = pickle.loads(await answers.readexactly(length))
                future = self.waiting.get(number)
                if future is None or future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        self.alive = False
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(LogFault("the process that reads the log has ended"))

    async def stop(self) -> None:
        """End the process in order, or at once if it is busy."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reading
