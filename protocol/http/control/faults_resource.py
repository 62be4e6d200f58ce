"""Fault rules of a namespace: make, list and remove them.

`fault_models.py` checks requests. Rules are in memory only. A reset of the namespace removes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from broker.core.contract.control_operations import GetEntityState
from protocol.faults.fault_kinds import Operation
from protocol.http.control import control_errors
from protocol.http.control.control_errors import ControlError
from protocol.http.control.expressions import MessageFilter
from protocol.http.control.fault_models import (
    FaultAnswer,
    FaultsAnswer,
    NewFault,
    check,
    described,
    entity_and_queue,
    rule_of,
)
from protocol.http.control.request_models import AnswerModel
from protocol.http.control.routes import Route

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call


class RemovedAnswer(AnswerModel):
    """How many rules were removed."""

    count: int = Field(description="fault rules that were removed")


async def add_fault(call: Call) -> Answer:
    """Makes a rule."""
    body: NewFault = call.body
    services, namespace = call.services, call.namespace
    check(body)
    default = services.namespaces()[0]
    if body.operation is Operation.CONNECT and namespace != default:
        raise control_errors.bad_field(
            "operation",
            f"The namespace of a client that connects is not known yet, so faults of connect belong to '{default}'. "
            "Use open for the clients of one namespace.",
        )
    entity, sub_queue = entity_and_queue(body)
    expression = None
    if body.filter is not None:
        expression = MessageFilter(body.filter, "filter", services.sources.new_uuid)
    # An entity that does not exist yet can be created through the administration API, and that can fail.
    if entity is not None and body.operation is not Operation.ADMINISTRATION:
        await call.ask(GetEntityState(entity))
    name = body.name
    if name is None:
        name = f"fault-{services.sources.new_uuid().hex[:12]}"
    if services.faults.find(namespace, name) is not None:
        raise ControlError(
            409, "fault_already_exists", f"There is a fault '{name}' already.", "name"
        )
    most = services.limits.faults_per_namespace_max
    if len(services.faults.rules(namespace)) >= most:
        raise ControlError(
            403, "quota_exceeded", f"The namespace has {most} faults; remove some of them first."
        )
    matches = None if expression is None else expression.matches
    rule = rule_of(body, name, entity, sub_queue, matches)
    services.faults.add(namespace, rule)
    return described(rule)


async def list_faults(call: Call) -> Answer:
    """Lists the rules of a namespace."""
    return {"faults": [described(rule) for rule in call.services.faults.rules(call.namespace)]}


async def get_fault(call: Call) -> Answer:
    """Returns one rule."""
    name = call.segments["fault"]
    rule = call.services.faults.find(call.namespace, name)
    if rule is None:
        raise _missing(name)
    return described(rule)


async def remove_fault(call: Call) -> Answer:
    """Removes one rule. Returns it with its last counts."""
    name = call.segments["fault"]
    rule = call.services.faults.remove(call.namespace, name)
    if rule is None:
        raise _missing(name)
    return described(rule)


async def remove_faults(call: Call) -> Answer:
    """Removes all rules of a namespace."""
    return {"count": call.services.faults.clear(call.namespace)}


def _missing(name: str) -> ControlError:
    return ControlError(404, "fault_not_found", f"There is no fault '{name}'.", "fault")


_NOT_FOUND = {404: "there is no such fault"}

ROUTES = (
    Route("GET", "/faults", "listFaults", "List the fault rules", list_faults, FaultsAnswer),
    Route(
        "POST",
        "/faults",
        "addFault",
        "Make a fault rule: operations of clients that it fits fail as it says",
        add_fault,
        FaultAnswer,
        body=NewFault,
        status=201,
        refusals={
            403: "there are too many fault rules",
            404: "there is no such entity",
            409: "there is a fault rule of this name",
        },
    ),
    Route(
        "GET",
        "/faults/{fault}",
        "getFault",
        "Get one fault rule and how often it has acted",
        get_fault,
        FaultAnswer,
        refusals=_NOT_FOUND,
    ),
    Route(
        "DELETE",
        "/faults/{fault}",
        "removeFault",
        "Remove a fault rule",
        remove_fault,
        FaultAnswer,
        refusals=_NOT_FOUND,
    ),
    Route(
        "DELETE",
        "/faults",
        "removeFaults",
        "Remove all fault rules",
        remove_faults,
        RemovedAnswer,
    ),
)
