"""A store that is torn, cut, flipped, foreign or newer: defined outcomes, never a fresh start."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from broker.config import Storage
from broker.store import StoreError
from broker.store.files import SCHEMA_VERSION
from broker.store.sqlite import FILE, SqliteStore
from tests.broker.store.stores import contents, count, fill, open_broker

PAGE = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of some sixty pages, once."""
    folder = tmp_path_factory.mktemp("whole")
    fill(folder)
    return folder


def copy(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "data")
    return tmp_path / "data"


def damaged_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("store-damaged-*.sqlite"))


def test_what_was_kept_is_read_back(whole: Path, tmp_path: Path) -> None:
    broker, store = open_broker(copy(whole, tmp_path))
    facts = contents(broker)
    sizes = {name: len(each) for name, each in facts.items()}
    assert sizes == {
        "session": 5,
        "subscription": 10,
        "queued": 200,
        "in_flight": 0,
        "incoming": 15,
        "retained": 40,
        "will": 5,
    }
    queue = broker.sessions.get("client3").queue  # type: ignore[union-attr]
    assert queue is not None
    assert [each[0].message.received_ms for each in queue] == list(range(40))
    store.close()


def test_a_second_broker_on_the_same_folder_is_refused(whole: Path, tmp_path: Path) -> None:
    folder = copy(whole, tmp_path)
    _, store = open_broker(folder)
    with pytest.raises(StoreError, match="in use by another broker"):
        SqliteStore(folder, Storage())
    store.close()
    _, store = open_broker(folder)
    store.close()


def test_a_torn_last_record_of_the_log_of_changes_costs_only_what_was_not_committed(
    whole: Path, tmp_path: Path
) -> None:
    folder = copy(whole, tmp_path)
    broker, store = open_broker(folder)
    expected = contents(broker)
    session = broker.sessions.get("client0")
    assert session is not None
    store.add_incoming(session, 100)
    assert store.commit()
    expected["incoming"].add(("client0", 100))
    kept = (folder / f"{FILE}-wal").read_bytes()
    store.add_incoming(session, 200)
    assert store.commit()
    torn = (folder / f"{FILE}-wal").read_bytes()
    assert torn.startswith(kept)
    for cut in (1, 24, PAGE // 2, len(torn) - len(kept) - 1):
        other = tmp_path / f"cut{cut}"
        other.mkdir()
        shutil.copy(folder / FILE, other / FILE)
        (other / f"{FILE}-wal").write_bytes(torn[:-cut])
        reopened, other_store = open_broker(other)
        assert contents(reopened) == expected
        assert not damaged_files(other)
        other_store.close()
    store.close()


def test_a_truncated_file_is_moved_aside_and_its_rest_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    fill(folder, messages=400)
    full = contents_of(folder, tmp_path / "full")
    path = folder / FILE
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size * 2 // 3)
    broker, store = open_broker(folder)
    facts = contents(broker)
    for name, each in facts.items():
        assert each <= full[name]
    assert count(facts) > count(full) // 4
    assert len(damaged_files(folder)) == 1
    assert damaged_files(folder)[0].stat().st_size == size * 2 // 3
    assert "was damaged" in caplog.text
    assert "not read in full: " in caplog.text
    store.close()


def contents_of(whole: Path, folder: Path) -> dict[str, set[object]]:
    shutil.copytree(whole, folder)
    broker, store = open_broker(folder)
    store.close()
    return contents(broker)


def test_one_broken_page_costs_only_the_records_on_it(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full = contents_of(whole, tmp_path / "full")
    pages = (whole / FILE).stat().st_size // PAGE
    worst = count(full)
    for page in range(pages):
        folder = tmp_path / f"page{page}"
        shutil.copytree(whole, folder)
        with (folder / FILE).open("r+b") as file:
            file.seek(page * PAGE)
            file.write(b"\xa5" * PAGE)
            if page == 0:  # without this much nobody can tell whose file it was
                file.seek(68)
                file.write(b"GeMS")
        broker, store = open_broker(folder)
        facts = contents(broker)
        for name, each in facts.items():
            assert each <= full[name], f"page {page} made up a {name}"
        if count(facts) < count(full):
            assert damaged_files(folder), f"page {page}: something is missing without a word"
        worst = min(worst, count(facts)) if page else worst
        if page == 0:
            assert facts == full, "the first page can be made again"
        store.close()
    assert worst > 0


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_never_stops_the_start_nor_empties_the_store_unsaid(
    whole: Path, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    folder = copy(whole, tmp_path)
    path = folder / FILE
    data = bytearray(path.read_bytes())
    # Half of the flips hit the structure: the header of the file, or that of a page.
    limit = random.choice((len(data), 100, 0))
    where = random.randrange(limit) if limit else PAGE * random.randrange(len(data) // PAGE) + 3
    data[where] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    version = int.from_bytes(data[60:64], "big", signed=True)
    if version > SCHEMA_VERSION:  # nothing is touched
        with pytest.raises(StoreError, match="newer version"):
            open_broker(folder)
        assert path.read_bytes() == data
        return
    broker, store = open_broker(folder)
    assert len(broker.sessions) or damaged_files(folder), f"flip at {where}"
    store.commit()
    store.close()
    broker, store = open_broker(folder)
    store.close()


def test_a_store_of_a_newer_version_is_refused_and_left_alone(whole: Path, tmp_path: Path) -> None:
    folder = copy(whole, tmp_path)
    path = folder / FILE
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="written by a newer version"):
        SqliteStore(folder, Storage())
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["text", "sqlite", "short"])
def test_a_foreign_file_is_refused_with_one_line_and_left_alone(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / FILE
    if kind == "sqlite":
        db = sqlite3.connect(path)
        db.executescript("PRAGMA journal_mode = WAL; CREATE TABLE theirs (x); ")
        db.close()
    else:
        path.write_bytes(b"Dear diary, " * (1 if kind == "short" else 1000))
    before = path.read_bytes()
    command = [sys.executable, "-m", "geomqtt", "serve", "--data", str(folder), "--port", "0"]
    result = subprocess.run(
        [*command, "--http-port", "0", "--no-log"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr == f"geomqtt: store {path}: not a GeoMQTT store\n"
    assert path.read_bytes() == before


def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"")
    broker, store = open_broker(tmp_path)
    assert len(broker.sessions) == 0
    store.close()


def test_a_file_that_lost_everything_but_its_log_of_changes_is_reported(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copy(whole, tmp_path)
    (folder / FILE).write_bytes(b"")
    (folder / f"{FILE}-wal").write_bytes(b"CREATE TABLE outgoing" + bytes(5000))
    _, store = open_broker(folder)
    assert "was damaged" in caplog.text
    assert damaged_files(folder)
    store.close()


def test_a_mending_that_was_interrupted_before_its_end_is_finished(
    whole: Path, tmp_path: Path
) -> None:
    folder = copy(whole, tmp_path)
    (folder / FILE).rename(folder / f"{FILE}-mending")
    broker, store = open_broker(folder)
    assert len(broker.sessions) == 5
    store.close()
