"""How much memory a lock takes: a receiver may hold hundreds of thousands."""

from __future__ import annotations

import tracemalloc

from broker.core.contract.commands import AttachReceiver, AttachSender, Credit, Send
from broker.core.contract.effects import Deliver
from broker.core.contract.settlement_values import ReceiveMode
from broker.core.contract.turn import Turn
from config.model.definitions import QueueDefinition
from tests.support.core_dialogue import START_MS, CoreDialogue, R, S, message

LOCKS = 20_000
BURST = 1_000
BYTES_PER_LOCK_MAX = 120
"""The token has 49 bytes and its entry in the table of locks about 40. What a message takes besides is not
counted: it is in memory before it is locked."""


def test_a_lock_takes_few_bytes():
    """Locks of one delivery share their end and their holder."""
    dialogue = CoreDialogue(entities={"q": QueueDefinition()}, attach=False)
    namespace = dialogue.namespace
    for command in (AttachSender(S, "q"), AttachReceiver(R, "q", ReceiveMode.PEEK_LOCK)):
        namespace.apply(command, START_MS, Turn())
    for start in range(0, LOCKS, BURST):
        messages = [message() for _ in range(BURST)]
        namespace.apply(Send(S, messages, [None] * BURST), START_MS + start, Turn())
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        locked = 0
        for number in range(LOCKS // BURST):
            turn = Turn()
            namespace.apply(Credit(R, LOCKS), START_MS + LOCKS + number, turn)
            namespace.dispatch(START_MS + LOCKS + number, turn)
            locked += sum(len(one.messages) for one in turn.effects if isinstance(one, Deliver))
            del turn
        used_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
    finally:
        tracemalloc.stop()
    assert LOCKS == locked
    assert used_bytes / LOCKS <= BYTES_PER_LOCK_MAX, used_bytes / LOCKS
