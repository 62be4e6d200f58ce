"""Entities come, change and go, with clients attached."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.core.contract.commands import (
    AttachSender,
    CreateEntity,
    DeleteEntity,
    Detach,
    GetEntity,
    ListEntities,
    Peek,
    Settle,
    UpdateEntity,
)
from broker.core.contract.errors import (
    ArgumentError,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    QuotaExceeded,
    Unauthorized,
)
from broker.core.contract.records import EntityDeleted, EntityStored
from broker.core.contract.settlement_values import COMPLETE, DEAD_LETTER
from broker.core.contract.turn import Turn
from broker.core.operations.entity_administration import DeclarationRefused
from broker.core.routing.sql.sql_errors import SqlSyntaxError
from config.model.definitions import (
    AuthorizationRule,
    EntityDefinition,
    EntityStatus,
    QueueDefinition,
    RuleDefinition,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.limits import Limits
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    Advance,
    CoreDialogue,
    Detached,
    NamedPeer,
    R,
    Refused,
    Reply,
    S,
    SenderAttached,
    attach_receiver,
    credit,
    message,
    send,
    text_of,
)

IDLE_MS = 300_000


def create(path, definition=None):
    return CreateEntity(CLIENT, "create", path, definition or QueueDefinition())


def test_a_created_entity_is_stored_shown_and_usable():
    """At once."""
    dialogue = CoreDialogue()
    turn = dialogue.run(create("New"))
    (record,) = turn.records
    assert isinstance(record, EntityStored)
    assert ("ns", "queue", "New", START_MS) == (
        record.namespace,
        record.kind,
        record.path,
        record.created_time_ms,
    )
    assert "New" == turn.effects[0].value.path
    sender = NamedPeer("sender")
    (effect,) = dialogue.run(AttachSender(sender, "new")).effects
    assert isinstance(effect, SenderAttached)


def test_a_subscription_is_created_under_its_topic():
    """In the topic's spelling."""
    dialogue = CoreDialogue(entities={"Topic": TopicDefinition()}, attach=False)
    view = dialogue.ask(create("topic/subscriptions/Sub", SubscriptionDefinition()))
    assert "Topic/Subscriptions/Sub" == view.path


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (create("Q"), EntityAlreadyExists),
        (create("q", TopicDefinition()), EntityAlreadyExists),
        (create("none/Subscriptions/s", SubscriptionDefinition()), EntityNotFound),
        (create("q/Subscriptions/s", SubscriptionDefinition()), EntityNotFound),
        (create("x" * 261), ArgumentError),
        (
            create(
                "t/Subscriptions/s",
                SubscriptionDefinition(rules=(RuleDefinition("bad", SqlFilter("= 1")),)),
            ),
            SqlSyntaxError,
        ),
        (create("t/Subscriptions/" + "s" * 261, SubscriptionDefinition()), ArgumentError),
        (DeleteEntity(CLIENT, "d", "none"), EntityNotFound),
        (GetEntity(CLIENT, "g", "none"), EntityNotFound),
        (UpdateEntity(CLIENT, "u", "none", QueueDefinition()), EntityNotFound),
        (UpdateEntity(CLIENT, "u", "q", TopicDefinition()), ArgumentError),
        (UpdateEntity(CLIENT, "u", "q", QueueDefinition(requires_session=True)), ArgumentError),
        (
            UpdateEntity(CLIENT, "u", "q", QueueDefinition(requires_duplicate_detection=True)),
            ArgumentError,
        ),
        (UpdateEntity(CLIENT, "u", "q", QueueDefinition(forward_to="gone")), ArgumentError),
        (ListEntities(CLIENT, "l", "subscription", "none"), EntityNotFound),
        (ListEntities(CLIENT, "l", "subscription", "q"), EntityNotFound),
    ],
)
def test_refusals_change_nothing(command, error):
    """Every refusal has its error."""
    dialogue = CoreDialogue(entities={"q": QueueDefinition(), "t": TopicDefinition()})
    before = list(dialogue.namespace.views())
    assert dialogue >> command << Reply(CLIENT, command.request, None, error)
    assert before == list(dialogue.namespace.views())


def test_entities_are_bounded():
    """Queues and topics of a namespace, subscriptions of a topic, rules of a subscription."""
    limits = Limits(
        entities_per_namespace_max=2, subscriptions_per_topic_max=1, rules_per_subscription_max=1
    )
    dialogue = CoreDialogue(entities={"t": TopicDefinition()}, attach=False, limits=limits)
    dialogue.ask(create("q"))
    with pytest.raises(QuotaExceeded):
        dialogue.ask(create("q2"))
    two = SubscriptionDefinition(rules=(RuleDefinition("a"), RuleDefinition("b")))
    with pytest.raises(QuotaExceeded):
        dialogue.ask(create("t/Subscriptions/s", two))
    dialogue.ask(create("t/Subscriptions/s", SubscriptionDefinition()))
    with pytest.raises(QuotaExceeded):
        dialogue.ask(create("t/Subscriptions/s2", SubscriptionDefinition()))
    dialogue.ask(DeleteEntity(CLIENT, "d", "q"))
    dialogue.ask(create("q2"))


