"""Saving what can be read of a damaged store.

The damaged file stays as it is; a copy is read. Its first page, which says where every
table begins, is replaced if it cannot be read: our tables always begin on the same pages.
Ranges of keys that cannot be read are halved until the unreadable records stand alone.
Every saved record must satisfy the new file's types and checks; the others are lost.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

PAGE_SIZE = 4096
MAX_KEY = 2**40
MAX_FAILURES = 20_000  # of one table, before the rest of it is given up


class Salvage:
    """One damaged file, from which records are brought into a new one."""

    def __init__(self, damaged: Path, fresh: sqlite3.Connection) -> None:
        self._damaged = damaged
        self._fresh = fresh
        self.saved = 0
        self.lost = 0  # records, or ranges of them, that could not be read or used

    def run(self, tables: tuple[str, ...]) -> None:
        """Bring over what can be read of all tables."""
        copy = self._damaged.with_name(f"{self._damaged.name}-copy")
        try:
            for suffix in ("", "-wal"):
                part = self._damaged.with_name(self._damaged.name + suffix)
                if part.exists():
                    shutil.copyfile(part, copy.with_name(copy.name + suffix))
            if not self._has_tables(copy, tables):
                self._replace_first_page(copy)
            with closing(sqlite3.connect(copy, isolation_level=None)) as source:
                source.text_factory = bytes  # decoded here, so that bad text costs one record
                for table in tables:
                    self._bring(source, table)
        except sqlite3.Error:
            self.lost += 1
        finally:
            for suffix in ("", "-wal", "-shm"):
                copy.with_name(copy.name + suffix).unlink(missing_ok=True)
        self._remove_orphans()

    def _has_tables(self, copy: Path, tables: tuple[str, ...]) -> bool:
        try:
            with closing(sqlite3.connect(copy)) as source:
                names = {name for (name,) in source.execute("SELECT name FROM sqlite_master")}
        except sqlite3.Error:
            return False
        return names.issuperset(tables)

    def _replace_first_page(self, copy: Path) -> None:
        """Put the first page of a new store over that of the copy."""
        size = copy.stat().st_size
        page = bytearray(self._fresh.execute("PRAGMA page_count").fetchone() and self._page())
        page[28:32] = (size // PAGE_SIZE).to_bytes(4, "big")  # how many pages there are
        with copy.open("r+b") as file:
            file.write(page)

    def _page(self) -> bytes:
        """Give the first page of the new store."""
        blank = sqlite3.connect(":memory:", isolation_level=None)
        with closing(blank):
            self._fresh.backup(blank)
            return bytes(blank.serialize()[:PAGE_SIZE])

    def _bring(self, source: sqlite3.Connection, table: str) -> None:
        columns = self._fresh.execute(f"PRAGMA table_info({table})").fetchall()
        kinds = [column[2] for column in columns]
        marks = ",".join("?" * len(columns))
        for row in self._readable(source, table):
            try:
                values = [_as(kind, value) for kind, value in zip(kinds, row, strict=True)]
                self.saved += self._fresh.execute(
                    f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values
                ).rowcount
            except (UnicodeDecodeError, ValueError, OverflowError, sqlite3.IntegrityError):
                self.lost += 1

    def _readable(self, source: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
        """Read all rows outside of damaged ranges."""
        columns = {column[1] for column in self._fresh.execute(f"PRAGMA table_info({table})")}
        key = "session" if "session" in columns and "id" not in columns else "rowid"
        ranges = [(0, MAX_KEY)]
        failures = 0
        while ranges:
            low, high = ranges.pop()
            try:
                yield from source.execute(
                    f"SELECT * FROM {table} WHERE {key} BETWEEN ? AND ? ORDER BY {key}", (low, high)
                ).fetchall()
            except sqlite3.Error:
                failures += 1
                if low == high:
                    self.lost += 1
                elif failures > MAX_FAILURES:
                    self.lost += 1
                    return
                else:
                    middle = (low + high) // 2
                    ranges += [(middle + 1, high), (low, middle)]

    def _remove_orphans(self) -> None:
        """Drop parts of sessions and messages that were lost."""
        db = self._fresh
        for table in ("subscription", "outgoing", "incoming", "fence"):
            db.execute(f"DELETE FROM {table} WHERE session NOT IN (SELECT id FROM session)")
        db.execute("DELETE FROM outgoing WHERE message NOT IN (SELECT id FROM message)")
        db.execute("DELETE FROM message WHERE id NOT IN (SELECT message FROM outgoing)")


def _as(kind: str, value: Any) -> Any:
    if isinstance(value, bytes) and kind == "TEXT":
        return value.decode()
    return value
