-- What a start reads, once, row by row. Not prepared.

-- name: namespaces
SELECT name, definition FROM namespaces ORDER BY name

-- name: entities
SELECT entity_id, namespace, kind, path, definition, created_time_ms, updated_time_ms
FROM entities ORDER BY entity_id

-- name: rules
SELECT entity_id, number, definition FROM rules ORDER BY entity_id, number

-- name: sequence_numbers
SELECT entity_id, sub_queue, sequence_number FROM sequence_numbers

-- name: blocks
SELECT number, entries, length(blocks.payloads), dead_slots.rows, dead_slots.payloads
FROM blocks LEFT JOIN dead_slots USING (number)
ORDER BY number

-- name: block_entries
SELECT number, entries FROM blocks ORDER BY number

-- name: session_states
SELECT entity_id, session_id, state, updated_time_ms
FROM session_states ORDER BY entity_id, session_id

-- name: message_ids
SELECT entity_id, message_id, until_ms FROM message_ids
