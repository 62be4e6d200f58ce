"""The models of fault rules in requests and answers, and how a checked request becomes a rule."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import Field

from protocol.faults.conditions import CONDITIONS
from protocol.faults.fault_kinds import (
    AFTER,
    FIELDS,
    KINDS,
    MANAGEMENT_OPERATIONS,
    MANAGEMENT_PREFIX,
    FaultKind,
    Operation,
)
from protocol.faults.fault_rule import FaultAction, FaultRule
from protocol.faults.occurrence import Always, Every, First, Nth, Probability
from protocol.http.control import control_errors
from protocol.http.control.expressions import TEXT_MAX_CHARACTERS
from protocol.http.control.request_models import (
    AnswerModel,
    QueuePath,
    RequestModel,
    SubQueue,
    queue_path,
    split_queue_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.message import Message
    from protocol.faults.occurrence import Occurrence

COUNT_MAX = 1_000_000_000
SECONDS_MIN = 0.001
SECONDS_MAX = 3_600
NAME_MAX_CHARACTERS = 260


class When(StrEnum):
    """When a fault happens."""

    BEFORE = "before"
    AFTER = "after"


class ClientModel(RequestModel):
    """The clients whose operations a rule is about."""

    container_id: str | None = Field(
        None,
        min_length=1,
        max_length=500,
        description="of the AMQP connection; * stands for any text",
    )
    key_name: str | None = Field(
        None,
        min_length=1,
        max_length=500,
        description="the name of the key with which the client has signed a token; * stands for any text",
    )


class OccurrenceModel(RequestModel):
    """Which of the fitting operations a rule acts on: one of nth, every, first and probability."""

    nth: int | None = Field(
        None, ge=1, le=COUNT_MAX, description="only on this one; 1 is the first"
    )
    every: int | None = Field(None, ge=1, le=COUNT_MAX, description="on every nth")
    first: int | None = Field(None, ge=1, le=COUNT_MAX, description="on the first n")
    probability: float | None = Field(
        None, ge=0, le=1, allow_inf_nan=False, description="on each with this probability"
    )
    seed: int | None = Field(
        None,
        ge=0,
        le=2**63 - 1,
        description="for probability: the same seed chooses the same operations; 0 if it is not set",
    )


class ActionModel(RequestModel):
    """What a rule does."""

    kind: FaultKind
    condition: str | None = Field(
        None,
        description="for refuse, which requires it, and detach: a condition of Service Bus",
        json_schema_extra={"enum": [*CONDITIONS, None]},
    )
    description: str | None = Field(
        None,
        max_length=1_000,
        description="for refuse, server_busy and detach: the sentence that the client gets",
    )
    seconds: float | None = Field(
        None,
        ge=SECONDS_MIN,
        le=SECONDS_MAX,
        allow_inf_nan=False,
        description="for delay, which requires it: how long, in real time",
    )
    when: When | None = Field(
        None,
        description="for drop_connection and no_answer: before the operation has an effect, or after the effect is "
        "stored; before if it is not set",
    )


class NewFault(RequestModel):
    """A new fault rule."""

    name: str | None = Field(
        None,
        min_length=1,
        max_length=NAME_MAX_CHARACTERS,
        description="names the rule; without it the rule gets a unique name",
        examples=["busy-orders"],
    )
    operation: Operation = Field(description="what a client does")
    entity: QueuePath | None = None
    sub_queue: SubQueue | None = Field(
        None, description="the queue itself or one of its sub-queues; main if only entity is set"
    )
    management_operation: str | None = Field(
        None,
        max_length=100,
        description="for management: the operation of the request",
        examples=["com.microsoft:peek-message"],
    )
    client: ClientModel | None = None
    filter: str | None = Field(
        None,
        max_length=TEXT_MAX_CHARACTERS,
        description="for send, deliver and settle: a SQL expression that must be true for the message",
        examples=["color = 'red'"],
    )
    occurrence: OccurrenceModel | None = Field(
        None, description="which of the fitting operations; every one if it is not set"
    )
    action: ActionModel


class FaultAnswer(AnswerModel):
    """A fault rule and how often it has acted."""

    name: str
    operation: Operation
    entity: str | None
    sub_queue: SubQueue | None
    management_operation: str | None
    client: ClientModel | None
    filter: str | None
    occurrence: OccurrenceModel | None
    action: ActionModel
    matched: int = Field(
        description="operations that fit the rule, whether it has acted on them or not"
    )
    hits: int = Field(description="operations on which it has acted")


class FaultsAnswer(AnswerModel):
    """All fault rules of a namespace, in the order in which they were made."""

    faults: list[FaultAnswer]


def entity_and_queue(body: NewFault) -> tuple[str | None, str | None]:
    """Returns the entity and the sub-queue of a rule. Raises `ControlError` if both fields name a sub-queue."""
    if body.entity is None:
        return None, body.sub_queue
    path = queue_path(body.entity, body.sub_queue or SubQueue.MAIN)
    entity, sub_queue = split_queue_path(path)
    return entity, sub_queue


def check(body: NewFault) -> None:
    """Raises `ControlError` if fields do not go together: `FIELDS` and `KINDS` say what an operation can have."""
    client = body.client or ClientModel()
    given = {
        "entity": body.entity,
        "sub_queue": body.sub_queue,
        "management_operation": body.management_operation,
        "client": body.client,
        "client.container_id": client.container_id,
        "filter": body.filter,
    }
    for field, value in given.items():
        if value is not None and body.operation not in FIELDS[field]:
            raise control_errors.bad_field(
                field,
                f"The field '{field}' cannot be used with the operation {body.operation}; it can with "
                f"{_listed(FIELDS[field])}.",
            )
    _check_management_operation(body)
    _check_occurrence(body.occurrence)
    _check_action(body.operation, body.action)


def rule_of(
    body: NewFault,
    name: str,
    entity: str | None,
    sub_queue: str | None,
    matches: Callable[[Message], bool] | None,
) -> FaultRule:
    """Returns the rule of a checked request."""
    action, client = body.action, body.client
    named = body.management_operation
    return FaultRule(
        name,
        body.operation,
        FaultAction(
            action.kind,
            action.condition,
            action.description,
            action.seconds or 0.0,
            action.when is When.AFTER,
        ),
        _occurrence(body.occurrence),
        entity=None if entity is None else entity.lower(),
        sub_queue=sub_queue,
        management_operation=None if named is None else _without_prefix(named),
        container_id=None if client is None else client.container_id,
        key_name=None if client is None else client.key_name,
        matches=matches,
        described=body.model_dump(mode="json"),
    )


def described(rule: FaultRule) -> dict[str, Any]:
    """Returns a rule as plain data."""
    return {**rule.described, "name": rule.name, "matched": rule.matched, "hits": rule.hits}


# --- checks --------------------------------------------------------------------------------------


def _check_management_operation(body: NewFault) -> None:
    named = body.management_operation
    if named is not None and _without_prefix(named) not in MANAGEMENT_OPERATIONS:
        raise control_errors.bad_field(
            "management_operation",
            f"'{named}' is not an operation of $management; it has {_listed(MANAGEMENT_OPERATIONS)}.",
        )


def _without_prefix(operation: str) -> str:
    return operation.removeprefix(MANAGEMENT_PREFIX)


_CHOICES = ("nth", "every", "first", "probability")


def _check_occurrence(given: OccurrenceModel | None) -> None:
    if given is None:
        return
    chosen = [name for name in _CHOICES if getattr(given, name) is not None]
    if len(chosen) != 1:
        raise control_errors.bad_field(
            "occurrence", f"The field 'occurrence' needs one of {', '.join(_CHOICES)}."
        )
    if given.seed is not None and given.probability is None:
        raise control_errors.bad_field(
            "occurrence.seed", "The field 'occurrence.seed' can be used with probability only."
        )


def _occurrence(given: OccurrenceModel | None) -> Occurrence:
    if given is None:
        return Always()
    if given.nth is not None:
        return Nth(given.nth)
    if given.every is not None:
        return Every(given.every)
    if given.first is not None:
        return First(given.first)
    assert given.probability is not None, "it was checked that there is one"
    return Probability(given.probability, given.seed or 0)


_REQUIRED = {FaultKind.REFUSE: "condition", FaultKind.DELAY: "seconds"}
_TAKES: dict[str, frozenset[FaultKind]] = {
    "condition": frozenset({FaultKind.REFUSE, FaultKind.DETACH}),
    "description": frozenset({FaultKind.REFUSE, FaultKind.SERVER_BUSY, FaultKind.DETACH}),
    "seconds": frozenset({FaultKind.DELAY}),
    "when": frozenset({FaultKind.DROP_CONNECTION, FaultKind.NO_ANSWER}),
}


def _check_action(operation: Operation, action: ActionModel) -> None:
    kind = action.kind
    if kind not in KINDS[operation]:
        raise control_errors.bad_field(
            "action.kind",
            f"The operation {operation} cannot have the fault {kind}; it can have {_listed(KINDS[operation])}.",
        )
    for field, kinds in _TAKES.items():
        if getattr(action, field) is not None and kind not in kinds:
            raise control_errors.bad_field(
                f"action.{field}",
                f"The field 'action.{field}' cannot be used with the fault {kind}; it can with {_listed(kinds)}.",
            )
    required = _REQUIRED.get(kind)
    if required is not None and getattr(action, required) is None:
        raise control_errors.bad_field(
            f"action.{required}",
            f"The field 'action.{required}' is required for the fault {kind}.",
            "missing_field",
        )
    if action.condition is not None and action.condition not in CONDITIONS:
        raise control_errors.bad_field(
            "action.condition",
            f"'{action.condition}' is not a condition of Service Bus; known are {_listed(CONDITIONS)}.",
        )
    if action.when is When.AFTER and operation not in AFTER[kind]:
        raise control_errors.bad_field(
            "action.when",
            f"The fault {kind} of the operation {operation} can only happen before it has an effect; 'after' can be "
            f"used with {_listed(AFTER[kind])}.",
        )


def _listed(names: Any) -> str:
    return ", ".join(sorted(str(name) for name in names))
