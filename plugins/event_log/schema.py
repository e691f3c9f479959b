"""The event log on disk: one SQLite file per UTC day of receipt, `<data>/log/2026-03-28.sqlite`.

Readers (REST, map, Spark) use the view `event`, which spells out what the table packs:
topics and client ids are interned, a point is its coordinates and no WKB, an event
without a time of its own has the time of receipt. `cell` is the place index: a Morton
number at a fixed level in an ordinary index, because SQLite's R*Tree costs 14 µs a row
where the row itself costs 1.6.
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

# Made when a segment is created: the writer pays for them on every row, so they are few.
INDEXES = """
CREATE INDEX packed_topic ON packed (topic, id);
CREATE INDEX packed_cell ON packed (cell) WHERE cell IS NOT NULL;
"""
