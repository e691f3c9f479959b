"""Opening the store's file: new, current, newer, foreign, or damaged.

A file of a newer schema, or of somebody else, is refused. A damaged one is moved aside,
and every record that can still be read is put into a new file: never a silent fresh start.
"""

import fcntl
import logging
import sqlite3
import time
from pathlib import Path
from typing import IO

from broker.store import StoreError
from broker.store.journal import replay
from broker.store.salvage import PAGE_SIZE, Salvage

log = logging.getLogger("geomqtt.store")

SCHEMA_VERSION = 2
APPLICATION_ID = 0x47654D53  # "GeMS"

# Types and checks are not for our own statements: they show damage when the file is opened.
SCHEMA = """
CREATE TABLE session (id INTEGER PRIMARY KEY, client_id TEXT NOT NULL, username TEXT,
    geo_aware INTEGER NOT NULL CHECK (geo_aware IN (0, 1))) STRICT;
CREATE TABLE subscription (session INTEGER NOT NULL, key BLOB NOT NULL, ordinal INTEGER NOT NULL,
    qos INTEGER NOT NULL CHECK (qos BETWEEN 0 AND 2), deliver INTEGER NOT NULL,
    PRIMARY KEY (session, key)) STRICT, WITHOUT ROWID;
CREATE TABLE message (id INTEGER PRIMARY KEY, topic TEXT NOT NULL, payload BLOB NOT NULL,
    qos INTEGER NOT NULL CHECK (qos BETWEEN 0 AND 2),
    retain INTEGER NOT NULL CHECK (retain IN (0, 1)), client_id TEXT NOT NULL,
    received_ms INTEGER NOT NULL, geo BLOB) STRICT;
CREATE TABLE outgoing (id INTEGER PRIMARY KEY, session INTEGER NOT NULL, message INTEGER NOT NULL,
    qos INTEGER NOT NULL CHECK (qos BETWEEN 1 AND 2),
    retain INTEGER NOT NULL CHECK (retain IN (0, 1)), form BLOB NOT NULL,
    packet_id INTEGER NOT NULL CHECK (packet_id BETWEEN 0 AND 65535),
    state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 2)) STRICT;
CREATE TABLE incoming (session INTEGER NOT NULL,
    packet_id INTEGER NOT NULL CHECK (packet_id BETWEEN 1 AND 65535),
    PRIMARY KEY (session, packet_id)) STRICT, WITHOUT ROWID;
CREATE TABLE retained (topic TEXT PRIMARY KEY, payload BLOB NOT NULL,
    qos INTEGER NOT NULL CHECK (qos BETWEEN 0 AND 2),
    retain INTEGER NOT NULL CHECK (retain IN (0, 1)), client_id TEXT NOT NULL,
    received_ms INTEGER NOT NULL, geo BLOB) STRICT;
CREATE TABLE will (topic TEXT NOT NULL, payload BLOB NOT NULL,
    qos INTEGER NOT NULL CHECK (qos BETWEEN 0 AND 2),
    retain INTEGER NOT NULL CHECK (retain IN (0, 1)), client_id TEXT PRIMARY KEY,
    received_ms INTEGER NOT NULL, geo BLOB, username TEXT) STRICT;
CREATE TABLE location (client_id TEXT PRIMARY KEY, lat REAL NOT NULL, lon REAL NOT NULL,
    elev REAL) STRICT;
CREATE TABLE fence (session INTEGER NOT NULL, name TEXT NOT NULL, payload BLOB NOT NULL,
    lat REAL, lon REAL, PRIMARY KEY (session, name)) STRICT, WITHOUT ROWID;
CREATE TABLE journal (id INTEGER PRIMARY KEY, crc INTEGER NOT NULL, data BLOB NOT NULL) STRICT;
"""
# version -> what makes the next version of it
UPGRADES = {
    1: "CREATE TABLE journal"
    " (id INTEGER PRIMARY KEY, crc INTEGER NOT NULL, data BLOB NOT NULL) STRICT;",
}
TABLES = (
    "session",
    "subscription",
    "message",
    "outgoing",
    "incoming",
    "retained",
    "will",
    "location",
    "fence",
    "journal",
)
_OUR_MARK = b"CREATE TABLE outgoing"
_CORRUPT, _NOT_A_DATABASE = 11, 26  # of SQLite's result codes


class Damaged(Exception):
    """The file is ours and cannot be used as it is."""


