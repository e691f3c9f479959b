"""Messages under way, as one record a commit instead of several rows a message.

Most messages are delivered and gone within a moment. Writing each into its tables and
deleting it again costs four times what a record of the whole group costs, so groups are
appended to the table `journal`, and only what is still there when the journal has grown is
written into the tables. At start the journal is played back into them.

Every record carries a checksum; one that does not fit is left out and reported.
"""

import logging
import sqlite3
from typing import Any
from zlib import crc32

import msgspec

log = logging.getLogger("geomqtt.store")

CHANGE = (
    "UPDATE outgoing SET packet_id = CASE ?1 WHEN 0 THEN packet_id ELSE ?1 END,"
    " state = ?2 WHERE id = ?3"
)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[list[Any], list[Any], list[Any], list[int], list[Any]])


class Group:
    """What has happened to messages under way since the last commit, in the order of columns."""

    __slots__ = ("changed", "incoming", "messages", "outgoing", "removed")

    def __init__(self) -> None:
        self.messages: list[tuple[Any, ...]] = []
        self.outgoing: list[tuple[Any, ...]] = []
        self.changed: list[tuple[int, int, int]] = []  # packet id or 0, state, row
        self.removed: list[int] = []  # rows of outgoing
        self.incoming: list[tuple[int, int, bool]] = []  # session, packet id, whether it is there

    def append_to(self, db: sqlite3.Connection) -> int:
        """Write the group as one record, and tell how large it is."""
        data = _encode((self.messages, self.outgoing, self.changed, self.removed, self.incoming))
        db.execute("INSERT INTO journal (crc, data) VALUES (?, ?)", (crc32(data), data))
        return len(data)


def replay(db: sqlite3.Connection, *, mended: bool = False) -> None:
    """Bring the journal into the tables, in one transaction."""
    records = db.execute("SELECT id, crc, data FROM journal ORDER BY id").fetchall()
    if not records and not mended:
        return
    db.execute("BEGIN IMMEDIATE")
    bad = sum(not _play(db, crc, data) for _, crc, data in records)
    db.execute("DELETE FROM journal")
    for table in ("subscription", "outgoing", "incoming", "fence"):
        db.execute(f"DELETE FROM {table} WHERE session NOT IN (SELECT id FROM session)")
    db.execute("DELETE FROM outgoing WHERE message NOT IN (SELECT id FROM message)")
    db.execute("DELETE FROM message WHERE id NOT IN (SELECT message FROM outgoing)")
    db.execute("COMMIT")
    if bad:
        log.error("store: %d of %d records of the journal are damaged: left out", bad, len(records))


def _play(db: sqlite3.Connection, crc: int, data: bytes) -> bool:
    """Apply one record; False if it cannot be right."""
    if crc32(data) != crc:
        return False
    try:
        messages, outgoing, changed, removed, incoming = _decode.decode(data)
        db.executemany("INSERT OR REPLACE INTO message VALUES (?,?,?,?,?,?,?,?)", messages)
        db.executemany("INSERT OR REPLACE INTO outgoing VALUES (?,?,?,?,?,?,?,?)", outgoing)
        db.executemany(CHANGE, changed)
        db.executemany("DELETE FROM outgoing WHERE id = ?", [(row,) for row in removed])
        for session, packet_id, there in incoming:
            if there:
                db.execute("INSERT OR REPLACE INTO incoming VALUES (?,?)", (session, packet_id))
            else:
                db.execute(
                    "DELETE FROM incoming WHERE session = ? AND packet_id = ?", (session, packet_id)
                )
    except (msgspec.DecodeError, sqlite3.IntegrityError):
        return False
    return True