def test_entities_are_listed_by_kind_and_name():
    """Page by page."""
    dialogue = CoreDialogue(
        entities={
            **{name: QueueDefinition() for name in "CaB"},
            "t": TopicDefinition(),
            "t/Subscriptions/s": SubscriptionDefinition(),
        },
        attach=False,
    )

    def listed(*arguments):
        return [view.path for view in dialogue.ask(ListEntities(CLIENT, "l", *arguments))]

    assert ["a", "B", "C"] == listed("queue")
    assert ["B"] == listed("queue", None, 1, 1)
    assert ["t"] == listed("topic")
    assert ["t/Subscriptions/s"] == listed("subscription", "T")


# --- updates ---------------------------------------------------------------------------------------


def test_an_update_holds_for_those_attached():
    """The next lock has the new duration; the record is written."""
    dialogue = CoreDialogue()
    view = dialogue.ask(UpdateEntity(CLIENT, "u", "q", QueueDefinition(lock_duration_ms=5_000)))
    assert 5_000 == view.definition.lock_duration_ms
    assert isinstance(dialogue.turns[-1].records[0], EntityStored)
    (delivered,) = dialogue.deliveries(send("a"), credit(1))
    assert dialogue.now_ms + 5_000 == delivered.locked_until_ms


def test_an_update_without_change_writes_nothing():
    """And moves no time."""
    dialogue = CoreDialogue()
    turn = dialogue.run(UpdateEntity(CLIENT, "u", "q", QueueDefinition()))
    assert [] == turn.records


def test_an_update_keeps_what_it_says_nothing_about():
    """Fields in `kept` have their values at the time of the update, not those in the definition of
    the command."""
    key = AuthorizationRule("k", "p")
    dialogue = CoreDialogue(QueueDefinition(authorization_rules=(key,), user_metadata="old"))
    keeps = frozenset({"authorization_rules", "requires_session"})
    update = QueueDefinition(max_delivery_count=3, requires_session=True)
    view = dialogue.ask(UpdateEntity(CLIENT, "u", "q", update, keeps))
    assert QueueDefinition(max_delivery_count=3, authorization_rules=(key,)) == view.definition


def test_a_field_that_a_client_may_not_change_can_be_repeated():
    """The refusal comes with a change alone."""
    dialogue = CoreDialogue(
        entities={"q": QueueDefinition(forward_to="end"), "end": QueueDefinition()}
    )
    refusals = {"forward_to": Unauthorized("not there")}

    def update(**fields):
        definition = QueueDefinition(**fields)
        return UpdateEntity(CLIENT, "u", "q", definition, refusals=refusals)

    dialogue.ask(update(forward_to="end", user_metadata="m"))
    with pytest.raises(Unauthorized):
        dialogue.ask(update(forward_to="q2"))


def test_a_smaller_maximum_delivery_count_holds_at_the_next_failure():
    """Messages on their way included."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"), credit(9))
    dialogue.ask(UpdateEntity(CLIENT, "u", "q", QueueDefinition(max_delivery_count=1)))
    dialogue.run(Advance(30_000))
    assert 1 == dialogue.ask(GetEntity(CLIENT, "g", "q")).dead_letter_count


def test_disabling_ends_receivers_and_not_their_locks():
    """What they have they may settle by token; senders get refusals."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"), credit(1))
    disabled = QueueDefinition(status=EntityStatus.DISABLED)
    assert Detached(R, EntityDisabled) in dialogue.outcomes_of(
        UpdateEntity(CLIENT, "u", "q", disabled)
    )
    turn = dialogue.run(send("b"))
    assert isinstance(turn.effects[0].error, EntityDisabled)
    assert 1 == dialogue.ask(GetEntity(CLIENT, "g", "q")).locked_count
    dialogue.ask(UpdateEntity(CLIENT, "u", "q", QueueDefinition()))
    dialogue.run(attach_receiver(R), Advance(30_000))
    assert ["a"] == [text_of(m) for m in dialogue.deliveries(credit(1))]


