-- Most commits are appended to a file beside the database, and move to the tables later. This is the number of the last
-- one that has moved. The id is in the checksums of that file, so that one of another database is not read.
-- `storage/sqlite/commit_journal.py` defines the file.
--
-- It takes the place of the table `recent_commits`, which is emptied when a file of version 5 is opened.

CREATE TABLE journal (
    store_id BLOB NOT NULL,
    moved_number INTEGER NOT NULL
);

INSERT INTO journal (store_id, moved_number) VALUES (randomblob(16), 0);
