-- Brokers with version 5 of the schema wrote small commits to rows of this table, and moved them to the tables of blocks
-- later. `storage/sqlite/recent_commits.py` reads what they left. Later versions keep it empty.

CREATE TABLE recent_commits (
    slot INTEGER PRIMARY KEY,
    part BLOB NOT NULL
);
