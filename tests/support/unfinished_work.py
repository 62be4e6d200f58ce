"""Finds out whether a namespace has work left for the next ticks, and does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.core_dialogue import Advance

if TYPE_CHECKING:
    from broker.core.namespace import Namespace
    from tests.support.core_dialogue import CoreDialogue


def has_unfinished_work(namespace: Namespace) -> bool:
    """Returns whether work that is due, or was begun, is left for the next ticks."""
    backlog = namespace._context.backlog
    return bool(backlog) or namespace._activations.due_since_ms is not None


def finish_work(dialogue: CoreDialogue) -> None:
    """Does all parts of what is due or was begun."""
    while has_unfinished_work(dialogue.namespace):
        dialogue.run(Advance(0))
