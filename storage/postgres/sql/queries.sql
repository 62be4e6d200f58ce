-- Every statement that the PostgreSQL store prepares, by name.
--
-- The type that follows each parameter says how the store encodes it. A statement for many rows gets an array for each
-- column.

-- name: begin_commit
SELECT begin_commit($1::bigint, $2::bigint)

-- name: skip_commit
UPDATE ownership SET commit_number = $2::bigint
WHERE epoch = $1::bigint AND commit_number BETWEEN $2::bigint - 2 AND $2::bigint

-- name: insert_block
INSERT INTO blocks (number, entries, payloads) VALUES ($1::bigint, $2::bytea, $3::bytea)

-- name: delete_blocks
DELETE FROM blocks WHERE number = ANY ($1::bigint[])

-- name: set_dead_slots
INSERT INTO dead_slots (number, rows, payloads)
SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])
ON CONFLICT (number) DO UPDATE SET rows = excluded.rows, payloads = excluded.payloads

-- name: delete_dead_slots
DELETE FROM dead_slots WHERE number = ANY ($1::bigint[])

-- name: insert_payload
INSERT INTO payloads (id, body, annotations) VALUES ($1::bigint, $2::bytea, $3::bytea)

-- name: delete_payloads
DELETE FROM payloads WHERE id = ANY ($1::bigint[])

-- name: raise_sequence_numbers
INSERT INTO sequence_numbers AS known (entity_id, sub_queue, sequence_number)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])
ON CONFLICT (entity_id, sub_queue) DO UPDATE SET sequence_number = excluded.sequence_number
WHERE excluded.sequence_number > known.sequence_number

-- name: set_session_states
INSERT INTO session_states (entity_id, session_id, state, updated_time_ms)
SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[])
ON CONFLICT (entity_id, session_id)
DO UPDATE SET state = excluded.state, updated_time_ms = excluded.updated_time_ms

-- name: clear_session_state
DELETE FROM session_states WHERE entity_id = $1::bigint AND session_id = $2::bytea

-- name: remember_message_ids
INSERT INTO message_ids (entity_id, message_id, until_ms)
SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[])
ON CONFLICT (entity_id, message_id) DO UPDATE SET until_ms = excluded.until_ms

-- name: forget_message_ids
DELETE FROM message_ids WHERE entity_id = $1::bigint AND until_ms <= $2::bigint

-- name: delete_message_ids
DELETE FROM message_ids WHERE entity_id = $1::bigint AND message_id = ANY ($2::bytea[])

-- name: set_entities
INSERT INTO entities
    (entity_id, namespace, kind, path, definition, created_time_ms, updated_time_ms)
SELECT * FROM unnest(
    $1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bigint[], $7::bigint[]
)
ON CONFLICT (entity_id) DO UPDATE SET
    namespace = excluded.namespace, kind = excluded.kind, path = excluded.path,
    definition = excluded.definition, created_time_ms = excluded.created_time_ms,
    updated_time_ms = excluded.updated_time_ms

-- name: set_namespaces
INSERT INTO namespaces (name, definition)
SELECT * FROM unnest($1::bytea[], $2::bytea[])
ON CONFLICT (name) DO UPDATE SET definition = excluded.definition

-- name: delete_namespaces
DELETE FROM namespaces WHERE name = ANY ($1::bytea[])

-- name: set_rules
INSERT INTO rules (entity_id, number, definition)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])
ON CONFLICT (entity_id, number) DO UPDATE SET definition = excluded.definition

-- name: delete_rules
DELETE FROM rules WHERE entity_id = $1::bigint AND number = ANY ($2::bigint[])

-- What belongs to deleted entities.

-- name: delete_sequence_numbers_of_entities
DELETE FROM sequence_numbers WHERE entity_id = ANY ($1::bigint[])

-- name: delete_session_states_of_entities
DELETE FROM session_states WHERE entity_id = ANY ($1::bigint[])

-- name: delete_rules_of_entities
DELETE FROM rules WHERE entity_id = ANY ($1::bigint[])

-- name: delete_entities
DELETE FROM entities WHERE entity_id = ANY ($1::bigint[])

-- Reading bodies, and blocks that are written again.

-- name: read_blocks
SELECT number, entries, payloads FROM blocks WHERE number = ANY ($1::bigint[])

-- name: read_payloads
SELECT id, body, annotations FROM payloads WHERE id = ANY ($1::bigint[])

-- name: highest_payload_id
SELECT coalesce(max(id), 0) FROM payloads

-- Ownership. The epochs of both tables are always the same. `heartbeat` is changed first, so that no two brokers wait
-- for each other.

-- name: lock
SELECT pg_try_advisory_lock($1::bigint)

-- name: lock_shared
SELECT pg_advisory_lock_shared($1::bigint)

-- name: unlock
SELECT pg_advisory_unlock_all()

-- name: begin_epoch
WITH next AS (
    UPDATE heartbeat SET epoch = epoch + 1, counter = counter + 1
    RETURNING epoch
)
UPDATE ownership SET epoch = next.epoch, commit_number = 0, owner = $1::text
FROM next
RETURNING ownership.epoch

-- name: begin_epoch_if_silent
WITH next AS (
    UPDATE heartbeat SET epoch = epoch + 1, counter = counter + 1
    WHERE counter = $2::bigint
    RETURNING epoch
)
UPDATE ownership SET epoch = next.epoch, commit_number = 0, owner = $1::text
FROM next
RETURNING ownership.epoch

-- name: heartbeat
UPDATE heartbeat SET counter = counter + 1 WHERE epoch = $1::bigint RETURNING counter

-- name: lease
SELECT ownership.epoch, counter, convert_to(owner, 'UTF8') FROM ownership, heartbeat

-- name: release
UPDATE ownership SET owner = '' WHERE epoch = $1::bigint

-- Ends the sessions that have one of these advisory locks: those of the owner. pg_locks shows the two halves of the key.

-- name: end_sessions
SELECT pg_terminate_backend(pid)
FROM (
    SELECT DISTINCT pid FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND pid <> pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND ((classid::bigint << 32) | objid::bigint) = ANY ($1::bigint[])
) AS sessions
