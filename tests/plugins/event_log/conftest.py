"""What the event log's tests share: a broker that counts, and logs written in place."""

import asyncio
import marshal
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from plugins.event_log.records import Batch, message_record
from plugins.event_log.segments import folder_of
from plugins.event_log.writer import Options, Writer
from protocol.message import Message


class CountingBroker:
    """As much of `plugins.api.Broker` as the event log uses."""

    def __init__(self, data_dir: Path | None) -> None:
        self.data_dir = None if data_dir is None else str(data_dir)
        self.counts: Counter[str] = Counter()
        self.reading = asyncio.Event()  # cleared while publishers are paused
        self.reading.set()
        self.pauses = 0

    def count(self, name: str, amount: int = 1) -> None:
        self.counts[name] += amount

    def pause_publishers(self) -> None:
        self.pauses += 1
        self.reading.clear()

    def resume_publishers(self) -> None:
        self.reading.set()


@pytest.fixture
def counting_broker(tmp_path: Path) -> CountingBroker:
    return CountingBroker(tmp_path)


def _writing(data: Path) -> Callable[..., None]:
    sequences = iter(range(1, 1_000_000))
    folder_of(data).mkdir(parents=True, exist_ok=True)

    def write(items: Iterable[Any], *, close: bool = True, **options: Any) -> None:
        records = [message_record(item) if isinstance(item, Message) else item for item in items]
        if not records:
            return
        writer = Writer(Options(data_dir=str(data), session="test", **options))
        writer.write([Batch(next(sequences), len(records), marshal.dumps(records))])
        if close:
            writer.close()
        else:  # as after a crash: committed, and the open run in no summary
            writer.recover(RuntimeError("killed"))

    return write


@pytest.fixture(scope="session")
def write_log_to() -> Callable[[Path], Callable[..., None]]:
    """Make a function that writes messages and frame records into a log, a burst per call."""
    return _writing


@pytest.fixture
def write_log(tmp_path: Path) -> Callable[..., None]:
    """Write into the log below `tmp_path`."""
    return _writing(tmp_path)
