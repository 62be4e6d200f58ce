"""The table of operations and kinds, and the conditions."""

from __future__ import annotations

import pytest

from broker.core.contract import errors
from protocol.amqp.nodes.management import OPERATIONS
from protocol.faults.conditions import CONDITIONS, InjectedFault
from protocol.faults.fault_kinds import (
    AFTER,
    KINDS,
    MANAGEMENT_OPERATIONS,
    FaultKind,
    Operation,
)


def test_every_operation_and_every_kind_is_in_the_table():
    assert set(Operation) == set(KINDS)
    assert set(FaultKind) == {kind for kinds in KINDS.values() for kind in kinds}
    for kind, operations in AFTER.items():
        assert all(kind in KINDS[operation] for operation in operations)


def test_the_management_operations_are_those_of_the_node():
    assert OPERATIONS.keys() == MANAGEMENT_OPERATIONS


def _classes(base: type[errors.BrokerError]) -> list[type[errors.BrokerError]]:
    return [one for each in base.__subclasses__() for one in (each, *_classes(each))]


@pytest.mark.parametrize(
    "error", [one for one in _classes(errors.BrokerError) if one.__module__ == errors.__name__]
)
def test_every_error_of_the_broker_can_be_injected_with_its_condition(error):
    assert error.condition in CONDITIONS


def test_a_fault_has_the_sentence_of_its_condition_or_its_own():
    busy = InjectedFault("com.microsoft:server-busy", None)
    assert ("com.microsoft:server-busy", 503) == (busy.condition, busy.status)
    assert "50009" in str(busy)
    own = InjectedFault("amqp:not-found", "Gone.")
    assert ("Gone.", 404) == (str(own), own.status)
    assert "amqp:internal-error" == errors.BrokerError.condition, "the class is unchanged"
