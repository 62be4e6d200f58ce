"""Transitions in the turn: what is recorded for each operation, and that nothing is without a recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker.core.contract.commands import (
    AttachSender,
    CancelScheduled,
    CreateEntity,
    Declare,
    DeleteEntity,
    Detach,
    Discharge,
    Schedule,
    Send,
    Settle,
)
from broker.core.contract.settlement_values import ABANDON, COMPLETE, DEFER, RELEASE, ReceiveMode
from broker.core.queues.history_recorder import HistoryRecorder
from config.model.definitions import (
    EntityStatus,
    QueueDefinition,
    RuleDefinition,
    SqlFilter,
    SubscriptionDefinition,
    TopicDefinition,
)
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    T2,
    T3,
    Advance,
    CoreDialogue,
    NamedPeer,
    PlainReader,
    R,
    S,
    attach_receiver,
    credit,
    message,
    send,
)

if TYPE_CHECKING:
    from broker.core.contract.transitions import HistoryPlace
    from broker.core.contract.turn import Turn

OTHER = NamedPeer("OTHER")
LOCK_MS = QueueDefinition().lock_duration_ms


def recorded(dialogue: CoreDialogue) -> CoreDialogue:
    dialogue.namespace.context.history = HistoryRecorder("ns", PlainReader())
    return dialogue


def place_of(place: HistoryPlace) -> str:
    return place.entity + ("", "/dead", "/transfer")[place.sub_queue]


def transitions(turn: Turn) -> list[Any]:
    """The transitions of a turn as (event, place, number), with the place and number that the message moved to."""
    shown: list[Any] = []
    for batch in turn.transitions:
        batch.keep_heads()
        for view in batch.expand():
            one: tuple[Any, ...] = (batch.kind.value, place_of(batch.place), view.sequence_number)
            if view.to is not None:
                one += (place_of(view.to[0]), view.to[1])
            shown.append(one)
    return shown


def test_nothing_is_recorded_without_a_recorder():
    dialogue = CoreDialogue()
    dialogue.run(send("a"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE))
    assert not [turn for turn in dialogue.turns if turn.transitions]


def test_settlements():
    """An abandoned message has the delivery count that it has then."""
    dialogue = recorded(CoreDialogue(QueueDefinition(max_delivery_count=2)))
    turn = dialogue.run(send("a", "b"), credit(2))
    assert [("sent", "q", 1), ("sent", "q", 2), ("locked", "q", 1), ("locked", "q", 2)] == (
        transitions(turn)
    )
    locked = turn.transitions[1]
    assert (
        START_MS + dialogue.namespace.entities()[0].main.lock_duration_ms == locked.locked_until_ms
    )
    turn = dialogue.run(Settle(R, [T1], ["h"], ABANDON), credit(3))
    assert [("abandoned", "q", 1), ("locked", "q", 1)] == transitions(turn)
    assert 1 == turn.transitions[0].delivery_counts
    turn = dialogue.run(Settle(R, [T3], ["h"], ABANDON))
    assert [("abandoned", "q", 1), ("dead_lettered", "q", 1, "q/dead", 1)] == transitions(turn)
    assert "MaxDeliveryCountExceeded" == turn.transitions[1].reason
    assert [("deferred", "q", 2)] == transitions(dialogue.run(Settle(R, [T2], ["h"], DEFER)))


def test_a_batch_of_messages_takes_one_record_and_no_list():
    """Consecutive numbers are a range."""
    dialogue = recorded(CoreDialogue())
    turn = dialogue.run(send(*map(str, range(100))), credit(100))
    assert [range(1, 101), range(1, 101)] == [batch.numbers for batch in turn.transitions]
    assert [0, 0] == [batch.delivery_counts for batch in turn.transitions]


@pytest.mark.parametrize(
    ("lost", "description"), [(True, "The connection was lost."), (False, None)]
)
def test_locks_end_without_a_settlement(lost, description):
    dialogue = recorded(CoreDialogue())
    dialogue.run(send("a"), credit(1))
    turn = dialogue.run(
        Detach([R], connection_lost=True) if lost else Advance(LOCK_MS),
    )
    assert [("lock_expired", "q", 1)] == transitions(turn)[:1]
    assert description == turn.transitions[0].description
    assert START_MS + (0 if lost else LOCK_MS) == turn.transitions[0].time_ms


def test_a_closed_session_releases_its_messages():
    dialogue = recorded(CoreDialogue(QueueDefinition(requires_session=True)))
    dialogue.run(send(message("a", session="one")))
    dialogue.run(attach_receiver(R, session="one"), credit(1))
    assert [("released", "q", 1)] == transitions(dialogue.run(Detach([R])))


def test_a_transaction_names_its_operations():
    """They are recorded when it commits, and not before."""
    dialogue = recorded(CoreDialogue())
    dialogue.run(send("a"), credit(1))
    transaction_id = dialogue.ask(Declare(CLIENT, "d"))
    turn = dialogue.run(
        Send(S, [message("b")], ["b"], transaction_id),
        Settle(R, [T1], ["h"], COMPLETE, transaction_id),
    )
    assert [] == turn.transitions
    schedule = Schedule(
        CLIENT, "s", "q", [message("later", at_ms=START_MS + 5)], transaction_id=transaction_id
    )
    (reserved,) = dialogue.ask(schedule)
    turn = dialogue.run(Discharge(CLIENT, "x", transaction_id, fail=False))
    assert [("sent", "q", 3), ("completed", "q", 1), ("scheduled", "q", reserved)] == (
        transitions(turn)
    )
    assert {transaction_id} == {batch.transaction_id for batch in turn.transitions}
    assert {None} == {batch.transaction_id for batch in dialogue.run(send("c")).transitions}


def test_schedules_become_active_with_another_number():
    dialogue = recorded(CoreDialogue())
    schedule = Schedule(CLIENT, "s", "q", [message("a", at_ms=START_MS + 5), message("b")])
    assert [("scheduled", "q", 1), ("sent", "q", 2)] == transitions(dialogue.run(schedule))
    assert [("activated", "q", 1, "q", 3)] == transitions(dialogue.run(Advance(5)))
    dialogue.run(Schedule(CLIENT, "s", "q", [message("c", at_ms=START_MS + 50)]))
    assert [("deleted", "q", 4)] == transitions(
        dialogue.run(CancelScheduled(CLIENT, "c", "q", [4]))
    )


def topic(*subscriptions: str, **more: Any) -> CoreDialogue:
    entities: dict[str, Any] = {"t": TopicDefinition(), "q": QueueDefinition()}
    for name in subscriptions:
        entities[f"t/Subscriptions/{name}"] = SubscriptionDefinition(
            rules=(RuleDefinition(f"only {name}", SqlFilter(f"color = '{name}'")),)
        )
    entities |= more
    dialogue = recorded(CoreDialogue(entities=entities))
    dialogue.run(AttachSender(OTHER, "t"))
    return dialogue


def test_a_topic_says_which_rule_matched():
    """A message that none matches is told, too."""
    dialogue = topic("red", "blue")
    turn = dialogue.run(send(message("a", color="red"), message("b", color="green"), to=OTHER))
    assert [
        ("sent", "t", 1),
        ("sent", "t", 2),
        ("matched", "t", 1, "t/Subscriptions/red", 1),
        ("unmatched", "t", 2),
    ] == transitions(turn)
    assert ["only red"] == [view.rule for batch in turn.transitions[1:2] for view in batch.expand()]


def test_a_scheduled_message_of_a_topic_is_copied_when_it_is_active():
    dialogue = topic("red")
    scheduled = message("a", color="red", at_ms=START_MS + 5)
    assert [("scheduled", "t", 1)] == transitions(dialogue.run(send(scheduled, to=OTHER)))
    assert [
        ("activated", "t", 1, "t", 2),
        ("matched", "t", 2, "t/Subscriptions/red", 1),
    ] == transitions(dialogue.run(Advance(5)))


def test_a_fan_out_is_one_batch():
    """However many subscriptions there are."""
    names = [f"s{number}" for number in range(500)]
    dialogue = topic(**{f"t/Subscriptions/{name}": SubscriptionDefinition() for name in names})
    turn = dialogue.run(send("a", "b", to=OTHER))
    sent, matched = turn.transitions
    assert (2, 1000) == (len(sent), len(matched))
    matched.keep_heads()
    heads = {id(view.head) for view in matched.expand()}
    assert 2 == len(heads)  # the copies of a message share theirs
    assert "$Default" == matched.rules


def test_forwarding_to_a_topic_that_forwards_again():
    forwarding = QueueDefinition(forward_to="t")
    dialogue = topic("red", first=forwarding, q=QueueDefinition())
    dialogue.run(AttachSender(CLIENT, "first"))
    turn = dialogue.run(send(message("a", color="red"), to=CLIENT))
    assert [
        ("sent", "first", 1),
        ("forwarded", "first", 1, "t", 1),
        ("matched", "t", 1, "t/Subscriptions/red", 1),
    ] == transitions(turn)


def test_a_disabled_destination_leads_to_the_transfer_dead_letter_queue():
    entities = {
        "q": QueueDefinition(),
        "off": QueueDefinition(status=EntityStatus.SEND_DISABLED),
    }
    dialogue = recorded(CoreDialogue(entities=entities, attach=False))
    dialogue.run(AttachSender(S, "q", via="off"))
    turn = dialogue.run(send("a"))
    assert [("sent", "q", 1), ("dead_lettered", "q", 1, "q/transfer", 1)] == transitions(turn)
    assert "EntityDisabled" == turn.transitions[1].reason


def test_expiry_receive_and_delete_duplicates_and_deletion():
    definition = QueueDefinition(requires_duplicate_detection=True)
    dialogue = recorded(CoreDialogue(definition))
    dialogue.run(send(message("a", message_id="1", time_to_live_ms=5)))
    assert [("deduplicated", "q", 0)] == transitions(
        dialogue.run(send(message("b", message_id="1")))
    )
    assert [("expired", "q", 1)] == transitions(dialogue.run(Advance(5)))
    dialogue.run(send(message("c", message_id="2"), message("d", message_id="3")))
    turn = dialogue.run(
        attach_receiver(OTHER, mode=ReceiveMode.RECEIVE_AND_DELETE), credit(1, to=OTHER)
    )
    assert [("received", "q", 2)] == transitions(turn)
    assert [("deleted", "q", 3)] == transitions(dialogue.run(DeleteEntity(CLIENT, "x", "q")))
    dialogue.run(CreateEntity(CLIENT, "c", "q", QueueDefinition()))


def test_a_release_by_the_receiver():
    dialogue = recorded(CoreDialogue())
    dialogue.run(send("a"), credit(1))
    assert [("released", "q", 1)] == transitions(dialogue.run(Settle(R, [T1], ["h"], RELEASE)))


def test_heads_that_are_not_known_come_with_the_next_transition():
    """Messages that were sent before recording began, and those whose heads were forgotten."""
    dialogue = CoreDialogue()
    dialogue.run(send("before"))
    recorded(dialogue)
    turn = dialogue.run(send("after"), credit(2))
    for batch in turn.transitions:
        batch.keep_heads()
    (place,) = {batch.place for batch in turn.transitions}
    assert [b"before", b"after"] == [place.head(1), place.head(2)]
    assert place.begin_generation()
    assert b"after" == place.head(2)
    turn = dialogue.run(Settle(R, [T1], ["h"], COMPLETE))
    turn.transitions[0].keep_heads()
    place.begin_generation()
    assert [b"before", None] == [place.head(1), place.head(2)]
