"""The plugin with its real writer process: nothing lost, nothing twice, whoever is killed."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest

from plugins.api import FrameRun, PluginError
from plugins.event_log import reader
from plugins.event_log.plugin import EventLog, EventLogSettings
from plugins.event_log.reader import Query
from plugins.event_log.segments import DAY_MS, list_segments, now_ms, opened
from protocol.geo import Geo
from protocol.geometry import Place
from protocol.message import Message

ROOT = Path(__file__).resolve().parents[3]


def frames(numbers: range) -> FrameRun:
    """Packets on one topic whose payloads are numbers of eight digits."""
    data = b"".join(b"\x30\x0d\x00\x03f/x%08d" % number for number in numbers)
    return FrameRun("publisher", now_ms(), data, len(numbers))


def points(numbers: range) -> list[Any]:
    return [
        Message(f"p/{n % 7}", b"%08d" % n, 1, False, "c", now_ms(), Geo(place=Place(n % 180, 1.0)))
        for n in numbers
    ]


def logged(data: str) -> list[int]:
    return [int(event.payload) for event in reader.query(data, Query())]


async def written(plugin: EventLog) -> None:
    """Wait until everything is acknowledged."""
    async with asyncio.timeout(30):
        while plugin.buffered_bytes:
            await asyncio.sleep(0.005)


async def started(broker: Any, **settings: Any) -> EventLog:
    plugin = EventLog(EventLogSettings(**settings))
    await plugin.start(broker)
    return plugin


async def test_what_was_accepted_is_in_the_log_after_the_stop(counting_broker: Any) -> None:
    plugin = await started(counting_broker)
    plugin.on_accepted([frames(range(1000)), *points(range(1000, 1100))])
    plugin.on_accepted([*points(range(1100, 1200)), frames(range(1200, 1300))])
    await plugin.stop()
    assert logged(counting_broker.data_dir) == list(range(1300))
    assert counting_broker.counts == {"event_log_events_total": 1300}


async def test_it_is_in_the_log_without_a_stop_soon_after(counting_broker: Any) -> None:
    plugin = await started(counting_broker)
    plugin.on_accepted(points(range(3)))
    await written(plugin)
    assert logged(counting_broker.data_dir) == [0, 1, 2]
    await plugin.stop()


async def test_the_writer_has_none_of_the_broker_s_files_and_outlives_ctrl_c(
    counting_broker: Any,
) -> None:
    with sqlite3.connect(Path(counting_broker.data_dir) / "other.sqlite"):
        plugin = await started(counting_broker)
        assert plugin.writer_pid is not None
        folder = Path(f"/proc/{plugin.writer_pid}/fd")
        targets = [os.readlink(path) for path in folder.iterdir()]
        assert not [name for name in targets if "other.sqlite" in name or "socket" in name]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(plugin.writer_pid, number)
        plugin.on_accepted([frames(range(10))])
        await plugin.stop()
    assert logged(counting_broker.data_dir) == list(range(10))
    assert counting_broker.counts["event_log_writer_restarts_total"] == 0


async def test_killing_the_writer_loses_nothing_and_doubles_nothing(counting_broker: Any) -> None:
    plugin = await started(counting_broker, commit_ms=25)
    killed = 0
    last_killed = None
    for start in range(0, 60_000, 500):
        plugin.on_accepted(
            [frames(range(start, start + 400)), *points(range(start + 400, start + 500))]
        )
        await asyncio.sleep(0.005)
        pid = plugin.writer_pid
        if pid is not None and pid != last_killed and start % 5000 == 4500 and killed < 4:
            os.kill(pid, signal.SIGKILL)
            killed, last_killed = killed + 1, pid
    await plugin.stop()
    assert killed >= 2
    assert counting_broker.counts["event_log_writer_restarts_total"] == killed
    assert logged(counting_broker.data_dir) == list(range(60_000))
    (segment,) = list_segments(counting_broker.data_dir)
    with opened(segment) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


PARENT = """
import asyncio, sys
sys.path[:0] = {paths!r}
from conftest import CountingBroker
from test_plugin import EventLog, EventLogSettings, frames

async def main():
    plugin = EventLog(EventLogSettings())
    broker = CountingBroker(sys.argv[1])
    await plugin.start(broker)
    start = 0
    print(plugin.writer_pid, flush=True)
    while True:
        plugin.on_accepted([frames(range(start, start + 250))])
        start += 250
        await asyncio.sleep(0.001)
        print(broker.counts["event_log_events_total"], start, flush=True)

