"""The folder that is exported to: the few file operations the exporter needs, on any file system.

A plain path or `file:` is handled here; everything else (hdfs, s3a, …) by Hadoop's file
systems, through the Java side of the session, just as Spark itself reaches it.
`create` is the commit: it makes a file with its content at once, or finds that it exists.
"""

import contextlib
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from spark_export.segments import ExportError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Target(ABC):
    """File operations below one root; paths are relative to it, with `/` between names."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"

    def url(self, path: str) -> str:
        """Give the address of a file or folder, for Spark."""
        return f"{self.root}/{path}" if path else self.root

    @abstractmethod
    def make_folder(self, path: str) -> None: ...

    @abstractmethod
    def names(self, path: str) -> list[str]:
        """List a folder, sorted; one that does not exist is empty."""

    @abstractmethod
    def files(self, path: str) -> list[tuple[str, int]]:
        """List (path, size) of all files below a folder, sorted."""

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def read(self, path: str) -> bytes: ...

    @abstractmethod
    def read_end(self, path: str, count: int) -> bytes:
        """Read the last bytes of a file."""

    @abstractmethod
    def create(self, path: str, content: bytes) -> bool:
        """Make a file with its content in one step; False if it is there already."""

    @abstractmethod
    def replace_end(self, path: str, count: int, content: bytes) -> None:
        """Put other bytes in the place of the last ones of a file that nobody reads yet."""

    @abstractmethod
    def move(self, source: str, destination: str) -> bool:
        """Rename a file; False if the source is not there."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete a file or a folder; one that is not there is as good as deleted."""

    @abstractmethod
    def age_s(self, path: str, now: float) -> float:
        """Tell how long ago a folder was changed."""


def open_target(address: str, spark: "SparkSession | None" = None) -> Target:
    """Choose the file system by the address."""
    parts = urlsplit(address)
    if len(parts.scheme) > 1 and parts.scheme != "file":
        if spark is None:
            raise ExportError(f"{address}: only Spark reaches that file system")
        return HadoopTarget(address, spark)
    path = unquote(parts.path) if parts.scheme == "file" else address
    return LocalTarget(os.path.abspath(path))


class LocalTarget(Target):
    """A folder of this machine, or one mounted on it."""

    def _path(self, path: str) -> Path:
        return Path(self.root, path)

    def url(self, path: str) -> str:
        return str(self._path(path))

    def make_folder(self, path: str) -> None:
        try:
            self._path(path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExportError(f"cannot write to {self.root}: {error.strerror}") from error

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(path)))
        except FileNotFoundError:
            return []

    def files(self, path: str) -> list[tuple[str, int]]:
        found = []
        for folder, _, names in os.walk(self._path(path)):
            for name in names:
                full = Path(folder, name)
                found.append((full.relative_to(self.root).as_posix(), full.stat().st_size))
        return sorted(found)

    def exists(self, path: str) -> bool:
        return self._path(path).exists()

    def read(self, path: str) -> bytes:
        return self._path(path).read_bytes()

    def read_end(self, path: str, count: int) -> bytes:
        with self._path(path).open("rb") as file:
            file.seek(-min(count, os.fstat(file.fileno()).st_size), os.SEEK_END)
            return file.read()

    def create(self, path: str, content: bytes) -> bool:
        final = self._path(path)
        passing = final.with_name(f".{final.name}.{uuid.uuid4().hex}")
        try:
            with passing.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            # A link fails where a rename would quietly take the other's place.
            os.link(passing, final)
        except FileExistsError:
            return False
        except OSError as error:
            raise ExportError(f"cannot write to {self.root}: {error.strerror}") from error
        finally:
            passing.unlink(missing_ok=True)
        folder = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True

    def replace_end(self, path: str, count: int, content: bytes) -> None:
        with self._path(path).open("r+b") as file:
            file.seek(-count, os.SEEK_END)
            file.truncate()
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # Hadoop's checksum beside it is of the bytes before; without one it reads unchecked.
        full = self._path(path)
        full.with_name(f".{full.name}.crc").unlink(missing_ok=True)

    def move(self, source: str, destination: str) -> bool:
        self.make_folder(destination.rpartition("/")[0])
        try:
            os.rename(self._path(source), self._path(destination))
        except FileNotFoundError:
            return False
        return True

    def remove(self, path: str) -> None:
        full = self._path(path)
        if full.is_dir():
            shutil.rmtree(full, ignore_errors=True)
        else:
            full.unlink(missing_ok=True)

    def age_s(self, path: str, now: float) -> float:
        with contextlib.suppress(FileNotFoundError):
            return now - self._path(path).stat().st_mtime
        return 0.0


