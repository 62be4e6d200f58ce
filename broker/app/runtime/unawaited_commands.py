"""Decides which commands may wait for the next turn, because nobody can notice that they run later.

A receiver that settles its dispositions itself expects no answer, and nobody else gets a message that it completes. A
turn of its own would cost as much as a part of the next send. Later commands of all clients still run after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.commands import Settle
from broker.core.contract.settlement_values import COMPLETE

if TYPE_CHECKING:
    from broker.core.contract.commands import Command

UNAWAITED_S = 0.005
"""How long such a command waits for the next turn."""
UNAWAITED_MAX = 64
"""A command for more messages than this does not wait."""


def is_unawaited(command: Command) -> bool:
    """Returns whether a command may wait for the next turn."""
    return (
        type(command) is Settle
        and len(command.tokens) <= UNAWAITED_MAX
        and command.settlement is COMPLETE
        and command.transaction_id is None
        and command.handles.count(None) == len(command.handles)
    )
