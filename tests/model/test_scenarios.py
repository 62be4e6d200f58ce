"""Every failure that the random runs have found, shrunk and named."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    AttachSender,
    CreateEntity,
    Declare,
    DeleteEntity,
    Detach,
    Discharge,
    PayloadsLoaded,
    Peek,
    ReceiveDeferred,
    Schedule,
    Send,
    Settle,
    UpdateEntity,
)
from broker.core.contract.errors import EntityDisabled, TransactionRolledBack
from broker.core.contract.settlement_values import ABANDON, DEFER, ReceiveMode
from config.model.definitions import (
    CorrelationFilter,
    EntityDefinition,
    EntityStatus,
    QueueDefinition,
    RuleDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    Advance,
    CoreDialogue,
    PayloadsNeeded,
    R,
    S,
    credit,
    message,
    send,
    text_of,
)


def texts(messages):
    return [text_of(one) for one in messages]


# --- requests ------------------------------------------------------------------------------------


def test_a_deferred_message_cannot_be_fetched_while_receiving_is_disabled():
    """Fetching by number is receiving too."""
    dialogue = CoreDialogue()
    dialogue.outcomes_of(send("hello"), credit(1))
    dialogue.outcomes_of(Settle(R, [T1], ["hello"], DEFER))
    disabled = QueueDefinition(status=EntityStatus.RECEIVE_DISABLED)
    dialogue.outcomes_of(UpdateEntity(CLIENT, 1, "q", disabled))
    with pytest.raises(EntityDisabled):
        dialogue.ask(ReceiveDeferred(CLIENT, 2, "q", [1], ReceiveMode.PEEK_LOCK))
    dialogue.outcomes_of(UpdateEntity(CLIENT, 3, "q", QueueDefinition()))
    assert 1 == len(dialogue.ask(ReceiveDeferred(CLIENT, 4, "q", [1], ReceiveMode.PEEK_LOCK)))


# --- links ---------------------------------------------------------------------------------------


def test_a_detached_receiver_is_forgotten_with_its_last_lock():
    """Clients that detach and leave locks behind take no memory after their locks have ended."""
    dialogue = CoreDialogue()
    dialogue.outcomes_of(send("hello"), credit(1))
    dialogue.outcomes_of(Detach([R]))
    assert dialogue.namespace._links.receiver(R) is not None
    dialogue.outcomes_of(Advance(30_000))
    assert dialogue.namespace._links.receiver(R) is None


# --- transactions --------------------------------------------------------------------------------


def test_numbers_promised_in_a_transaction_keep_their_place_in_a_session():
    """A message scheduled first and stored last is peeked in the order of its number."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True))
    transaction_id = dialogue.ask(Declare(CLIENT, 1))
    scheduled = message("scheduled", session="a", at_ms=START_MS + 1_000)
    dialogue.ask(Schedule(CLIENT, 2, "q", [scheduled], transaction_id))
    dialogue.outcomes_of(send(message("sent", session="a")))
    dialogue.ask(Discharge(CLIENT, 3, transaction_id, fail=False))
    assert ["scheduled", "sent"] == texts(dialogue.ask(Peek(CLIENT, 4, "q", 0, 10, "a")))


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_transaction_that_sends_to_a_deleted_entity_is_rolled_back(scheduled):
    """Nothing is stored for a deleted entity, and no client gets an acceptance."""
    dialogue = CoreDialogue()
    transaction_id = dialogue.ask(Declare(CLIENT, 1))
    if scheduled:
        later = message("later", at_ms=START_MS + 1_000)
        dialogue.ask(Schedule(CLIENT, 2, "q", [later], transaction_id))
    else:
        dialogue.outcomes_of(Send(S, [message("now")], ["now"], transaction_id))
    dialogue.outcomes_of(DeleteEntity(CLIENT, 3, "q"))
    with pytest.raises(TransactionRolledBack):
        dialogue.ask(Discharge(CLIENT, 4, transaction_id, fail=False))
    assert {} == dialogue.commit().rows


# --- time ----------------------------------------------------------------------------------------

TOPIC: dict[str, EntityDefinition] = {
    "t": TopicDefinition(),
    "t/Subscriptions/s": SubscriptionDefinition(),
}


def test_what_fell_due_while_the_broker_was_down_comes_in_the_order_of_its_time():
    """Messages to a topic whose bodies must be read back first keep their own times."""
    dialogue = CoreDialogue(entities=TOPIC, attach=False)
    dialogue.outcomes_of(AttachSender(S, "t"))
    dialogue.outcomes_of(send(message("second", at_ms=START_MS + 20_000)))
    dialogue.outcomes_of(send(message("first", at_ms=START_MS + 10_000)))
    later = dialogue.restarted(after_ms=60_000)
    later.serve(Advance(0))
    peeked = later.ask(Peek(CLIENT, 1, "t/Subscriptions/s", 0, 10))
    assert ["first", "second"] == texts(peeked)
    assert [START_MS + 10_000, START_MS + 20_000] == [one.enqueued_time_ms for one in peeked]


def test_what_fell_due_and_expired_while_the_broker_was_down_is_not_delivered():
    """Time to live counts from the scheduled time, however late the body is read back."""
    dialogue = CoreDialogue(entities=TOPIC, attach=False)
    dialogue.outcomes_of(AttachSender(S, "t"))
    dialogue.outcomes_of(send(message("old", at_ms=START_MS + 10_000, time_to_live_ms=5_000)))
    later = dialogue.restarted(after_ms=60_000)
    later.serve(Advance(0))
    assert [] == later.ask(Peek(CLIENT, 1, "t/Subscriptions/s", 0, 10))


