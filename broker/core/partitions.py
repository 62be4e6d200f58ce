"""Which partition of a partitioned entity a message belongs to, as far as a client can tell.

There is one store and no partition here, but a transaction must not succeed that the service would
refuse: there it is carried out within one partition of an entity. The key that decides is the session
id, else the partition key, else the message id where duplicates are detected. A message with none of
them is wherever it fits, so it goes with any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.session_ids import session_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.core.entities import Entity
    from broker.core.message import Message


def partition_keys(entity: Entity, messages: Iterable[Message]) -> list[tuple[int, str]]:
    """Keys of messages that are partitioned, each with the id of the entity."""
    if not entity.is_partitioned:
        return []
    keys = [_partition_key(entity, message) for message in messages]
    return [(entity.id, key) for key in keys if key is not None]


def via_partition_keys(via: Entity, messages: Iterable[Message]) -> list[tuple[int, str]]:
    """Keys of messages that are only on their way through an entity, which have keys for that."""
    if not via.is_partitioned:
        return []
    read = via.environment.reader.via_partition_key
    keys = [read(message.annotations) for message in messages if message.annotations]
    return [(via.id, key) for key in keys if key is not None]


def _partition_key(entity: Entity, message: Message) -> str | None:
    reader = entity.environment.reader
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
