"""One at a time: a lock file that the kernel lets go of when its holder dies."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from spark_export.segments import ExportError


class Busy(ExportError):
    """Somebody else holds the lock."""


@contextmanager
def locked(path: str, what: str) -> Iterator[None]:
    """Hold a lock file, or say who does."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode(errors="replace").strip()
            raise Busy(f"another {what} is at work ({holder or 'just started'})") from None
        os.ftruncate(descriptor, 0)
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        os.write(descriptor, f"process {os.getpid()}, since {since}\n".encode())
        yield
    finally:
        os.close(descriptor)
