"""Snapshots of a namespace: take, list, restore and delete them.

A snapshot has the entities, the messages with their numbers and counts, session states, seen message ids, and how far
the clock was ahead. It has no locks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from broker.core.contract.errors import ArgumentError, SnapshotAlreadyExists
from protocol.http.control.control_errors import about
from protocol.http.control.namespaces_resource import DeletedAnswer
from protocol.http.control.request_models import AnswerModel, RequestModel
from protocol.http.control.routes import Route
from protocol.http.control.times import write_time

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call
    from protocol.http.control_services import SnapshotView


class SnapshotAnswer(AnswerModel):
    """One snapshot."""

    name: str
    taken_at: str | None = Field(description="by the clock of the namespace")
    clock_ahead_ms: int = Field(
        description="by how much that clock was ahead of the system clock, or behind it"
    )
    ephemeral: bool = Field(description="whether it is in memory only, and ends with the broker")
    entities: int
    messages: int
    size_bytes: int = Field(description="as the limits count it")


class SnapshotsAnswer(AnswerModel):
    """All snapshots of a namespace, ordered by name."""

    snapshots: list[SnapshotAnswer]


class TakeSnapshot(RequestModel):
    """A new snapshot."""

    name: str = Field(
        min_length=1,
        max_length=260,
        description="letters, digits, hyphens, underscores and dots",
        examples=["before-checkout"],
    )
    ephemeral: bool = Field(False, description="keep it in memory only, and not in the store")
    replace: bool = Field(False, description="replace a snapshot of the same name")


class NoBody(RequestModel):
    """Nothing: an empty body or an empty object."""


async def list_snapshots(call: Call) -> Answer:
    """Lists the snapshots of a namespace."""
    found = call.services.namespace_control.snapshots(call.namespace)
    return {"snapshots": [_written(one) for one in found]}


async def get_snapshot(call: Call) -> Answer:
    """Returns one snapshot."""
    return _written(
        call.services.namespace_control.snapshot(call.namespace, call.segments["snapshot"])
    )


async def take_snapshot(call: Call) -> Answer:
    """Takes a snapshot."""
    body: TakeSnapshot = call.body
    with about("name", ArgumentError, SnapshotAlreadyExists):
        taken = await call.services.namespace_control.take_snapshot(
            call.namespace, body.name, is_ephemeral=body.ephemeral, replace=body.replace
        )
    return _written(taken)


async def restore_snapshot(call: Call) -> Answer:
    """Replaces the content of the namespace by that of a snapshot."""
    return _written(
        await call.services.namespace_control.restore_snapshot(
            call.namespace, call.segments["snapshot"]
        )
    )


async def delete_snapshot(call: Call) -> Answer:
    """Deletes a snapshot."""
    name = call.segments["snapshot"]
    await call.services.namespace_control.delete_snapshot(call.namespace, name)
    return {"deleted": name}


def _written(view: SnapshotView) -> dict[str, Any]:
    return {
        "name": view.name,
        "taken_at": write_time(view.taken_time_ms),
        "clock_ahead_ms": view.clock_ahead_ms,
        "ephemeral": view.is_ephemeral,
        "entities": view.entity_count,
        "messages": view.message_count,
        "size_bytes": view.size_bytes,
    }


_MISSING = {404: "there is no such snapshot"}

ROUTES = (
    Route(
        "GET",
        "/snapshots",
        "listSnapshots",
        "List the snapshots of the namespace",
        list_snapshots,
        SnapshotsAnswer,
    ),
    Route(
        "POST",
        "/snapshots",
        "takeSnapshot",
        "Take a snapshot of the namespace",
        take_snapshot,
        SnapshotAnswer,
        body=TakeSnapshot,
        status=201,
        refusals={
            403: "the snapshots are too many or too large",
            409: "there is a snapshot of this name",
        },
    ),
    Route(
        "GET",
        "/snapshots/{snapshot}",
        "getSnapshot",
        "Get one snapshot",
        get_snapshot,
        SnapshotAnswer,
        refusals=_MISSING,
    ),
    Route(
        "POST",
        "/snapshots/{snapshot}/restore",
        "restoreSnapshot",
        "Replace the content of the namespace by that of a snapshot; clients have to connect again",
        restore_snapshot,
        SnapshotAnswer,
        body=NoBody,
        refusals=_MISSING,
    ),
    Route(
        "DELETE",
        "/snapshots/{snapshot}",
        "deleteSnapshot",
        "Delete a snapshot",
        delete_snapshot,
        DeletedAnswer,
        refusals=_MISSING,
    ),
)
