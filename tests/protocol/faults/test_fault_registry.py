"""The rules of namespaces."""

from __future__ import annotations

from protocol.faults.fault_kinds import FaultKind, Operation
from protocol.faults.fault_registry import FaultRegistry
from protocol.faults.fault_rule import FaultAction, FaultRule, OperationOfClient
from protocol.faults.occurrence import Always


def rule(name: str, operation: Operation = Operation.SEND) -> FaultRule:
    return FaultRule(name, operation, FaultAction(FaultKind.SERVER_BUSY), Always())


def test_namespaces_have_their_own_rules():
    registry = FaultRegistry()
    registry.add("a", rule("one"))
    registry.add("a", rule("two", Operation.SETTLE))
    registry.add("b", rule("one"))
    assert ["one", "two"] == [each.name for each in registry.rules("a")]
    assert [] == registry.rules("c")
    faults = registry.of("a")
    assert faults is not None
    assert ["two"] == [each.name for each in faults.about(OperationOfClient((Operation.SETTLE,)))]
    assert 2 == registry.clear("a")
    assert 0 == registry.clear("a")
    assert None is registry.of("a")
    assert ["one"] == [each.name for each in registry.rules("b")]


def test_nothing_is_looked_at_before_the_first_rule_is_made():
    registry = FaultRegistry()
    was_used = registry.is_used
    registry.add("a", rule("one"))
    assert [False, True] == [was_used, registry.is_used]


def test_a_rule_is_removed_by_its_name():
    registry = FaultRegistry()
    registry.add("a", rule("one"))
    removed = registry.find("a", "one")
    assert removed is registry.remove("a", "one")
    assert None is registry.remove("a", "one")
    assert None is registry.find("a", "one")
    assert None is registry.remove("b", "one")
