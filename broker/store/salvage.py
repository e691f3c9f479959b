"""Saving what can be read of a damaged store.

The damaged file stays as it is; a copy is read. Its first page, which says where every
table begins, is replaced if it cannot be read: our tables always begin on the same pages.
A table is read from both ends up to the damage, and so is every half of what lies between.
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
MAX_FAILURES = 2_000  # in a row without a single record, before the rest of a table is given up


class Salvage:
    """One damaged file, from which records are brought into a new one."""

    def __init__(self, damaged: Path, fresh: sqlite3.Connection, schema: str) -> None:
        self._damaged = damaged
        self._fresh = fresh
        self._schema = schema
        self.saved = 0
        self.unusable = 0  # records that could be read, but not be right
        self.broken: list[str] = []  # tables that could not be read in full

    def run(self, tables: tuple[str, ...]) -> None:
        """Bring over what can be read of all tables."""
        copy = self._damaged.with_name(f"{self._damaged.name}-copy")
        try:
            for suffix in ("", "-wal"):
                part = self._damaged.with_name(self._damaged.name + suffix)
                if part.exists():
                    shutil.copyfile(part, copy.with_name(copy.name + suffix))
            self._make_whole_pages(copy)
            if not self._has_tables(copy, tables):
                self._replace_first_page(copy)
            with closing(sqlite3.connect(copy, isolation_level=None)) as source:
                source.text_factory = bytes  # decoded here, so that bad text costs one record
                for table in tables:
                    self._bring(source, table)
        except sqlite3.Error:
            self.broken = list(tables)
        finally:
            for suffix in ("", "-wal", "-shm"):
                copy.with_name(copy.name + suffix).unlink(missing_ok=True)

    def _make_whole_pages(self, copy: Path) -> None:
        """Let the header tell the true number of pages: SQLite reads nothing otherwise."""
        pages = max(-(-copy.stat().st_size // PAGE_SIZE), 1)
        with copy.open("r+b") as file:
            file.truncate(pages * PAGE_SIZE)
            header = bytearray(file.read(100))
            header[28:32] = pages.to_bytes(4, "big")
            header[92:96] = header[24:28]  # for which change the number of pages holds
            file.seek(0)
            file.write(header)

    def _has_tables(self, copy: Path, tables: tuple[str, ...]) -> bool:
        try:
            with closing(sqlite3.connect(copy)) as source:
                names = {name for (name,) in source.execute("SELECT name FROM sqlite_master")}
        except sqlite3.Error:
            return False
        return names.issuperset(tables)

    def _replace_first_page(self, copy: Path) -> None:
        """Put the first page of an empty store over that of the copy."""
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as blank:
            blank.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            blank.executescript(self._schema)
            page = bytearray(blank.serialize()[:PAGE_SIZE])
        page[18:20] = b"\x02\x02"  # there may be a write-ahead log
        with copy.open("r+b") as file:
            file.write(page)
        self._make_whole_pages(copy)

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
            except (UnicodeDecodeError, OverflowError, sqlite3.IntegrityError):
                self.unusable += 1

    def _readable(self, source: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
        """Read all rows outside of damaged ranges of keys."""
        columns = {column[1] for column in self._fresh.execute(f"PRAGMA table_info({table})")}
        key = "session" if "session" in columns and "id" not in columns else "rowid"
        ranges = [(0, MAX_KEY)]
        failures = 0
        while ranges and failures < MAX_FAILURES:
            low, high = ranges.pop()
            for direction in ("ASC", "DESC"):
                query = f"SELECT {key}, * FROM {table} WHERE {key} BETWEEN ? AND ?"
                last = None
                try:
                    for row in source.execute(f"{query} ORDER BY {key} {direction}", (low, high)):
                        last = row[0]
                        yield row[1:]
                    break
                except sqlite3.Error:
                    failures = failures + 1 if last is None else 0
                if last is not None:
                    low, high = (last + 1, high) if direction == "ASC" else (low, last - 1)
            else:
                if table not in self.broken:
                    self.broken.append(table)
                if low < high:
                    middle = (low + high) // 2
                    ranges += [(middle + 1, high), (low, middle)]


def _as(kind: str, value: Any) -> Any:
    if isinstance(value, bytes) and kind == "TEXT":
        return value.decode()
    return value
