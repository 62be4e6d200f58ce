"""Work on many messages is done in parts. No client sees it half done."""

from __future__ import annotations

from typing import Any

import pytest

from broker.core.contract.commands import (
    AttachSender,
    CreateEntity,
    DeleteEntity,
    Detach,
    GetEntity,
    Peek,
    ReceiveDeferred,
    RenewLocks,
    Send,
    SendBatch,
    Settle,
    Tick,
    UpdateEntity,
)
from broker.core.contract.effects import Reply, Settled, SettleRefused
from broker.core.contract.errors import BrokerError, MessageLockLost, QuotaExceeded
from broker.core.contract.records import MessagesDeleted, MessagesUpdated
from broker.core.contract.settlement_values import COMPLETE, DEFER, ReceiveMode
from broker.core.operations.atomic_limits import ATOMIC_COPIES_MAX
from config.model.definitions import QueueDefinition, SubscriptionDefinition, TopicDefinition
from tests.support.core_dialogue import (
    CLIENT,
    T1,
    Advance,
    CoreDialogue,
    Deliver,
    NamedPeer,
    R,
    S,
    attach_receiver,
    credit,
    message,
    send,
    text_of,
)
from tests.support.unfinished_work import has_unfinished_work

LOCK_MS = 30_000
R2 = NamedPeer("R2")


def in_parts(dialogue: CoreDialogue, size: int = 2) -> CoreDialogue:
    dialogue.namespace._context.backlog.part_messages = size
    return dialogue


def is_behind(dialogue: CoreDialogue) -> bool:
    return has_unfinished_work(dialogue.namespace)


def catch_up(dialogue: CoreDialogue) -> list[Any]:
    told: list[Any] = []
    while is_behind(dialogue):
        told += dialogue.run(Tick()).effects
    return told


def names(count: int) -> list[str]:
    return [f"{number}" for number in range(count)]


def test_messages_that_expire_together_do_so_in_parts_and_in_order():
    """Each part is one tick; dead letters come in the order the messages had."""
    dialogue = in_parts(
        CoreDialogue(QueueDefinition(dead_lettering_on_expiration=True), attach=False)
    )
    dialogue.outcomes_of(AttachSender(S, "q"))
    dialogue.run(send(*[message(name, time_to_live_ms=100) for name in names(7)]))
    parts = [len(dialogue.run(Advance(100)).records[0].rows)]
    while is_behind(dialogue):
        parts.append(len(dialogue.run(Tick()).records[0].rows))
    assert [2, 2, 2, 1] == parts
    dead = dialogue.ask(Peek(CLIENT, "p", "q/$DeadLetterQueue", 0, 100))
    assert names(7) == [text_of(one) for one in dead]
    assert dialogue.namespace.next_deadline_ms() is None


def test_an_expired_message_is_neither_delivered_nor_shown_before_its_part_comes():
    """The queue waits; what was sent later is delivered when all that is over has gone."""
    dialogue = in_parts(CoreDialogue())
    dialogue.run(send(*[message(name, time_to_live_ms=100) for name in names(7)]))
    dialogue.run(send("alive"))
    turn = dialogue.run(Advance(100), credit(10), Peek(CLIENT, "p", "q", 0, 100))
    assert [] == turn.effects
    told = catch_up(dialogue)
    (shown,) = [one.value for one in told if isinstance(one, Reply)]
    assert isinstance(shown, list)
    assert ["alive"] == [text_of(one) for one in shown]
    assert [["alive"]] == [
        [text_of(one) for one in e.messages] for e in told if isinstance(e, Deliver)
    ]


def test_another_queue_does_not_wait():
    """It delivers, answers requests and processes its deadlines."""
    dialogue = in_parts(CoreDialogue(entities={"q": QueueDefinition(), "other": QueueDefinition()}))
    dialogue.run(send(*[message(name, time_to_live_ms=100) for name in names(50)]))
    dialogue.run(Advance(100), AttachSender(R2, "other"), attach_receiver(CLIENT, "other"))
    dialogue.run(credit(5, to=CLIENT))
    assert is_behind(dialogue)
    assert ["mine"] == [text_of(one) for one in dialogue.deliveries(send("mine", to=R2))]
    assert 1 == dialogue.ask(GetEntity(CLIENT, "get", "other")).active_count


