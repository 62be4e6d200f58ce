"""What a sender is promised: stored and accepted, or refused with a reason."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import AttachSender, CreateEntity, DeleteEntity, Send, SendBatch
from broker.core.contract.errors import (
    ArgumentError,
    EntityDisabled,
    EntityNotFound,
    MessageSizeExceeded,
    NotAllowed,
    QuotaExceeded,
    ServerBusy,
    UndecodableMessage,
)
from broker.core.contract.message import Message
from config.model.definitions import (
    EntityStatus,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.limits import Limits
from tests.support.core_dialogue import (
    CLIENT,
    Accepted,
    CoreDialogue,
    Detached,
    NamedPeer,
    Refused,
    S,
    SenderAttached,
    SendRefused,
    message,
    send,
    stored,
)


def test_a_send_is_stored_then_accepted():
    """One record and one answer, however many messages."""
    assert CoreDialogue() >> send("a", "b", "c") << stored(1, 2, 3) << Accepted(S, ["a", "b", "c"])


def test_a_presettled_send_is_stored_without_answer():
    """The handle is None: the sender does not wait for an outcome."""
    assert CoreDialogue() >> Send(S, [message()], [None]) << stored(1)


def test_messages_are_numbered_in_the_order_they_were_sent():
    """Numbers rise by one, across commands and senders."""
    dialogue = CoreDialogue()
    other = NamedPeer("other")
    dialogue.run(AttachSender(other, "q"), send("a", "b"), send("c", to=other), send("d"))
    rows = [row for record in dialogue.turns[-1].records for row in record.rows]
    assert [1, 2, 3, 4] == [row.sequence_number for row in rows]
    assert [1, 2, 3, 4] == [row.enqueue_sequence_number for row in rows]
    assert {dialogue.now_ms} == {row.enqueued_time_ms for row in rows}


def test_too_large_a_message_is_refused_and_the_others_are_not():
    """Messages of one command are independent."""
    dialogue = CoreDialogue(QueueDefinition(max_message_size_kilobytes=1))
    assert (
        dialogue
        >> send("a", "x" * 1025, "b")
        << stored(1, 2)
        << SendRefused(S, "x" * 1025, MessageSizeExceeded)
        << Accepted(S, ["a", "b"])
    )


def test_the_size_limit_is_announced_at_attach():
    """SDKs size their batches by it."""
    dialogue = CoreDialogue(QueueDefinition(max_message_size_kilobytes=3), attach=False)
    assert dialogue >> AttachSender(S, "q") << SenderAttached(S, 3072)


def test_a_full_entity_refuses_what_does_not_fit():
    """The message that would go over the maximum size is refused, and says how full it is."""
    dialogue = CoreDialogue(QueueDefinition(max_size_megabytes=1))
    half = "h" * 600_000
    assert [stored(1), Accepted(S, [half])] == dialogue.outcomes_of(send(half))
    turn = dialogue.run(send("k" * 600_000, "small"))
    refused, accepted = turn.effects
    assert isinstance(refused.error, QuotaExceeded)
    assert "The maximum entity size has been reached or exceeded for Queue: 'q'." in str(
        refused.error
    )
    assert "Size of entity in bytes:600000, Max entity size in bytes:1048576." in str(refused.error)
    assert Accepted(S, ["small"]) == accepted


def test_room_returns_when_messages_are_completed():
    """Size follows what is in the entity."""
    dialogue = CoreDialogue(QueueDefinition(max_size_megabytes=1))
    large = "h" * 600_000
    dialogue.run(send(large))
    entity = next(iter(dialogue.namespace.views()))
    assert 600_000 == entity.size_bytes


def test_a_batch_is_stored_whole():
    """One answer for all of it."""
    batch = SendBatch(S, [message("a"), message("b")], "batch")
    assert CoreDialogue() >> batch << stored(1, 2) << Accepted(S, ["batch"])


def test_a_batch_with_one_bad_message_is_refused_whole():
    """Nothing of it is stored."""
    dialogue = CoreDialogue(QueueDefinition(max_message_size_kilobytes=1))
    batch = SendBatch(S, [message("a"), message("x" * 2000)], "batch")
    assert dialogue >> batch << SendRefused(S, "batch", MessageSizeExceeded)


@pytest.mark.parametrize("limits", [Limits(batch_max_messages=1), Limits(batch_max_bytes=5)])
def test_a_batch_is_bounded(limits):
    """In messages and in bytes."""
    batch = SendBatch(S, [message("aaa"), message("bbb")], "batch")
    dialogue = CoreDialogue(limits=limits)
    assert dialogue >> batch << SendRefused(S, "batch", MessageSizeExceeded)


def test_an_empty_batch_is_accepted():
    """It stores nothing, and that succeeds."""
    assert CoreDialogue() >> SendBatch(S, [], "batch") << Accepted(S, ["batch"])


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        (EntityStatus.ACTIVE, False),
        (EntityStatus.DISABLED, True),
        (EntityStatus.SEND_DISABLED, True),
        (EntityStatus.RECEIVE_DISABLED, False),
    ],
)
def test_status_decides_who_may_send(status, refused):
    """A disabled entity takes no senders; one disabled for receiving does."""
    dialogue = CoreDialogue(QueueDefinition(status=status), attach=False)
    (effect,) = dialogue.run(AttachSender(S, "q")).effects
    assert refused == isinstance(effect, Refused)
    if refused:
        assert isinstance(effect.error, EntityDisabled)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("nowhere", EntityNotFound),
        ("q/$DeadLetterQueue", NotAllowed),
        ("q/$Transfer/$DeadLetterQueue", NotAllowed),
        ("t/Subscriptions/s", NotAllowed),
        ("t/Subscriptions/none", EntityNotFound),
    ],
)
def test_only_queues_and_topics_take_senders(path, error):
    """Subscriptions and sub-queues are for receiving."""
    dialogue = CoreDialogue(
        entities={
            "q": QueueDefinition(),
            "t": TopicDefinition(),
            "t/Subscriptions/s": SubscriptionDefinition(),
        },
        attach=False,
    )
    assert dialogue >> AttachSender(S, path) << Refused(S, error)


def test_paths_are_found_whatever_their_case():
    """And names may contain slashes."""
    dialogue = CoreDialogue(entities={"Orders/New": QueueDefinition()}, attach=False)
    (effect,) = dialogue.run(AttachSender(S, "orders/NEW")).effects
    assert isinstance(effect, SenderAttached)


def test_a_send_without_attach_is_refused():
    """Every send gets its answer."""
    stranger = NamedPeer("stranger")
    assert CoreDialogue() >> send("a", to=stranger) << SendRefused(stranger, "a", NotAllowed)


def test_a_send_to_a_deleted_entity_is_refused():
    """Even if one of the same name exists again: the link was to the old one."""
    dialogue = CoreDialogue(attach=False)
    dialogue.run(AttachSender(S, "q"))
    outcomes = dialogue.outcomes_of(DeleteEntity(CLIENT, "x", "q"))
    assert Detached(S, EntityNotFound) in outcomes
    dialogue.run(CreateEntity(CLIENT, "y", "q", QueueDefinition()))
    assert dialogue >> send("a") << SendRefused(S, "a", EntityNotFound)


def test_the_server_can_refuse_all_sends_for_a_while():
    """For example while the disk is full. Receiving still works."""
    dialogue = CoreDialogue()
    dialogue.room.set_full(is_full=True)
    assert dialogue >> send("a") << SendRefused(S, "a", ServerBusy)
    dialogue.room.set_full(is_full=False)
    assert dialogue >> send("a") << stored(1) << Accepted(S, ["a"])


def test_a_refused_presettled_send_is_reported_without_handle():
    """The client gets no answer, but the refusal is logged and counted."""
    dialogue = CoreDialogue(QueueDefinition(max_message_size_kilobytes=1))
    refused = SendRefused(S, None, MessageSizeExceeded)
    assert dialogue >> Send(S, [message("x" * 2000)], [None]) << refused


# --- on entities that look into messages -----------------------------------------------------------


def test_a_message_without_session_id_is_refused_by_a_session_entity():
    """The others of the command are taken."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True))
    assert (
        dialogue
        >> send("a", message("b", session="x"))
        << stored(1)
        << SendRefused(S, "a", NotAllowed)
        << Accepted(S, ["b"])
    )


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (message("a", session="x", partition_key="y"), NotAllowed),
        (message("a", session="s" * 129), ArgumentError),
        (Message(b"undecodable"), UndecodableMessage),
    ],
)
def test_a_session_entity_refuses(sent, error):
    """A partition key that differs, an id that is too long, a message that cannot be read."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True))
    assert dialogue >> Send(S, [sent], ["h"]) << SendRefused(S, "h", error)


def test_a_partition_key_equal_to_the_session_id_is_fine():
    """SDKs set both."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True))
    sent = message("a", session="x", partition_key="x")
    assert dialogue >> send(sent) << stored(1) << Accepted(S, ["a"])


def test_an_empty_session_id_is_a_session_id():
    """Go's tests use it."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True))
    assert dialogue >> send(message("a", session="")) << stored(1) << Accepted(S, ["a"])
