"""Segments on their way to executors that do not see the broker's disk.

`stage` copies a consistent snapshot of a segment (WAL included) to a folder or URI that every
executor sees; `fetched` gives a task a file it can open: the segment itself where it is a
plain path, else a copy in the task's temporary folder. URIs are pyarrow's (s3, gs, hdfs, file).
"""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pyarrow.fs as arrow_fs

from spark_export.segments import ExportError, Range, SegmentError, readable_uri


def _is_plain(path: str) -> bool:
    return "://" not in path


def stage(path: str, day: str, target: str) -> str:
    """Copy one segment below `target`, and give its address there."""
    with tempfile.TemporaryDirectory(prefix="geomqtt-stage-") as folder:
        copy = os.path.join(folder, f"{day}.sqlite")
        try:
            with (
                closing(sqlite3.connect(readable_uri(path), uri=True)) as source,
                closing(sqlite3.connect(copy)) as snapshot,
            ):
                source.backup(snapshot)
                # A snapshot has no writer, so executors need no files beside it.
                snapshot.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise SegmentError(path, str(error)) from error
        try:
            filesystem, base = _filesystem(target)
            filesystem.create_dir(base, recursive=True)
            address = f"{base}/{day}.sqlite"
            arrow_fs.copy_files(copy, address, destination_filesystem=filesystem)
        except (OSError, ValueError) as error:
            raise ExportError(f"cannot stage segments to {target}: {error}") from error
    return address if _is_plain(target) or target.startswith("file:") else f"{target}/{day}.sqlite"


def unstage(target: str) -> None:
    """Remove what `stage` brought to `target`."""
    filesystem, base = _filesystem(target)
    # It is not there if already the first segment could not be copied.
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_dir(base)


@contextmanager
def fetched(rows: Range) -> Iterator[Range]:
    """Give a task its rows in a file on its own machine."""
    if _is_plain(rows.path):
        if not os.path.exists(rows.path):
            raise SegmentError(
                rows.path, "not seen by the executor; --staging copies segments where all see them"
            )
        yield rows
        return
    with tempfile.TemporaryDirectory(prefix="geomqtt-task-") as folder:
        copy = os.path.join(folder, "segment.sqlite")
        filesystem, path = _filesystem(rows.path)
        arrow_fs.copy_files(path, copy, source_filesystem=filesystem)
        yield Range(copy, *rows.fields()[1:])


def _filesystem(address: str) -> tuple[arrow_fs.FileSystem, str]:
    if _is_plain(address):
        return arrow_fs.LocalFileSystem(), os.path.abspath(address)
    filesystem, path = arrow_fs.FileSystem.from_uri(address)
    return filesystem, path