def test_a_lock_that_is_over_settles_nothing_while_its_message_waits_for_its_part():
    """Neither by its link nor by its token, nor is it renewed; one that lasts is settled."""
    dialogue = in_parts(CoreDialogue(QueueDefinition(lock_duration_ms=LOCK_MS)))
    ended: Any = dialogue.run(send(*names(9)), credit(9)).effects[-1].tokens
    dialogue.run(Advance(LOCK_MS - 1))
    lasting: Any = dialogue.run(send("later"), credit(10)).effects[-1].tokens[0]
    turn = dialogue.run(
        Advance(1),
        Settle(R, [ended[8], lasting], ["ended", "lasting"], COMPLETE),
        RenewLocks(CLIENT, "renew", "q", [ended[8]]),
    )
    assert is_behind(dialogue)
    answers = {type(one): one.handles for one in turn.effects}
    assert {SettleRefused: ["ended"], Settled: ["lasting"]} == answers
    (reply,) = [one for one in catch_up(dialogue) if isinstance(one, Reply)]
    assert isinstance(reply.error, MessageLockLost)
    again = dialogue.deliveries(credit(100))
    assert names(9) == [text_of(one) for one in again]
    assert {1} == {one.delivery_count for one in again}


def test_a_lost_connection_returns_its_locks_in_parts_and_in_order():
    """No receiver gets the first of them, or a newer message, before the last is returned."""
    dialogue = in_parts(CoreDialogue())
    dialogue.run(send(*names(9)), credit(9))
    dialogue.run(attach_receiver(R2), credit(100, to=R2))
    turn = dialogue.run(Detach([R], connection_lost=True), send("new"))
    assert not [one for one in turn.effects if isinstance(one, Deliver)]
    delivered = [
        text_of(one) for e in catch_up(dialogue) if isinstance(e, Deliver) for one in e.messages
    ]
    assert [*names(9), "new"] == delivered


def test_a_lock_expires_before_the_life_of_its_message_though_both_are_late():
    """A clock that jumps over both leaves the message expired, not alive for ever."""
    dialogue = in_parts(CoreDialogue(QueueDefinition(lock_duration_ms=LOCK_MS)))
    lasting = [message(name, time_to_live_ms=LOCK_MS + 50) for name in names(9)]
    dialogue.run(send(*lasting), credit(9))
    dialogue.run(Detach([R]))
    dialogue.run(Advance(LOCK_MS + 1_000))
    catch_up(dialogue)
    assert [] == dialogue.ask(Peek(CLIENT, "p", "q", 0, 100))
    assert 0 == dialogue.ask(GetEntity(CLIENT, "get", "q")).active_count


def test_a_deleted_entity_is_gone_at_once_and_its_messages_in_parts():
    """Its name is free, and the new entity has nothing of the old one."""
    dialogue = in_parts(CoreDialogue())
    dialogue.run(send(*names(7)), credit(3))
    (delivered,) = [e for e in dialogue.turns[-1].effects if isinstance(e, Deliver)]
    dialogue.ask(DeleteEntity(CLIENT, "d", "q"))
    assert is_behind(dialogue)
    token: Any = delivered.tokens[0]
    refused = dialogue.run(Settle(R, [token], ["h"], COMPLETE)).effects
    assert [SettleRefused] == [type(one) for one in refused]
    view = dialogue.ask(CreateEntity(CLIENT, "c", "q", QueueDefinition()))
    assert 0 == view.active_count
    while is_behind(dialogue):
        assert [MessagesDeleted] == [type(one) for one in dialogue.run(Tick()).records]
    assert {} == dialogue.commit().rows
    assert {} == dialogue.store.payloads
    assert 0 == dialogue.namespace._context.payloads.resident_bytes


