"""Transactions: together, or not at all."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    AttachReceiver,
    AttachSender,
    CancelScheduled,
    Declare,
    Detach,
    Discharge,
    DoomTransaction,
    Peek,
    ReceiveMode,
    Schedule,
    Send,
    SendBatch,
    Settle,
    SettleByToken,
    UpdateEntity,
)
from broker.core.contract.errors import (
    EntityNotFound,
    MessageLockLost,
    MessageSizeExceeded,
    NotAllowed,
    PartitionMismatch,
    QuotaExceeded,
    ServerBusy,
    TransactionRolledBack,
    TransactionUnknown,
)
from config.model.definitions import EntityStatus, QueueDefinition
from config.model.limits import Limits
from tests.support.core_dialogue import (
    CLIENT,
    START_MS,
    T1,
    T2,
    T3,
    Accepted,
    Advance,
    Deliver,
    Named,
    Playbook,
    R,
    Reply,
    S,
    SendRefused,
    Settled,
    SettlementHeld,
    SettleRefused,
    TransactionRefused,
    credit,
    deleted,
    message,
    send,
    stored,
    text_of,
    token,
    updated,
)

COORDINATOR = Named("COORDINATOR")


@pytest.fixture
def book():
    """Two queues, `a` delivered from `q` under T1, and a transaction T2 that is open."""
    book = Playbook(entities={"q": QueueDefinition(), "other": QueueDefinition()})
    book.run(send("a"), credit(1))
    assert book >> Declare(COORDINATOR, "declare") << Reply(COORDINATOR, "declare", T2)
    return book


def send_in(transaction_id, *texts, to=S):
    return Send(to, [message(text) for text in texts], list(texts), transaction_id)


def discharge(transaction_id=T2, *, fail=False):
    return Discharge(COORDINATOR, "discharge", transaction_id, fail)


def texts(book, path="q"):
    return [text_of(m) for m in book.ask(Peek(CLIENT, "p", path, 0, 100))]


def test_nothing_shows_before_the_discharge(book):
    """Sends are accepted and settlements answered, provisionally and without a record."""
    assert book >> send_in(T2, "b") << Accepted(S, ["b"])
    assert book >> Settle(R, [T1], ["h"], COMPLETE, T2) << SettlementHeld(R, ["h"], COMPLETE, T2)
    assert ["a"] == texts(book)


def test_a_discharge_does_all_of_it_in_one_turn(book):
    """In the order it was asked for."""
    book.run(send_in(T2, "b", "c"), Settle(R, [T1], ["h"], COMPLETE, T2))
    assert (
        book
        >> discharge()
        << stored(2, 3)
        << deleted(1)
        << Settled(R, ["h"], COMPLETE, T2)
        << Reply(COORDINATOR, "discharge")
    )
    assert ["b", "c"] == texts(book)


def test_a_discharged_send_is_delivered(book):
    """Like any other."""
    book.run(send_in(T2, "b"), credit(2))
    assert (
        book >> discharge() << stored(2) << Reply(COORDINATOR, "discharge") << Deliver(R, [2], [T3])
    )


def test_a_failed_discharge_drops_all_of_it(book):
    """The message stays locked by its receiver."""
    book.run(send_in(T2, "b"), Settle(R, [T1], ["h"], COMPLETE, T2))
    assert book >> discharge(fail=True) << Reply(COORDINATOR, "discharge")
    assert ["a"] == texts(book)
    assert book >> Settle(R, [T1], ["h"], COMPLETE) << deleted(1) << Settled(R, ["h"], COMPLETE)


def test_several_entities_in_one_transaction(book):
    """Receive from one, send to another."""
    sender = Named("sender")
    book.run(AttachSender(sender, "other"))
    book.run(send_in(T2, "b", to=sender), Settle(R, [T1], ["h"], COMPLETE, T2), discharge())
    assert ([], ["b"]) == (texts(book), texts(book, "other"))


@pytest.mark.parametrize(("settlement", "left"), [(ABANDON, ["a"]), (DEAD_LETTER, [])])
def test_every_settlement_can_be_part(book, settlement, left):
    """Not only completing."""
    book.run(Settle(R, [T1], ["h"], settlement, T2))
    assert (
        book
        >> discharge()
        << updated(1)
        << Settled(R, ["h"], settlement, T2)
        << Reply(COORDINATOR, "discharge")
    )
    assert left == texts(book)


def test_batches_and_tokens_can_be_part(book):
    """Through management too."""
    assert book >> SendBatch(S, [message("b")], "batch", T2) << Accepted(S, ["batch"])
    by_token = SettleByToken(CLIENT, "x", "q", [T1], COMPLETE, None, T2)
    assert book >> by_token << Reply(CLIENT, "x")
    assert book >> discharge() << stored(2) << deleted(1) << Reply(COORDINATOR, "discharge")


def test_scheduling_can_be_part(book):
    """The number is given at once, and is good for cancelling after the discharge."""
    later = message("later", at_ms=START_MS + 60_000)
    (number,) = book.ask(Schedule(CLIENT, "s", "q", [later], T2))
    book.run(send("between"))
    with_reply = book.run(discharge())
    assert Reply(COORDINATOR, "discharge") == with_reply.effects[-1]
    assert ["a", "later", "between"] == texts(book)
    book.ask(CancelScheduled(CLIENT, "c", "q", [number]))
    assert ["a", "between"] == texts(book)


@pytest.fixture
def number(book):
    """Of a message that is scheduled, outside any transaction."""
    (number,) = book.ask(Schedule(CLIENT, "s", "q", [message("later", at_ms=START_MS + 60_000)]))
    return number


@pytest.mark.parametrize(("fail", "left"), [(False, ["a"]), (True, ["a", "later"])])
def test_cancelling_can_be_part(book, number, fail, left):
    """The message is there until the discharge, and after it if that is a rollback."""
    book.ask(CancelScheduled(CLIENT, "c", "q", [number], T2))
    assert ["a", "later"] == texts(book)
    book.run(discharge(fail=fail))
    assert left == texts(book)


def test_what_is_cancelled_twice_is_cancelled(book, number):
    """The second step finds nothing left to do."""
    for _ in range(2):
        book.ask(CancelScheduled(CLIENT, "c", "q", [number], T2))
    assert book >> discharge() << deleted(number) << Reply(COORDINATOR, "discharge")


def test_what_became_due_cannot_be_cancelled_any_more(book, number):
    """All of the transaction is rolled back."""
    book.ask(CancelScheduled(CLIENT, "c", "q", [number], T2))
    book.run(Advance(60_000))
    assert isinstance(book.run(discharge()).effects[-1].error, TransactionRolledBack)
    assert "later" in texts(book)


def test_a_lost_lock_rolls_back_everything(book):
    """Found out at the discharge."""
    book.run(send_in(T2, "b"), Settle(R, [T1], ["h"], COMPLETE, T2))
    book.run(Advance(30_000))
    assert book >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)
    assert ["a"] == texts(book)


def test_an_entity_that_refuses_rolls_back_everything(book):
    """A send that was fine when it was held is not any more."""
    book.run(send_in(T2, "b"), Settle(R, [T1], ["h"], COMPLETE, T2))
    book.ask(UpdateEntity(CLIENT, "u", "q", QueueDefinition(status=EntityStatus.SEND_DISABLED)))
    assert book >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)
    assert ["a"] == texts(book)


def test_what_cannot_be_held_is_refused_at_once(book):
    """And the transaction cannot be committed without it: together, or not at all."""
    book = Playbook(QueueDefinition(max_message_size_kilobytes=1))
    book.run(Declare(COORDINATOR, "declare"))
    large = "x" * 2000
    assert (
        book
        >> send_in(T1, large, "b")
        << SendRefused(S, large, MessageSizeExceeded)
        << Accepted(S, ["b"])
    )
    assert book >> discharge(T1) << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda: discharge(fail=True), id="rolled back"),
        pytest.param(lambda: Detach([COORDINATOR]), id="left behind"),
        pytest.param(lambda: Advance(Limits().transaction_timeout_ms), id="timed out"),
    ],
)
def test_a_settled_delivery_goes_back_with_a_rollback(end):
    """A receiver that settled it on its side has no other way to it. The delivery has failed."""
    book = Playbook(QueueDefinition(lock_duration_ms=300_000))
    book.run(send("a"), credit(1))
    book.run(Declare(COORDINATOR, "declare"))
    book.run(Settle(R, [T1], [None], COMPLETE, T2), credit(2))
    (again,) = book.deliveries(end())
    assert ("a", 1) == (text_of(again), again.delivery_count)


def test_an_unsettled_delivery_stays_locked_after_a_rollback(book):
    """Its receiver is still there to settle it otherwise."""
    book.run(Settle(R, [T1], ["h"], COMPLETE, T2), credit(2))
    assert book >> discharge(fail=True) << Reply(COORDINATOR, "discharge")
    assert book >> Settle(R, [T1], ["i"], COMPLETE) << deleted(1) << Settled(R, ["i"], COMPLETE)


def test_what_was_rolled_back_is_settled_by_a_second_transaction(book):
    """Or by token; the delivery is as it was."""
    book.run(Settle(R, [T1], ["h"], COMPLETE, T2), discharge(fail=True))
    book.run(Declare(COORDINATOR, "declare"))
    assert book >> Settle(R, [T1], ["h"], ABANDON, T3) << SettlementHeld(R, ["h"], ABANDON, T3)
    book.run(discharge(T3, fail=True))
    assert ["a"] == texts(book)
    book.ask(SettleByToken(CLIENT, "s", "q", [T1], COMPLETE))
    assert [] == texts(book)


def test_the_same_said_twice_is_one_settlement(book):
    """A client may repeat itself, or settle on its side once it has the provisional answer."""
    held = SettlementHeld(R, ["h"], COMPLETE, T2)
    assert book >> Settle(R, [T1], ["h"], COMPLETE, T2) << held
    assert book >> Settle(R, [T1], ["h"], COMPLETE, T2) << held
    assert book >> Settle(R, [T1], [None], COMPLETE, T2)
    assert book >> discharge() << deleted(1) << Reply(COORDINATOR, "discharge")


def test_what_was_settled_after_the_provisional_answer_stays_locked_after_a_rollback(book):
    """It was asked for unsettled, so its lock is as good as before, by token."""
    book.run(Settle(R, [T1], ["h"], COMPLETE, T2), Settle(R, [T1], [None], COMPLETE, T2))
    assert book >> discharge(fail=True) << Reply(COORDINATOR, "discharge")
    book.ask(SettleByToken(CLIENT, "s", "q", [T1], COMPLETE))
    assert [] == texts(book)


def test_a_settled_disposition_or_send_in_an_unknown_transaction_is_told(book):
    """There is no answer of its own that could tell it."""
    unknown = token(99)
    refused = TransactionRefused(R, TransactionUnknown)
    assert book >> Settle(R, [T1], [None], COMPLETE, unknown) << refused
    assert (
        book
        >> Send(S, [message("b")], [None], unknown)
        << SendRefused(S, None, TransactionUnknown)
        << TransactionRefused(S, TransactionUnknown)
    )


# --- connections -------------------------------------------------------------------------------------


@pytest.fixture
def two_connections():
    """Links of two connections to one queue; each has declared a transaction, T2 and T3."""
    book = Playbook(attach=False)
    peers = {}
    for name in ("one", "two"):
        sender, receiver, coordinator = (Named(f"{kind} {name}") for kind in "SRC")
        book.run(
            AttachSender(sender, "q", None, name),
            AttachReceiver(receiver, "q", ReceiveMode.PEEK_LOCK, None, name),
        )
        peers[name] = sender, receiver, coordinator
    sender, receiver, _ = peers["one"]
    book.run(Send(sender, [message("a")], [None]), credit(1, to=receiver))
    for name, (_, _, coordinator) in peers.items():
        book.run(Declare(coordinator, "declare", None, name))
    return book, peers


def test_a_transaction_is_known_on_its_own_connection_only(two_connections):
    """Whatever is asked under it elsewhere is refused, and is no part of it."""
    book, peers = two_connections
    sender, receiver, coordinator = peers["two"]
    there = Send(sender, [message("b")], ["b"], T2)
    assert book >> there << SendRefused(sender, "b", TransactionUnknown)
    settle = Settle(receiver, [T1], ["h"], COMPLETE, T2)
    assert book >> settle << SettleRefused(receiver, ["h"], TransactionUnknown)
    for request in (
        SettleByToken(CLIENT, "s", "q", [T1], COMPLETE, None, T2, "two"),
        Schedule(CLIENT, "s", "q", [message("c", at_ms=START_MS + 9)], T2, "two"),
    ):
        with pytest.raises(TransactionUnknown):
            book.ask(request)
    unknown = Reply(coordinator, "d", None, TransactionUnknown)
    assert book >> Discharge(coordinator, "d", T2, False, "two") << unknown
    _, receiver, coordinator = peers["one"]
    held = SettlementHeld(receiver, ["h"], COMPLETE, T2)
    assert book >> Settle(receiver, [T1], ["h"], COMPLETE, T2) << held
    assert (
        book
        >> Discharge(coordinator, "d", T2, False, "one")
        << deleted(1)
        << Settled(receiver, ["h"], COMPLETE, T2)
        << Reply(coordinator, "d")
    )


# --- partitions --------------------------------------------------------------------------------------


@pytest.fixture
def partitioned():
    """A partitioned queue with messages of two partition keys delivered under T1 and T2."""
    book = Playbook(QueueDefinition(enable_partitioning=True))
    book.run(send(message("a", partition_key="1"), message("b", partition_key="2")), credit(2))
    book.run(Declare(COORDINATOR, "declare"))
    return book


def keyed(text, key):
    return Send(S, [message(text, partition_key=key)], [text], T3)


def test_sends_of_a_transaction_have_one_partition_key(partitioned):
    book = partitioned
    assert book >> keyed("c", "1") << Accepted(S, ["c"])
    assert book >> keyed("d", "2") << SendRefused(S, "d", PartitionMismatch)
    assert book >> keyed("e", "1") << Accepted(S, ["e"])
    assert book >> keyed("f", None) << Accepted(S, ["f"])
    batch = SendBatch(
        S, [message("g", partition_key="1"), message("h", partition_key="3")], "x", T3
    )
    assert book >> batch << SendRefused(S, "x", PartitionMismatch)


@pytest.mark.parametrize("by_token", [False, True])
def test_settlements_of_a_transaction_are_in_one_partition(partitioned, by_token):
    """The service gives back the message that was in the way."""
    book = partitioned
    book.run(Settle(R, [T1], ["h"], COMPLETE, T3))
    if by_token:
        with pytest.raises(NotAllowed):
            book.ask(SettleByToken(CLIENT, "s", "q", [T2], COMPLETE, None, T3))
    else:
        turn = book.run(Settle(R, [T2], ["i"], COMPLETE, T3))
        assert isinstance(turn.effects[0].error, NotAllowed)
    book.run(discharge(T3, fail=True))
    with pytest.raises(MessageLockLost):
        book.ask(SettleByToken(CLIENT, "s", "q", [T2], COMPLETE))
    book.ask(SettleByToken(CLIENT, "s", "q", [T1], COMPLETE))
    (left,) = book.ask(Peek(CLIENT, "p", "q", 0, 9))
    assert ("b", 1) == (text_of(left), left.delivery_count)


def test_a_session_id_is_a_partition_key():
    """In any case of letters."""
    book = Playbook(QueueDefinition(enable_partitioning=True, requires_session=True))
    book.run(Declare(COORDINATOR, "declare"))
    for session, refused in (("x", False), ("X", False), ("y", True)):
        turn = book.run(Send(S, [message("a", session=session)], ["a"], T1))
        assert refused is isinstance(turn.effects[0], SendRefused)


def test_a_transaction_with_a_refusal_can_be_rolled_back(book):
    """Which is what a client does that was listening."""
    book.run(send_in(T2, "b"), Settle(R, [token(99)], ["h"], COMPLETE, T2))
    assert book >> discharge(fail=True) << Reply(COORDINATOR, "discharge")


def test_a_refused_request_dooms_its_transaction(book):
    """Settling by token and scheduling under a transaction are parts of it like any other."""
    late = SettleByToken(CLIENT, "r", "q", [token(99)], COMPLETE, None, T2)
    assert book >> late << Reply(CLIENT, "r", None, MessageLockLost)
    book.run(send_in(T2, "b"))
    assert book >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)
    assert ["a"] == texts(book)


def test_a_lock_is_settled_once_in_a_transaction(book):
    """A second settlement of it is refused."""
    book.run(Settle(R, [T1], ["h"], COMPLETE, T2))
    again = Settle(R, [T1], ["i"], ABANDON, T2)
    assert book >> again << SettleRefused(R, ["i"], MessageLockLost)
    assert book >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)


def test_a_settlement_outside_wins(book):
    """It was there first; the transaction is rolled back."""
    book.run(Settle(R, [T1], ["h"], COMPLETE, T2), Settle(R, [T1], ["i"], COMPLETE))
    assert book >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)


def test_an_unknown_transaction_is_refused(book):
    """Everywhere."""
    unknown = token(99)
    assert book >> send_in(unknown, "b") << SendRefused(S, "b", TransactionUnknown)
    settle = Settle(R, [T1], ["h"], COMPLETE, unknown)
    assert book >> settle << SettleRefused(R, ["h"], TransactionUnknown)
    refused = Reply(COORDINATOR, "discharge", None, TransactionUnknown)
    assert book >> discharge(unknown) << refused


def test_a_transaction_is_discharged_once(book):
    """Then it is unknown."""
    book.run(discharge())
    assert book >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionUnknown)


def test_two_minutes_roll_back(book):
    """Unless discharged before."""
    book.run(send_in(T2, "b"))
    book.run(Advance(120_000))
    assert book >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionUnknown)
    assert "b" not in texts(book)


def test_a_coordinator_that_goes_rolls_back(book):
    """With its connection, or alone."""
    book.run(send_in(T2, "b"))
    book.run(Detach([COORDINATOR]))
    assert book >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionUnknown)


def test_a_sender_may_detach_before_the_discharge(book):
    """What it sent is part of the transaction."""
    book.run(send_in(T2, "b"), Detach([S]))
    assert book >> discharge() << stored(2) << Reply(COORDINATOR, "discharge")


def test_transactions_are_bounded():
    """In messages, in bytes and in number."""
    limits = Limits(
        transaction_max_operations=2,
        transaction_max_bytes=100,
        transactions_per_connection_max=1,
    )
    book = Playbook(limits=limits)
    book.run(Declare(COORDINATOR, "declare"))
    refused = Reply(COORDINATOR, "again", None, QuotaExceeded)
    assert book >> Declare(COORDINATOR, "again") << refused
    assert book >> send_in(T1, "x" * 101) << SendRefused(S, "x" * 101, QuotaExceeded)
    assert book >> send_in(T1, "a", "b") << Accepted(S, ["a", "b"])
    assert book >> send_in(T1, "c") << SendRefused(S, "c", QuotaExceeded)
    assert book >> discharge(T1) << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)


def test_the_transactions_of_a_connection_are_counted_over_all_its_links():
    """However many links to the coordinator it has."""
    book = Playbook(limits=Limits(transactions_per_connection_max=1))
    another = Named("another coordinator")
    book.run(Declare(COORDINATOR, "declare", None, "connection"))
    refused = Reply(another, "again", None, QuotaExceeded)
    assert book >> Declare(another, "again", None, "connection") << refused
    book.run(Declare(another, "elsewhere", None, "another connection"))
    book.run(Detach([COORDINATOR]))
    declare = Declare(another, "again", T3, "connection")
    assert book >> declare << Reply(another, "again", T3)


def test_all_open_transactions_share_a_budget_of_bytes():
    """172 of them held 3 GB. Connections that hold little have a reserve; what is discharged or rolled
    back makes room."""
    limits = Limits(
        transactions_max_bytes=20_000,
        transactions_reserve_bytes=10_000,
        transactions_small_max_bytes=5_000,
    )
    book = Playbook(limits=limits)
    large, small = Named("large"), Named("small")
    book.run(AttachSender(large, "q", None, "large"), AttachSender(small, "q", None, "small"))
    book.run(Declare(COORDINATOR, "declare", T1, "large"), Declare(small, "declare", T2, "small"))
    assert book >> send_in(T1, "x" * 12_000, to=large) << Accepted(large, ["x" * 12_000])
    assert book >> send_in(T1, "y" * 8_000, to=large) << SendRefused(large, "y" * 8_000, ServerBusy)
    assert book >> send_in(T2, "a", to=small) << Accepted(small, ["a"])
    assert book >> send_in(T2, "z" * 8_000, to=small) << SendRefused(small, "z" * 8_000, ServerBusy)
    book.run(Discharge(COORDINATOR, "discharge", T1, True, "large"))
    book.run(Discharge(small, "discharge", T2, True, "small"))
    book.run(Declare(small, "again", T2, "small"))
    assert book >> send_in(T2, "z" * 8_000, to=small) << Accepted(small, ["z" * 8_000])


# --- send-via --------------------------------------------------------------------------------------


VIA = Named("VIA")


def test_a_message_sent_via_an_entity_arrives_at_its_destination(book):
    """The number of the entity on the way stays with it."""
    book.run(AttachSender(VIA, "q", "other"))
    book.run(send_in(T2, "b", to=VIA), Settle(R, [T1], ["h"], COMPLETE, T2))
    book.run(discharge())
    (arrived,) = book.ask(Peek(CLIENT, "p", "other", 0, 9))
    assert ("b", 1, 2) == (
        text_of(arrived),
        arrived.sequence_number,
        arrived.enqueue_sequence_number,
    )
    assert [] == texts(book)


def test_a_disabled_destination_leaves_it_in_the_transfer_dead_letter_queue(book):
    """Of the entity on the way."""
    book.run(AttachSender(VIA, "q", "other"))
    book.ask(UpdateEntity(CLIENT, "u", "other", QueueDefinition(status=EntityStatus.DISABLED)))
    assert book >> send("b", to=VIA) << stored(2) << Accepted(VIA, ["b"])
    (dead,) = book.ask(Peek(CLIENT, "p", "q/$Transfer/$DeadLetterQueue", 0, 9))
    assert ("b", "EntityDisabled") == (text_of(dead), dead.changes.dead_letter_reason)


def test_a_missing_destination_is_refused():
    """At attach, and later at the send."""
    book = Playbook()
    turn = book.run(AttachSender(VIA, "q", "nowhere"))
    assert isinstance(turn.effects[0].error, EntityNotFound)


def test_messages_sent_via_an_entity_have_one_key_for_that():
    entities = {"q": QueueDefinition(enable_partitioning=True), "other": QueueDefinition()}
    book = Playbook(entities=entities)
    sender = Named("VIA")
    book.run(AttachSender(sender, "q", "other"))
    assert book >> Declare(COORDINATOR, "declare") << Reply(COORDINATOR, "declare", T1)

    def via(text, key):
        return Send(sender, [message(text, partition_key=key)], [text], T1)

    assert book >> via("a", "1") << Accepted(sender, ["a"])
    assert book >> via("b", "2") << SendRefused(sender, "b", PartitionMismatch)


def test_what_was_sent_on_a_link_that_is_gone_dooms_its_transaction():
    """The broker had dropped the link, and the client did not know yet."""
    book = Playbook()
    book.run(Declare(COORDINATOR, "declare", None, "one"), Detach([S]))
    book.run(Send(S, [message("a")], ["h"], T1, "one"))
    (reply,) = book.run(Discharge(COORDINATOR, "d", T1, False, "one")).effects
    assert isinstance(reply.error, TransactionRolledBack)


def test_nobody_else_dooms_a_transaction():
    book = Playbook()
    book.run(Declare(COORDINATOR, "declare", None, "one"))
    book.run(DoomTransaction(T1, "another", MessageLockLost()))
    assert book >> Discharge(COORDINATOR, "d", T1, False, "one") << Reply(COORDINATOR, "d")


def test_refusals_hold_none_of_what_was_refused(book):
    """Frames of a raised refusal lead to the messages: they stayed in memory until a search for circles."""
    turn = book.run(send_in(T3, "x"), Settle(R, [T1], ["h"], COMPLETE, T3), discharge(T3))
    turns = [turn, book.run(AttachSender(Named("T"), "no such queue"))]
    refusals = [effect.error for turn in turns for effect in turn.effects]
    assert all(refusals)
    assert [None] * len(refusals) == [refusal.__traceback__ for refusal in refusals]
