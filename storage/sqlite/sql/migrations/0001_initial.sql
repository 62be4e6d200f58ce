-- The first schema. Never edited once released: a change is a new numbered file.
--
-- Ids rise, so tables keyed by them are written at their end and emptied from their front. There is
-- no index on messages beside its key: reading them in order happens once, at start, and an index
-- would be paid for by every message.

PRAGMA application_id = 0x5065656B;  -- "Peek": tells our files from those of other programs

CREATE TABLE entities (
    entity_id       INTEGER PRIMARY KEY,
    namespace       TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    definition      TEXT    NOT NULL,
    created_time_ms INTEGER NOT NULL,
    updated_time_ms INTEGER NOT NULL
);

CREATE TABLE messages (
    id                        INTEGER PRIMARY KEY,
    entity_id                 INTEGER NOT NULL,
    sub_queue                 INTEGER NOT NULL,
    sequence_number           INTEGER NOT NULL,
    enqueue_sequence_number   INTEGER NOT NULL,
    enqueued_time_ms          INTEGER NOT NULL,
    time_to_live_ms           INTEGER,
    expires_at_ms             INTEGER NOT NULL,
    scheduled_enqueue_time_ms INTEGER NOT NULL,
    delivery_count            INTEGER NOT NULL,
    state                     INTEGER NOT NULL,
    header                    INTEGER NOT NULL,
    size                      INTEGER NOT NULL,
    payload_id                INTEGER NOT NULL,
    session_id                TEXT,
    overlay                   BLOB
);

-- Apart from messages: updating one never rewrites its body, and loading them never reads bodies.
CREATE TABLE payloads (
    id          INTEGER PRIMARY KEY,
    annotations BLOB NOT NULL,
    body        BLOB NOT NULL
);

-- The highest number each queue ever gave out; its message may be long gone.
CREATE TABLE sequence_numbers (
    entity_id       INTEGER NOT NULL,
    sub_queue       INTEGER NOT NULL,
    sequence_number INTEGER NOT NULL,
    PRIMARY KEY (entity_id, sub_queue)
) WITHOUT ROWID;

CREATE TABLE session_states (
    entity_id       INTEGER NOT NULL,
    session_id      TEXT    NOT NULL,
    updated_time_ms INTEGER NOT NULL,
    state           BLOB    NOT NULL,
    PRIMARY KEY (entity_id, session_id)
);

-- Duplicate detection: what was seen, and when it leaves the window.
CREATE TABLE message_ids (
    entity_id  INTEGER NOT NULL,
    message_id TEXT    NOT NULL,
    until_ms   INTEGER NOT NULL,
    PRIMARY KEY (entity_id, message_id)
) WITHOUT ROWID;

CREATE INDEX message_ids_by_time ON message_ids (entity_id, until_ms);
