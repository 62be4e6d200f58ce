"""What concerns many messages at once is done in parts: nobody may see it half done."""

from __future__ import annotations

from typing import Any

import pytest

from broker.core.contract.commands import (
    COMPLETE,
    AttachSender,
    CreateEntity,
    DeleteEntity,
    Detach,
    GetEntity,
    Peek,
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
from broker.core.operations.send_and_settle import ATOMIC_COPIES_MAX
from config.model.definitions import QueueDefinition, SubscriptionDefinition, TopicDefinition
from tests.support.core_dialogue import (
    CLIENT,
    Advance,
    Deliver,
    Named,
    Playbook,
    R,
    S,
    attach_receiver,
    credit,
    message,
    send,
    text_of,
)

LOCK_MS = 30_000
R2 = Named("R2")


def in_parts(book: Playbook, size: int = 2) -> Playbook:
    book.namespace._environment.backlog.part_messages = size
    return book


def is_behind(book: Playbook) -> bool:
    return book.namespace.is_behind


def catch_up(book: Playbook) -> list[Any]:
    told: list[Any] = []
    while is_behind(book):
        told += book.run(Tick()).effects
    return told


def names(count: int) -> list[str]:
    return [f"{number}" for number in range(count)]


def test_messages_that_expire_together_do_so_in_parts_and_in_order():
    """Each part is one tick; dead letters come in the order the messages had."""
    book = in_parts(Playbook(QueueDefinition(dead_lettering_on_expiration=True), attach=False))
    book.tell(AttachSender(S, "q"))
    book.run(send(*[message(name, time_to_live_ms=100) for name in names(7)]))
    parts = [len(book.run(Advance(100)).records[0].rows)]
    while is_behind(book):
        parts.append(len(book.run(Tick()).records[0].rows))
    assert [2, 2, 2, 1] == parts
    dead = book.ask(Peek(CLIENT, "p", "q/$DeadLetterQueue", 0, 100))
    assert names(7) == [text_of(one) for one in dead]
    assert book.namespace.next_deadline_ms() is None


def test_an_expired_message_is_neither_delivered_nor_shown_before_its_part_comes():
    """The queue waits; what was sent later is delivered when all that is over has gone."""
    book = in_parts(Playbook())
    book.run(send(*[message(name, time_to_live_ms=100) for name in names(7)]))
    book.run(send("alive"))
    turn = book.run(Advance(100), credit(10), Peek(CLIENT, "p", "q", 0, 100))
    assert [] == turn.effects
    told = catch_up(book)
    (shown,) = [one.value for one in told if isinstance(one, Reply)]
    assert isinstance(shown, list)
    assert ["alive"] == [text_of(one) for one in shown]
    assert [["alive"]] == [
        [text_of(one) for one in e.messages] for e in told if isinstance(e, Deliver)
    ]


def test_another_queue_does_not_wait():
    """Delivering, asking and falling due go on there."""
    book = in_parts(Playbook(entities={"q": QueueDefinition(), "other": QueueDefinition()}))
    book.run(send(*[message(name, time_to_live_ms=100) for name in names(50)]))
    book.run(Advance(100), AttachSender(R2, "other"), attach_receiver(CLIENT, "other"))
    book.run(credit(5, to=CLIENT))
    assert is_behind(book)
    assert ["mine"] == [text_of(one) for one in book.deliveries(send("mine", to=R2))]
    assert 1 == book.ask(GetEntity(CLIENT, "get", "other")).active_count


def test_a_lock_that_is_over_settles_nothing_while_its_message_waits_for_its_part():
    """Neither by its link nor by its token, nor is it renewed; one that lasts is settled."""
    book = in_parts(Playbook(QueueDefinition(lock_duration_ms=LOCK_MS)))
    ended: Any = book.run(send(*names(9)), credit(9)).effects[-1].tokens
    book.run(Advance(LOCK_MS - 1))
    lasting: Any = book.run(send("later"), credit(10)).effects[-1].tokens[0]
    turn = book.run(
        Advance(1),
        Settle(R, [ended[8], lasting], ["ended", "lasting"], COMPLETE),
        RenewLocks(CLIENT, "renew", "q", [ended[8]]),
    )
    assert is_behind(book)
    answers = {type(one): one.handles for one in turn.effects}
    assert {SettleRefused: ["ended"], Settled: ["lasting"]} == answers
    (reply,) = [one for one in catch_up(book) if isinstance(one, Reply)]
    assert isinstance(reply.error, MessageLockLost)
    again = book.deliveries(credit(100))
    assert names(9) == [text_of(one) for one in again]
    assert {1} == {one.delivery_count for one in again}


def test_a_lost_connection_returns_its_locks_in_parts_and_in_order():
    """Nobody gets the first of them, or a newer message, before the last is back."""
    book = in_parts(Playbook())
    book.run(send(*names(9)), credit(9))
    book.run(attach_receiver(R2), credit(100, to=R2))
    turn = book.run(Detach([R], connection_lost=True), send("new"))
    assert not [one for one in turn.effects if isinstance(one, Deliver)]
    delivered = [
        text_of(one) for e in catch_up(book) if isinstance(e, Deliver) for one in e.messages
    ]
    assert [*names(9), "new"] == delivered


def test_a_lock_expires_before_the_life_of_its_message_though_both_are_late():
    """A clock that jumps over both leaves the message expired, not alive for ever."""
    book = in_parts(Playbook(QueueDefinition(lock_duration_ms=LOCK_MS)))
    lasting = [message(name, time_to_live_ms=LOCK_MS + 50) for name in names(9)]
    book.run(send(*lasting), credit(9))
    book.run(Detach([R]))
    book.run(Advance(LOCK_MS + 1_000))
    catch_up(book)
    assert [] == book.ask(Peek(CLIENT, "p", "q", 0, 100))
    assert 0 == book.ask(GetEntity(CLIENT, "get", "q")).active_count


def test_a_deleted_entity_is_gone_at_once_and_its_messages_in_parts():
    """Its name is free, and the new entity has nothing of the old one."""
    book = in_parts(Playbook())
    book.run(send(*names(7)), credit(3))
    (delivered,) = [e for e in book.turns[-1].effects if isinstance(e, Deliver)]
    book.ask(DeleteEntity(CLIENT, "d", "q"))
    assert is_behind(book)
    token: Any = delivered.tokens[0]
    refused = book.run(Settle(R, [token], ["h"], COMPLETE)).effects
    assert [SettleRefused] == [type(one) for one in refused]
    view = book.ask(CreateEntity(CLIENT, "c", "q", QueueDefinition()))
    assert 0 == view.active_count
    while is_behind(book):
        assert [MessagesDeleted] == [type(one) for one in book.run(Tick()).records]
    assert [] == book.commit().messages
    assert {} == book.shelf.payloads
    assert 0 == book.namespace._environment.payloads.resident_bytes


def test_messages_left_of_a_deleted_entity_are_deleted_after_a_restart():
    """They never come back, not even to a new entity; bodies that others share stay."""
    book = in_parts(
        Playbook(
            entities={
                "t": TopicDefinition(),
                "t/Subscriptions/a": SubscriptionDefinition(),
                "t/Subscriptions/b": SubscriptionDefinition(),
            },
            attach=False,
        )
    )
    book.run(AttachSender(S, "t"), send(*names(7)))
    book.ask(DeleteEntity(CLIENT, "d", "t/Subscriptions/b"))
    later = in_parts(book.restarted())
    assert 14 == len(later.shelf.messages)
    assert is_behind(later)
    definition = SubscriptionDefinition()
    later.ask(CreateEntity(CLIENT, "c", "t/Subscriptions/b", definition))
    for _ in range(2):
        later = in_parts(later.restarted())
        later.run(Tick())
        assert [] == later.ask(Peek(CLIENT, "p", "t/Subscriptions/b", 0, 100))
    catch_up(later)
    assert 7 == len(later.commit().messages)
    assert 7 == len(later.shelf.payloads)
    shown = later.serve(Peek(CLIENT, "p", "t/Subscriptions/a", 0, 100))
    assert names(7) == [text_of(one) for one in shown[-1].value]


def test_a_wide_send_has_parts_that_do_the_same():
    """As many messages each as make a bounded number of copies; what is atomic has none."""
    subscriptions = {f"t/Subscriptions/{n}": SubscriptionDefinition() for n in range(10)}
    book = in_parts(Playbook(entities={"t": TopicDefinition(), **subscriptions}, attach=False), 20)
    book.run(AttachSender(S, "t"))
    wide = Send(S, [message(name) for name in names(5)], names(5))
    parts = book.namespace.parts(wide)
    assert parts is not None
    assert [["0", "1"], ["2", "3"], ["4"]] == [part.handles for part in parts]
    assert [None] * 3 == [book.namespace.parts(part) for part in parts]
    assert book.namespace.parts(SendBatch(S, wide.messages, "h")) is None
    assert book.namespace.parts(wide._replace(transaction_id=b"t")) is None


def test_a_batch_that_would_become_too_many_messages_is_refused():
    """It has to be stored as a whole, and everybody would wait for it."""
    subscriptions = {f"t/Subscriptions/{n}": SubscriptionDefinition() for n in range(100)}
    book = Playbook(entities={"t": TopicDefinition(), **subscriptions}, attach=False)
    book.run(AttachSender(S, "t"))
    few = [message("m") for _ in range(ATOMIC_COPIES_MAX // 100 + 1)]
    (refused,) = book.run(SendBatch(S, few, "h")).effects
    assert isinstance(refused.error, QuotaExceeded)
    assert not book.turns[-1].records


@pytest.mark.parametrize("count", [1, 3])
def test_requests_that_waited_for_a_queue_that_was_deleted_are_refused(count):
    """They are answered all the same."""
    book = in_parts(Playbook(), count)
    book.run(send(*[message(name, time_to_live_ms=100) for name in names(9)]))
    assert [] == book.run(Advance(100), Peek(CLIENT, "p", "q", 0, 1)).effects
    book.run(DeleteEntity(CLIENT, "d", "q"))
    (reply,) = [one for one in catch_up(book) if isinstance(one, Reply)]
    assert isinstance(reply.error, BrokerError)


def forward_in_parts(book: Playbook, size: int = 2) -> Playbook:
    book.namespace._environment.backlog.forwarded_max = size
    return book


def test_what_waits_in_a_queue_is_forwarded_in_parts_and_in_order():
    """Each part is one tick; what is sent meanwhile comes behind."""
    book = forward_in_parts(
        Playbook(entities={"q": QueueDefinition(), "to": QueueDefinition()}, attach=False)
    )
    book.tell(AttachSender(S, "q"))
    book.run(send(*names(7)))
    turns = [
        book.run(UpdateEntity(CLIENT, "update", "q", QueueDefinition(forward_to="to"))),
        book.run(send("later")),
    ]
    while is_behind(book):
        turns.append(book.run(Tick()))
    records = [record for turn in turns for record in turn.records]
    parts = [len(record.rows) for record in records if isinstance(record, MessagesUpdated)]
    assert max(parts) <= 2
    assert 8 == sum(parts)
    moved = book.ask(Peek(CLIENT, "p", "to", 0, 100))
    assert [*names(7), "later"] == [text_of(one) for one in moved]
    assert 0 == book.ask(GetEntity(CLIENT, "get", "q")).active_count
    assert book.namespace.next_deadline_ms() is None


def test_a_receiver_gets_nothing_that_is_still_to_be_forwarded():
    """It was attached before the queue began to forward."""
    book = forward_in_parts(Playbook(entities={"q": QueueDefinition(), "to": QueueDefinition()}))
    book.run(send(*names(7)))
    book.run(UpdateEntity(CLIENT, "update", "q", QueueDefinition(forward_to="to")))
    assert is_behind(book)
    assert [] == book.deliveries(credit(10))
    assert [] == [effect for effect in catch_up(book) if isinstance(effect, Deliver)]


def test_forwarding_to_a_topic_counts_the_copies_on_its_subscriptions():
    """A message is still forwarded whole, however many copies it has."""
    subscriptions: dict[str, Any] = {
        f"t/subscriptions/s{number}": SubscriptionDefinition() for number in range(5)
    }
    entities = {"q": QueueDefinition(), "t": TopicDefinition(), **subscriptions}
    book = forward_in_parts(Playbook(entities=entities, attach=False))
    book.tell(AttachSender(S, "q"))
    book.run(send(*names(3)))
    ticks = 0
    book.run(UpdateEntity(CLIENT, "update", "q", QueueDefinition(forward_to="t")))
    while is_behind(book):
        book.run(Tick())
        ticks += 1
    assert 2 == ticks
    for path in subscriptions:
        copies = book.ask(Peek(CLIENT, "p", path, 0, 100))
        assert names(3) == [text_of(one) for one in copies]


def test_dead_letters_that_cannot_go_on_do_not_keep_the_broker_busy():
    """They are looked at again when something has changed, not in every tick."""
    definition = QueueDefinition(dead_lettering_on_expiration=True, forward_dead_letters_to="small")
    small = QueueDefinition(requires_session=True)
    book = forward_in_parts(Playbook(entities={"small": small, "q": definition}, attach=False))
    book.tell(AttachSender(S, "q"))
    book.run(send(*[message(name, time_to_live_ms=100) for name in names(7)]))
    book.run(Advance(100))
    catch_up(book)
    assert book.namespace.next_deadline_ms() is None
    dead = book.ask(Peek(CLIENT, "p", "q/$DeadLetterQueue", 0, 100))
    assert names(7) == [text_of(one) for one in dead]
