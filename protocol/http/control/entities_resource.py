"""Queues, topics and subscriptions with their properties and counts."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import Field

from broker.core.contract import control_operations as control
from config.files.properties import all_properties, written_properties
from config.files.yaml_writer import entity_form
from config.model.definitions import ENTITY_KINDS
from protocol.http.control import pacing
from protocol.http.control.request_models import AnswerModel, EntityPath, RequestModel
from protocol.http.control.routes import Route
from protocol.http.control.times import write_time

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call

LIST_MAX = 1000
PART_ENTITIES = 50
"""How many entities one turn reads: about three milliseconds of work."""


class Kind(StrEnum):
    """Kinds of entities."""

    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


class StateCounts(AnswerModel):
    """How many messages are in each state. Each message is in one."""

    active: int = Field(description="ready to be received")
    locked: int = Field(description="locked by a receiver")
    deferred: int
    scheduled: int


class EntityCounts(StateCounts):
    """The counts of an entity. Those of its dead letters are in dead_letter."""

    dead_lettered: int = Field(description="messages in the dead-letter queue, locked or not")
    transfer_dead_lettered: int
    dead_letter: StateCounts
    transfer_dead_letter: StateCounts


class EntityAnswer(AnswerModel):
    """One entity."""

    path: str
    kind: Kind
    counts: EntityCounts
    size_bytes: int
    receivers: int = Field(description="attached receivers, and those that wait for a session")
    senders: int
    held_sessions: int = Field(description="sessions that a receiver holds")
    created_at: str | None
    updated_at: str | None
    accessed_at: str | None = Field(description="when a client used it last")
    properties: dict[str, Any] = Field(
        description="what differs from the defaults of Service Bus, in the names of the config file"
    )


class EntityProperty(AnswerModel):
    """A property of an entity, set or not."""

    name: str = Field(description="as the Python SDK and the config file name it")
    service_name: str = Field(description="as Service Bus and the .NET SDK name it")
    value: bool | int | str | None = Field(description="null: not set, or without end")
    is_default: bool


class DetailedEntityAnswer(EntityAnswer):
    """One entity with all its properties."""

    all_properties: list[EntityProperty]


class EntitiesQuery(RequestModel):
    """Which entities."""

    kind: Kind | None = Field(None, description="only entities of this kind")
    after: str = Field("", max_length=1000, description="`next` of the page before")
    limit: int = Field(100, ge=1, le=LIST_MAX)


class EntitiesAnswer(AnswerModel):
    """Entities, ordered by path."""

    entities: list[EntityAnswer]
    next: str | None = Field(description="`after` of the next page; null if this is the last")


class EntityQuery(RequestModel):
    """Which entity."""

    entity: EntityPath


async def list_entities(call: Call) -> Answer:
    """Lists entities with their counts."""
    query: EntitiesQuery = call.query
    kind = None if query.kind is None else query.kind.value
    after = query.after.lower()
    entities: list[dict[str, Any]] = []
    while True:
        limit = min(query.limit - len(entities), PART_ENTITIES)
        part: list[control.EntityState] = await call.ask(
            control.ListEntityStates(kind, after, limit + 1)
        )
        entities += await pacing.each(call, part[:limit], write_entity)
        if len(part) <= limit:
            return {"entities": entities, "next": None}
        if len(entities) >= query.limit:
            return {"entities": entities, "next": entities[-1]["path"]}
        after = entities[-1]["path"].lower()


async def get_entity(call: Call) -> Answer:
    """Returns one entity with its counts."""
    query: EntityQuery = call.query
    state: control.EntityState = await call.ask(control.GetEntityState(query.entity.strip("/")))
    definition = state.view.definition
    changed = {one.name for one, _ in written_properties(definition, type(definition)())}
    return {
        **write_entity(state),
        "all_properties": [
            {
                "name": one.snake_name,
                "service_name": one.name,
                "value": value,
                "is_default": one.name not in changed,
            }
            for one, value in all_properties(definition)
        ],
    }


def write_entity(state: control.EntityState) -> dict[str, Any]:
    """Returns an entity as plain data."""
    view = state.view
    counts = write_counts(state.main)
    counts["dead_lettered"] = state.dead_letter.total
    counts["transfer_dead_lettered"] = state.transfer_dead_letter.total
    counts["dead_letter"] = write_counts(state.dead_letter)
    counts["transfer_dead_letter"] = write_counts(state.transfer_dead_letter)
    return {
        "path": view.path,
        "kind": ENTITY_KINDS[type(view.definition)].value,
        "counts": counts,
        "size_bytes": view.size_bytes,
        "receivers": state.receiver_count,
        "senders": state.sender_count,
        "held_sessions": state.session_lock_count,
        "created_at": write_time(view.created_time_ms),
        "updated_at": write_time(view.updated_time_ms),
        "accessed_at": write_time(view.accessed_time_ms),
        "properties": entity_form(view.definition),
    }


def write_counts(counts: control.QueueCounts) -> dict[str, Any]:
    """Returns the counts of a queue as plain data."""
    return dict(counts._asdict())


ROUTES = (
    Route(
        "GET",
        "/entities",
        "listEntities",
        "List queues, topics and subscriptions with their counts",
        list_entities,
        EntitiesAnswer,
        query=EntitiesQuery,
    ),
    Route(
        "GET",
        "/entity",
        "getEntity",
        "Get one queue, topic or subscription with its counts",
        get_entity,
        DetailedEntityAnswer,
        query=EntityQuery,
    ),
)
