"""The event log on disk: one SQLite file per UTC day of receipt, `<data>/log/2026-03-28.sqlite`.

Readers (REST, map, Spark) use the view `event`, which spells out what the table packs:
topics and client ids are interned, a point is its coordinates and no WKB, an event
without a time of its own has the time of receipt. `cell` is the Morton number of the
middle of the place's box (cells.py): places close together have numbers close together.

The table itself has no index: rows are appended in the order of their ids. Ordinary indexes
on `(topic, id)` and `cell` doubled the time of a row in the first two million, and points
come in any order, so it grows with the day. Instead every run of 65,536 ids is summed up
once, when it is full: what topics and clients it holds and where, what times it spans, and
its places in sorted blocks. That costs the writer 0.2 µs and at most 17 bytes a row, and
index.py can find anything with it. Rows behind the last run that is summed up are few
enough to be looked at one by one. tests/bench/event_log_writer.py measures the whole.
"""

SCHEMA_VERSION = 1  # PRAGMA user_version
APPLICATION_ID = 0x47654D51  # PRAGMA application_id, "GeMQ"
FOLDER = "log"

QOS_MASK = 0x03
RETAIN_FLAG = 0x04
GEO_FLAG = 0x08  # the event carried a place: GEOPUBLISH, `$geo/` or PUBLISHg

SCHEMA = """
CREATE TABLE topic (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE client (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE packed (
    id INTEGER PRIMARY KEY,        -- counts up in order of acceptance
    received_ms INTEGER NOT NULL,
    start_ms INTEGER,              -- NULL: the event has no time of its own
    end_ms INTEGER,                -- NULL: an instant
    topic INTEGER NOT NULL,
    client INTEGER NOT NULL,
    flags INTEGER NOT NULL,        -- QoS, retain, geo
    epsg INTEGER,                  -- as sent; NULL: 4326
    sent BLOB,                     -- WKB as sent, where that is not 4326
    wkb BLOB,                      -- in 4326; NULL: a point without elevation, or no place
    min_x REAL, min_y REAL,
    max_x REAL, max_y REAL,        -- NULL: a point
    cell INTEGER,                  -- NULL: no place
    payload BLOB NOT NULL
) STRICT;
CREATE VIEW event AS
SELECT e.id, e.received_ms,
       coalesce(e.start_ms, e.received_ms) AS start_ms,
       coalesce(e.end_ms, e.start_ms, e.received_ms) AS end_ms,
       e.start_ms IS NOT NULL AS has_time,
       t.name AS topic, c.name AS client_id,
       e.flags & 3 AS qos, e.flags >> 2 & 1 AS retain, e.flags >> 3 & 1 AS geo,
       coalesce(e.epsg, 4326) AS epsg, e.sent, e.wkb,
       e.min_x, e.min_y, coalesce(e.max_x, e.min_x) AS max_x, coalesce(e.max_y, e.min_y) AS max_y,
       e.cell, e.payload
FROM packed e JOIN topic t ON t.id = e.topic JOIN client c ON c.id = e.client;
"""

# Made when a segment is created; index.py has the meaning of the blobs.
INDEXES = """
CREATE TABLE run (
    id INTEGER PRIMARY KEY,        -- packed.id >> 16
    last_id INTEGER NOT NULL,      -- the last row that is summed up here
    min_received_ms INTEGER NOT NULL, max_received_ms INTEGER NOT NULL,
    min_start_ms INTEGER NOT NULL, max_end_ms INTEGER NOT NULL,
    places INTEGER NOT NULL,       -- how many rows have a place
    topics BLOB NOT NULL, clients BLOB NOT NULL,
    topic_codes BLOB, client_codes BLOB, placed BLOB
) STRICT;
CREATE TABLE place (
    run INTEGER NOT NULL, block INTEGER NOT NULL,
    min_x REAL NOT NULL, min_y REAL NOT NULL, max_x REAL NOT NULL, max_y REAL NOT NULL,
    offsets BLOB NOT NULL, boxes BLOB NOT NULL,
    PRIMARY KEY (run, block)
) STRICT, WITHOUT ROWID;
CREATE TABLE progress (            -- one row: what the writer has done here
    id INTEGER PRIMARY KEY CHECK (id = 1),
    session TEXT NOT NULL,         -- the broker run that the sequence belongs to
    sequence INTEGER NOT NULL,     -- its last batch that is in this segment
    next_id INTEGER NOT NULL       -- ids are never given out twice
) STRICT;
"""
