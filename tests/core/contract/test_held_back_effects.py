"""Effects that a long commit holds back: they describe the state at the time when they were
made."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import Detach, ReceiveDeferred, RenewLocks, Settle
from broker.core.contract.effects import messages_as_delivered
from broker.core.contract.message import MessageState
from broker.core.contract.settlement_values import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    ReceiveMode,
    Settlement,
    SettlementKind,
)
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    T2,
    Advance,
    CoreDialogue,
    Deliver,
    NamedPeer,
    R,
    attach_receiver,
    credit,
    send,
    text_of,
)

OTHER = NamedPeer("OTHER")
LOCK_MS = 30_000
ABANDON_WITH_PROPERTY = Settlement(SettlementKind.ABANDON, {"color": b"\xa1\x03red"})


def _first_delivery(dialogue):
    (effect,) = [e for e in dialogue.run(credit(1)).effects if isinstance(e, Deliver)]
    return effect


def _check(effect):
    (message,) = messages_as_delivered(effect)
    assert ("a", 0, None) == (text_of(message), message.delivery_count, message.changes)
    assert START_MS + LOCK_MS == effect.locked_until_ms


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [Advance(LOCK_MS)],
        [Advance(LOCK_MS), credit(1, to=OTHER)],
        [Detach([R], connection_lost=True), credit(1, to=OTHER)],
        [Settle(R, [T1], [None], ABANDON_WITH_PROPERTY), Advance(1), credit(1, to=OTHER)],
        [Settle(R, [T1], [None], DEAD_LETTER)],
        [Settle(R, [T1], [None], DEFER)],
        [Settle(R, [T1], [None], COMPLETE)],
        [Advance(1), RenewLocks(CLIENT, "renew", "q", [T1])],
    ],
    ids=[
        "nothing",
        "lock expired",
        "locked again",
        "connection broke",
        "abandoned with properties",
        "dead-lettered",
        "deferred",
        "completed",
        "renewed",
    ],
)
def test_a_delivery_shows_the_message_as_it_was_locked(steps):
    """The message may have changed before the delivery is released."""
    dialogue = CoreDialogue()
    dialogue.run(attach_receiver(OTHER), send("a"))
    effect = _first_delivery(dialogue)
    dialogue.run(*steps)
    _check(effect)


def test_a_delivery_keeps_the_body_of_a_message_that_leaves_memory():
    """A lock that ended lets the body go; the delivery is written all the same."""
    dialogue = CoreDialogue(budget_bytes=0)
    dialogue.run(send("a"))
    dialogue.commit()
    told = dialogue.serve(credit(1))
    (effect,) = [e for e in told if isinstance(e, Deliver)]
    dialogue.run(Settle(R, [T1], [None], ABANDON), Advance(0))
    (waiting,) = dialogue.namespace._directory.queue("q").index.walk()
    assert waiting.body is None
    assert ["a"] == [text_of(message) for message in messages_as_delivered(effect)]


def test_a_fetched_message_is_shown_as_it_was_locked():
    """The same for those that are asked for by number."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"), credit(1))
    dialogue.run(Settle(R, [T1], [None], DEFER))
    fetch = ReceiveDeferred(CLIENT, "fetch", "q", [1], ReceiveMode.PEEK_LOCK)
    ((message, lock_token),) = dialogue.ask(fetch)
    assert T2 == lock_token
    until_ms = message.locked_until_ms
    dialogue.run(Advance(LOCK_MS))
    dialogue.ask(fetch)
    assert until_ms == message.locked_until_ms
    assert (1, MessageState.DEFERRED) == (message.delivery_count, message.state)