def test_scheduling_for_the_past_on_a_topic_answers_with_the_topics_number():
    """Not with that of a copy in one of its subscriptions."""
    dialogue = CoreDialogue(entities=TOPIC, attach=False)
    dialogue.outcomes_of(AttachSender(S, "t"))
    dialogue.ask(Schedule(CLIENT, 1, "t", [message("later", at_ms=START_MS + 1_000)]))
    assert [2] == dialogue.ask(Schedule(CLIENT, 2, "t", [message("past")]))


def test_a_session_subscription_made_later_finds_the_session_of_a_scheduled_message():
    """When the message was sent, no subscription required sessions."""
    dialogue = CoreDialogue(entities={"t": TopicDefinition()}, attach=False)
    dialogue.outcomes_of(AttachSender(S, "t"))
    dialogue.outcomes_of(send(message("later", session="a", at_ms=START_MS + 1_000)))
    grouped = SubscriptionDefinition(requires_session=True)
    dialogue.outcomes_of(CreateEntity(CLIENT, 1, "t/Subscriptions/s", grouped))
    dialogue.outcomes_of(Advance(1_000))
    assert ["later"] == texts(dialogue.ask(Peek(CLIENT, 2, "t/Subscriptions/s", 0, 10, "a")))


def test_what_a_topic_takes_over_keeps_its_order_in_every_subscription():
    """Whether a message goes to one subscription or to several, it does not overtake others."""
    some = (RuleDefinition("some", CorrelationFilter(properties={"color": "red"})),)
    dialogue = CoreDialogue(
        entities={**TOPIC, "t/Subscriptions/some": SubscriptionDefinition(rules=some)}, attach=False
    )
    dialogue.outcomes_of(AttachSender(S, "t"))
    at_ms = START_MS + 1_000
    dialogue.outcomes_of(
        send(message("both", at_ms=at_ms, color="red"), message("one", at_ms=at_ms))
    )
    dialogue.outcomes_of(Advance(1_000))
    assert ["both", "one"] == texts(dialogue.ask(Peek(CLIENT, 1, "t/Subscriptions/s", 0, 10)))


def test_what_is_forwarded_to_a_topic_lives_as_long_as_the_topic_allows():
    """The topic's time to live applies, as to a message that is sent to it."""
    topic = TopicDefinition(default_time_to_live_ms=5_000)
    forwarding = QueueDefinition(forward_to="t")
    dialogue = CoreDialogue(entities={**TOPIC, "t": topic, "q": forwarding}, attach=False)
    dialogue.outcomes_of(AttachSender(S, "q"))
    dialogue.outcomes_of(send("hello"))
    assert 1 == len(dialogue.ask(Peek(CLIENT, 1, "t/Subscriptions/s", 0, 10)))
    dialogue.outcomes_of(Advance(5_000))
    assert [] == dialogue.ask(Peek(CLIENT, 2, "t/Subscriptions/s", 0, 10))


# --- bodies in the store -------------------------------------------------------------------------


class SlowReads:
    """A dialogue over its budget, whose reads are answered one by one, when asked to."""

    def __init__(self):
        self.dialogue = CoreDialogue(budget_bytes=0)
        self.needed = []

    def effects_of(self, *steps):
        told = self.dialogue.run(*steps).effects
        self.needed += [one for one in told if isinstance(one, PayloadsNeeded)]
        return [one for one in told if not isinstance(one, PayloadsNeeded)]

    def answer_read(self):
        payloads = self.dialogue.commit().read_payloads(self.needed.pop(0).payload_ids)
        return self.effects_of(PayloadsLoaded(payloads))


def test_a_peek_that_waits_for_two_reads_keeps_what_the_first_one_brought():
    """Else the two bodies would push each other out of memory, read by read, for ever."""
    slow = SlowReads()
    slow.effects_of(send("A"))
    slow.effects_of(credit(1))
    slow.effects_of(send("B"))
    assert [] == slow.effects_of(Peek(CLIENT, 1, "q", 0, 10))
    (delivered,) = slow.answer_read()
    assert ["A"] == texts(delivered.messages)
    (reply,) = slow.answer_read()
    assert ["A", "B"] == texts(reply.value)
    assert [] == slow.needed


def test_a_message_that_came_back_and_lost_its_body_is_read_again():
    """Delivered, abandoned, peeked at: then its body may be gone, and must not be missed."""
    slow = SlowReads()
    slow.effects_of(send("A"))
    slow.effects_of(credit(1))
    slow.effects_of(send("B"))
    slow.effects_of(Peek(CLIENT, 1, "q", 0, 10))
    slow.answer_read()
    slow.effects_of(Settle(R, [T1], ["A"], ABANDON))
    slow.answer_read()
    assert [] == slow.effects_of(credit(2))
    *_, delivered = slow.answer_read()
    assert ["A"] == texts(delivered.messages)


# --- order ---------------------------------------------------------------------------------------


def test_messages_that_expire_together_die_in_the_order_of_their_numbers():
    """Also when a higher number was given to a message that arrived earlier."""
    dialogue = CoreDialogue(QueueDefinition(dead_lettering_on_expiration=True))
    dialogue.outcomes_of(send(message("later", at_ms=START_MS + 1_000, time_to_live_ms=4_000)))
    dialogue.outcomes_of(send(message("sooner", time_to_live_ms=5_000)))
    dialogue.outcomes_of(Advance(5_000))
    assert ["sooner", "later"] == texts(dialogue.ask(Peek(CLIENT, 1, "q/$DeadLetterQueue", 0, 10)))
