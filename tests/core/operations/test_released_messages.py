"""Deferred messages that the control API releases, and their time to live."""

from __future__ import annotations

import pytest

from broker.core.contract import control_operations as control
from broker.core.contract.commands import ControlRequest, Settle
from broker.core.contract.settlement_values import DEFER
from config.model.definitions import QueueDefinition
from tests.support.core_dialogue import (
    CLIENT,
    T1,
    T2,
    Advance,
    CoreDialogue,
    R,
    attach_receiver,
    credit,
    message,
    send,
    text_of,
)

LIVE_MS = 10_000
RELEASE = ControlRequest(CLIENT, "release", control.ReleaseByNumber("q", [1, 2]))


def deferred(definition: QueueDefinition | None = None) -> CoreDialogue:
    """A queue with two deferred messages, of which one expires."""
    dialogue = CoreDialogue(definition)
    dialogue.run(send(message("short", time_to_live_ms=LIVE_MS), "long"), credit(2))
    dialogue.run(Settle(R, [T1, T2], ["h", "i"], DEFER))
    return dialogue


def queue_of(dialogue: CoreDialogue, path: str = "q"):
    return dialogue.namespace._directory.queue(path)


@pytest.mark.parametrize("dead_letters", [False, True])
def test_a_deferred_message_that_expired_is_not_released(dead_letters):
    """It expires when it is asked for, as when it is received by number."""
    dialogue = deferred(QueueDefinition(dead_lettering_on_expiration=dead_letters))
    dialogue.run(Advance(2 * LIVE_MS))
    assert 2 == dialogue.ask(RELEASE)
    assert ["long"] == [text_of(one) for one in dialogue.deliveries(credit(9))]
    queue = queue_of(dialogue)
    assert (1, 0) == (queue.count, queue.deferred_count)
    assert dead_letters == queue_of(dialogue, "q/$DeadLetterQueue").count


def test_a_released_message_expires_in_time():
    """Its time to live has not ended when it is released."""
    dialogue = deferred()
    dialogue.ask(RELEASE)
    dialogue.run(Advance(2 * LIVE_MS))
    assert ["long"] == [text_of(one) for one in dialogue.deliveries(credit(9))]


def test_a_message_released_after_a_restart_expires_in_time():
    """No deadline is restored for a deferred message, because it does not expire by itself."""
    dialogue = deferred().restarted()
    dialogue.run(attach_receiver(R))
    dialogue.ask(RELEASE)
    dialogue.run(Advance(2 * LIVE_MS))
    assert ["long"] == [text_of(one) for one in dialogue.receive(credit(9))]


def test_the_only_deferred_message_may_have_expired():
    """Then nothing is left to release."""
    dialogue = CoreDialogue()
    dialogue.run(send(message("short", time_to_live_ms=LIVE_MS)), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEFER), Advance(2 * LIVE_MS))
    assert 1 == dialogue.ask(ControlRequest(CLIENT, "release", control.ReleaseByNumber("q", [1])))
    assert [] == dialogue.deliveries(credit(9))
    assert 0 == queue_of(dialogue).count
