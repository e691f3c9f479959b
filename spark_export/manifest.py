"""What has been exported: a journal of numbered entries beside the data, each made in one step.

    _manifest/00000007.json    which rows went out, which files came and which went
    _manifest/00000007.done    the files are in their places
    _staging/<run>/…           files of a run, before they are

A run writes its files to `_staging`, then makes the next entry: that is the commit. Only
then the files are renamed into the folders that readers look at. Whoever comes next finishes
the renames of an entry without `.done`, and clears away what was staged by a run that
died before its entry. Two runs cannot make the same number, so the later one sees what the
first has done, and either its work still holds or it starts over.
"""

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from protocol.values import value
from spark_export.segments import ExportError
from spark_export.target import LocalTarget, Target

VERSION = 1  # of the manifest, and of the columns in the files
FOLDER = "_manifest"
STAGING = "_staging"
SNAPSHOT_EVERY = 32
# A run elsewhere that we cannot ask is held for dead after this long without a new file.
ORPHAN_AFTER_S = 2 * 86_400.0


@value
class Mark:
    """How far a segment has been exported."""

    id: int
    received_ms: int  # of that row, to know it again
    max_received_ms: int  # of all rows so far


@value
class DataFile:
    """One Parquet file that belongs to the export."""

    path: str
    rows: int
    bytes: int


@value
class Entry:
    """One step of the export's history."""

    kind: str  # export, compact, prune
    run: str
    marks: dict[str, Mark]
    expects: dict[str, Mark | None]  # the marks this step was planned from
    add: list[tuple[str, DataFile]]  # where it is staged, what it becomes
    remove: list[str]


@dataclass(slots=True)
class State:
    """What all entries up to `number` come to."""

    number: int = 0
    marks: dict[str, Mark] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)

    def apply(self, entry: Entry) -> None:
        self.marks.update(entry.marks)
        for path in entry.remove:
            self.files.pop(path, None)
        for _, file in entry.add:
            self.files[file.path] = file

    def allows(self, entry: Entry) -> bool:
        """Tell whether a step still fits, after others have been made."""
        return all(self.marks.get(day) == mark for day, mark in entry.expects.items()) and all(
            path in self.files for path in entry.remove
        )


class Conflict(Exception):
    """Another run has done the same work first."""


