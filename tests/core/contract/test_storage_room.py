"""What a nearly full store cannot take is refused before anything has changed."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    AttachSender,
    CreateEntity,
    Declare,
    Discharge,
    Schedule,
    Send,
    SendBatch,
    SetSessionState,
)
from broker.core.contract.errors import ServerBusy, TransactionRolledBack
from broker.core.contract.storage_room import SCARCE_BYTES, StorageRoom
from broker.core.contract.turn import Turn
from config.model.definitions import (
    EntityStatus,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    Accepted,
    CoreDialogue,
    NamedPeer,
    Reply,
    S,
    SendRefused,
    attach_receiver,
    message,
    send,
    stored,
)

ROOM_BYTES = 10_000
HALF = "x" * 6_000
"""Fits once, and not twice."""
LARGE = "x" * 12_000
COORDINATOR = NamedPeer("COORDINATOR")


def limited(*arguments, **options) -> CoreDialogue:
    dialogue = CoreDialogue(*arguments, **options)
    dialogue.room.set_measured(ROOM_BYTES, ROOM_BYTES)
    return dialogue


def release(dialogue: CoreDialogue) -> None:
    """The store has committed everything, and has the same room as before."""
    for turn in dialogue.turns:
        dialogue.room.stored(turn)
    dialogue.turns.clear()


def test_a_message_that_is_too_large_for_the_store_is_refused():
    """The sentence names the cause and what helps. Another message is accepted."""
    dialogue = limited()
    (refused,) = dialogue.run(send(LARGE)).effects
    assert "disk has no room for 12000 bytes" in str(refused.error)
    assert "Receive messages, free space" in str(refused.error)
    assert dialogue >> send("a") << stored(1) << Accepted(S, ["a"])


def test_messages_of_one_command_are_counted_together():
    """Those that fit are accepted, also after one that does not."""
    dialogue = limited()
    command = Send(S, [message(HALF), message(HALF), message("a")], [1, 2, 3])
    refused = SendRefused(S, 2, ServerBusy)
    assert dialogue >> command << stored(1, 2) << refused << Accepted(S, [1, 3])


def test_commands_of_one_turn_are_counted_together():
    dialogue = limited()
    outcomes = dialogue.outcomes_of(
        Send(S, [message(HALF)], ["first"]), Send(S, [message(HALF)], ["second"])
    )
    assert [stored(1), Accepted(S, ["first"]), SendRefused(S, "second", ServerBusy)] == outcomes


def test_what_is_not_stored_yet_is_counted():
    """Until its turn is stored. Then the store has measured its room again."""
    dialogue = limited()
    assert dialogue >> Send(S, [message(HALF)], [1]) << stored(1) << Accepted(S, [1])
    assert dialogue >> Send(S, [message(HALF)], [2]) << SendRefused(S, 2, ServerBusy)
    release(dialogue)
    assert dialogue >> Send(S, [message(HALF)], [3]) << stored(2) << Accepted(S, [3])


def test_turns_that_are_stored_together_are_counted_once():
    room = StorageRoom()
    room.set_measured(ROOM_BYTES, ROOM_BYTES)
    first, second = Turn(), Turn()
    room.take(4_000, first)
    room.take(5_000, second)
    assert not room.has(2_000)
    first.absorb(second)
    room.stored(first)
    assert room.has(ROOM_BYTES)
    assert not room.has(ROOM_BYTES + 1)


def test_nothing_is_counted_while_there_is_much_room():
    """A turn of that time does not free room when it is stored."""
    dialogue = CoreDialogue()
    dialogue.room.set_measured(SCARCE_BYTES, SCARCE_BYTES)
    turn = dialogue.run(send(LARGE))
    assert not turn.unstored_bytes
    dialogue.room.set_measured(ROOM_BYTES, ROOM_BYTES)
    dialogue.room.stored(turn)
    assert not dialogue.room.has(ROOM_BYTES + 1)


def test_what_a_restart_has_dropped_is_not_counted():
    dialogue = limited()
    dialogue.run(Send(S, [message(HALF)], [1]))
    dialogue.room.forget_unstored()
    assert dialogue.room.has(ROOM_BYTES)


def test_a_batch_is_refused_as_a_whole():
    """Each of its messages alone would fit."""
    dialogue = limited()
    batch = SendBatch(S, [message(HALF), message(HALF)], "batch")
    assert dialogue >> batch << SendRefused(S, "batch", ServerBusy)
    assert dialogue >> send("a") << stored(1) << Accepted(S, ["a"])


def test_many_small_messages_need_room_besides_their_bodies():
    dialogue = limited()
    batch = SendBatch(S, [message("a") for _ in range(100)], "batch")
    assert dialogue >> batch << SendRefused(S, "batch", ServerBusy)


def test_scheduled_messages_are_counted():
    dialogue = limited()
    for text, fits in ((LARGE, False), (HALF, True), (HALF, False)):
        command = Schedule(CLIENT, "s", "q", [message(text, at_ms=START_MS + 60_000)])
        if fits:
            dialogue.ask(command)
        else:
            with pytest.raises(ServerBusy, match="no room"):
                dialogue.ask(command)


def test_a_transaction_is_counted_as_a_whole():
    """Each of its sends alone would fit. Nothing of it is stored."""
    dialogue = limited()
    dialogue.run(Declare(COORDINATOR, "declare"))
    for number in (1, 2):
        dialogue.run(Send(S, [message(HALF)], [number], T1))
    refused = Reply(COORDINATOR, "discharge", error=TransactionRolledBack)
    assert dialogue >> Discharge(COORDINATOR, "discharge", T1, fail=False) << refused
    assert dialogue >> send("a") << stored(1) << Accepted(S, ["a"])


def test_copies_on_subscriptions_share_the_room_of_a_body():
    dialogue = limited(entities={"t": TopicDefinition()}, attach=False)
    for number in range(20):
        path = f"t/subscriptions/s{number}"
        dialogue.ask(CreateEntity(CLIENT, "c", path, SubscriptionDefinition()))
    dialogue.run(AttachSender(S, "t"))
    assert SendRefused(S, 1, ServerBusy) in dialogue.outcomes_of(Send(S, [message(LARGE)], [1]))
    assert Accepted(S, [2]) in dialogue.outcomes_of(Send(S, [message(HALF)], [2]))
    assert SendRefused(S, 3, ServerBusy) in dialogue.outcomes_of(Send(S, [message(HALF)], [3]))


def test_messages_that_become_transfer_dead_letters_are_counted():
    """They are sent through an entity to another one, which is disabled."""
    entities = {"via": QueueDefinition(), "q": QueueDefinition(status=EntityStatus.DISABLED)}
    dialogue = limited(entities=entities, attach=False)
    dialogue.run(AttachSender(S, "via", "q"))
    dialogue.run(Send(S, [message(HALF)], [1]))
    assert dialogue >> Send(S, [message(HALF)], [2]) << SendRefused(S, 2, ServerBusy)


def test_a_session_state_that_is_too_large_for_the_store_is_refused():
    """The store may have more room for states than for messages."""
    dialogue = limited(QueueDefinition(requires_session=True))
    dialogue.room.set_measured(0, ROOM_BYTES)
    dialogue.run(attach_receiver(S, session="x"))
    with pytest.raises(ServerBusy, match="no room"):
        dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", LARGE.encode()))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", HALF.encode()))
    with pytest.raises(ServerBusy, match="no room"):
        dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", HALF.encode()))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "x", None))
