"""An entity with auto-delete on idle is deleted when it has been idle for that long, and not before.

What counts as use is in the service's documentation of AutoDeleteOnIdle: sends and receives, scheduled messages, updates,
new rules, and for a topic what is done with its subscriptions. An entity that forwards is never idle.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.core.contract.commands import (
    AddRule,
    AttachSender,
    CancelScheduled,
    CreateEntity,
    DeleteEntity,
    Detach,
    GetEntity,
    GetRule,
    Peek,
    RemoveRule,
    Schedule,
    UpdateEntity,
)
from broker.core.contract.errors import ArgumentError, EntityNotFound
from config.model.definitions import (
    QueueDefinition,
    RuleDefinition,
    SubscriptionDefinition,
    TopicDefinition,
)
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    Advance,
    CoreDialogue,
    R,
    S,
    attach_receiver,
    credit,
    message,
    send,
    text_of,
)

IDLE_MS = 300_000
QUEUE = QueueDefinition(auto_delete_on_idle_ms=IDLE_MS)
TOPIC = TopicDefinition(auto_delete_on_idle_ms=IDLE_MS)
SUBSCRIPTION = SubscriptionDefinition(
    rules=(RuleDefinition("$Default"),), auto_delete_on_idle_ms=IDLE_MS
)
KEPT_SUBSCRIPTION = SubscriptionDefinition(rules=(RuleDefinition("$Default"),))
SUB = "t/Subscriptions/s"


def paths(dialogue):
    return {view.path for view in dialogue.namespace.views()}


def topic_dialogue(subscription=KEPT_SUBSCRIPTION, topic=TOPIC):
    return CoreDialogue(entities={"t": topic, SUB: subscription}, attach=False)


def assert_deleted_after(dialogue, path, idle_ms=IDLE_MS):
    """It is deleted when it has been idle for so long from now on, and not before."""
    dialogue.run(Advance(idle_ms - 1))
    assert path in paths(dialogue)
    dialogue.run(Advance(1))
    assert path not in paths(dialogue)


# --- scheduled messages ------------------------------------------------------------------------------


def schedule(path, at_ms):
    return Schedule(CLIENT, "r", path, [message("later", at_ms=at_ms)])


@pytest.mark.parametrize("with_restart", [False, True])
def test_a_scheduled_message_keeps_its_queue(with_restart):
    """The queue is idle from the time of the message on."""
    dialogue = CoreDialogue(QUEUE, attach=False)
    at_ms = START_MS + 10 * IDLE_MS + 7
    dialogue.ask(schedule("q", at_ms))
    if with_restart:
        dialogue = dialogue.restarted()
    dialogue.run(Advance(3 * IDLE_MS))
    dialogue.run(Advance(at_ms - dialogue.now_ms))
    assert_deleted_after(dialogue, "q")


def test_a_message_scheduled_for_soon_begins_the_idle_time_when_it_is_active():
    """Also if no check has seen it scheduled."""
    dialogue = CoreDialogue(QUEUE, attach=False)
    dialogue.ask(schedule("q", START_MS + 1_000))
    dialogue.run(Advance(1_000))
    assert_deleted_after(dialogue, "q")


def test_a_clock_that_moves_far_does_not_delete_a_queue_before_its_message_is_active():
    """Checks that come in between find the message scheduled."""
    dialogue = CoreDialogue(QUEUE, attach=False)
    dialogue.ask(schedule("q", START_MS + 2 * IDLE_MS + 7))
    dialogue.run(Advance(2 * IDLE_MS + 8))
    dialogue.run(Advance(0))
    dialogue.run(attach_receiver(R))
    assert ["later"] == [text_of(one) for one in dialogue.deliveries(credit(1))]


@pytest.mark.parametrize("path", ["q", "t"])
def test_a_cancelled_schedule_keeps_nothing(path):
    """Its cancellation is the last use."""
    dialogue = CoreDialogue(entities={"q": QUEUE, "t": TOPIC}, attach=False)
    numbers = dialogue.ask(schedule(path, START_MS + 10 * IDLE_MS))
    dialogue.run(Advance(IDLE_MS + 5))
    dialogue.ask(CancelScheduled(CLIENT, "c", path, numbers))
    assert_deleted_after(dialogue, path)


def test_a_scheduled_message_keeps_its_topic():
    """And all subscriptions of the topic."""
    dialogue = topic_dialogue()
    dialogue.ask(schedule("t", START_MS + 4 * IDLE_MS + 7))
    dialogue.run(Advance(4 * IDLE_MS))
    dialogue.run(Advance(7))
    assert {"t", SUB} == paths(dialogue)
    dialogue.run(attach_receiver(R, SUB))
    assert ["later"] == [text_of(one) for one in dialogue.deliveries(credit(1))]


def test_a_topic_is_idle_from_the_time_of_its_scheduled_message_on():
    """Also if no check has seen it scheduled."""
    for at_ms in (START_MS + 1_000, START_MS + 2 * IDLE_MS + 7):
        dialogue = topic_dialogue()
        dialogue.ask(schedule("t", at_ms))
        dialogue.run(Advance(at_ms - START_MS))
        assert_deleted_after(dialogue, "t")


# --- changes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [QUEUE, replace(QUEUE, max_delivery_count=3)])
def test_an_update_restarts_the_idle_time(changed):
    """Also one that changes nothing."""
    dialogue = CoreDialogue(QUEUE, attach=False)
    dialogue.run(Advance(IDLE_MS - 1))
    dialogue.ask(UpdateEntity(CLIENT, "u", "q", changed))
    assert_deleted_after(dialogue, "q")


def test_an_update_that_begins_or_shortens_the_idle_time():
    """The time before the update does not count."""
    dialogue = CoreDialogue(attach=False)
    dialogue.run(Advance(10 * IDLE_MS))
    dialogue.ask(UpdateEntity(CLIENT, "u", "q", QUEUE))
    dialogue.run(Advance(IDLE_MS - 1))
    shorter = QueueDefinition(auto_delete_on_idle_ms=IDLE_MS // 2)
    dialogue.ask(UpdateEntity(CLIENT, "u", "q", shorter))
    assert_deleted_after(dialogue, "q", IDLE_MS // 2)


def test_a_refused_update_is_no_use():
    """Nothing has changed."""
    dialogue = CoreDialogue(QUEUE, attach=False)
    dialogue.run(Advance(IDLE_MS - 1))
    with pytest.raises(ArgumentError):
        dialogue.ask(UpdateEntity(CLIENT, "u", "q", QueueDefinition(requires_session=True)))
    dialogue.run(Advance(1))
    assert "q" not in paths(dialogue)


def test_an_update_is_no_access():
    """Clients are shown when it was last sent to or received from."""
    dialogue = topic_dialogue()
    dialogue.ask(UpdateEntity(CLIENT, "u", SUB, SUBSCRIPTION))
    dialogue.ask(AddRule(CLIENT, "r", SUB, RuleDefinition("more")))
    for path in ("t", SUB):
        assert 0 == dialogue.ask(GetEntity(CLIENT, "g", path)).accessed_time_ms


def test_reading_definitions_is_no_use():
    """A dashboard keeps nothing alive."""
    dialogue = topic_dialogue(SUBSCRIPTION)
    dialogue.run(Advance(IDLE_MS - 1))
    dialogue.ask(GetEntity(CLIENT, "g", SUB))
    dialogue.ask(GetRule(CLIENT, "g", SUB, "$Default"))
    dialogue.run(Advance(1))
    assert set() == paths(dialogue)


@pytest.mark.parametrize(
    "change",
    [
        AddRule(CLIENT, "r", SUB, RuleDefinition("more")),
        AddRule(CLIENT, "r", SUB, RuleDefinition("$Default"), replace=True),
        RemoveRule(CLIENT, "r", SUB, "$Default"),
        UpdateEntity(CLIENT, "u", SUB, SUBSCRIPTION),
        Peek(CLIENT, "p", SUB, 0, 1),
    ],
    ids=lambda change: type(change).__name__,
)
def test_what_is_done_with_a_subscription_restarts_its_idle_time_and_that_of_its_topic(change):
    """Each of them is deleted after its own idle time."""
    for path, dialogue in (
        ("t", topic_dialogue()),
        (SUB, topic_dialogue(SUBSCRIPTION, TopicDefinition())),
    ):
        dialogue.run(Advance(IDLE_MS - 1))
        dialogue.ask(change)
        assert_deleted_after(dialogue, path)


def test_creating_and_deleting_a_subscription_restarts_the_idle_time_of_its_topic():
    """Both are done with a subscription of the topic."""
    dialogue = topic_dialogue()
    dialogue.run(Advance(IDLE_MS - 1))
    dialogue.ask(CreateEntity(CLIENT, "c", "t/Subscriptions/other", SubscriptionDefinition()))
    dialogue.run(Advance(IDLE_MS - 1))
    dialogue.ask(DeleteEntity(CLIENT, "d", SUB))
    assert_deleted_after(dialogue, "t")


def test_an_idle_subscription_that_is_deleted_is_no_use_of_its_topic():
    """Nobody has done anything."""
    shorter = SubscriptionDefinition(auto_delete_on_idle_ms=IDLE_MS - 1)
    dialogue = topic_dialogue(shorter)
    dialogue.run(Advance(IDLE_MS - 1))
    assert {"t"} == paths(dialogue)
    dialogue.run(Advance(1))
    assert set() == paths(dialogue)


# --- subscriptions ------------------------------------------------------------------------------------


def test_a_receiver_of_a_subscription_keeps_the_topic():
    """It has messages, and the receiver gets them."""
    dialogue = topic_dialogue()
    dialogue.run(AttachSender(S, "t"))
    dialogue.run(send("a"))
    dialogue.run(Detach([S]), attach_receiver(R, SUB))
    dialogue.run(Advance(3 * IDLE_MS + 5))
    assert ["a"] == [text_of(one) for one in dialogue.deliveries(credit(1))]
    dialogue.run(Detach([R]))
    assert_deleted_after(dialogue, "t")


def test_a_sender_of_a_topic_does_not_keep_its_subscription():
    """Only what is done with the subscription counts for it."""
    dialogue = topic_dialogue(SUBSCRIPTION)
    dialogue.run(AttachSender(S, "t"))
    dialogue.run(Advance(IDLE_MS - 1), send("a"))
    dialogue.run(Advance(1))
    assert {"t"} == paths(dialogue)


def test_a_subscription_that_forwards_keeps_its_topic():
    """Forwarding is the same as a receiver."""
    forwarding = SubscriptionDefinition(forward_to="end")
    dialogue = CoreDialogue(
        entities={"end": QueueDefinition(), "t": TOPIC, SUB: forwarding}, attach=False
    )
    dialogue.run(Advance(5 * IDLE_MS))
    assert {"end", "t", SUB} == paths(dialogue)
    dialogue.ask(UpdateEntity(CLIENT, "u", SUB, SubscriptionDefinition()))
    assert_deleted_after(dialogue, "t")


# --- forwarding and waiting -----------------------------------------------------------------------


@pytest.mark.parametrize("destination", [QUEUE, TOPIC])
def test_a_forwarded_message_restarts_the_idle_time_of_its_destination(destination):
    """It was sent, if not by a client."""
    entities = {"end": destination, "q": QueueDefinition(forward_to="end")}
    dialogue = CoreDialogue(entities=entities, attach=False)
    dialogue.run(AttachSender(S, "q"))
    dialogue.run(Advance(IDLE_MS - 1), send("a"))
    assert_deleted_after(dialogue, "end")


def test_waiting_for_a_session_is_use_until_the_wait_ends():
    """No session was free in that time."""
    definition = QueueDefinition(requires_session=True, auto_delete_on_idle_ms=IDLE_MS)
    dialogue = CoreDialogue(definition, attach=False)
    dialogue.run(attach_receiver(R, any_session=True, timeout_ms=65_000))
    dialogue.run(Advance(65_000))
    assert_deleted_after(dialogue, "q")


# --- start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["q", "t"])
def test_the_idle_time_begins_again_with_a_start(path):
    """When an entity was used before is not stored."""
    dialogue = CoreDialogue(entities={"q": QUEUE, "t": TOPIC, SUB: SUBSCRIPTION}, attach=False)
    dialogue.run(Advance(IDLE_MS - 1))
    restored = dialogue.restarted(after_ms=10 * IDLE_MS)
    assert_deleted_after(restored, path)
    assert set() == paths(restored)
    with pytest.raises(EntityNotFound):
        restored.ask(GetEntity(CLIENT, "g", path))
