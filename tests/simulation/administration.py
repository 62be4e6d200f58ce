"""A client that creates, changes, deletes and lists entities and rules.

Its commands are those of the administration API. A change without an answer may have been made or
not; the next list shows which. Every change that was answered must exist in every later run.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from broker.core.contract.commands import (
    AddRule,
    CreateEntity,
    DeleteEntity,
    GetEntity,
    ListRules,
    RemoveRule,
    UpdateEntity,
)
from broker.core.contract.errors import BrokerError, EntityNotFound, ServerBusy
from config.model.definitions import (
    QueueDefinition,
    RuleDefinition,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from tests.crash.ledgers.registers import Register
from tests.crash.ledgers.report import Book, Report
from tests.support.proton.answers import Unanswered
from tests.support.proton.connection import PeerFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TOPIC = "simulated-administration"
SUBSCRIPTION = f"{TOPIC}/Subscriptions/one"
QUEUES = ("simulated-queue-1", "simulated-queue-2")
RULES = ("rule-1", "rule-2", "rule-3")
PAUSE_S = 0.02
LONG_TEXT_SHARE = 0.3
LONG_TEXT = " OR ".join(f"weight = {number}" for number in range(150))
"""Longer than what is compiled in a turn."""


class AdministrationBook(Book):
    """What the administrator looks for."""

    kinds = ("not as it was made", "administration refused", "unanswered")


class Administrator:
    """One change at a time."""

    def __init__(self, seed: int, ask: Callable[[Callable[..., Any]], Awaitable[Any]]) -> None:
        self._chance = Random(seed)
        self._ask = ask
        """Runs a command and gives its answer. Raises its refusal, `PeerFailed` or `Unanswered`."""
        self._changes = 0
        self._made: set[str] = set()
        self._queues: dict[str, Register[int | None]] = {name: Register(None) for name in QUEUES}
        self._rules: dict[str, Register[bool]] = {name: Register(False) for name in RULES}
        self._book = AdministrationBook()

    async def work_in_one_run(self, is_on: Callable[[], bool]) -> None:
        """Work as long as this run of the broker is on."""
        try:
            await self._have(TOPIC, TopicDefinition())
            await self._have(SUBSCRIPTION, SubscriptionDefinition())
            await self._look()
            while is_on():
                await asyncio.sleep(PAUSE_S)
                if self._chance.random() < 0.5:
                    await self._change_queue(self._chance.choice(QUEUES))
                else:
                    await self._change_rule(self._chance.choice(RULES))
        except (PeerFailed, ServerBusy):
            await asyncio.sleep(PAUSE_S)
        except Unanswered as error:
            self._book.violate("unanswered", str(error))
        except BrokerError as error:
            self._book.violate("administration refused", repr(error))

    async def conclude(self) -> Report:
        """Checks the entities at the end, when the broker no longer crashes."""
        await self._look()
        return Report({"administrative changes": self._changes}, self._book.violations)

    async def _have(self, path: str, definition: TopicDefinition | SubscriptionDefinition) -> None:
        """Create what is not declared: a declared subscription gets its declared rules at start."""
        try:
            await self._ask(partial(GetEntity, path=path))
        except EntityNotFound:
            if path in self._made:
                self._book.violate("not as it was made", f"{path} is gone")
            await self._ask(partial(CreateEntity, path=path, definition=definition))
        self._made.add(path)

    async def _change_queue(self, name: str) -> None:
        register = self._queues[name]
        self._changes += 1
        version = self._changes
        definition = QueueDefinition(user_metadata=str(version))
        if register.value is None:
            register.setting(version)
            await self._ask(partial(CreateEntity, path=name, definition=definition))
        elif self._chance.random() < 0.7:
            register.setting(version)
            await self._ask(partial(UpdateEntity, path=name, definition=definition))
        else:
            register.setting(None)
            await self._ask(partial(DeleteEntity, path=name))
        register.confirmed()

    async def _change_rule(self, name: str) -> None:
        register = self._rules[name]
        self._changes += 1
        if register.value:
            register.setting(False)
            await self._ask(partial(RemoveRule, path=SUBSCRIPTION, name=name))
        else:
            is_long = self._chance.random() < LONG_TEXT_SHARE
            rule = RuleDefinition(name, SqlFilter(LONG_TEXT if is_long else "weight = 1"))
            register.setting(True)
            await self._ask(partial(AddRule, path=SUBSCRIPTION, rule=rule))
        register.confirmed()

    async def _look(self) -> None:
        for name, register in self._queues.items():
            try:
                view = await self._ask(partial(GetEntity, path=name))
                version = int(view.definition.user_metadata)
            except EntityNotFound:
                version = None
            possible = register.possible
            if not register.observed(version):
                text = f"{name} is {version} and may be {possible}"
                self._book.violate("not as it was made", text)
        rules = []
        if SUBSCRIPTION in self._made:
            rules = await self._ask(partial(ListRules, path=SUBSCRIPTION))
        names = {rule.name for rule in rules}
        for name, register_ in self._rules.items():
            possible_ = register_.possible
            if not register_.observed(name in names):
                text = f"{name} is {name in names} and may be {possible_}"
                self._book.violate("not as it was made", text)