def test_messages_left_of_a_deleted_entity_are_deleted_after_a_restart():
    """A new entity of the same name does not get them. Bodies that other messages share stay."""
    dialogue = in_parts(
        CoreDialogue(
            entities={
                "t": TopicDefinition(),
                "t/Subscriptions/a": SubscriptionDefinition(),
                "t/Subscriptions/b": SubscriptionDefinition(),
            },
            attach=False,
        )
    )
    dialogue.run(AttachSender(S, "t"), send(*names(7)))
    dialogue.ask(DeleteEntity(CLIENT, "d", "t/Subscriptions/b"))
    later = in_parts(dialogue.restarted())
    assert 14 == len(later.store.rows)
    assert is_behind(later)
    definition = SubscriptionDefinition()
    later.ask(CreateEntity(CLIENT, "c", "t/Subscriptions/b", definition))
    for _ in range(2):
        later = in_parts(later.restarted())
        later.run(Tick())
        assert [] == later.ask(Peek(CLIENT, "p", "t/Subscriptions/b", 0, 100))
    catch_up(later)
    assert 7 == len(later.commit().rows)
    assert 7 == len(later.store.payloads)
    shown = later.serve(Peek(CLIENT, "p", "t/Subscriptions/a", 0, 100))
    assert names(7) == [text_of(one) for one in shown[-1].value]


def test_a_wide_send_has_parts_that_do_the_same():
    """As many messages each as make a bounded number of copies; what is atomic has none."""
    subscriptions = {f"t/Subscriptions/{n}": SubscriptionDefinition() for n in range(10)}
    dialogue = in_parts(
        CoreDialogue(entities={"t": TopicDefinition(), **subscriptions}, attach=False), 20
    )
    dialogue.run(AttachSender(S, "t"))
    wide = Send(S, [message(name) for name in names(5)], names(5))
    parts = dialogue.namespace.parts(wide)
    assert parts is not None
    assert [["0", "1"], ["2", "3"], ["4"]] == [part.handles for part in parts]
    assert [None] * 3 == [dialogue.namespace.parts(part) for part in parts]
    assert dialogue.namespace.parts(SendBatch(S, wide.messages, "h")) is None
    assert dialogue.namespace.parts(wide._replace(transaction_id=b"t")) is None


