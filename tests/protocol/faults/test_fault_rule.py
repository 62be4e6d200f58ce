"""Which operations fit a rule, and how rules count."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.faults.fault_kinds import FaultKind, Operation
from protocol.faults.fault_rule import FaultAction, FaultRule, OperationOfClient, decide
from protocol.faults.occurrence import Always, Every, First, Nth
from tests.support.core_dialogue import message

BUSY = FaultAction(FaultKind.SERVER_BUSY)


def rule(operation: Operation = Operation.SEND, occurrence: Any = None, **fields: Any) -> FaultRule:
    return FaultRule("r", operation, BUSY, occurrence or Always(), **fields)


def one(*operations: Operation, **fields: Any) -> OperationOfClient:
    return OperationOfClient(operations or (Operation.SEND,), **fields)


@pytest.mark.parametrize(
    ("fields", "operation", "fits"),
    [
        ({}, {"path": "orders"}, True),
        ({"entity": "orders"}, {"path": "Orders"}, True),
        ({"entity": "orders"}, {"path": "orders/eu"}, False),
        ({"entity": "orders"}, {"path": "orders/$DeadLetterQueue"}, False),
        (
            {"entity": "orders", "sub_queue": "dead_letter"},
            {"path": "orders/$DeadLetterQueue"},
            True,
        ),
        ({"entity": "orders", "sub_queue": "dead_letter"}, {"path": "orders"}, False),
        ({"sub_queue": "dead_letter"}, {"path": "orders/$deadletterqueue"}, True),
        (
            {"sub_queue": "transfer_dead_letter"},
            {"path": "orders/$Transfer/$DeadLetterQueue"},
            True,
        ),
        ({"sub_queue": "dead_letter"}, {"path": "orders/$Transfer/$DeadLetterQueue"}, False),
        ({"container_id": "worker-*"}, {"container_id": "Worker-7"}, True),
        ({"container_id": "worker-*"}, {"container_id": "a worker-7"}, False),
        ({"container_id": "w?rker"}, {"container_id": "worker"}, False),
        ({"container_id": "w[o]rker"}, {"container_id": "w[o]rker"}, True),
        ({"key_name": "*Listen"}, {"key_names": {"Root", "OrdersListen"}}, True),
        ({"key_name": "*Listen"}, {"key_names": ()}, False),
    ],
)
def test_a_rule_fits(fields, operation, fits):
    assert fits is rule(**fields).is_about(one(**operation))


@pytest.mark.parametrize(
    ("operation", "operations", "fits"),
    [
        (Operation.SEND, (Operation.DELIVER,), False),
        (Operation.RENEW, (Operation.MANAGEMENT, Operation.RENEW), True),
        (Operation.MANAGEMENT, (Operation.MANAGEMENT, Operation.RENEW), True),
    ],
)
def test_a_renewal_is_also_a_management_request(operation, operations, fits):
    assert fits is rule(operation).is_about(one(*operations))


def test_a_rule_can_be_about_one_management_operation():
    peek = rule(Operation.MANAGEMENT, management_operation="peek-message")
    assert peek.is_about(one(Operation.MANAGEMENT, management_operation="peek-message"))
    assert not peek.is_about(one(Operation.MANAGEMENT, management_operation="renew-lock"))


def test_each_rule_counts_for_itself_and_the_first_that_is_due_acts():
    every, nth, first = (
        rule(occurrence=Every(2)),
        rule(occurrence=Nth(3)),
        rule(occurrence=First(4)),
    )
    acted = [decide([every, nth, first], lambda _: True) for _ in range(6)]
    assert [BUSY, BUSY, BUSY, BUSY, None, BUSY] == acted
    assert [(6, 3), (6, 1), (6, 1)] == [(each.matched, each.hits) for each in (every, nth, first)]


def test_an_operation_that_does_not_fit_is_not_counted():
    once = rule(occurrence=Nth(1))
    assert None is decide([once], lambda _: False)
    assert (0, 0) == (once.matched, once.hits)
    assert BUSY == decide([once], lambda _: True)


def test_a_batch_fits_if_one_of_its_messages_does():
    heavy = rule(matches=lambda each: each.size > 100)
    assert heavy.fits([message("small"), message("x" * 200)])
    assert not heavy.fits([message("small")])
    assert not heavy.fits([])
    assert rule().fits([])


def test_a_settlement_is_recognised_by_the_token_of_its_delivery():
    settle = rule(Operation.SETTLE, matches=lambda each: each.size > 100)
    settle.remember(message("x" * 200), b"token-1")
    settle.remember(message("small"), b"token-2")
    assert not settle.fits_delivery([b"token-2"])
    assert settle.fits_delivery([b"token-2", b"token-1"])
    assert not settle.fits_delivery([b"token-1"]), "a token is settled once"
    assert rule(Operation.SETTLE).fits_delivery([b"token-3"])


def test_the_remembered_tokens_are_bounded(monkeypatch):
    monkeypatch.setattr("protocol.faults.fault_rule.REMEMBERED_MAX", 2)
    settle = rule(Operation.SETTLE, matches=lambda _: True)
    for token in (b"1", b"2", b"3"):
        settle.remember(message(""), token)
    assert [b"2", b"3"] == list(settle.deliveries)
