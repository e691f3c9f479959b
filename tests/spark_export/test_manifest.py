"""The manifest against crashes at every step, and against runs beside one another."""

import itertools
from pathlib import Path

import pytest

from spark_export.manifest import (
    FOLDER,
    SNAPSHOT_EVERY,
    STAGING,
    Conflict,
    DataFile,
    Entry,
    Manifest,
    Mark,
)
from spark_export.segments import ExportError
from spark_export.target import LocalTarget


class Crash(BaseException):
    """The process dies here."""


class CrashingTarget(LocalTarget):
    """Dies before its n-th change to the disk, and clears nothing up."""

    def __init__(self, root: str, changes: int) -> None:
        super().__init__(root)
        self.left = changes

    def _change(self) -> None:
        if self.left == 0:
            raise Crash
        self.left -= 1

    def create(self, path: str, content: bytes) -> bool:
        self._change()
        return super().create(path, content)

    def move(self, source: str, destination: str) -> bool:
        self._change()
        return super().move(source, destination)

    def remove(self, path: str) -> None:
        self._change()
        super().remove(path)


def stage(target: LocalTarget, run: str, names: list[str]) -> list[tuple[str, DataFile]]:
    added = []
    for name in names:
        path = Path(target.root, STAGING, run, "event_date=2026-03-28", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        final = f"event_date=2026-03-28/{name}"
        added.append((path.relative_to(target.root).as_posix(), DataFile(final, 1, len(name))))
    return added


def visible(root: Path) -> set[str]:
    return {path.name for path in root.glob("event_date=*/*")}


def write(manifest: Manifest, names: list[str], mark: int, remove: tuple[str, ...] = ()) -> None:
    """Do what an export or a compaction does."""
    target = manifest.target
    assert isinstance(target, LocalTarget)
    before = manifest.load().marks.get("2026-03-28")
    with manifest.run() as run:
        added = stage(target, run, names)
        marks = {"2026-03-28": Mark(mark, mark, mark)}
        gone = [f"event_date=2026-03-28/{name}" for name in remove]
        manifest.commit(Entry("export", run, marks, {"2026-03-28": before}, added, gone))


def test_what_is_committed_is_visible_and_remembered(tmp_path: Path) -> None:
    manifest = Manifest(LocalTarget(str(tmp_path)))
    write(manifest, ["a", "b"], 10)
    write(manifest, ["c"], 20)
    state = Manifest(LocalTarget(str(tmp_path))).load()
    assert visible(tmp_path) == {"a", "b", "c"}
    assert state.marks == {"2026-03-28": Mark(20, 20, 20)}
    assert set(state.files) == {f"event_date=2026-03-28/{name}" for name in "abc"}
    assert manifest.target.names(STAGING) == []


def test_a_crash_at_any_step_leaves_all_or_nothing(tmp_path: Path) -> None:
    outcomes = set()
    for changes in itertools.count():
        root = tmp_path / str(changes)
        write(Manifest(LocalTarget(str(root))), ["old 1", "old 2", "old 3"], 1)
        crashed = False
        try:
            manifest = Manifest(CrashingTarget(str(root), changes))
            write(manifest, ["new 1", "new 2"], 2, ("old 1", "old 2"))
        except Crash:
            crashed = True
        survivor = Manifest(LocalTarget(str(root)))
        survivor.recover()
        names = visible(root)
        done = survivor.load().marks["2026-03-28"].id == 2
        assert names == ({"old 3", "new 1", "new 2"} if done else {"old 1", "old 2", "old 3"})
        assert {Path(path).name for path in survivor.load().files} == names
        assert survivor.target.names(STAGING) == []
        if not done:
            write(survivor, ["new 1", "new 2"], 2, ("old 1", "old 2"))
            assert visible(root) == {"old 3", "new 1", "new 2"}
        outcomes.add((crashed, done))
        if not crashed:
            break
    assert outcomes == {(True, False), (True, True), (False, True)}


def test_a_crash_during_recovery_is_recovered_from(tmp_path: Path) -> None:
    for changes in range(6):
        root = tmp_path / str(changes)
        with pytest.raises(Crash):
            # Dies right after the entry is made: nothing is moved yet.
            write(Manifest(CrashingTarget(str(root), 1)), ["a", "b", "c"], 1)
        assert visible(root) == set()
        with pytest.raises(Crash):
            Manifest(CrashingTarget(str(root), min(changes, 3))).recover()
        Manifest(LocalTarget(str(root))).recover()
        assert visible(root) == {"a", "b", "c"}


def test_of_two_runs_with_the_same_rows_one_is_refused(tmp_path: Path) -> None:
    first, second = (Manifest(LocalTarget(str(tmp_path))) for _ in range(2))
    with first.run() as one, second.run() as other:
        ours = stage(first.target, one, ["a"])  # type: ignore[arg-type]
        theirs = stage(second.target, other, ["b"])  # type: ignore[arg-type]
        marks, expects = {"2026-03-28": Mark(5, 5, 5)}, {"2026-03-28": None}
        second.commit(Entry("export", other, marks, expects, theirs, []))
        with pytest.raises(Conflict):
            first.commit(Entry("export", one, marks, expects, ours, []))
    assert visible(tmp_path) == {"b"}


def test_runs_with_different_rows_both_count(tmp_path: Path) -> None:
    first, second = (Manifest(LocalTarget(str(tmp_path))) for _ in range(2))
    with first.run() as one, second.run() as other:
        for manifest, run, name, day in ((second, other, "b", "d2"), (first, one, "a", "d1")):
            added = stage(manifest.target, run, [name])  # type: ignore[arg-type]
            entry = Entry("export", run, {day: Mark(5, 5, 5)}, {day: None}, added, [])
            manifest.commit(entry)
    assert visible(tmp_path) == {"a", "b"}
    assert first.load().marks.keys() == {"d1", "d2"}


def test_the_staged_files_of_a_living_run_are_left_alone(tmp_path: Path) -> None:
    manifest = Manifest(LocalTarget(str(tmp_path)))
    with manifest.run() as run:
        stage(manifest.target, run, ["a"])  # type: ignore[arg-type]
        Manifest(LocalTarget(str(tmp_path))).recover()
        assert manifest.target.files(f"{STAGING}/{run}")


def test_a_long_history_is_read_from_its_last_snapshot(tmp_path: Path) -> None:
    manifest = Manifest(LocalTarget(str(tmp_path)))
    for n in range(SNAPSHOT_EVERY + 3):
        write(manifest, [f"f{n}"], n + 1)
    for n in range(1, SNAPSHOT_EVERY):
        (tmp_path / FOLDER / f"{n:08}.json").write_text("never read again")
    state = manifest.load()
    assert len(state.files) == SNAPSHOT_EVERY + 3
    assert state.marks["2026-03-28"].id == SNAPSHOT_EVERY + 3


def test_a_file_that_vanished_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        write(Manifest(CrashingTarget(str(tmp_path), 1)), ["a"], 1)
    for path in tmp_path.glob(f"{STAGING}/*/*/a"):
        path.unlink()
    with pytest.raises(ExportError, match=r"event_date=2026-03-28/a is missing"):
        Manifest(LocalTarget(str(tmp_path))).recover()
