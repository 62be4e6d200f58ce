"""Messages for later: numbered twice, peekable, and cancelled by their first number."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    AttachSender,
    CancelScheduled,
    Declare,
    DeleteEntity,
    Discharge,
    GetEntity,
    Peek,
    Schedule,
    SendBatch,
    Tick,
)
from broker.core.contract.errors import (
    EntityDisabled,
    EntityNotFound,
    MessageNotFound,
    MessageSizeExceeded,
    NotAllowed,
    QuotaExceeded,
    TransactionRolledBack,
)
from broker.core.contract.message import MessageState
from broker.core.contract.records import MessagesDeleted
from broker.core.operations.atomic_limits import ATOMIC_COPIES_MAX
from broker.core.operations.scheduled_activation import SORTED_PER_ACTIVATED
from broker.core.queues.backlog import PART_MESSAGES as AT_A_TIME
from broker.core.queues.deadlines import Due
from config.model.definitions import (
    EntityStatus,
    QueueDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.limits import Limits
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    Accepted,
    Advance,
    CoreDialogue,
    Deliver,
    NamedPeer,
    R,
    Reply,
    S,
    attach_receiver,
    credit,
    deleted,
    message,
    send,
    stored,
    text_of,
    updated,
)

LATER_MS = START_MS + 60_000
TWO_QUEUES = {"q": QueueDefinition(), "other": QueueDefinition()}
OTHER = NamedPeer("OTHER")


def schedule(*messages, path="q"):
    return Schedule(CLIENT, "s", path, messages)


def test_a_scheduled_send_waits_for_its_time():
    """It is accepted at once, delivered when due."""
    dialogue = CoreDialogue()
    dialogue.run(credit(5))
    assert dialogue >> send(message("a", at_ms=LATER_MS)) << stored(1) << Accepted(S, ["a"])
    assert LATER_MS == dialogue.namespace.next_deadline_ms()
    assert dialogue >> Advance(59_999)
    assert dialogue >> Advance(1) << updated(1) << Deliver(R, [2], [T1])


def test_scheduling_by_request_returns_sequence_numbers():
    """Consecutive, by which they can be cancelled."""
    dialogue = CoreDialogue()
    dialogue.run(send("before"))
    request = schedule(message("a", at_ms=LATER_MS), message("b", at_ms=LATER_MS))
    assert dialogue >> request << stored(2, 3) << Reply(CLIENT, "s", [2, 3])


def test_a_scheduled_message_can_be_peeked():
    """State 2, under its provisional number."""
    dialogue = CoreDialogue()
    dialogue.run(schedule(message("a", at_ms=LATER_MS)))
    (peeked,) = dialogue.ask(Peek(CLIENT, "p", "q", 0, 5))
    assert (MessageState.SCHEDULED, 1) == (peeked.state, peeked.sequence_number)
    view = dialogue.ask(GetEntity(CLIENT, "get", "q"))
    assert (0, 1) == (view.active_count, view.scheduled_count)


def test_activation_gives_a_new_number_and_time():
    """The message is ordered after messages that were sent before its activation."""
    dialogue = CoreDialogue()
    dialogue.run(schedule(message("a", at_ms=LATER_MS)), send("b"))
    dialogue.run(Advance(60_000))
    first, second = dialogue.ask(Peek(CLIENT, "p", "q", 0, 5))
    assert ["b", "a"] == [text_of(first), text_of(second)]
    assert (3, 3, LATER_MS, MessageState.ACTIVE) == (
        second.sequence_number,
        second.enqueue_sequence_number,
        second.enqueued_time_ms,
        second.state,
    )
    view = dialogue.ask(GetEntity(CLIENT, "get", "q"))
    assert (2, 0) == (view.active_count, view.scheduled_count)


def test_a_time_that_has_passed_means_now():
    """No waiting."""
    dialogue = CoreDialogue()
    dialogue.run(send(message("a", at_ms=START_MS)))
    assert ["a"] == [text_of(m) for m in dialogue.deliveries(credit(1))]


def test_time_to_live_is_counted_from_activation():
    """And not before."""
    dialogue = CoreDialogue()
    dialogue.run(send(message("a", at_ms=LATER_MS, time_to_live_ms=10_000)))
    dialogue.run(Advance(65_000))
    assert 1 == len(dialogue.ask(Peek(CLIENT, "p", "q", 0, 5)))
    assert dialogue >> Advance(5_000) << deleted(1)


def test_a_cancelled_message_is_deleted():
    """A cancelled message never becomes active."""
    dialogue = CoreDialogue()
    dialogue.run(schedule(message("a", at_ms=LATER_MS), message("b", at_ms=LATER_MS)))
    assert dialogue >> CancelScheduled(CLIENT, "c", "q", [1]) << deleted(1) << Reply(CLIENT, "c")
    dialogue.run(Advance(60_000))
    assert ["b"] == [text_of(m) for m in dialogue.deliveries(credit(5))]


def test_cancelling_is_all_or_nothing():
    """An unknown number, an active message, or one that has been activated, refuses all."""
    dialogue = CoreDialogue()
    dialogue.run(schedule(message("a", at_ms=LATER_MS)), send("b"))
    for numbers in ([1, 9], [2], [1, 2]):
        with pytest.raises(MessageNotFound):
            dialogue.ask(CancelScheduled(CLIENT, "c", "q", numbers))
    dialogue.run(Advance(60_000))
    with pytest.raises(MessageNotFound):
        dialogue.ask(CancelScheduled(CLIENT, "c", "q", [1]))


def test_scheduling_is_all_or_nothing():
    """One message that is too large refuses all."""
    dialogue = CoreDialogue(QueueDefinition(max_message_size_kilobytes=1))
    request = schedule(message("a", at_ms=LATER_MS), message("x" * 2000, at_ms=LATER_MS))
    assert dialogue >> request << Reply(CLIENT, "s", None, MessageSizeExceeded)


@pytest.mark.parametrize(
    ("path", "error"),
    [("nowhere", EntityNotFound), ("q/$DeadLetterQueue", NotAllowed)],
)
def test_scheduling_needs_an_entity_that_takes_messages(path, error):
    """As sending does."""
    with pytest.raises(error):
        CoreDialogue().ask(schedule(message("a", at_ms=LATER_MS), path=path))


def test_scheduling_on_a_disabled_entity_is_refused():
    """As sending is."""
    dialogue = CoreDialogue(QueueDefinition(status=EntityStatus.SEND_DISABLED), attach=False)
    with pytest.raises(EntityDisabled):
        dialogue.ask(schedule(message("a", at_ms=LATER_MS)))


def test_a_session_message_can_be_scheduled():
    """It joins its session when it is due, and a receiver that waits for a session gets it."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True))
    dialogue.run(schedule(message("a", session="x", at_ms=LATER_MS)))
    dialogue.run(attach_receiver(R, any_session=True, timeout_ms=600_000), credit(1))
    turn = dialogue.run(Advance(60_000))
    assert ["ReceiverAttached", "Deliver"] == [type(effect).__name__ for effect in turn.effects]


