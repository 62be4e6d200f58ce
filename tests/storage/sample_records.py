"""Records for tests, with everything filled in that a test does not care about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.core.contract.records import (
    EntityStored,
    MessageRow,
    MessagesStored,
    PayloadRow,
    RuleRow,
    RulesStored,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.contract import Store, StoreContent

QUEUE = 1
OTHER_QUEUE = 2


def row(message_id: int, **changes: Any) -> MessageRow:
    """A message of `QUEUE` whose numbers all follow from its id."""
    plain = MessageRow(
        id=message_id,
        entity_id=QUEUE,
        sub_queue=0,
        sequence_number=message_id,
        enqueue_sequence_number=message_id,
        enqueued_time_ms=1_700_000_000_000 + message_id,
        time_to_live_ms=None,
        expires_at_ms=0,
        scheduled_enqueue_time_ms=0,
        delivery_count=0,
        state=0,
        header=0,
        size=5,
        payload_id=message_id,
        session_id=None,
        changes=None,
    )
    return plain._replace(**changes)


def payload(payload_id: int, body: bytes = b"hello", annotations: bytes = b"") -> PayloadRow:
    return PayloadRow(payload_id, body, annotations)


def stored(message_ids: Iterable[int], **changes: Any) -> MessagesStored:
    """Returns a record of new messages, each with its own payload."""
    ids = list(message_ids)
    return MessagesStored(
        [row(message_id, **changes) for message_id in ids],
        [payload(message_id) for message_id in ids],
    )


def entity(entity_id: int, path: str = "orders", **changes: Any) -> EntityStored:
    fields: dict[str, Any] = {
        "namespace": "default",
        "kind": "queue",
        "definition": "{}",
        "created_time_ms": 1,
        "updated_time_ms": 2,
    }
    return EntityStored(entity_id=entity_id, path=path, **{**fields, **changes})


def rules(entity_id: int, *numbers: int, definition: str = "{}") -> RulesStored:
    return RulesStored([RuleRow(entity_id, number, definition) for number in numbers])


def messages(store: Store) -> list[MessageRow]:
    """The messages a store holds, in the order of their ids: it gives them in any."""
    return _all_messages(store.load())


def _all_messages(content: StoreContent) -> list[MessageRow]:
    packed = [row for rows, dead in content.packed_messages for row in rows.live_rows(dead)]
    return sorted([*content.messages, *packed])


def message_ids(store: Store) -> list[int]:
    """Ids of the messages a store holds, in order."""
    return [message.id for message in messages(store)]


def everything(store: Store) -> dict[str, Any]:
    """All a store holds, in a form that can be compared."""
    content = store.load()
    seen = range(content.highest_message_id + 1)
    return {
        "namespaces": list(content.namespaces),
        "entities": list(content.entities),
        "rules": sorted(content.rules),
        "sequence_numbers": dict(content.sequence_numbers),
        "highest_message_id": content.highest_message_id,
        "messages": _all_messages(content),
        "session_states": sorted(
            content.session_states, key=lambda state: (state.entity_id, state.session_id)
        ),
        "message_ids": sorted(content.message_ids),
        "payloads": dict(store.read_payloads(seen)),
    }
