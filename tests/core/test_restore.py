"""A restart: the stored state is restored. Locks are lost."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.contract.commands import (
    AttachSender,
    GetEntity,
    GetSessionState,
    ListSessions,
    Peek,
    SetSessionState,
    Settle,
    Tick,
)
from broker.core.contract.settlement_values import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    ReceiveMode,
    Settlement,
    SettlementKind,
)
from broker.core.contract.turn import Turn
from broker.core.entities.stored_definitions import definition_from_json, definition_to_json
from broker.core.messages.identifiers import MessageIds
from broker.core.namespace import Namespace
from broker.core.queues.queue import RESERVED_NUMBERS
from config.model.definitions import (
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    QueueDefinition,
    RuleDefinition,
    SqlAction,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from config.model.ticks import DateTimeTicks, TimeSpanTicks
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    T2,
    Advance,
    CoreDialogue,
    NamedPeer,
    R,
    S,
    attach_receiver,
    credit,
    message,
    send,
    text_of,
)


def receive_all(dialogue, path="q", peer=R):
    return dialogue.receive(attach_receiver(peer, path), credit(100, to=peer))


def test_messages_are_there_in_order_with_their_counts():
    """And are delivered once their bodies have been read back."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b", "c"), credit(2))
    dialogue.run(Settle(R, [T1], ["h"], ABANDON))
    later = dialogue.restarted()
    assert [("a", 1), ("b", 0), ("c", 0)] == [
        (text_of(m), m.delivery_count) for m in receive_all(later)
    ]


def test_locks_are_gone_and_old_tokens_worthless():
    """A restart may lose locks, never messages."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"), credit(1))
    later = dialogue.restarted()
    later.run(attach_receiver(R))
    (refused,) = later.run(Settle(R, [T1], ["h"], COMPLETE)).effects
    assert ["h"] == refused.handles


def test_sequence_numbers_are_not_used_twice():
    """Even if the messages that had them are gone."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b"), credit(2))
    dialogue.run(Settle(R, [T1, T2], ["h", "i"], COMPLETE))
    later = dialogue.restarted()
    later.run(AttachSender(S, "q"))
    (record,) = later.run(send("c")).records
    assert [3] == [row.sequence_number for row in record.rows]


def test_ids_of_messages_are_not_used_twice():
    """As long as the store has a message, no other gets its id."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE))
    later = dialogue.restarted()
    later.run(AttachSender(S, "q"))
    (record,) = later.run(send("c")).records
    assert [3] == [row.id for row in record.rows]


def test_every_state_is_kept():
    """Active, deferred, scheduled, dead: with changes and times."""
    dialogue = CoreDialogue()
    scheduled = message("scheduled", at_ms=START_MS + 60_000)
    dialogue.run(send("dead", "deferred", "active", scheduled), credit(2))
    reason = Settlement(SettlementKind.DEAD_LETTER, {"p": b"v"}, "Bad", "Very")
    dialogue.run(Settle(R, [T1], ["h"], reason), Settle(R, [T2], ["h"], DEFER))
    later = dialogue.restarted()
    view = later.ask(GetEntity(CLIENT, "g", "q"))
    assert (1, 1, 1, 1) == (
        view.active_count,
        view.deferred_count,
        view.scheduled_count,
        view.dead_letter_count,
    )
    (dead,) = later.serve(Peek(CLIENT, "p", "q/$DeadLetterQueue", 0, 9))[-1].value
    assert ("dead", "Bad", "Very", {"p": b"v"}) == (
        text_of(dead),
        dead.changes.dead_letter_reason,
        dead.changes.dead_letter_description,
        dead.changes.properties,
    )


def test_what_fell_due_meanwhile_happens_at_the_first_command():
    """Schedules, expiry, idleness."""
    dialogue = CoreDialogue()
    dialogue.run(
        send(
            message("scheduled", at_ms=START_MS + 60_000),
            message("short", time_to_live_ms=1_000),
            "plain",
        )
    )
    later = dialogue.restarted(after_ms=100_000)
    later.run(Tick())
    assert ["plain", "scheduled"] == [text_of(m) for m in receive_all(later)]


def test_sessions_and_their_states_are_kept():
    """With messages, with state, or both."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True))
    dialogue.run(send(message("a", session="x")), attach_receiver(R, session="y"))
    dialogue.ask(SetSessionState(CLIENT, "s", "q", "y", b"state"))
    later = dialogue.restarted()
    assert ["x", "y"] == later.ask(ListSessions(CLIENT, "l", "q", 0, 9))
    later.run(attach_receiver(R, session="y"))
    assert b"state" == later.ask(GetSessionState(CLIENT, "g", "q", "y"))
    assert dialogue.ask(GetEntity(CLIENT, "g", "q")).size_bytes == (
        later.ask(GetEntity(CLIENT, "g", "q")).size_bytes
    )


