-- A small commit overwrites one row of a fixed length here, which is one page of the log, instead of three or four in
-- the tables of blocks. `storage/sqlite/recent_commits.py` defines the bytes, and when they move to the other tables.
--
-- All rows are made at once: a new row would change more pages than one that is overwritten.

CREATE TABLE recent_commits (
    slot INTEGER PRIMARY KEY,
    part BLOB NOT NULL
);

WITH RECURSIVE slots (slot) AS (
    VALUES (0) UNION ALL SELECT slot + 1 FROM slots WHERE slot < 255
)
INSERT INTO recent_commits (slot, part) SELECT slot, zeroblob(4000) FROM slots;
