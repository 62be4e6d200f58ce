-- Messages and their bodies are written in blocks: one for a commit, instead of two rows for each message.
-- `storage/blocks/block_format.py` defines the bytes.
--
-- Blocks are written once. What has died in them since is beside them: a bit for each slot.
--
-- The rows of messages move into blocks, a thousand neighbours in each; `storage/sqlite/migrations.py` lends
-- block_of_messages, which gives the bytes. Bodies stay where they are: large ones are stored as before, and
-- others are read from there until they are deleted.

CREATE TABLE blocks (
    number   INTEGER PRIMARY KEY,
    entries  BLOB NOT NULL,
    payloads BLOB NOT NULL
);

CREATE TABLE dead_slots (
    number   INTEGER PRIMARY KEY,
    rows     BLOB NOT NULL,
    payloads BLOB NOT NULL
);

INSERT INTO blocks (number, entries, payloads)
SELECT
    thousand + 1,
    (
        SELECT block_of_messages(
            id, entity_id, sub_queue, sequence_number, enqueue_sequence_number, enqueued_time_ms,
            time_to_live_ms, expires_at_ms, scheduled_enqueue_time_ms, delivery_count, state, header,
            size, payload_id, session_id, overlay
        )
        FROM messages WHERE id BETWEEN thousand * 1000 AND thousand * 1000 + 999
    ),
    x''
FROM (SELECT DISTINCT id / 1000 AS thousand FROM messages);

DROP TABLE messages;