def test_a_session_is_delivered_after_a_restart():
    """In order, to any receiver that accepts it."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True))
    dialogue.run(send(*[message(t, session="x") for t in "abc"]))
    later = dialogue.restarted()
    delivered = later.receive(attach_receiver(R, any_session=True), credit(9))
    assert ["a", "b", "c"] == [text_of(m) for m in delivered]


def test_duplicates_are_still_known():
    """Until their window has passed."""
    dialogue = CoreDialogue(
        QueueDefinition(requires_duplicate_detection=True, duplicate_window_ms=20_000)
    )
    dialogue.run(send(message("a", message_id="1")))
    later = dialogue.restarted(after_ms=10_000)
    later.run(AttachSender(S, "q"))
    assert [] == later.run(send(message("b", message_id="1"))).records
    later.run(Advance(10_000))
    assert later.run(send(message("c", message_id="1"))).records


def test_shared_payloads_are_still_shared():
    """And deleted with the last copy."""
    names = ("x", "y")
    dialogue = CoreDialogue(
        entities={
            "t": TopicDefinition(),
            **{f"t/Subscriptions/{name}": SubscriptionDefinition() for name in names},
        },
        attach=False,
    )
    dialogue.run(AttachSender(S, "t"), send("a"))
    later = dialogue.restarted()
    for name in names:
        (copy,) = receive_all(later, f"t/Subscriptions/{name}")
        later.run(Settle(R, [copy.lock_token], ["h"], COMPLETE))
        assert (name == "x") == bool(later.commit().payloads)


@pytest.mark.parametrize("names", ["x", "xy"])
@pytest.mark.parametrize("sent_count", [2, RESERVED_NUMBERS + 2])
def test_a_topic_assigns_no_number_again(names, sent_count):
    """Although the store has neither the messages of a topic nor, in the end, a copy of them."""
    dialogue = CoreDialogue(
        entities={
            "t": TopicDefinition(),
            **{f"t/Subscriptions/{name}": SubscriptionDefinition() for name in names},
        },
        attach=False,
    )
    numbers = set()
    for restarts in range(1, 4):
        dialogue.run(AttachSender(S, "t"))
        receivers = [NamedPeer(name) for name in names]
        for receiver in receivers:
            path = f"t/Subscriptions/{receiver.name}"
            mode = ReceiveMode.RECEIVE_AND_DELETE
            dialogue.run(attach_receiver(receiver, path, mode=mode))
            dialogue.run(credit(10_000, to=receiver))
        for count in range(sent_count):
            copies = dialogue.deliveries(send(f"m{count}"))
            numbers |= {copy.enqueue_sequence_number for copy in copies}
        assert restarts * sent_count == len(numbers)
        dialogue = dialogue.restarted()
        assert not dialogue.store.load().messages


def test_several_namespaces_share_one_store():
    """Each gets back its own."""
    dialogue = CoreDialogue()
    dialogue.run(send("a"))
    store = dialogue.commit()
    ids = MessageIds()
    namespaces = {name: Namespace(name, ids=ids, **dialogue.options) for name in ("ns", "other")}
    Namespace.restore_all(namespaces, store.load(), dialogue.now_ms)
    assert [1, 0] == [len(list(namespace.views())) for namespace in namespaces.values()]
    assert (2, 2) == (ids.next_message_id, ids.next_entity_id)


def test_forwarding_goes_on_after_a_restart():
    """What had not arrived yet arrives."""
    dialogue = CoreDialogue(entities={"q": QueueDefinition(forward_dead_letters_to="end")})
    dialogue.run(send("a"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEAD_LETTER))
    later = dialogue.restarted()
    turn = Turn()
    later.namespace.declare({"end": QueueDefinition()}, later.now_ms, turn)
    later.turns.append(turn)
    later.serve(Tick())
    assert ["a"] == [text_of(m) for m in receive_all(later, "end")]


@pytest.mark.parametrize(
    "definition",
    [
        QueueDefinition(
            forward_to="x",
            status=EntityStatus.SEND_DISABLED,
            user_metadata="für",
            authorization_rules=(AuthorizationRule("n", "p", "s", frozenset({"Send", "Listen"})),),
        ),
        TopicDefinition(requires_duplicate_detection=True),
        SubscriptionDefinition(
            rules=(
                RuleDefinition("none", FalseFilter()),
                RuleDefinition("all", created_time_ms=5),
                RuleDefinition("sql", SqlFilter("a = @p", {"@p": 1.5}), SqlAction("SET x = 1")),
                RuleDefinition(
                    "correlation",
                    CorrelationFilter(
                        label="l",
                        properties={
                            "bytes": b"\x00\xff",
                            "uuid": uuid.UUID(int=5),
                            "at": datetime(2030, 1, 1, tzinfo=UTC),
                            "for": timedelta(seconds=1.5),
                            "long for": timedelta(days=10_675_199, microseconds=1),
                            "fine for": TimeSpanTicks(timedelta(microseconds=-1), 3),
                            "fine at": DateTimeTicks(datetime(2030, 1, 1, tzinfo=UTC), 7),
                            "infinite": float("-inf"),
                            "none": None,
                            "yes": True,
                            "$class": "a name like any other",
                        },
                    ),
                ),
            )
        ),
    ],
)
def test_definitions_survive_the_store(definition):
    """Every value of every type."""
    assert definition == definition_from_json(definition_to_json(definition))


def test_a_definition_from_an_older_store_takes_defaults():
    """Fields it does not know yet, and ignores those it does not know any more."""
    text = '{"$class": "QueueDefinition", "max_delivery_count": 3, "forgotten": 1}'
    assert QueueDefinition(max_delivery_count=3) == definition_from_json(text)


def test_only_definitions_are_read():
    """Anything else in its place is a broken store."""
    with pytest.raises(TypeError):
        definition_from_json('{"$class": "SqlFilter", "expression": "1=1"}')
