"""The models of requests and answers: the base classes, and the fields that many requests share.

A request with a field that its model does not have is refused, so that a misspelled field is not ignored.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from config.model.names import SUBSCRIPTIONS
from protocol.addresses import DEAD_LETTER_SUFFIX, split_sub_queue
from protocol.http.control import control_errors
from protocol.http.control.control_errors import ControlError

if TYPE_CHECKING:
    from collections.abc import ItemsView, Mapping


class RequestModel(BaseModel):
    """A request body or a query."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AnswerModel(BaseModel):
    """An answer. It describes what handlers return as plain data."""

    model_config = ConfigDict(extra="forbid")


class NoFields(RequestModel):
    """No fields."""


class ErrorDetail(AnswerModel):
    """What is wrong."""

    code: str = Field(description="a word for programs, such as entity_not_found")
    message: str = Field(description="a sentence for people")
    field: str | None = Field(description="the field of the request that is wrong, if it is one")


class ErrorAnswer(BaseModel):
    """Every answer of 400 and above."""

    error: ErrorDetail


class SubQueue(StrEnum):
    """The queue of an entity, or one of its sub-queues."""

    MAIN = "main"
    DEAD_LETTER = "dead_letter"
    TRANSFER_DEAD_LETTER = "transfer_dead_letter"


_SUFFIXES = {
    SubQueue.MAIN: "",
    SubQueue.DEAD_LETTER: "/$DeadLetterQueue",
    SubQueue.TRANSFER_DEAD_LETTER: "/$Transfer/$DeadLetterQueue",
}

EntityPath = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        description="the name of a queue or topic, or topic/subscriptions/name",
        examples=["orders", "events/subscriptions/audit"],
    ),
]
QueuePath = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        description="the name of a queue or topic, or topic/subscriptions/name; a sub-queue may follow, such as "
        "orders/$deadletterqueue",
        examples=["orders", "events/subscriptions/audit"],
    ),
]


def queue_path(entity: str, sub_queue: SubQueue) -> str:
    """Returns the path of a queue or sub-queue in the core. The entity may name its sub-queue itself."""
    entity = entity.strip("/")
    if sub_queue is SubQueue.MAIN:
        return entity
    if entity.lower().endswith(DEAD_LETTER_SUFFIX):
        raise control_errors.bad_field(
            "sub_queue", "The entity names a sub-queue already, so sub_queue must be left out."
        )
    return entity + _SUFFIXES[sub_queue]


def split_queue_path(path: str) -> tuple[str, SubQueue]:
    """Returns the entity and the sub-queue of a path."""
    entity, sub_queue = split_sub_queue(path)
    return entity, SubQueue(sub_queue)


def is_subscription(path: str) -> bool:
    """Whether a path names a subscription."""
    return f"/{SUBSCRIPTIONS}/".lower() in path.lower()


_Model = TypeVar("_Model", bound=RequestModel)


def read_query(model: type[_Model], query: ItemsView[str, str]) -> _Model:
    """Returns the checked query. Raises `ControlError`."""
    values: dict[str, Any] = {}
    for name, value in query:
        if name in values:
            raise control_errors.bad_field(name[:100], "The query has this field more than once.")
        values[name] = value
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise control_errors.of_validation(error.errors(), _names(model)) from None


def read_body(model: type[_Model], body: bytes) -> _Model:
    """Returns the checked body. An empty body is an empty object. Raises `ControlError`."""
    try:
        return model.model_validate_json(body.strip() or b"{}", strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False)
        if found[0]["type"] in {"model_type", "model_attributes_type"} and not found[0]["loc"]:
            raise ControlError(400, "invalid_request", "The body must be a JSON object.") from None
        raise control_errors.of_validation(found, _names(model)) from None


def _names(model: type[BaseModel]) -> list[str]:
    fields: Mapping[str, Any] = model.model_fields
    return [field.alias or name for name, field in fields.items()]
