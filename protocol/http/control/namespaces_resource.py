"""The namespaces of the broker: list, create and delete them, and the clock of each.

A namespace that this API creates has a key of its own, whose name is that of the namespace. Clients that use the same
host name are told apart by the name of their key.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic import Field

from broker.core.contract.errors import ArgumentError, NamespaceAlreadyExists
from broker.core.routing.compiled_rule import rule_error
from config.files.mistakes import ConfigError
from config.files.namespace_topology import NamespaceTopology, read_namespace_topology
from protocol.http.control.clock_resource import (
    AdvanceClock,
    ClockAnswer,
    NoBody,
    SetClock,
    amount_ahead,
    amount_until,
    write_clock,
)
from protocol.http.control.control_errors import ControlError, about
from protocol.http.control.request_models import AnswerModel, RequestModel
from protocol.http.control.routes import Route, Scope
from protocol.http.control.times import write_time

if TYPE_CHECKING:
    from config.files.mistakes import Mistake
    from config.model.limits import Limits
    from protocol.http.control.routes import Answer, Call
    from protocol.http.control_services import NamespaceView

READ_IN_THREAD_CHARACTERS = 4_096
"""A topology from so many characters on is read in a thread, because others should not wait for it."""


class NamespaceAnswer(AnswerModel):
    """One namespace."""

    name: str
    is_default: bool = Field(description="whether paths without a namespace concern it")
    is_declared: bool = Field(description="false: this API has created it, and can delete it")
    ephemeral: bool = Field(description="whether the next start of the broker deletes it")
    created_at: str | None = Field(description="null if it is declared")
    entities: int
    messages: int = Field(description="in all states, dead letters included")
    snapshots: int


class KeyedNamespaceAnswer(NamespaceAnswer):
    """One namespace, and how clients connect to it."""

    key_name: str | None = Field(description="null if it is declared: the config file has the keys")
    key: str | None
    connection_string: str | None = Field(
        description="for messaging and for administration; the host and the port are those of this request"
    )
    warnings: list[str] = Field(description="what in the topology was ignored, and why")


class NamespacesAnswer(AnswerModel):
    """All namespaces, the default namespace first."""

    namespaces: list[NamespaceAnswer]


class SnapshotOrigin(RequestModel):
    """The snapshot whose content a namespace begins with."""

    namespace: str | None = Field(None, description="the default namespace if it is left out")
    snapshot: str


class CreateNamespace(RequestModel):
    """A new namespace. It is empty without topology and from."""

    name: str | None = Field(
        None,
        min_length=1,
        max_length=260,
        description="letters, digits, hyphens and dots; a unique name is made if it is left out",
        examples=["orders-test-1"],
    )
    topology: dict[str, Any] | str | None = Field(
        None,
        description="its entities, in either form of the config file (queues and topics, or UserConfig with one "
        "namespace), as JSON or as the text of the file",
        examples=[{"queues": {"orders": {"lock_duration": "PT30S"}}}],
    )
    origin: SnapshotOrigin | None = Field(
        None, alias="from", description="the snapshot with which it begins, instead of a topology"
    )
    ephemeral: bool = Field(False, description="whether the next start of the broker deletes it")


class DeletedAnswer(AnswerModel):
    """What was deleted."""

    deleted: str


async def list_namespaces(call: Call) -> Answer:
    """Lists the namespaces."""
    views = call.services.namespace_control.views()
    return {
        "namespaces": [_written(view, is_default=number == 0) for number, view in enumerate(views)]
    }


async def get_namespace(call: Call) -> Answer:
    """Returns one namespace."""
    return _keyed(call, call.services.namespace_control.view(call.namespace), ())


async def create_namespace(call: Call) -> Answer:
    """Creates a namespace."""
    body: CreateNamespace = call.body
    services = call.services
    if body.topology is not None and body.origin is not None:
        raise ControlError(
            400,
            "invalid_field",
            "A namespace begins with a topology or from a snapshot, not with both.",
            "from",
        )
    topology = NamespaceTopology({})
    if body.topology is not None:
        topology = await _read_topology(body.topology, services.limits)
    origin = None
    if body.origin is not None:
        namespace = (body.origin.namespace or services.namespaces()[0]).lower()
        origin = namespace, body.origin.snapshot
    with about("name", ArgumentError, NamespaceAlreadyExists):
        view = await services.namespace_control.create(
            body.name, topology, is_ephemeral=body.ephemeral, snapshot=origin
        )
    return _keyed(call, view, topology.warnings)


async def delete_namespace(call: Call) -> Answer:
    """Deletes a namespace with everything in it."""
    await call.services.namespace_control.delete(call.namespace)
    return {"deleted": call.namespace}


async def show_clock(call: Call) -> Answer:
    """Shows the clock of a namespace."""
    return write_clock(call.services.namespace_control.clock(call.namespace))


async def advance_clock(call: Call) -> Answer:
    """Moves the clock of a namespace ahead."""
    control = call.services.namespace_control
    amount_ms = amount_ahead(call.body, control.clock(call.namespace).now_ms)
    return write_clock(control.advance_clock(call.namespace, amount_ms))


async def set_clock(call: Call) -> Answer:
    """Moves the clock of a namespace ahead to a time."""
    control = call.services.namespace_control
    amount_ms = amount_until(call.body, control.clock(call.namespace).now_ms)
    return write_clock(control.advance_clock(call.namespace, amount_ms))


async def freeze_clock(call: Call) -> Answer:
    """Stops the clock of a namespace."""
    return write_clock(call.services.namespace_control.freeze_clock(call.namespace))


async def resume_clock(call: Call) -> Answer:
    """Lets the clock of a namespace run again."""
    return write_clock(call.services.namespace_control.resume_clock(call.namespace))


async def _read_topology(content: dict[str, Any] | str, limits: Limits) -> NamespaceTopology:
    try:
        if isinstance(content, str):
            is_long = len(content) > READ_IN_THREAD_CHARACTERS
        else:
            is_long = len(str(content)) > READ_IN_THREAD_CHARACTERS
        if not is_long:
            return read_namespace_topology(content, limits, rule_error)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            None, read_namespace_topology, content, limits, rule_error
        )
    except ConfigError as error:
        first = error.mistakes[0]
        others = len(error.mistakes) - 1
        more = f" There are {others} more mistakes." if others else ""
        raise ControlError(
            400,
            "invalid_topology",
            f"{_sentence(first)}{more}",
            f"topology.{first.where}" if first.where else "topology",
            mistakes=[_sentence(one) for one in error.mistakes],
        ) from None


def _sentence(mistake: Mistake) -> str:
    return f"{str(mistake).removesuffix('.')}."


def _written(view: NamespaceView, *, is_default: bool) -> dict[str, Any]:
    return {
        "name": view.name,
        "is_default": is_default,
        "is_declared": view.key is None,
        "ephemeral": view.is_ephemeral,
        "created_at": write_time(view.created_time_ms),
        "entities": view.entity_count,
        "messages": view.message_count,
        "snapshots": view.snapshot_count,
    }


def _keyed(call: Call, view: NamespaceView, warnings: tuple[Mistake, ...] | Any) -> dict[str, Any]:
    connection_string = None
    if view.key is not None:
        # The port of this request serves AMQP as well, and the client can reach it.
        connection_string = (
            f"Endpoint=sb://{call.request.host};SharedAccessKeyName={view.key_name};"
            f"SharedAccessKey={view.key};UseDevelopmentEmulator=true;"
        )
    return {
        **_written(view, is_default=view.name == call.services.namespaces()[0]),
        "key_name": view.key_name,
        "key": view.key,
        "connection_string": connection_string,
        "warnings": [_sentence(one) for one in warnings],
    }


ROUTES = (
    Route(
        "GET",
        "/namespaces",
        "listNamespaces",
        "List the namespaces, the default namespace first",
        list_namespaces,
        NamespacesAnswer,
        scope=Scope.BROKER,
    ),
    Route(
        "POST",
        "/namespaces",
        "createNamespace",
        "Create a namespace with a key of its own",
        create_namespace,
        KeyedNamespaceAnswer,
        body=CreateNamespace,
        scope=Scope.BROKER,
        status=201,
        refusals={
            403: "there are too many namespaces",
            404: "there is no such snapshot",
            409: "there is a namespace of this name",
        },
    ),
    Route(
        "GET",
        "/namespaces/{namespace}",
        "getNamespace",
        "Get one namespace and how clients connect to it",
        get_namespace,
        KeyedNamespaceAnswer,
        scope=Scope.NAMED_NAMESPACE,
    ),
    Route(
        "DELETE",
        "/namespaces/{namespace}",
        "deleteNamespace",
        "Delete a namespace that this API has created, with everything in it and with its snapshots",
        delete_namespace,
        DeletedAnswer,
        scope=Scope.NAMED_NAMESPACE,
    ),
    Route(
        "GET",
        "/namespaces/{namespace}/clock",
        "getNamespaceClock",
        "Show the clock of one namespace",
        show_clock,
        ClockAnswer,
        scope=Scope.NAMED_NAMESPACE,
    ),
    Route(
        "POST",
        "/namespaces/{namespace}/clock/advance",
        "advanceNamespaceClock",
        "Move the clock of one namespace ahead; what becomes due in it is done",
        advance_clock,
        ClockAnswer,
        body=AdvanceClock,
        scope=Scope.NAMED_NAMESPACE,
    ),
    Route(
        "POST",
        "/namespaces/{namespace}/clock/set",
        "setNamespaceClock",
        "Move the clock of one namespace ahead to a time",
        set_clock,
        ClockAnswer,
        body=SetClock,
        scope=Scope.NAMED_NAMESPACE,
    ),
    Route(
        "POST",
        "/namespaces/{namespace}/clock/freeze",
        "freezeNamespaceClock",
        "Stop the clock of one namespace; it can still be moved",
        freeze_clock,
        ClockAnswer,
        body=NoBody,
        scope=Scope.NAMED_NAMESPACE,
    ),
    Route(
        "POST",
        "/namespaces/{namespace}/clock/resume",
        "resumeNamespaceClock",
        "Let the clock of one namespace run again, from the time that it shows",
        resume_clock,
        ClockAnswer,
        body=NoBody,
        scope=Scope.NAMED_NAMESPACE,
    ),
)
