-- Every statement the SQLite store runs, by name.
--
-- `{many X}` stands for X repeated, as many times as there are rows or ids to handle at once. There
-- are few sizes, so that statements are prepared once: rows that are left over are padding, cut off
-- by LIMIT, and ids that are left over repeat the last one.
--
-- NULLIF(?, -1): binding None costs Python twenty times what binding an integer does.
--
-- OR FAIL: a failed batch is rolled back whole, so the statement needs no journal of its own.

-- name: insert_block
INSERT OR FAIL INTO blocks (number, entries, payloads) VALUES (?, ?, ?)

-- name: delete_blocks
DELETE FROM blocks WHERE number IN ({many ?})

-- name: delete_block_range
DELETE FROM blocks WHERE number BETWEEN ? AND ?

-- name: set_dead_slots
REPLACE INTO dead_slots (number, rows, payloads)
SELECT * FROM (VALUES {many (?, ?, ?)})
LIMIT ?

-- name: delete_dead_slots
DELETE FROM dead_slots WHERE number IN ({many ?})

-- name: delete_dead_slot_range
DELETE FROM dead_slots WHERE number BETWEEN ? AND ?

-- name: insert_payloads
INSERT OR FAIL INTO payloads (id, body, annotations)
SELECT * FROM (VALUES {many (?, ?, ?)})
LIMIT ?

-- name: insert_zeros
INSERT OR FAIL INTO payloads (id, annotations, body) VALUES (?, ?, zeroblob(?))

-- name: delete_payloads
DELETE FROM payloads WHERE id IN ({many ?})

-- name: delete_payload_range
DELETE FROM payloads WHERE id BETWEEN ? AND ?

-- name: raise_sequence_numbers
INSERT INTO sequence_numbers (entity_id, sub_queue, sequence_number)
SELECT * FROM (VALUES {many (?, ?, ?)}) WHERE true
LIMIT ?
ON CONFLICT (entity_id, sub_queue)
DO UPDATE SET sequence_number = excluded.sequence_number
WHERE excluded.sequence_number > sequence_number

-- name: set_moved_number
UPDATE journal SET moved_number = ?

-- name: delete_recent_parts
DELETE FROM recent_commits

-- name: set_session_states
REPLACE INTO session_states (entity_id, session_id, state, updated_time_ms)
SELECT * FROM (VALUES {many (?, ?, ?, ?)})
LIMIT ?

-- name: clear_session_state
DELETE FROM session_states WHERE entity_id = ? AND session_id = ?

-- name: remember_message_ids
REPLACE INTO message_ids (entity_id, message_id, until_ms)
SELECT * FROM (VALUES {many (?, ?, ?)})
LIMIT ?

-- name: forget_message_ids
DELETE FROM message_ids WHERE entity_id = ? AND until_ms <= ?

-- name: delete_message_ids
DELETE FROM message_ids WHERE entity_id = ? AND message_id IN ({many ?})

-- name: set_entities
REPLACE INTO entities
    (entity_id, namespace, kind, path, definition, created_time_ms, updated_time_ms)
SELECT * FROM (VALUES {many (?, ?, ?, ?, ?, ?, ?)})
LIMIT ?

-- name: set_namespaces
REPLACE INTO namespaces (name, definition)
SELECT * FROM (VALUES {many (?, ?)})
LIMIT ?

-- name: delete_namespaces
DELETE FROM namespaces WHERE name IN (SELECT value FROM json_each(?))

-- name: set_rules
REPLACE INTO rules (entity_id, number, definition)
SELECT * FROM (VALUES {many (?, ?, ?)})
LIMIT ?

-- name: delete_rules
DELETE FROM rules WHERE entity_id = ? AND number IN (SELECT value FROM json_each(?))

-- What belongs to deleted entities; the value is a JSON array.

-- name: delete_sequence_numbers_of_entities
DELETE FROM sequence_numbers WHERE entity_id IN (SELECT value FROM json_each(?))

-- name: delete_session_states_of_entities
DELETE FROM session_states WHERE entity_id IN (SELECT value FROM json_each(?))

-- name: delete_rules_of_entities
DELETE FROM rules WHERE entity_id IN (SELECT value FROM json_each(?))

-- name: delete_entities
DELETE FROM entities WHERE entity_id IN (SELECT value FROM json_each(?))

-- Reading.

-- name: namespaces
SELECT name, definition FROM namespaces ORDER BY name

-- name: entities
SELECT entity_id, namespace, kind, path, definition, created_time_ms, updated_time_ms
FROM entities ORDER BY entity_id

-- name: rules
SELECT entity_id, number, definition FROM rules ORDER BY entity_id, number

-- name: sequence_numbers
SELECT entity_id, sub_queue, sequence_number FROM sequence_numbers

-- name: highest_payload_id
SELECT ifnull(max(id), 0) FROM payloads

-- name: blocks
SELECT number, entries, length(blocks.payloads), dead_slots.rows, dead_slots.payloads
FROM blocks LEFT JOIN dead_slots USING (number)
ORDER BY number

-- name: block
SELECT number, entries, payloads FROM blocks WHERE number = ?

-- name: block_entries
SELECT number, entries FROM blocks ORDER BY number

-- name: recent_parts
SELECT part FROM recent_commits ORDER BY slot

-- name: journal
SELECT store_id, moved_number FROM journal

-- name: session_states
SELECT entity_id, session_id, state, updated_time_ms
FROM session_states ORDER BY entity_id, session_id

-- name: message_ids
SELECT entity_id, message_id, until_ms FROM message_ids

-- name: payloads
SELECT id, body, annotations FROM payloads WHERE id IN ({many ?})

-- name: payload_range
SELECT id, body, annotations FROM payloads WHERE id BETWEEN ? AND ?
