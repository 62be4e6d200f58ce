"""Divides large send and settle commands, so that one command does not fill a turn.

Commands in a transaction and batches are atomic and are never divided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.commands import Send, Settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.commands import Command
    from broker.core.operations.link_operations import LinkOperations

PART_MAX_MESSAGES = 4_096
"""How many messages one part of a command sends to a queue, or settles, at most."""


def divided(
    command: Command, links: LinkOperations, part_messages: int
) -> Sequence[Send | Settle] | None:
    """Returns the parts of a command, or None if it is small or atomic. `part_messages` is how many
    copies on subscriptions one part may make."""
    if type(command) is Send:
        count = len(command.messages)
        if count < 2:
            return None
        copies = links.copies_per_message(command.peer)
        if copies == 1:
            part_messages = max(part_messages, PART_MAX_MESSAGES)
    elif type(command) is Settle:
        count, copies, part_messages = len(command.tokens), 1, PART_MAX_MESSAGES
    else:
        return None
    size = max(1, part_messages // copies)
    if count <= size or command.transaction_id is not None:
        return None
    return [_slice(command, start, start + size) for start in range(0, count, size)]


def _slice(command: Send | Settle, start: int, end: int) -> Send | Settle:
    handles = command.handles[start:end]
    if isinstance(command, Send):
        return command._replace(messages=command.messages[start:end], handles=handles)
    return command._replace(tokens=command.tokens[start:end], handles=handles)