class HadoopTarget(Target):
    """Any file system Hadoop knows. Exactly-once leans on its rename refusing to overwrite."""

    def __init__(self, root: str, spark: "SparkSession") -> None:
        super().__init__(root)
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._configuration = context._jsc.hadoopConfiguration()
        try:
            self._fs = self._path("").getFileSystem(self._configuration)
        except Exception as error:
            raise ExportError(f"cannot open {root}: {_reason(error)}") from error

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.url(path))

    def make_folder(self, path: str) -> None:
        try:
            made = self._fs.mkdirs(self._path(path))
        except Exception as error:
            raise ExportError(f"cannot write to {self.root}: {_reason(error)}") from error
        if not made:
            raise ExportError(f"cannot write to {self.root}")

    def names(self, path: str) -> list[str]:
        if not self.exists(path):
            return []
        return sorted(
            status.getPath().getName() for status in self._fs.listStatus(self._path(path))
        )

    def files(self, path: str) -> list[tuple[str, int]]:
        if not self.exists(path):
            return []
        found, pending = [], [path]
        while pending:
            folder = pending.pop()
            for status in self._fs.listStatus(self._path(folder)):
                name = f"{folder}/{status.getPath().getName()}"
                if status.isDirectory():
                    pending.append(name)
                else:
                    found.append((name, int(status.getLen())))
        return sorted(found)

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._path(path)))

    def read(self, path: str) -> bytes:
        stream = self._fs.open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def read_end(self, path: str, count: int) -> bytes:
        size = int(self._fs.getFileStatus(self._path(path)).getLen())
        stream = self._fs.open(self._path(path))
        try:
            stream.seek(size - min(count, size))
            return bytes(stream.readNBytes(min(count, size)))
        finally:
            stream.close()

    def create(self, path: str, content: bytes) -> bool:
        folder, _, name = path.rpartition("/")
        passing = f"{folder}/.{name}.{uuid.uuid4().hex}"
        self._write(passing, content)
        if self.exists(path) or not self._rename(passing, path):
            self.remove(passing)
            return False
        return True

    def _rename(self, source: str, destination: str) -> bool:
        """Rename without ever taking another file's place."""
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            self._path("").toUri(), self._configuration
        )
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._jvm.java.lang.reflect.Array.newInstance(rename.NONE.getClass(), 1)
        options[0] = rename.NONE
        try:
            context.rename(self._path(source), self._path(destination), options)
        except Exception as error:
            if "FileAlreadyExists" in str(error):
                return False
            raise ExportError(f"cannot write to {self.root}: {_reason(error)}") from error
        return True

    def _write(self, path: str, content: bytes) -> None:
        try:
            stream = self._fs.create(self._path(path), True)
            stream.write(bytearray(content))
            stream.close()
        except Exception as error:
            raise ExportError(f"cannot write to {self.root}: {_reason(error)}") from error

    def replace_end(self, path: str, count: int, content: bytes) -> None:
        # Such file systems cannot change a file, so its bytes are copied, on the Java side.
        passing = f"{path}.passing"
        keep = int(self._fs.getFileStatus(self._path(path)).getLen()) - count
        source = self._fs.open(self._path(path))
        stream = self._fs.create(self._path(passing), True)
        try:
            self._jvm.org.apache.hadoop.io.IOUtils.copyBytes(source, stream, keep, False)
            stream.write(bytearray(content))
        finally:
            stream.close()
            source.close()
        self.remove(path)
        self._fs.rename(self._path(passing), self._path(path))

    def move(self, source: str, destination: str) -> bool:
        if not self.exists(source):
            return False
        self.make_folder(destination.rpartition("/")[0])
        return bool(self._fs.rename(self._path(source), self._path(destination)))

    def remove(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def age_s(self, path: str, now: float) -> float:
        if not self.exists(path):
            return 0.0
        return now - int(self._fs.getFileStatus(self._path(path)).getModificationTime()) / 1000


def _reason(error: Exception) -> str:
    return str(getattr(error, "java_exception", error)).splitlines()[0]