def test_a_batch_that_would_become_too_many_messages_is_refused():
    """It must be stored as a whole, and all other clients would wait for it."""
    subscriptions = {f"t/Subscriptions/{n}": SubscriptionDefinition() for n in range(100)}
    dialogue = CoreDialogue(entities={"t": TopicDefinition(), **subscriptions}, attach=False)
    dialogue.run(AttachSender(S, "t"))
    few = [message("m") for _ in range(ATOMIC_COPIES_MAX // 100 + 1)]
    (refused,) = dialogue.run(SendBatch(S, few, "h")).effects
    assert isinstance(refused.error, QuotaExceeded)
    assert not dialogue.turns[-1].records


@pytest.mark.parametrize("count", [1, 3])
def test_requests_that_waited_for_a_queue_that_was_deleted_are_refused(count):
    """They are answered all the same."""
    dialogue = in_parts(CoreDialogue(), count)
    dialogue.run(send(*[message(name, time_to_live_ms=100) for name in names(9)]))
    assert [] == dialogue.run(Advance(100), Peek(CLIENT, "p", "q", 0, 1)).effects
    dialogue.run(DeleteEntity(CLIENT, "d", "q"))
    (reply,) = [one for one in catch_up(dialogue) if isinstance(one, Reply)]
    assert isinstance(reply.error, BrokerError)


@pytest.mark.parametrize("mode", list(ReceiveMode))
def test_a_deferred_message_is_not_received_for_a_client_that_ended(mode):
    """Its request waited for the queue. Nobody would release the lock, or get the deleted message."""
    dialogue = in_parts(CoreDialogue())
    dialogue.run(send("deferred"), credit(1))
    dialogue.run(Settle(R, [T1], ["h"], DEFER))
    dialogue.run(send(*[message(name, time_to_live_ms=100) for name in names(9)]))
    fetch = ReceiveDeferred(CLIENT, "f", "q", [1], mode)
    assert [] == dialogue.run(Advance(100), fetch).effects
    dialogue.run(Detach([CLIENT], connection_lost=True))
    assert [] == [one for one in catch_up(dialogue) if isinstance(one, Reply)]
    ((fetched, _),) = dialogue.ask(ReceiveDeferred(R2, "f", "q", [1], ReceiveMode.PEEK_LOCK))
    assert "deferred" == text_of(fetched)


def forward_in_parts(dialogue: CoreDialogue, size: int = 2) -> CoreDialogue:
    dialogue.namespace._context.backlog.forwarded_max = size
    return dialogue


def test_what_waits_in_a_queue_is_forwarded_in_parts_and_in_order():
    """Each part is one tick; what is sent meanwhile comes behind."""
    dialogue = forward_in_parts(
        CoreDialogue(entities={"q": QueueDefinition(), "to": QueueDefinition()}, attach=False)
    )
    dialogue.outcomes_of(AttachSender(S, "q"))
    dialogue.run(send(*names(7)))
    turns = [
        dialogue.run(UpdateEntity(CLIENT, "update", "q", QueueDefinition(forward_to="to"))),
        dialogue.run(send("later")),
    ]
    while is_behind(dialogue):
        turns.append(dialogue.run(Tick()))
    records = [record for turn in turns for record in turn.records]
    parts = [len(record.rows) for record in records if isinstance(record, MessagesUpdated)]
    assert max(parts) <= 2
    assert 8 == sum(parts)
    moved = dialogue.ask(Peek(CLIENT, "p", "to", 0, 100))
    assert [*names(7), "later"] == [text_of(one) for one in moved]
    assert 0 == dialogue.ask(GetEntity(CLIENT, "get", "q")).active_count
    assert dialogue.namespace.next_deadline_ms() is None


def test_a_receiver_gets_nothing_that_is_still_to_be_forwarded():
    """It was attached before the queue began to forward."""
    dialogue = forward_in_parts(
        CoreDialogue(entities={"q": QueueDefinition(), "to": QueueDefinition()})
    )
    dialogue.run(send(*names(7)))
    dialogue.run(UpdateEntity(CLIENT, "update", "q", QueueDefinition(forward_to="to")))
    assert is_behind(dialogue)
    assert [] == dialogue.deliveries(credit(10))
    assert [] == [effect for effect in catch_up(dialogue) if isinstance(effect, Deliver)]


def test_forwarding_to_a_topic_counts_the_copies_on_its_subscriptions():
    """A message is still forwarded whole, however many copies it has."""
    subscriptions: dict[str, Any] = {
        f"t/subscriptions/s{number}": SubscriptionDefinition() for number in range(5)
    }
    entities = {"q": QueueDefinition(), "t": TopicDefinition(), **subscriptions}
    dialogue = forward_in_parts(CoreDialogue(entities=entities, attach=False))
    dialogue.outcomes_of(AttachSender(S, "q"))
    dialogue.run(send(*names(3)))
    ticks = 0
    dialogue.run(UpdateEntity(CLIENT, "update", "q", QueueDefinition(forward_to="t")))
    while is_behind(dialogue):
        dialogue.run(Tick())
        ticks += 1
    assert 2 == ticks
    for path in subscriptions:
        copies = dialogue.ask(Peek(CLIENT, "p", path, 0, 100))
        assert names(3) == [text_of(one) for one in copies]


def test_dead_letters_that_cannot_go_on_do_not_keep_the_broker_busy():
    """They are looked at again when something has changed, not in every tick."""
    definition = QueueDefinition(dead_lettering_on_expiration=True, forward_dead_letters_to="small")
    small = QueueDefinition(requires_session=True)
    dialogue = forward_in_parts(
        CoreDialogue(entities={"small": small, "q": definition}, attach=False)
    )
    dialogue.outcomes_of(AttachSender(S, "q"))
    dialogue.run(send(*[message(name, time_to_live_ms=100) for name in names(7)]))
    dialogue.run(Advance(100))
    catch_up(dialogue)
    assert dialogue.namespace.next_deadline_ms() is None
    dead = dialogue.ask(Peek(CLIENT, "p", "q/$DeadLetterQueue", 0, 100))
    assert names(7) == [text_of(one) for one in dead]