class Manifest:
    """The journal of one export folder."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def load(self) -> State:
        """Read the history, from the last snapshot on."""
        documents = []
        for number in sorted(self._numbers(), reverse=True):
            document = self._read(number)
            documents.append((number, document))
            if "state" in document:
                break
        state = State()
        for number, document in reversed(documents):
            if "state" in document:
                state = _state_from(document["state"])
            else:
                state.apply(_entry_from(document))
            state.number = number
        return state

    def recover(self) -> int:
        """Finish what was committed, clear away what was not; give the number of steps finished."""
        numbers = set(self._numbers())
        done = {int(name[:8]) for name in self.target.names(FOLDER) if name.endswith(".done")}
        for number in sorted(numbers - done):
            self._settle(number, _entry_from(self._read(number)))
        for name in sorted({name.removesuffix(".lock") for name in self.target.names(STAGING)}):
            if self._is_orphan(name):
                self.target.remove(f"{STAGING}/{name}")
                self.target.remove(f"{STAGING}/{name}.lock")
        return len(numbers - done)

    def commit(self, entry: Entry) -> State:
        """Make the next entry, then bring the files to their places."""
        state = self.load()
        while True:
            if not state.allows(entry):
                raise Conflict
            number = state.number + 1
            document = _entry_document(entry)
            after = State(number, dict(state.marks), dict(state.files))
            after.apply(entry)
            if number % SNAPSHOT_EVERY == 0:
                document["state"] = _state_document(after)
            content = json.dumps(document, separators=(",", ":")).encode()
            if self.target.create(f"{FOLDER}/{number:08}.json", content):
                break
            state = self.load()
        self._settle(number, entry)
        return after

    @contextmanager
    def run(self) -> Iterator[str]:
        """Hold a name for a run's staged files for as long as it lives, and clear up after it."""
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:8]}"
        self.target.make_folder(FOLDER)
        self.target.make_folder(STAGING)
        with self._alive(name):
            try:
                yield name
            finally:
                self.target.remove(f"{STAGING}/{name}")
                self.target.remove(f"{STAGING}/{name}.lock")

    @contextmanager
    def _alive(self, name: str) -> Iterator[None]:
        if not isinstance(self.target, LocalTarget):
            yield
            return
        path = self.target.url(f"{STAGING}/{name}.lock")
        while True:
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
            except OSError as error:
                raise ExportError(
                    f"cannot write to {self.target.root}: {error.strerror}"
                ) from error
            # The kernel lets go of it when the process dies, however it dies.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Between the two lines above it looked like an orphan's, and may be gone.
            if os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(descriptor)):
                break
            os.close(descriptor)
        try:
            yield
        finally:
            os.close(descriptor)

    def _is_orphan(self, name: str) -> bool:
        if not isinstance(self.target, LocalTarget):
            return self.target.age_s(f"{STAGING}/{name}", time.time()) > ORPHAN_AFTER_S
        try:
            descriptor = os.open(self.target.url(f"{STAGING}/{name}.lock"), os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _settle(self, number: int, entry: Entry) -> None:
        for staged, file in entry.add:
            moved = self.target.move(staged, file.path)
            # Another run may have moved it, or a later step may have removed it since.
            if not moved and not self.target.exists(file.path) and self._is_wanted(file.path):
                raise ExportError(
                    f"{self.target.url(file.path)} is missing: entry {number} of the manifest "
                    "names it, and it is neither there nor staged"
                )
        for path in entry.remove:
            self.target.remove(path)
        self.target.create(f"{FOLDER}/{number:08}.done", b"")

    def _is_wanted(self, path: str) -> bool:
        return path in self.load().files

    def _numbers(self) -> list[int]:
        return [int(name[:8]) for name in self.target.names(FOLDER) if _is_entry(name)]

    def _read(self, number: int) -> dict[str, Any]:
        path = f"{FOLDER}/{number:08}.json"
        try:
            document: dict[str, Any] = json.loads(self.target.read(path))
        except ValueError as error:
            raise ExportError(f"{self.target.url(path)} is damaged: {error}") from error
        if document["version"] > VERSION:
            raise ExportError(
                f"{self.target.root} was written by a newer geomqtt (format {document['version']}, "
                f"this one knows up to {VERSION})"
            )
        return document


def _is_entry(name: str) -> bool:
    return name.endswith(".json") and name[:8].isdigit()


def _entry_document(entry: Entry) -> dict[str, Any]:
    return {
        "version": VERSION,
        "kind": entry.kind,
        "run": entry.run,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "marks": {day: _fields(mark) for day, mark in entry.marks.items()},
        "add": [[staged, *_fields(file)] for staged, file in entry.add],
        "remove": entry.remove,
    }


def _entry_from(document: dict[str, Any]) -> Entry:
    return Entry(
        kind=document["kind"],
        run=document["run"],
        marks={day: Mark(*fields) for day, fields in document["marks"].items()},
        expects={},
        add=[(staged, DataFile(*fields)) for staged, *fields in document["add"]],
        remove=document["remove"],
    )


def _state_document(state: State) -> dict[str, Any]:
    return {
        "marks": {day: _fields(mark) for day, mark in state.marks.items()},
        "files": [_fields(file) for file in state.files.values()],
    }


def _state_from(document: dict[str, Any]) -> State:
    files = [DataFile(*fields) for fields in document["files"]]
    marks = {day: Mark(*fields) for day, fields in document["marks"].items()}
    return State(0, marks, {file.path: file for file in files})


def _fields(item: Mark | DataFile) -> list[Any]:
    if isinstance(item, Mark):
        return [item.id, item.received_ms, item.max_received_ms]
    return [item.path, item.rows, item.bytes]