asyncio.run(main())
"""


def test_killing_the_broker_leaves_a_whole_log_without_gaps(tmp_path: Path) -> None:
    script = textwrap.dedent(PARENT).format(paths=[str(ROOT), str(Path(__file__).parent)])
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    writer = psutil.Process(int(parent.stdout.readline()))
    committed = accepted = 0
    while committed < 30_000:
        committed, accepted = map(int, parent.stdout.readline().split())
    parent.kill()
    parent.wait()
    for line in parent.stdout:
        committed, accepted = map(int, line.split())
    parent.stdout.close()
    assert psutil.wait_procs([writer], timeout=30)[1] == []  # it ends by itself
    numbers = logged(str(tmp_path))
    assert numbers == list(range(len(numbers)))
    assert committed <= len(numbers) <= accepted + 250
    (segment,) = list_segments(tmp_path)
    assert segment.files() == [segment.path]  # and in order
    with opened(segment) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_beyond_the_buffer_events_are_dropped_and_counted(counting_broker: Any) -> None:
    plugin = await started(counting_broker, buffer_bytes=10_000)
    for start in range(0, 10_000, 100):
        plugin.on_accepted(
            [frames(range(start, start + 90)), *points(range(start + 90, start + 100))]
        )
    await plugin.stop()
    kept = logged(counting_broker.data_dir)
    assert kept == list(range(len(kept)))
    assert 0 < len(kept) < 2000
    assert counting_broker.counts == {
        "event_log_events_total": len(kept),
        "event_log_dropped_total": 10_000 - len(kept),
    }


async def test_after_an_overload_events_are_taken_again(counting_broker: Any) -> None:
    plugin = await started(counting_broker, buffer_bytes=1000)
    plugin.on_accepted([frames(range(100))])
    plugin.on_accepted([frames(range(100, 200))])
    await written(plugin)
    plugin.on_accepted([frames(range(200, 300))])
    await plugin.stop()
    assert logged(counting_broker.data_dir) == [*range(100), *range(200, 300)]


async def test_throttling_publishers_loses_nothing(counting_broker: Any) -> None:
    plugin = await started(counting_broker, buffer_bytes=20_000, on_overload="throttle")
    for start in range(0, 20_000, 250):
        await asyncio.wait_for(counting_broker.reading.wait(), 30)
        plugin.on_accepted([frames(range(start, start + 250))])
        await asyncio.sleep(0)
    await plugin.stop()
    assert counting_broker.pauses > 5
    assert counting_broker.reading.is_set()
    assert logged(counting_broker.data_dir) == list(range(20_000))
    assert counting_broker.counts["event_log_dropped_total"] == 0


async def test_readers_see_every_commit_while_the_writer_writes(counting_broker: Any) -> None:
    plugin = await started(counting_broker, commit_ms=25)
    lengths: list[int] = []
    sent = 0
    async with asyncio.timeout(60):
        while len(set(lengths)) < 5:
            plugin.on_accepted([frames(range(sent, sent + 100))])
            sent += 100
            numbers = logged(counting_broker.data_dir)
            assert numbers == list(range(len(numbers)))
            lengths.append(len(numbers))
            await asyncio.sleep(0.005)
    assert lengths == sorted(lengths)
    await plugin.stop()
    assert len(logged(counting_broker.data_dir)) == sent


async def test_deleting_and_writing_at_the_same_time(counting_broker: Any) -> None:
    plugin = await started(counting_broker, commit_ms=25)
    deleted: list[int] = []

    def delete() -> None:
        deleted.extend(
            int(event.payload) for event in reader.delete(counting_broker.data_dir, Query("p/3"))
        )

    for start in range(0, 5000, 250):
        plugin.on_accepted(points(range(start, start + 250)))
        await asyncio.to_thread(delete)
    await plugin.stop()
    delete()
    assert sorted(deleted) == [n for n in range(5000) if n % 7 == 3]
    assert logged(counting_broker.data_dir) == [n for n in range(5000) if n % 7 != 3]


async def test_the_writer_deletes_what_is_too_old_and_changes_segments_by_itself(
    counting_broker: Any, write_log: Any
) -> None:
    today = now_ms() // DAY_MS * DAY_MS
    for days in (9, 5, 1):
        write_log([Message(str(days), b"", 0, False, "c", today - days * DAY_MS)])
    plugin = await started(counting_broker, max_age_days=6)
    plugin.on_accepted(
        [
            Message("yesterday", b"", 0, False, "c", today - 1),
            Message("today", b"", 0, False, "c", today),
        ]
    )
    await plugin.stop()
    found = reader.query(counting_broker.data_dir, Query())
    assert [(event.topic, event.received_ms - today) for event in found] == [
        ("5", -5 * DAY_MS),
        ("1", -DAY_MS),
        ("yesterday", -1),
        ("today", 0),
    ]


async def test_a_batch_that_cannot_be_written_takes_no_other_with_it(counting_broker: Any) -> None:
    plugin = await started(counting_broker)
    torn = FrameRun("publisher", now_ms(), b"\x30\x0d\x00", 3)
    for run in (frames(range(10)), torn, frames(range(10, 20))):
        plugin.on_accepted([run])
        plugin._flush()  # a batch each, in one burst
    await plugin.stop()
    assert logged(counting_broker.data_dir) == list(range(20))
    assert counting_broker.counts["event_log_lost_total"] == 3
    assert counting_broker.counts["event_log_writer_restarts_total"] == 0


async def test_a_folder_that_cannot_be_made_refuses_the_start(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder should be")
    broker: Any = type("Broker", (), {"data_dir": str(blocked)})()
    with pytest.raises(PluginError, match=r"event log: .*file"):
        await EventLog(EventLogSettings()).start(broker)


async def test_no_data_folder_refuses_the_start() -> None:
    broker: Any = type("Broker", (), {"data_dir": None})()
    with pytest.raises(PluginError, match="no data folder"):
        await EventLog(EventLogSettings()).start(broker)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"include": ("a/#/b",)}, "'#' before its last level"),
        ({"buffer_bytes": 0}, "buffer_bytes is 0"),
        ({"max_age_days": -1.0}, "max_age_days is -1.0"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(PluginError, match=reason):
        EventLog(EventLogSettings(**settings))
