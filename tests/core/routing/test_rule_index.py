"""The n-th rule costs what the first did: work is counted, not timed."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from broker.core.contract.commands import AddRule, AttachSender, GetRule, ListRules, RemoveRule
from broker.core.contract.records import RulesDeleted, RulesStored
from broker.core.operations import rule_administration
from broker.core.routing import compiled_rule
from config.model.definitions import (
    CorrelationFilter,
    RuleDefinition,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from tests.support.core_dialogue import CLIENT, CoreDialogue, S, message, send

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.turn import Turn

SUBSCRIPTION = "t/Subscriptions/s"
FEW, MANY = 10, 2_000


def correlated(number: int) -> RuleDefinition:
    return RuleDefinition(f"r{number:05}", CorrelationFilter(properties={"n": f"{number}"}))


def equal(number: int) -> RuleDefinition:
    return RuleDefinition(f"r{number:05}", SqlFilter(f"n = '{number}' AND m > 5"))


def evaluated(number: int) -> RuleDefinition:
    return RuleDefinition(f"r{number:05}", SqlFilter(f"n LIKE '{number}%'"))


def having(count: int, rule: Callable[[int], RuleDefinition]) -> CoreDialogue:
    """A subscription with so many rules."""
    dialogue = CoreDialogue(
        entities={"t": TopicDefinition(), SUBSCRIPTION: SubscriptionDefinition(rules=())},
        attach=False,
    )
    dialogue.run(AttachSender(S, "t"))
    for number in range(count):
        dialogue.ask(AddRule(CLIENT, "a", SUBSCRIPTION, rule(number)))
    return dialogue


def calls_of(run: Callable[[], object]) -> Counter[str]:
    """How often which function was called: the same for the same work, on any machine."""
    calls: Counter[str] = Counter()

    def note(frame, event, function):
        if event == "call":
            calls[frame.f_code.co_name] += 1
        elif event == "c_call":
            calls[function.__name__] += 1

    gc.disable()  # a collection calls Hypothesis back
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


@pytest.mark.parametrize("rule", [correlated, equal, evaluated])
@pytest.mark.parametrize(
    "command",
    [
        lambda rule: AddRule(CLIENT, "a", SUBSCRIPTION, rule(77_777)),
        lambda rule: AddRule(CLIENT, "a", SUBSCRIPTION, rule(5), replace=True),
        lambda _: RemoveRule(CLIENT, "r", SUBSCRIPTION, "R00005"),
        lambda _: GetRule(CLIENT, "g", SUBSCRIPTION, "R00005"),
        lambda _: ListRules(CLIENT, "l", SUBSCRIPTION, 4, 5),
    ],
    ids=["create", "replace", "remove", "get", "page"],
)
def test_a_request_does_the_same_work_beside_few_and_many_rules(rule, command):
    """Nothing in it runs once for each rule that is there."""
    few, many = having(FEW, rule), having(MANY, rule)
    having(FEW, rule).ask(command(rule))  # what is cached by the text of a rule is there for both
    assert calls_of(lambda: few.ask(command(rule))) == calls_of(lambda: many.ask(command(rule)))


@pytest.mark.parametrize("rule", [correlated, equal])
def test_a_send_does_the_same_work_beside_few_and_many_rules(rule):
    """Rules that demand equalities are looked up, all at once."""
    few, many = having(FEW, rule), having(MANY, rule)
    few.run(send(message("warm", n="5")))  # the first send of a topic sets some things up
    many.run(send(message("warm", n="5")))
    for number in ("5", "no rule"):
        sent = [message("x", n=number, m="6") for _ in range(2)]
        assert calls_of(lambda: few.run(send(sent[0]))) == calls_of(lambda: many.run(send(sent[1])))  # noqa: B023


def test_creating_and_removing_a_rule_writes_one_row_and_compiles_once(monkeypatch):
    """However many rules there are."""
    compiled: list[str] = []

    def counting(rule, limits):
        compiled.append(rule.name)
        return compiled_rule.compile_rule(rule, limits)

    monkeypatch.setattr(rule_administration, "compile_rule", counting)
    dialogue = having(0, correlated)
    for number in range(MANY):
        turn: Turn = dialogue.run(AddRule(CLIENT, "a", SUBSCRIPTION, correlated(number)))
        (record,) = turn.records
        assert isinstance(record, RulesStored)
        assert 1 == len(record.rows)
    assert MANY == len(compiled)
    for number in range(MANY):
        (record,) = dialogue.run(RemoveRule(CLIENT, "r", SUBSCRIPTION, f"r{number:05}")).records
        assert isinstance(record, RulesDeleted)
        assert 1 == len(record.numbers)
    assert MANY == len(compiled)


def test_a_rule_that_takes_everything_switches_the_others_off_and_on_at_no_cost():
    """Beside it rules without an action add nothing; none of them is moved for it."""
    default = RuleDefinition("$Default")
    few, many = having(FEW, evaluated), having(MANY, evaluated)
    for command in (
        AddRule(CLIENT, "a", SUBSCRIPTION, default),
        RemoveRule(CLIENT, "r", SUBSCRIPTION, "$Default"),
    ):
        assert calls_of(lambda: few.ask(command)) == calls_of(lambda: many.ask(command))  # noqa: B023
