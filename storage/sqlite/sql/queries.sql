-- Every statement the SQLite store runs, by name.
--
-- `{many X}` stands for X repeated, as many times as there are rows or ids to handle at once. There
-- are few sizes, so that statements are prepared once: rows that are left over are padding, cut off
-- by LIMIT, and ids that are left over repeat the last one.
--
-- NULLIF(?, -1): binding None costs Python twenty times what binding an integer does.
--
-- OR FAIL: a failed batch is rolled back whole, so the statement needs no journal of its own.

-- name: insert_messages
INSERT OR FAIL INTO messages
SELECT * FROM (VALUES {many (?, ?, ?, ?, ?, ?, NULLIF(?, -1), ?, ?, ?, ?, ?, ?, ?, NULLIF(?, -1), NULLIF(?, -1))})
LIMIT ?

-- name: replace_messages
REPLACE INTO messages
SELECT * FROM (VALUES {many (?, ?, ?, ?, ?, ?, NULLIF(?, -1), ?, ?, ?, ?, ?, ?, ?, NULLIF(?, -1), NULLIF(?, -1))})
LIMIT ?

-- name: delete_messages
DELETE FROM messages WHERE id IN ({many ?})

-- name: delete_message_range
DELETE FROM messages WHERE id BETWEEN ? AND ?

-- name: insert_payloads
INSERT OR FAIL INTO payloads (id, body, annotations)
SELECT * FROM (VALUES {many (?, ?, ?)})
LIMIT ?

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

-- What belongs to deleted entities; :entity_ids is a JSON array.

-- name: delete_sequence_numbers_of_entities
DELETE FROM sequence_numbers WHERE entity_id IN (SELECT value FROM json_each(:entity_ids))

-- name: delete_session_states_of_entities
DELETE FROM session_states WHERE entity_id IN (SELECT value FROM json_each(:entity_ids))

-- name: delete_message_ids_of_entities
DELETE FROM message_ids WHERE entity_id IN (SELECT value FROM json_each(:entity_ids))

-- name: delete_rules_of_entities
DELETE FROM rules WHERE entity_id IN (SELECT value FROM json_each(:entity_ids))

-- name: delete_entities
DELETE FROM entities WHERE entity_id IN (SELECT value FROM json_each(:entity_ids))

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

-- name: highest_message_id
SELECT max(
    ifnull((SELECT max(id) FROM messages), 0),
    ifnull((SELECT max(id) FROM payloads), 0)
)

-- Most messages of a long queue are as they were sent, and every column read costs time at start:
-- these have nothing but what is selected.

-- name: messages_as_sent
SELECT id, entity_id, sub_queue, sequence_number, enqueued_time_ms, header, size
FROM messages
WHERE time_to_live_ms IS NULL AND expires_at_ms = 0 AND scheduled_enqueue_time_ms = 0
    AND delivery_count = 0 AND state = 0 AND session_id IS NULL AND overlay IS NULL
    AND payload_id = id AND enqueue_sequence_number = sequence_number

-- name: other_messages
SELECT
    id, entity_id, sub_queue, sequence_number, enqueue_sequence_number, enqueued_time_ms,
    time_to_live_ms, expires_at_ms, scheduled_enqueue_time_ms, delivery_count, state, header, size,
    payload_id, session_id, overlay
FROM messages
WHERE NOT (
    time_to_live_ms IS NULL AND expires_at_ms = 0 AND scheduled_enqueue_time_ms = 0
    AND delivery_count = 0 AND state = 0 AND session_id IS NULL AND overlay IS NULL
    AND payload_id = id AND enqueue_sequence_number = sequence_number
)

-- name: session_states
SELECT entity_id, session_id, state, updated_time_ms
FROM session_states ORDER BY entity_id, session_id

-- name: message_ids
SELECT entity_id, message_id, until_ms FROM message_ids

-- name: payloads
SELECT id, body, annotations FROM payloads WHERE id IN ({many ?})

-- name: payload_range
SELECT id, body, annotations FROM payloads WHERE id BETWEEN ? AND ?
