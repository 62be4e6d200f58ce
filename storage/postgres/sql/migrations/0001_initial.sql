-- The first schema. Never edited once released: a change is a new numbered file.
--
-- The tables are those of the SQLite store (`storage/blocks` says what is in a block). Texts are bytes in
-- UTF-8: they may contain every character, and the type text has no place for NUL.

-- Which broker may commit. Every commit increases commit_number, in the same transaction.
CREATE TABLE ownership (
    only_row      boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch         bigint  NOT NULL,
    commit_number bigint  NOT NULL,
    owner         text    NOT NULL
) WITH (fillfactor = 10);

INSERT INTO ownership (epoch, commit_number, owner) VALUES (0, 0, '');

-- Apart from ownership, whose row a long commit locks. The counter never goes back, so it is not reset by a new owner.
CREATE TABLE heartbeat (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch    bigint  NOT NULL,
    counter  bigint  NOT NULL
) WITH (fillfactor = 10);

INSERT INTO heartbeat (epoch, counter) VALUES (0, 0);

-- The first statement of every commit. It raises an error, which ends the transaction, unless the caller is the owner
-- and this is its next commit. A commit whose answer was lost is sent again with the same number.
CREATE FUNCTION begin_commit(my_epoch bigint, my_number bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    found_epoch  bigint;
    found_number bigint;
BEGIN
    UPDATE ownership SET commit_number = my_number
    WHERE epoch = my_epoch AND commit_number = my_number - 1;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT epoch, commit_number INTO found_epoch, found_number FROM ownership;
    IF found_epoch IS DISTINCT FROM my_epoch THEN
        RAISE EXCEPTION 'epoch % has ended', my_epoch USING ERRCODE = 'PK001';
    ELSIF found_number = my_number THEN
        RAISE EXCEPTION 'commit % is there already', my_number USING ERRCODE = 'PK002';
    ELSE
        RAISE EXCEPTION 'commit % cannot follow %', my_number, found_number USING ERRCODE = 'PK003';
    END IF;
END
$$;

-- EXTERNAL: bodies are not compressed, which would take longer than writing them.
CREATE TABLE blocks (
    number   bigint PRIMARY KEY,
    entries  bytea  NOT NULL,
    payloads bytea  NOT NULL
) WITH (
    autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.1,
    toast.autovacuum_vacuum_threshold = 20000, toast.autovacuum_vacuum_scale_factor = 0.1
);
ALTER TABLE blocks ALTER COLUMN entries SET STORAGE EXTERNAL;
ALTER TABLE blocks ALTER COLUMN payloads SET STORAGE EXTERNAL;

CREATE TABLE dead_slots (
    number   bigint PRIMARY KEY,
    rows     bytea  NOT NULL,
    payloads bytea  NOT NULL
) WITH (fillfactor = 50);
ALTER TABLE dead_slots ALTER COLUMN rows SET STORAGE EXTERNAL;
ALTER TABLE dead_slots ALTER COLUMN payloads SET STORAGE EXTERNAL;

-- Large bodies, outside of blocks.
CREATE TABLE payloads (
    id          bigint PRIMARY KEY,
    body        bytea  NOT NULL,
    annotations bytea  NOT NULL
);
ALTER TABLE payloads ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE payloads ALTER COLUMN annotations SET STORAGE EXTERNAL;

CREATE TABLE namespaces (
    name       bytea PRIMARY KEY,
    definition bytea NOT NULL
);

CREATE TABLE entities (
    entity_id       bigint PRIMARY KEY,
    namespace       bytea  NOT NULL,
    kind            bytea  NOT NULL,
    path            bytea  NOT NULL,
    definition      bytea  NOT NULL,
    created_time_ms bigint NOT NULL,
    updated_time_ms bigint NOT NULL
);

CREATE TABLE rules (
    entity_id  bigint NOT NULL,
    number     bigint NOT NULL,
    definition bytea  NOT NULL,
    PRIMARY KEY (entity_id, number)
);

-- The highest number that each queue ever gave out; its message may be deleted.
CREATE TABLE sequence_numbers (
    entity_id       bigint NOT NULL,
    sub_queue       bigint NOT NULL,
    sequence_number bigint NOT NULL,
    PRIMARY KEY (entity_id, sub_queue)
) WITH (fillfactor = 20);

CREATE TABLE session_states (
    entity_id       bigint NOT NULL,
    session_id      bytea  NOT NULL,
    state           bytea  NOT NULL,
    updated_time_ms bigint NOT NULL,
    PRIMARY KEY (entity_id, session_id)
);

-- Duplicate detection: what was seen, and when it leaves the window.
CREATE TABLE message_ids (
    entity_id  bigint NOT NULL,
    message_id bytea  NOT NULL,
    until_ms   bigint NOT NULL,
    PRIMARY KEY (entity_id, message_id)
);

CREATE INDEX message_ids_by_time ON message_ids (entity_id, until_ms);
