"""Opening the store's file: new, current, older, newer, or damaged.

A file of a newer schema is refused. A damaged one is moved aside, and every record that
can still be read is put into a new file: never a silent fresh start.
"""

import contextlib
import logging
import sqlite3
import time
from pathlib import Path

from broker.store import StoreError

log = logging.getLogger("geomqtt.store")

SCHEMA_VERSION = 1
APPLICATION_ID = 0x47654D53  # "GeMS"

SCHEMA = """
CREATE TABLE session (id INTEGER PRIMARY KEY, client_id TEXT NOT NULL, username TEXT,
    geo_aware INTEGER NOT NULL);
CREATE TABLE subscription (session INTEGER NOT NULL, key BLOB NOT NULL, ordinal INTEGER NOT NULL,
    qos INTEGER NOT NULL, deliver INTEGER NOT NULL, PRIMARY KEY (session, key)) WITHOUT ROWID;
CREATE TABLE message (id INTEGER PRIMARY KEY, topic TEXT NOT NULL, payload BLOB NOT NULL,
    qos INTEGER NOT NULL, retain INTEGER NOT NULL, client_id TEXT NOT NULL,
    received_ms INTEGER NOT NULL, geo BLOB);
CREATE TABLE outgoing (id INTEGER PRIMARY KEY, session INTEGER NOT NULL, message INTEGER NOT NULL,
    qos INTEGER NOT NULL, retain INTEGER NOT NULL, form BLOB NOT NULL,
    packet_id INTEGER NOT NULL, state INTEGER NOT NULL);
CREATE TABLE incoming (session INTEGER NOT NULL, packet_id INTEGER NOT NULL,
    PRIMARY KEY (session, packet_id)) WITHOUT ROWID;
CREATE TABLE retained (topic TEXT PRIMARY KEY, payload BLOB NOT NULL, qos INTEGER NOT NULL,
    retain INTEGER NOT NULL, client_id TEXT NOT NULL, received_ms INTEGER NOT NULL, geo BLOB);
CREATE TABLE will (topic TEXT NOT NULL, payload BLOB NOT NULL, qos INTEGER NOT NULL,
    retain INTEGER NOT NULL, client_id TEXT PRIMARY KEY, received_ms INTEGER NOT NULL, geo BLOB,
    username TEXT);
CREATE TABLE location (client_id TEXT PRIMARY KEY, lat REAL NOT NULL, lon REAL NOT NULL, elev REAL);
CREATE TABLE fence (session INTEGER NOT NULL, name TEXT NOT NULL, payload BLOB NOT NULL,
    lat REAL, lon REAL, PRIMARY KEY (session, name)) WITHOUT ROWID;
"""
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
)
WITHOUT_ROWID = ("subscription", "incoming", "fence")


def open_store(path: Path) -> sqlite3.Connection:
    """Open the file, making or mending it where needed."""
    try:
        if not path.exists() or path.stat().st_size == 0:
            return _create(path)
        try:
            db = _connect(path)
            found = db.execute("PRAGMA application_id").fetchone()[0]
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if (found, version) == (0, 0) and not db.execute(
                "SELECT count(*) FROM sqlite_master"
            ).fetchone()[0]:
                db.close()
                return _create(path)
            _check_version(path, found, version)
            report = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if report == "ok":
                return db
            db.close()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
                raise
            report = str(error)
        return _mend(path, report)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"store {path}: {error}") from None


def _check_version(path: Path, application_id: int, version: int) -> None:
    if application_id != APPLICATION_ID:
        raise StoreError(f"store {path}: not a GeoMQTT store")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"store {path}: written by a newer version (schema {version}, this is {SCHEMA_VERSION})"
        )


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, cached_statements=64)
    db.execute("PRAGMA journal_mode = WAL")
    return db


def _create(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    db = _connect(path)
    db.executescript(
        f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION_ID};"
        f" PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )
    return db


def _mend(path: Path, report: str) -> sqlite3.Connection:
    """Move a damaged file aside and save what can be read of it."""
    aside = path.with_name(f"{path.stem}-damaged-{time.time_ns() // 1_000_000}{path.suffix}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    db = _create(path)
    saved = lost = 0
    db.execute("BEGIN")
    for table in TABLES:
        good, bad = _salvage(aside, db, table)
        saved += good
        lost += bad
    db.execute("COMMIT")
    log.error(
        "store %s was damaged (%s): moved to %s, %d records saved, %s",
        path,
        report,
        aside.name,
        saved,
        f"reading broke off {lost} times" if lost else "none lost that could be found",
    )
    return db


def _salvage(aside: Path, db: sqlite3.Connection, table: str) -> tuple[int, int]:
    """Copy the rows of one table that can be read, from both ends."""
    good = bad = 0
    order = "session" if table in WITHOUT_ROWID else "rowid"
    for direction in ("ASC", "DESC"):
        try:
            source = sqlite3.connect(f"file:{aside}?mode=ro", uri=True)
            source.text_factory = lambda raw: raw.decode(errors="replace")
            with contextlib.closing(source):
                rows = source.execute(f"SELECT * FROM {table} ORDER BY {order} {direction}")
                for row in rows:
                    marks = ",".join("?" * len(row))
                    with contextlib.suppress(sqlite3.IntegrityError):
                        good += db.execute(
                            f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row
                        ).rowcount
            return good, bad
        except sqlite3.Error:
            bad += 1
    return good, bad
