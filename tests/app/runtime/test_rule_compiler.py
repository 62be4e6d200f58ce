"""Long rules are compiled beside the loop, and come to the turn ready or refused."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker.app.runtime import rule_compiler
from broker.app.runtime.clock import Clock
from broker.app.runtime.rule_compiler import COMPILED_IN_TURN_CHARACTERS, RuleCompiler
from broker.app.runtime.turn_loop import TurnLoop
from broker.core.contract.commands import AddRule, CreateEntity, GetRule, ListRules
from broker.core.contract.errors import ArgumentError, BrokerError
from broker.core.routing.compiled_rule import compile_rule
from config.model.definitions import (
    EntityDefinition,
    RuleDefinition,
    SqlAction,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.limits import RELAXED
from tests.support.core_dialogue import CoreDialogue

SUBSCRIPTION = "t/Subscriptions/s"
LONG = " OR ".join(f"colour = '{number}'" for number in range(200))
assert len(LONG) > COMPILED_IN_TURN_CHARACTERS


class Committer:
    """Everything is durable at once."""

    takes_time = False
    idle = True
    submitted = 0

    def __init__(self) -> None:
        self.turns: Any = None

    def submit(self, turn: Any) -> None:
        self.turns.release(turn.effects)

    def has_released(self, turn_count: int) -> bool:
        return True


class Loop:
    """A turn loop over one namespace, and the threads that rules were compiled in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []

        def noting(rule: RuleDefinition, limits: Any = RELAXED) -> Any:
            self.threads.append(threading.current_thread().name)
            return compile_rule(rule, limits)

        monkeypatch.setattr("broker.app.runtime.rule_compiler.compile_rule", noting)
        monkeypatch.setattr("broker.core.operations.rule_administration.compile_rule", noting)
        entities: dict[str, EntityDefinition] = {
            "t": TopicDefinition(),
            SUBSCRIPTION: SubscriptionDefinition(rules=()),
        }
        self.namespace = CoreDialogue(entities=entities, attach=False).namespace
        self.namespaces = {"ns": self.namespace}
        self.compiler = RuleCompiler(RELAXED)
        self.turns = TurnLoop(
            self.namespaces, Clock(), lambda _: None, self._fail, rule_compiler=self.compiler
        )
        committer: Any = Committer()
        committer.turns = self.turns
        self.turns.attach(committer)

    @staticmethod
    def _fail(error: Exception) -> None:
        raise error

    async def ask(self, command: type, *arguments: object, **named: object) -> Any:
        return await asyncio.wait_for(
            self.turns.ask(
                self.namespace, lambda peer, mark: command(peer, mark, *arguments, **named)
            ),
            20,
        )


@pytest.fixture
async def loop(monkeypatch):
    found = Loop(monkeypatch)
    yield found
    found.compiler.close()


@pytest.mark.parametrize(
    "rule",
    [
        RuleDefinition("r", SqlFilter(LONG)),
        RuleDefinition("r", action=SqlAction(f"SET a = '{'x' * 2_000}'")),
    ],
    ids=["filter", "action"],
)
async def test_a_long_rule_is_compiled_in_a_thread_once(loop, rule):
    """The result is the same as if it was compiled in the turn."""
    stored = await loop.ask(AddRule, SUBSCRIPTION, rule)
    assert stored == await loop.ask(GetRule, SUBSCRIPTION, "R")
    assert (rule.filter, rule.action) == (stored.filter, stored.action)
    assert stored.created_time_ms
    assert ["compile-rules_0"] == loop.threads


async def test_the_rules_of_a_new_subscription_are_compiled_in_a_thread(loop):
    """All of them, if together they are long."""
    rules = tuple(RuleDefinition(f"r{n}", SqlFilter(LONG[:600].rpartition(" OR")[0])) for n in "ab")
    await loop.ask(CreateEntity, "t/Subscriptions/new", SubscriptionDefinition(rules=rules))
    found = await loop.ask(ListRules, "t/Subscriptions/new")
    assert ["ra", "rb"] == [rule.name for rule in found]
    assert ["compile-rules_0"] * 2 == loop.threads


async def test_a_short_rule_is_compiled_in_the_turn(loop):
    """A thread would cost more than it spares."""
    await loop.ask(AddRule, SUBSCRIPTION, RuleDefinition("r", SqlFilter("a = 1")))
    assert ["MainThread"] == loop.threads


@pytest.mark.parametrize("text", [LONG + " OR", "x = 1".ljust(RELAXED.sql_text_max_characters + 1)])
async def test_a_long_rule_that_makes_no_sense_is_refused(loop, text):
    """As a short one is, and nothing has changed."""
    with pytest.raises(ArgumentError):
        await loop.ask(AddRule, SUBSCRIPTION, RuleDefinition("r", SqlFilter(text)))
    assert [] == await loop.ask(ListRules, SUBSCRIPTION)


async def test_a_failure_in_the_thread_is_reported_to_the_client(loop, monkeypatch):
    """After any failure the client gets an answer."""

    def fail(rule: RuleDefinition, limits: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(rule_compiler, "compile_rule", fail)
    with pytest.raises(BrokerError, match="could not be compiled"):
        await loop.ask(AddRule, SUBSCRIPTION, RuleDefinition("r", SqlFilter(LONG)))


@pytest.mark.parametrize(("starts_again", "text"), [(True, "starting again"), (False, "replaced")])
async def test_a_rule_for_a_namespace_that_was_replaced_meanwhile_is_refused(
    loop, monkeypatch, starts_again, text
):
    """Another namespace of this name may have other entities. Somebody waits for the answer."""
    begun, go_on = threading.Event(), threading.Event()

    def waiting(rule: RuleDefinition, limits: Any) -> Any:
        begun.set()
        assert go_on.wait(20)
        return compile_rule(rule, limits)

    monkeypatch.setattr(rule_compiler, "compile_rule", waiting)
    asking = asyncio.get_running_loop().create_task(
        loop.ask(AddRule, SUBSCRIPTION, RuleDefinition("r", SqlFilter(LONG)))
    )
    await asyncio.to_thread(begun.wait, 20)
    loop.namespaces["ns"] = CoreDialogue(entities={}, attach=False).namespace
    if starts_again:
        loop.turns.drop("The broker is starting again.")
    go_on.set()
    with pytest.raises(BrokerError, match=text):
        await asking
    loop.compiler.close()  # the thread has finished, and handed over what it made
    with pytest.raises(BrokerError, match="started again"):
        await loop.ask(ListRules, SUBSCRIPTION)
    loop.namespaces["ns"] = loop.namespace
    assert [] == await loop.ask(ListRules, SUBSCRIPTION)