def test_disabling_refuses_those_who_wait_for_a_session():
    """They are not attached yet."""
    definition = QueueDefinition(requires_session=True)
    dialogue = CoreDialogue(definition)
    dialogue.run(attach_receiver(R, any_session=True))
    disabled = replace(definition, status=EntityStatus.RECEIVE_DISABLED)
    assert Refused(R, EntityDisabled) in dialogue.outcomes_of(
        UpdateEntity(CLIENT, "u", "q", disabled)
    )


# --- deletion --------------------------------------------------------------------------------------


def test_deleting_detaches_everybody_and_forgets_everything():
    """Messages, dead letters, locks and deadlines."""
    dialogue = CoreDialogue()
    dialogue.run(
        send("a", "b", "c", message("d", time_to_live_ms=10**6), message("e", at_ms=10**12)),
        credit(2),
    )
    dialogue.run(Settle(R, [T1], ["h"], DEAD_LETTER))
    outcomes = dialogue.outcomes_of(DeleteEntity(CLIENT, "d", "q"))
    assert Detached(R, EntityNotFound) in outcomes
    assert Detached(S, EntityNotFound) in outcomes
    assert EntityDeleted(1) in outcomes
    store = dialogue.commit()
    assert ({}, {}, {}) == (store.rows, store.payloads, store.entities)
    assert dialogue.namespace.next_deadline_ms() is None
    assert dialogue >> Detach([R, S], connection_lost=True)


def test_an_entity_of_the_same_name_starts_empty():
    """With numbers from one, under another id."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"))
    dialogue.ask(DeleteEntity(CLIENT, "d", "q"))
    dialogue.ask(create("q"))
    assert [] == dialogue.ask(Peek(CLIENT, "p", "q", 0, 9))
    dialogue.run(Detach([S]), AttachSender(S, "q"), send("b"))
    (peeked,) = dialogue.ask(Peek(CLIENT, "p", "q", 0, 9))
    assert 1 == peeked.sequence_number


def test_settling_in_a_deleted_entity_is_refused():
    """The lock is gone with everything else."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"), credit(1))
    dialogue.run(DeleteEntity(CLIENT, "d", "q"))
    (refused,) = dialogue.run(Settle(R, [T1], ["h"], COMPLETE)).effects
    assert ["h"] == refused.handles


# --- idleness --------------------------------------------------------------------------------------


@pytest.fixture
def idle_book():
    """Returns a dialogue with a queue that is deleted after five idle minutes and has no links."""
    return CoreDialogue(QueueDefinition(auto_delete_on_idle_ms=IDLE_MS), attach=False)


def exists(dialogue):
    return bool(list(dialogue.namespace.views()))


def test_an_idle_entity_deletes_itself(idle_book):
    """Messages and all."""
    idle_book.run(Advance(IDLE_MS - 1))
    assert exists(idle_book)
    idle_book.run(Advance(1))
    assert not exists(idle_book)
    assert idle_book.namespace.next_deadline_ms() is None


