"""Compiles long SQL texts of rules in a thread, so that the event loop does not wait.

`broker/core/routing/compiled_rule.py` compiles; this module has the thread. A text within the service's own limit takes
a few milliseconds and is compiled in the turn. A longer text, up to the relaxed limits, takes up to
some tenths of a second. It is compiled here first, and the turn gets the compiled rule or its
refusal.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import structlog

from broker.core.contract.commands import AddRule, CreateEntity
from broker.core.contract.errors import BrokerError
from broker.core.routing.compiled_rule import compile_rule
from config.model.definitions import SqlFilter, SubscriptionDefinition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.commands import Command
    from broker.core.routing.compiled_rule import CompiledRule
    from config.model.definitions import RuleDefinition
    from config.model.limits import Limits

log = structlog.get_logger("peeklock.rules")

COMPILED_IN_TURN_CHARACTERS = 1_024
"""For the rules of one command. 1,024 characters are the limit of the service; they compile within 5 ms."""

HAVE_RULES = frozenset({AddRule, CreateEntity})
"""The commands that have rules."""


class RuleCompiler:
    """Compiles rules in one thread. Clients with long rules wait for each other; other clients do not
    wait."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._thread: ThreadPoolExecutor | None = None

    def start(self, command: Command, finished: Callable[[Command], None]) -> bool:
        """Starts to compile the rules of a command. Returns False if they are short or compiled already.
        `finished` is called on the event loop, with the command to run."""
        rules = _rules_of(command)
        if sum(_sql_characters(rule) for rule in rules) <= COMPILED_IN_TURN_CHARACTERS:
            return False
        if self._thread is None:  # most brokers never need it
            self._thread = ThreadPoolExecutor(1, "compile-rules")
        loop = asyncio.get_running_loop()
        compiling = loop.run_in_executor(self._thread, self._compiled, command, rules)
        compiling.add_done_callback(
            lambda done: None if done.cancelled() else finished(done.result())
        )
        return True

    def close(self) -> None:
        """Cancels what has not begun, and waits for the rule that is being compiled."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _compiled(self, command: Command, rules: Sequence[RuleDefinition]) -> Command:
        assert isinstance(command, AddRule | CreateEntity)
        return command._replace(compiled=tuple(map(self._compile, rules)))

    def _compile(self, rule: RuleDefinition) -> CompiledRule | BrokerError:
        try:
            return compile_rule(rule, self._limits)
        except BrokerError as refusal:
            return refusal
        except Exception:
            # A bug of the broker, or no memory. The client gets a refusal, and nothing has changed.
            log.exception("rule.not_compiled", rule=rule.name)
            return BrokerError("The rule could not be compiled.")


def _rules_of(command: Command) -> Sequence[RuleDefinition]:
    if isinstance(command, AddRule) and not command.compiled:
        return (command.rule,)
    if (
        isinstance(command, CreateEntity)
        and not command.compiled
        and isinstance(command.definition, SubscriptionDefinition)
    ):
        return command.definition.rules
    return ()


def _sql_characters(rule: RuleDefinition) -> int:
    """The number of characters to compile."""
    filter_characters = len(rule.filter.expression) if isinstance(rule.filter, SqlFilter) else 0
    return filter_characters + (len(rule.action.expression) if rule.action else 0)