def lock(path: Path) -> IO[bytes]:
    """Keep other brokers away from a store as long as the answer lives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_suffix(".lock").open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StoreError(f"data folder {path.parent}: in use by another broker") from None
    return file


def open_store(path: Path) -> sqlite3.Connection:
    """Open the file, making or mending it where needed."""
    try:
        if not path.exists() and _mending(path).exists():
            _mending(path).rename(path)
        if not path.exists() or (path.stat().st_size == 0 and not _wal(path).exists()):
            return _create(path)
        try:
            db = _open(path)
            replay(db)
            return db
        except Damaged as error:
            return _mend(path, str(error))
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"store {path}: {error}") from None


def _open(path: Path) -> sqlite3.Connection:
    """Open a file that is there, if it is ours and sound."""
    if not _header_is_sound(path):
        if _looks_ours(path):
            raise Damaged("its header is broken")
        raise StoreError(f"store {path}: not a GeoMQTT store")
    db = _connect(path)
    try:
        _check(path, db)
        db.execute("PRAGMA journal_mode = WAL")
        return db
    except sqlite3.Error as error:
        db.close()
        if error.sqlite_errorcode & 0xFF in (_CORRUPT, _NOT_A_DATABASE):
            raise Damaged(str(error)) from None
        raise
    except BaseException:
        db.close()
        raise


def _check(path: Path, db: sqlite3.Connection) -> None:
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    application_id = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if application_id != APPLICATION_ID and not names.issuperset(TABLES[:1]):
        raise StoreError(f"store {path}: not a GeoMQTT store")
    while application_id == APPLICATION_ID and version in UPGRADES:
        log.warning("store %s: upgrading from version %d", path, version)
        script = f"BEGIN; {UPGRADES[version]} PRAGMA user_version = {version + 1}; COMMIT;"
        db.executescript(script)
        version += 1
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"store {path}: written by a newer version (schema {version}, this is {SCHEMA_VERSION})"
        )
    if application_id != APPLICATION_ID or version < 1 or not names.issuperset(TABLES):
        raise Damaged("its tables or its version are broken")
    report = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if report != "ok":
        raise Damaged(report)


def _header_is_sound(path: Path) -> bool:
    """Look at what SQLite either trusts or takes for another format."""
    with path.open("rb") as file:
        header = file.read(100)
    return (
        len(header) == 100
        and header.startswith(b"SQLite format 3\0")
        and int.from_bytes(header[16:18], "big") == PAGE_SIZE
        and header[18] == header[19] == 2
        and header[20:24] == bytes((0, 64, 32, 32))
        and int.from_bytes(header[44:48], "big") in (0, 4)
        and int.from_bytes(header[56:60], "big") in (0, 1)
    )


def _looks_ours(path: Path) -> bool:
    """Tell a damaged store from somebody else's file."""
    with path.open("rb") as file:
        start = file.read(PAGE_SIZE)
    if start[68:72] == APPLICATION_ID.to_bytes(4, "big") or _OUR_MARK in start:
        return True
    if not _wal(path).exists():
        return False
    with _wal(path).open("rb") as file:
        return _OUR_MARK in file.read(16 * PAGE_SIZE)


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _mending(path: Path) -> Path:
    return path.with_name(f"{path.name}-mending")


def _connect(path: Path) -> sqlite3.Connection:
    # Whoever else locks the file, a backup perhaps, must not hold up the event loop.
    return sqlite3.connect(path, timeout=0.05, isolation_level=None, cached_statements=64)


def _create(path: Path) -> sqlite3.Connection:
    db = _connect(path)
    db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(
        f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION_ID};"
        f" PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )
    return db


def _mend(path: Path, report: str) -> sqlite3.Connection:
    """Save what can be read of a damaged file, and move it aside.

    The new file is put together under another name and takes its place when it is
    complete: a crash at any moment leaves either the damaged store or the mended one.
    """
    mending = _mending(path)
    for suffix in ("", "-wal", "-shm"):
        mending.with_name(mending.name + suffix).unlink(missing_ok=True)
    db = _create(mending)
    db.execute("BEGIN")
    salvage = Salvage(path, db, SCHEMA)
    salvage.run(TABLES)
    db.execute("COMMIT")
    replay(db, mended=True)
    db.close()
    aside = path.with_name(f"{path.stem}-damaged-{time.time_ns() // 1_000_000}{path.suffix}")
    for suffix in ("-wal", "-shm", ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    mending.rename(path)
    log.error(
        "store %s was damaged (%s): moved to %s, %d records saved, %d unusable, %s",
        path,
        report,
        aside.name,
        salvage.saved,
        salvage.unusable,
        f"not read in full: {', '.join(salvage.broken)}" if salvage.broken else "all tables read",
    )
    return _open(path)