def test_use_keeps_an_entity_alive(idle_book):
    """Sending, attaching, requests."""
    for use in (Peek(CLIENT, "p", "q", 0, 1), AttachSender(S, "q"), Detach([S])):
        idle_book.run(Advance(IDLE_MS // 2))
        idle_book.run(use)
    idle_book.run(Advance(IDLE_MS - 1))
    assert "q" in [view.path for view in idle_book.namespace.views()]
    idle_book.run(Advance(2))
    assert "q" not in [view.path for view in idle_book.namespace.views()]


def test_a_topic_is_used_by_whoever_subscribes():
    """Its time of access is later than that of its last change, as the .NET SDK's tests expect."""
    dialogue = CoreDialogue(entities={"t": TopicDefinition()})
    dialogue.run(Advance(1), UpdateEntity(CLIENT, "u", "t", TopicDefinition(user_metadata="new")))
    dialogue.run(
        Advance(1), CreateEntity(CLIENT, "c", "t/Subscriptions/s", SubscriptionDefinition())
    )
    view = dialogue.ask(GetEntity(CLIENT, "g", "t"))
    assert view.created_time_ms < view.updated_time_ms < view.accessed_time_ms


def test_a_link_keeps_an_entity_alive(idle_book):
    """Also if the link is not used."""
    idle_book.run(attach_receiver(R))
    idle_book.run(Advance(IDLE_MS * 5))
    assert exists(idle_book)
    idle_book.run(Detach([R]))
    idle_book.run(Advance(IDLE_MS))
    assert not exists(idle_book)


# --- declaring -------------------------------------------------------------------------------------


def test_declaring_creates_and_changes():
    """What a file says holds; what it does not name stays."""
    dialogue = CoreDialogue(entities={"q": QueueDefinition(), "kept": QueueDefinition()})
    turn = Turn()
    changed = QueueDefinition(max_delivery_count=3)
    dialogue.namespace.declare(
        {
            "t/Subscriptions/s": SubscriptionDefinition(),
            "t": TopicDefinition(),
            "Q": changed,
        },
        dialogue.now_ms,
        turn,
    )
    assert ["t", "q", "t/Subscriptions/s"] == [
        record.path for record in turn.records if isinstance(record, EntityStored)
    ]
    assert {"q", "kept", "t", "t/Subscriptions/s"} == {v.path for v in dialogue.namespace.views()}
    assert changed == dialogue.ask(GetEntity(CLIENT, "g", "q")).definition


def test_declaring_again_writes_nothing():
    """A restart with the same file changes nothing."""
    entities: dict[str, EntityDefinition] = {
        "q": QueueDefinition(),
        "t": TopicDefinition(),
        "t/Subscriptions/s": SubscriptionDefinition(),
    }
    dialogue = CoreDialogue(entities=entities)
    turn = Turn()
    dialogue.now_ms += 1_000
    dialogue.namespace.declare(entities, dialogue.now_ms, turn)
    assert [] == turn.records


@pytest.mark.parametrize("with_messages", [False, True])
def test_declaring_sessions_waits_until_a_queue_is_empty(with_messages):
    """What is fixed is not changed under messages that were sent before."""
    dialogue = CoreDialogue()
    if with_messages:
        dialogue.run(send("a"))
    dialogue.run(Detach([R]))
    dialogue.namespace.declare(
        {"q": QueueDefinition(requires_session=True)}, dialogue.now_ms, Turn()
    )
    view = dialogue.ask(GetEntity(CLIENT, "g", "q"))
    assert with_messages != view.definition.requires_session


DECLARED_SUBSCRIPTION = SubscriptionDefinition(rules=(RuleDefinition("$Default"),))
AS_QUEUE: dict[str, EntityDefinition] = {"q": QueueDefinition(requires_duplicate_detection=True)}
AS_TOPIC: dict[str, EntityDefinition] = {"q": TopicDefinition()}
WITH_SUBSCRIPTION = {**AS_TOPIC, "q/Subscriptions/s": DECLARED_SUBSCRIPTION}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (AS_QUEUE, AS_TOPIC),
        (AS_QUEUE, WITH_SUBSCRIPTION),
        (AS_TOPIC, AS_QUEUE),
        (WITH_SUBSCRIPTION, AS_QUEUE),
    ],
)
def test_declaring_another_kind_replaces_an_empty_entity(before, after):
    """It is one of the declared kind afterwards, and after the next start."""
    dialogue = CoreDialogue(entities=before, attach=False).restarted()
    turn = Turn()
    dialogue.namespace.declare(after, dialogue.now_ms, turn)
    dialogue.turns.append(turn)
    for one in (dialogue, dialogue.restarted()):
        definitions = {view.path: view.definition for view in one.namespace.views()}
        assert {path: type(one) for path, one in after.items()} == {
            path: type(one) for path, one in definitions.items()
        }
        one.run(AttachSender(S, "q"), attach_receiver(R, max(after, key=len)))
        received = one.deliveries(send("a"), credit(1))
        assert ([] if after is AS_TOPIC else ["a"]) == [text_of(one) for one in received]


def test_declaring_another_kind_is_refused_if_messages_would_be_lost():
    """All mistakes are named, and nothing has changed."""
    dialogue = CoreDialogue(
        entities={
            "q": QueueDefinition(),
            "empty": QueueDefinition(),
            "t": TopicDefinition(),
            "t/Subscriptions/s": DECLARED_SUBSCRIPTION,
        }
    )
    dialogue.run(send("a", "b"), credit(1))
    dialogue.run(Settle(R, [T1], ["a"], DEAD_LETTER))
    other = NamedPeer("other")
    dialogue.run(AttachSender(other, "t"))
    dialogue.run(send("c", to=other))
    before = {view.path: view.definition for view in dialogue.namespace.views()}
    declared: dict[str, EntityDefinition] = {
        "new": QueueDefinition(),
        "empty": TopicDefinition(),
        "Q": TopicDefinition(),
        "t": QueueDefinition(),
    }
    turn = Turn()
    with pytest.raises(DeclarationRefused) as refused:
        dialogue.namespace.declare(declared, dialogue.now_ms, turn)
    assert not turn
    assert before == {view.path: view.definition for view in dialogue.namespace.views()}
    first, second = str(refused.value).splitlines()
    for words in ("topic 'Q'", "namespace 'ns'", "has a queue", "2 messages", "another name"):
        assert words in first
    for words in ("queue 't'", "has a topic", "with 1 message. ", "start with the earlier"):
        assert words in second
