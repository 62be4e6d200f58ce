"""The partition key of a message in a partitioned entity.

The broker has no partitions. But the service refuses a transaction that uses more than one
partition of an entity, and the broker must refuse it, too. The key is the session id, else the
partition key, else the message id if the entity detects duplicates. The service can put a message
without any of them into any partition, so such a message fits into every transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.messages.session_ids import session_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.contract.message import Message
    from broker.core.entities.entity import Entity


def partition_keys(entity: Entity, messages: Iterable[Message]) -> list[tuple[int, str]]:
    """Returns the keys of messages, each with the id of the entity. Empty if it is not partitioned."""
    if not entity.is_partitioned:
        return []
    keys = [_partition_key(entity, message) for message in messages]
    return [(entity.id, key) for key in keys if key is not None]


def via_partition_keys(via: Entity, messages: Iterable[Message]) -> list[tuple[int, str]]:
    """Returns the via partition keys of messages that are sent via this entity to another."""
    if not via.is_partitioned:
        return []
    read = via.context.reader.via_partition_key
    keys = [read(message.annotations) for message in messages if message.annotations]
    return [(via.id, key) for key in keys if key is not None]


def _partition_key(entity: Entity, message: Message) -> str | None:
    reader = entity.context.reader
    session_id = message.session_id
    if session_id is None and message.body is not None:
        session_id = reader.session_id(message.body)
    if session_id is not None:
        return session_key(session_id)
    if message.annotations and (key := reader.partition_key(message.annotations)) is not None:
        return key
    if entity.duplicates is not None and message.body is not None:
        return reader.message_id(message.body)
    return None