def test_a_scheduled_message_without_session_is_refused():
    """Session rules apply when it is taken in."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True))
    with pytest.raises(NotAllowed):
        dialogue.ask(schedule(message("a", at_ms=LATER_MS)))


def test_many_messages_due_at_once_are_activated_in_parts_and_in_order():
    """No turn is long. Messages that become due later follow, and cancelled messages are not
    activated."""
    dialogue = CoreDialogue()
    crowd = [message(f"{number}", at_ms=LATER_MS) for number in range(2 * AT_A_TIME)]
    numbers = dialogue.ask(schedule(*crowd))
    dialogue.run(schedule(message("later", at_ms=LATER_MS + 1)))
    dialogue.run(Advance(60_001))
    assert AT_A_TIME == dialogue.ask(GetEntity(CLIENT, "get", "q")).active_count
    assert LATER_MS == dialogue.namespace.next_deadline_ms()

    assert dialogue.ask(CancelScheduled(CLIENT, "c", "q", [numbers[-1]])) is None
    dialogue.run(Tick())
    assert 2 * AT_A_TIME - 1 == dialogue.ask(GetEntity(CLIENT, "get", "q")).active_count
    dialogue.run(Tick())
    assert dialogue.namespace.next_deadline_ms() is None
    waiting = dialogue.ask(Peek(CLIENT, "p", "q", 0, AT_A_TIME))
    waiting += dialogue.ask(Peek(CLIENT, "p", "q", waiting[-1].sequence_number + 1, 2 * AT_A_TIME))
    expected = [*(f"{number}" for number in range(2 * AT_A_TIME - 1)), "later"]
    assert expected == [text_of(one) for one in waiting]
    assert {LATER_MS, LATER_MS + 1} == {one.enqueued_time_ms for one in waiting}


def test_more_messages_than_a_turn_can_sort_are_activated_in_the_order_of_their_numbers():
    """Also if the deadlines do not have them in this order: numbers are reserved before a transaction commits."""
    dialogue = CoreDialogue(entities=TWO_QUEUES)
    dialogue.namespace.context.backlog.part_messages = part = 4
    count = 3 * SORTED_PER_ACTIVATED * part
    crowd = [message(f"{number}", at_ms=LATER_MS) for number in range(count)]
    dialogue.run(schedule(*crowd[:4], path="other"), schedule(*crowd))
    late, *others = dialogue.namespace.context.deadlines._buckets[LATER_MS].pop(Due.SCHEDULED)
    dialogue.namespace.context.deadlines.add(Due.SCHEDULED, LATER_MS, [*others[::-1], late])
    dialogue.run(schedule(message("later", at_ms=LATER_MS + 1)))
    dialogue.run(Advance(60_001))
    longest = 0
    while dialogue.namespace.next_deadline_ms() is not None:
        turn = dialogue.run(Tick())
        longest = max(longest, *(len(record.rows) for record in turn.records), 0)
    assert part == longest
    waiting = dialogue.ask(Peek(CLIENT, "p", "q", 0, 2 * count))
    expected = [*(f"{number}" for number in range(count)), "later"]
    assert expected == [text_of(one) for one in waiting]
    waiting = dialogue.ask(Peek(CLIENT, "p", "other", 0, 2 * count))
    assert ["0", "1", "2", "3"] == [text_of(one) for one in waiting]


def test_a_scheduled_message_does_not_wait_for_the_crowd_of_another_queue():
    """Queues take turns."""
    dialogue = CoreDialogue(entities=TWO_QUEUES)
    dialogue.namespace.context.backlog.part_messages = 4
    dialogue.run(schedule(*[message(f"{number}", at_ms=LATER_MS) for number in range(30)]))
    dialogue.run(schedule(message("alone", at_ms=LATER_MS + 1), path="other"))
    dialogue.run(Advance(60_001), Tick())
    assert 1 == dialogue.ask(GetEntity(CLIENT, "get", "other")).active_count
    assert 30 > dialogue.ask(GetEntity(CLIENT, "get", "q")).active_count


def test_messages_that_became_due_at_many_moments_are_activated_together():
    """A tick for each of them would take minutes."""
    dialogue = CoreDialogue()
    dialogue.namespace.context.backlog.part_messages = 4
    for number in range(40):
        dialogue.run(schedule(message(f"{number}", at_ms=LATER_MS + number)))
    dialogue.run(Advance(60_040))
    ticks = 0
    while dialogue.namespace.next_deadline_ms() is not None:
        dialogue.run(Tick())
        ticks += 1
    assert ticks <= 10
    waiting = dialogue.ask(Peek(CLIENT, "p", "q", 0, 50))
    assert [f"{number}" for number in range(40)] == [text_of(one) for one in waiting]
    assert [LATER_MS + number for number in range(40)] == [one.enqueued_time_ms for one in waiting]


def test_scheduled_messages_and_the_backlog_take_turns():
    """Messages that expire do not wait until the last scheduled message is active."""
    queues = {"q": QueueDefinition(), "other": QueueDefinition(default_time_to_live_ms=60_000)}
    dialogue = CoreDialogue(entities=queues)
    dialogue.namespace.context.backlog.part_messages = 4
    dialogue.run(AttachSender(OTHER, "other"))
    dialogue.run(send(*[message(f"{number}") for number in range(20)], to=OTHER))
    dialogue.run(schedule(*[message(f"{number}", at_ms=LATER_MS) for number in range(200)]))
    dialogue.run(Advance(60_001))
    for _ in range(12):
        dialogue.run(Tick())
    assert 0 == dialogue.ask(GetEntity(CLIENT, "get", "other")).active_count
    assert 0 < dialogue.ask(GetEntity(CLIENT, "get", "q")).scheduled_count


def test_a_crowd_whose_queue_is_deleted_never_comes():
    """Nothing of it is written again behind the deletion."""
    dialogue = CoreDialogue()
    dialogue.ask(
        schedule(*[message(f"{number}", at_ms=LATER_MS) for number in range(2 * AT_A_TIME)])
    )
    dialogue.run(Advance(60_000))
    assert LATER_MS == dialogue.namespace.next_deadline_ms()
    dialogue.ask(DeleteEntity(CLIENT, "d", "q"))
    while dialogue.namespace.next_deadline_ms() is not None:
        assert {MessagesDeleted} >= {type(record) for record in dialogue.run(Tick()).records}


def wide_topic(subscriptions=100):
    copies = {f"t/Subscriptions/{n}": SubscriptionDefinition() for n in range(subscriptions)}
    return CoreDialogue(entities={"t": TopicDefinition(), **copies}, attach=False)


MANY = ATOMIC_COPIES_MAX // 100 + 1


def test_scheduling_messages_that_would_become_too_many_is_refused():
    """Messages whose time is not in the future are stored in one turn, like a batch."""
    dialogue = wide_topic()
    request = schedule(*[message("m") for _ in range(MANY)], path="t")
    assert dialogue >> request << Reply(CLIENT, "s", error=QuotaExceeded)


def test_messages_for_later_are_no_copies_yet():
    """They are activated in parts, so as many may be scheduled as a batch has messages."""
    dialogue = wide_topic()
    dialogue.run(schedule(*[message("m", at_ms=LATER_MS) for _ in range(MANY)], path="t"))
    assert MANY == dialogue.ask(GetEntity(CLIENT, "get", "t")).scheduled_count


def test_a_transaction_counts_the_copies_of_scheduled_messages():
    """Together with those of messages that it sends."""
    dialogue = wide_topic(ATOMIC_COPIES_MAX // 100)
    dialogue.run(AttachSender(S, "t"), Declare(CLIENT, "declare"))
    some = [message("m") for _ in range(60)]
    dialogue.run(Schedule(CLIENT, "s", "t", some, T1))
    (refused,) = dialogue.run(SendBatch(S, some, "h", T1)).effects
    assert isinstance(refused.error, QuotaExceeded)
    (reply,) = dialogue.run(Discharge(CLIENT, "discharge", T1, fail=False)).effects
    assert isinstance(reply.error, TransactionRolledBack)


def test_a_request_schedules_no_more_messages_than_a_batch_has():
    """It is stored as a whole, too."""
    dialogue = CoreDialogue(limits=Limits(batch_max_messages=1))
    two = [message(text, at_ms=LATER_MS) for text in "ab"]
    assert dialogue >> schedule(*two) << Reply(CLIENT, "s", error=MessageSizeExceeded)
