"""Finds out whether a namespace has work left for the next ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.core.namespace import Namespace


def has_unfinished_work(namespace: Namespace) -> bool:
    """Returns whether work that is due, or was begun, is left for the next ticks."""
    backlog = namespace._context.backlog
    return bool(backlog) or namespace._activations.due_since_ms is not None
