"""Transactions: together, or not at all."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    AttachReceiver,
    AttachSender,
    CancelScheduled,
    Declare,
    Detach,
    Discharge,
    Peek,
    Schedule,
    Send,
    SendBatch,
    SetRollbackOnly,
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
from broker.core.contract.settlement_values import ABANDON, COMPLETE, DEAD_LETTER, ReceiveMode
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
    CoreDialogue,
    Deliver,
    NamedPeer,
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

COORDINATOR = NamedPeer("COORDINATOR")


@pytest.fixture
def dialogue():
    """Two queues, `a` delivered from `q` under T1, and a transaction T2 that is open."""
    dialogue = CoreDialogue(entities={"q": QueueDefinition(), "other": QueueDefinition()})
    dialogue.run(send("a"), credit(1))
    assert dialogue >> Declare(COORDINATOR, "declare") << Reply(COORDINATOR, "declare", T2)
    return dialogue


def send_in(transaction_id, *texts, to=S):
    return Send(to, [message(text) for text in texts], list(texts), transaction_id)


def discharge(transaction_id=T2, *, fail=False):
    return Discharge(COORDINATOR, "discharge", transaction_id, fail)


def texts(dialogue, path="q"):
    return [text_of(m) for m in dialogue.ask(Peek(CLIENT, "p", path, 0, 100))]


def test_nothing_shows_before_the_discharge(dialogue):
    """Sends are accepted and settlements answered, provisionally and without a record."""
    assert dialogue >> send_in(T2, "b") << Accepted(S, ["b"])
    assert (
        dialogue >> Settle(R, [T1], ["h"], COMPLETE, T2) << SettlementHeld(R, ["h"], COMPLETE, T2)
    )
    assert ["a"] == texts(dialogue)


def test_a_discharge_does_all_of_it_in_one_turn(dialogue):
    """In the order it was asked for."""
    dialogue.run(send_in(T2, "b", "c"), Settle(R, [T1], ["h"], COMPLETE, T2))
    assert (
        dialogue
        >> discharge()
        << stored(2, 3)
        << deleted(1)
        << Settled(R, ["h"], COMPLETE, T2)
        << Reply(COORDINATOR, "discharge")
    )
    assert ["b", "c"] == texts(dialogue)


def test_a_discharged_send_is_delivered(dialogue):
    """Like any other."""
    dialogue.run(send_in(T2, "b"), credit(2))
    assert (
        dialogue
        >> discharge()
        << stored(2)
        << Reply(COORDINATOR, "discharge")
        << Deliver(R, [2], [T3])
    )


def test_a_failed_discharge_drops_all_of_it(dialogue):
    """The message stays locked by its receiver."""
    dialogue.run(send_in(T2, "b"), Settle(R, [T1], ["h"], COMPLETE, T2))
    assert dialogue >> discharge(fail=True) << Reply(COORDINATOR, "discharge")
    assert ["a"] == texts(dialogue)
    assert dialogue >> Settle(R, [T1], ["h"], COMPLETE) << deleted(1) << Settled(R, ["h"], COMPLETE)


def test_several_entities_in_one_transaction(dialogue):
    """Receive from one, send to another."""
    sender = NamedPeer("sender")
    dialogue.run(AttachSender(sender, "other"))
    dialogue.run(send_in(T2, "b", to=sender), Settle(R, [T1], ["h"], COMPLETE, T2), discharge())
    assert ([], ["b"]) == (texts(dialogue), texts(dialogue, "other"))


@pytest.mark.parametrize(("settlement", "left"), [(ABANDON, ["a"]), (DEAD_LETTER, [])])
def test_every_settlement_can_be_part(dialogue, settlement, left):
    """Not only completing."""
    dialogue.run(Settle(R, [T1], ["h"], settlement, T2))
    assert (
        dialogue
        >> discharge()
        << updated(1)
        << Settled(R, ["h"], settlement, T2)
        << Reply(COORDINATOR, "discharge")
    )
    assert left == texts(dialogue)


def test_batches_and_tokens_can_be_part(dialogue):
    """Through management too."""
    assert dialogue >> SendBatch(S, [message("b")], "batch", T2) << Accepted(S, ["batch"])
    by_token = SettleByToken(CLIENT, "x", "q", [T1], COMPLETE, None, T2)
    assert dialogue >> by_token << Reply(CLIENT, "x")
    assert dialogue >> discharge() << stored(2) << deleted(1) << Reply(COORDINATOR, "discharge")


def test_scheduling_can_be_part(dialogue):
    """The number is given at once, and is good for cancelling after the discharge."""
    later = message("later", at_ms=START_MS + 60_000)
    (number,) = dialogue.ask(Schedule(CLIENT, "s", "q", [later], T2))
    dialogue.run(send("between"))
    with_reply = dialogue.run(discharge())
    assert Reply(COORDINATOR, "discharge") == with_reply.effects[-1]
    assert ["a", "later", "between"] == texts(dialogue)
    dialogue.ask(CancelScheduled(CLIENT, "c", "q", [number]))
    assert ["a", "between"] == texts(dialogue)


@pytest.fixture
def number(dialogue):
    """Of a message that is scheduled, outside any transaction."""
    (number,) = dialogue.ask(
        Schedule(CLIENT, "s", "q", [message("later", at_ms=START_MS + 60_000)])
    )
    return number


@pytest.mark.parametrize(("fail", "left"), [(False, ["a"]), (True, ["a", "later"])])
def test_cancelling_can_be_part(dialogue, number, fail, left):
    """The message is there until the discharge, and after it if that is a rollback."""
    dialogue.ask(CancelScheduled(CLIENT, "c", "q", [number], T2))
    assert ["a", "later"] == texts(dialogue)
    dialogue.run(discharge(fail=fail))
    assert left == texts(dialogue)


def test_what_is_cancelled_twice_is_cancelled(dialogue, number):
    """The second step finds nothing left to do."""
    for _ in range(2):
        dialogue.ask(CancelScheduled(CLIENT, "c", "q", [number], T2))
    assert dialogue >> discharge() << deleted(number) << Reply(COORDINATOR, "discharge")


def test_what_became_due_cannot_be_cancelled_any_more(dialogue, number):
    """All of the transaction is rolled back."""
    dialogue.ask(CancelScheduled(CLIENT, "c", "q", [number], T2))
    dialogue.run(Advance(60_000))
    assert isinstance(dialogue.run(discharge()).effects[-1].error, TransactionRolledBack)
    assert "later" in texts(dialogue)


def test_a_lost_lock_rolls_back_everything(dialogue):
    """Found out at the discharge."""
    dialogue.run(send_in(T2, "b"), Settle(R, [T1], ["h"], COMPLETE, T2))
    dialogue.run(Advance(30_000))
    assert dialogue >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)
    assert ["a"] == texts(dialogue)


def test_an_entity_that_refuses_rolls_back_everything(dialogue):
    """A send that was fine when it was held is not any more."""
    dialogue.run(send_in(T2, "b"), Settle(R, [T1], ["h"], COMPLETE, T2))
    dialogue.ask(UpdateEntity(CLIENT, "u", "q", QueueDefinition(status=EntityStatus.SEND_DISABLED)))
    assert dialogue >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)
    assert ["a"] == texts(dialogue)


def test_what_cannot_be_held_is_refused_at_once(dialogue):
    """And the transaction cannot be committed without it: together, or not at all."""
    dialogue = CoreDialogue(QueueDefinition(max_message_size_kilobytes=1))
    dialogue.run(Declare(COORDINATOR, "declare"))
    large = "x" * 2000
    assert (
        dialogue
        >> send_in(T1, large, "b")
        << SendRefused(S, large, MessageSizeExceeded)
        << Accepted(S, ["b"])
    )
    assert dialogue >> discharge(T1) << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)


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
    dialogue = CoreDialogue(QueueDefinition(lock_duration_ms=300_000))
    dialogue.run(send("a"), credit(1))
    dialogue.run(Declare(COORDINATOR, "declare"))
    dialogue.run(Settle(R, [T1], [None], COMPLETE, T2), credit(2))
    (again,) = dialogue.deliveries(end())
    assert ("a", 1) == (text_of(again), again.delivery_count)


def test_an_unsettled_delivery_stays_locked_after_a_rollback(dialogue):
    """Its receiver is still there to settle it otherwise."""
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE, T2), credit(2))
    assert dialogue >> discharge(fail=True) << Reply(COORDINATOR, "discharge")
    assert dialogue >> Settle(R, [T1], ["i"], COMPLETE) << deleted(1) << Settled(R, ["i"], COMPLETE)


def test_what_was_rolled_back_is_settled_by_a_second_transaction(dialogue):
    """Or by token; the delivery is as it was."""
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE, T2), discharge(fail=True))
    dialogue.run(Declare(COORDINATOR, "declare"))
    assert dialogue >> Settle(R, [T1], ["h"], ABANDON, T3) << SettlementHeld(R, ["h"], ABANDON, T3)
    dialogue.run(discharge(T3, fail=True))
    assert ["a"] == texts(dialogue)
    dialogue.ask(SettleByToken(CLIENT, "s", "q", [T1], COMPLETE))
    assert [] == texts(dialogue)


def test_the_same_said_twice_is_one_settlement(dialogue):
    """A client may repeat itself, or settle on its side once it has the provisional answer."""
    held = SettlementHeld(R, ["h"], COMPLETE, T2)
    assert dialogue >> Settle(R, [T1], ["h"], COMPLETE, T2) << held
    assert dialogue >> Settle(R, [T1], ["h"], COMPLETE, T2) << held
    assert dialogue >> Settle(R, [T1], [None], COMPLETE, T2)
    assert dialogue >> discharge() << deleted(1) << Reply(COORDINATOR, "discharge")


def test_what_was_settled_after_the_provisional_answer_stays_locked_after_a_rollback(dialogue):
    """It was asked for unsettled, so its lock is as good as before, by token."""
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE, T2), Settle(R, [T1], [None], COMPLETE, T2))
    assert dialogue >> discharge(fail=True) << Reply(COORDINATOR, "discharge")
    dialogue.ask(SettleByToken(CLIENT, "s", "q", [T1], COMPLETE))
    assert [] == texts(dialogue)


def test_a_presettled_operation_in_an_unknown_transaction_is_reported(dialogue):
    """A pre-settled operation has no answer, so the refusal is a separate effect."""
    unknown = token(99)
    refused = TransactionRefused(R, TransactionUnknown)
    assert dialogue >> Settle(R, [T1], [None], COMPLETE, unknown) << refused
    assert (
        dialogue
        >> Send(S, [message("b")], [None], unknown)
        << SendRefused(S, None, TransactionUnknown)
        << TransactionRefused(S, TransactionUnknown)
    )


# --- connections -------------------------------------------------------------------------------------


@pytest.fixture
def two_connections():
    """Links of two connections to one queue; each has declared a transaction, T2 and T3."""
    dialogue = CoreDialogue(attach=False)
    peers = {}
    for name in ("one", "two"):
        sender, receiver, coordinator = (NamedPeer(f"{kind} {name}") for kind in "SRC")
        dialogue.run(
            AttachSender(sender, "q", None, name),
            AttachReceiver(receiver, "q", ReceiveMode.PEEK_LOCK, None, name),
        )
        peers[name] = sender, receiver, coordinator
    sender, receiver, _ = peers["one"]
    dialogue.run(Send(sender, [message("a")], [None]), credit(1, to=receiver))
    for name, (_, _, coordinator) in peers.items():
        dialogue.run(Declare(coordinator, "declare", None, name))
    return dialogue, peers


def test_a_transaction_is_known_on_its_own_connection_only(two_connections):
    """Operations of other connections in it are refused, and do not become a part of it."""
    dialogue, peers = two_connections
    sender, receiver, coordinator = peers["two"]
    there = Send(sender, [message("b")], ["b"], T2)
    assert dialogue >> there << SendRefused(sender, "b", TransactionUnknown)
    settle = Settle(receiver, [T1], ["h"], COMPLETE, T2)
    assert dialogue >> settle << SettleRefused(receiver, ["h"], TransactionUnknown)
    for request in (
        SettleByToken(CLIENT, "s", "q", [T1], COMPLETE, None, T2, "two"),
        Schedule(CLIENT, "s", "q", [message("c", at_ms=START_MS + 9)], T2, "two"),
    ):
        with pytest.raises(TransactionUnknown):
            dialogue.ask(request)
    unknown = Reply(coordinator, "d", None, TransactionUnknown)
    assert dialogue >> Discharge(coordinator, "d", T2, False, "two") << unknown
    _, receiver, coordinator = peers["one"]
    held = SettlementHeld(receiver, ["h"], COMPLETE, T2)
    assert dialogue >> Settle(receiver, [T1], ["h"], COMPLETE, T2) << held
    assert (
        dialogue
        >> Discharge(coordinator, "d", T2, False, "one")
        << deleted(1)
        << Settled(receiver, ["h"], COMPLETE, T2)
        << Reply(coordinator, "d")
    )


# --- partitions --------------------------------------------------------------------------------------


@pytest.fixture
def partitioned():
    """A partitioned queue with messages of two partition keys delivered under T1 and T2."""
    dialogue = CoreDialogue(QueueDefinition(enable_partitioning=True))
    dialogue.run(send(message("a", partition_key="1"), message("b", partition_key="2")), credit(2))
    dialogue.run(Declare(COORDINATOR, "declare"))
    return dialogue


def keyed(text, key):
    return Send(S, [message(text, partition_key=key)], [text], T3)


def test_sends_of_a_transaction_have_one_partition_key(partitioned):
    dialogue = partitioned
    assert dialogue >> keyed("c", "1") << Accepted(S, ["c"])
    assert dialogue >> keyed("d", "2") << SendRefused(S, "d", PartitionMismatch)
    assert dialogue >> keyed("e", "1") << Accepted(S, ["e"])
    assert dialogue >> keyed("f", None) << Accepted(S, ["f"])
    batch = SendBatch(
        S, [message("g", partition_key="1"), message("h", partition_key="3")], "x", T3
    )
    assert dialogue >> batch << SendRefused(S, "x", PartitionMismatch)


@pytest.mark.parametrize("by_token", [False, True])
def test_settlements_of_a_transaction_are_in_one_partition(partitioned, by_token):
    """The service gives back the message that was in the way."""
    dialogue = partitioned
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE, T3))
    if by_token:
        with pytest.raises(NotAllowed):
            dialogue.ask(SettleByToken(CLIENT, "s", "q", [T2], COMPLETE, None, T3))
    else:
        turn = dialogue.run(Settle(R, [T2], ["i"], COMPLETE, T3))
        assert isinstance(turn.effects[0].error, NotAllowed)
    dialogue.run(discharge(T3, fail=True))
    with pytest.raises(MessageLockLost):
        dialogue.ask(SettleByToken(CLIENT, "s", "q", [T2], COMPLETE))
    dialogue.ask(SettleByToken(CLIENT, "s", "q", [T1], COMPLETE))
    (left,) = dialogue.ask(Peek(CLIENT, "p", "q", 0, 9))
    assert ("b", 1) == (text_of(left), left.delivery_count)


def test_a_session_id_is_a_partition_key():
    """In any case of letters."""
    dialogue = CoreDialogue(QueueDefinition(enable_partitioning=True, requires_session=True))
    dialogue.run(Declare(COORDINATOR, "declare"))
    for session, refused in (("x", False), ("X", False), ("y", True)):
        turn = dialogue.run(Send(S, [message("a", session=session)], ["a"], T1))
        assert refused is isinstance(turn.effects[0], SendRefused)


def test_a_transaction_with_a_refusal_can_be_rolled_back(dialogue):
    """Which is what a client does that was listening."""
    dialogue.run(send_in(T2, "b"), Settle(R, [token(99)], ["h"], COMPLETE, T2))
    assert dialogue >> discharge(fail=True) << Reply(COORDINATOR, "discharge")


def test_a_refused_request_dooms_its_transaction(dialogue):
    """Settling by token and scheduling under a transaction are parts of it like any other."""
    late = SettleByToken(CLIENT, "r", "q", [token(99)], COMPLETE, None, T2)
    assert dialogue >> late << Reply(CLIENT, "r", None, MessageLockLost)
    dialogue.run(send_in(T2, "b"))
    assert dialogue >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)
    assert ["a"] == texts(dialogue)


def test_a_lock_is_settled_once_in_a_transaction(dialogue):
    """A second settlement of it is refused."""
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE, T2))
    again = Settle(R, [T1], ["i"], ABANDON, T2)
    assert dialogue >> again << SettleRefused(R, ["i"], MessageLockLost)
    assert dialogue >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)


def test_a_settlement_outside_wins(dialogue):
    """It was there first; the transaction is rolled back."""
    dialogue.run(Settle(R, [T1], ["h"], COMPLETE, T2), Settle(R, [T1], ["i"], COMPLETE))
    assert dialogue >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)


def test_an_unknown_transaction_is_refused(dialogue):
    """Everywhere."""
    unknown = token(99)
    assert dialogue >> send_in(unknown, "b") << SendRefused(S, "b", TransactionUnknown)
    settle = Settle(R, [T1], ["h"], COMPLETE, unknown)
    assert dialogue >> settle << SettleRefused(R, ["h"], TransactionUnknown)
    refused = Reply(COORDINATOR, "discharge", None, TransactionUnknown)
    assert dialogue >> discharge(unknown) << refused


def test_a_transaction_is_discharged_once(dialogue):
    """Then it is unknown."""
    dialogue.run(discharge())
    assert dialogue >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionUnknown)


def test_two_minutes_roll_back(dialogue):
    """Unless discharged before."""
    dialogue.run(send_in(T2, "b"))
    dialogue.run(Advance(120_000))
    assert dialogue >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionUnknown)
    assert "b" not in texts(dialogue)


def test_a_coordinator_that_goes_rolls_back(dialogue):
    """With its connection, or alone."""
    dialogue.run(send_in(T2, "b"))
    dialogue.run(Detach([COORDINATOR]))
    assert dialogue >> discharge() << Reply(COORDINATOR, "discharge", None, TransactionUnknown)


def test_a_sender_may_detach_before_the_discharge(dialogue):
    """What it sent is part of the transaction."""
    dialogue.run(send_in(T2, "b"), Detach([S]))
    assert dialogue >> discharge() << stored(2) << Reply(COORDINATOR, "discharge")


def test_transactions_are_bounded():
    """In messages, in bytes and in number."""
    limits = Limits(
        transaction_max_operations=2,
        transaction_max_bytes=100,
        transactions_per_connection_max=1,
    )
    dialogue = CoreDialogue(limits=limits)
    dialogue.run(Declare(COORDINATOR, "declare"))
    refused = Reply(COORDINATOR, "again", None, QuotaExceeded)
    assert dialogue >> Declare(COORDINATOR, "again") << refused
    assert dialogue >> send_in(T1, "x" * 101) << SendRefused(S, "x" * 101, QuotaExceeded)
    assert dialogue >> send_in(T1, "a", "b") << Accepted(S, ["a", "b"])
    assert dialogue >> send_in(T1, "c") << SendRefused(S, "c", QuotaExceeded)
    assert dialogue >> discharge(T1) << Reply(COORDINATOR, "discharge", None, TransactionRolledBack)


def test_the_transactions_of_a_connection_are_counted_over_all_its_links():
    """However many links to the coordinator it has."""
    dialogue = CoreDialogue(limits=Limits(transactions_per_connection_max=1))
    another = NamedPeer("another coordinator")
    dialogue.run(Declare(COORDINATOR, "declare", None, "connection"))
    refused = Reply(another, "again", None, QuotaExceeded)
    assert dialogue >> Declare(another, "again", None, "connection") << refused
    dialogue.run(Declare(another, "elsewhere", None, "another connection"))
    dialogue.run(Detach([COORDINATOR]))
    declare = Declare(another, "again", T3, "connection")
    assert dialogue >> declare << Reply(another, "again", T3)


def test_all_open_transactions_share_a_budget_of_bytes():
    """172 of them held 3 GB. Connections that hold little have a reserve; what is discharged or rolled
    back makes room."""
    limits = Limits(
        transactions_max_bytes=20_000,
        transactions_reserve_bytes=10_000,
        transactions_small_max_bytes=5_000,
    )
    dialogue = CoreDialogue(limits=limits)
    large, small = NamedPeer("large"), NamedPeer("small")
    dialogue.run(AttachSender(large, "q", None, "large"), AttachSender(small, "q", None, "small"))
    dialogue.run(
        Declare(COORDINATOR, "declare", T1, "large"), Declare(small, "declare", T2, "small")
    )
    assert dialogue >> send_in(T1, "x" * 12_000, to=large) << Accepted(large, ["x" * 12_000])
    assert (
        dialogue
        >> send_in(T1, "y" * 8_000, to=large)
        << SendRefused(large, "y" * 8_000, ServerBusy)
    )
    assert dialogue >> send_in(T2, "a", to=small) << Accepted(small, ["a"])
    assert (
        dialogue
        >> send_in(T2, "z" * 8_000, to=small)
        << SendRefused(small, "z" * 8_000, ServerBusy)
    )
    dialogue.run(Discharge(COORDINATOR, "discharge", T1, True, "large"))
    dialogue.run(Discharge(small, "discharge", T2, True, "small"))
    dialogue.run(Declare(small, "again", T2, "small"))
    assert dialogue >> send_in(T2, "z" * 8_000, to=small) << Accepted(small, ["z" * 8_000])


# --- send-via --------------------------------------------------------------------------------------


VIA = NamedPeer("VIA")


def test_a_message_sent_via_an_entity_arrives_at_its_destination(dialogue):
    """The number of the entity on the way stays with it."""
    dialogue.run(AttachSender(VIA, "q", "other"))
    dialogue.run(send_in(T2, "b", to=VIA), Settle(R, [T1], ["h"], COMPLETE, T2))
    dialogue.run(discharge())
    (arrived,) = dialogue.ask(Peek(CLIENT, "p", "other", 0, 9))
    assert ("b", 1, 2) == (
        text_of(arrived),
        arrived.sequence_number,
        arrived.enqueue_sequence_number,
    )
    assert [] == texts(dialogue)


def test_a_disabled_destination_leaves_it_in_the_transfer_dead_letter_queue(dialogue):
    """Of the entity on the way."""
    dialogue.run(AttachSender(VIA, "q", "other"))
    dialogue.ask(UpdateEntity(CLIENT, "u", "other", QueueDefinition(status=EntityStatus.DISABLED)))
    assert dialogue >> send("b", to=VIA) << stored(2) << Accepted(VIA, ["b"])
    (dead,) = dialogue.ask(Peek(CLIENT, "p", "q/$Transfer/$DeadLetterQueue", 0, 9))
    assert ("b", "EntityDisabled") == (text_of(dead), dead.changes.dead_letter_reason)


def test_a_missing_destination_is_refused():
    """At attach, and later at the send."""
    dialogue = CoreDialogue()
    turn = dialogue.run(AttachSender(VIA, "q", "nowhere"))
    assert isinstance(turn.effects[0].error, EntityNotFound)


def test_messages_sent_via_an_entity_have_one_key_for_that():
    entities = {"q": QueueDefinition(enable_partitioning=True), "other": QueueDefinition()}
    dialogue = CoreDialogue(entities=entities)
    sender = NamedPeer("VIA")
    dialogue.run(AttachSender(sender, "q", "other"))
    assert dialogue >> Declare(COORDINATOR, "declare") << Reply(COORDINATOR, "declare", T1)

    def via(text, key):
        return Send(sender, [message(text, partition_key=key)], [text], T1)

    assert dialogue >> via("a", "1") << Accepted(sender, ["a"])
    assert dialogue >> via("b", "2") << SendRefused(sender, "b", PartitionMismatch)


def test_what_was_sent_on_a_link_that_is_gone_dooms_its_transaction():
    """The broker had dropped the link, and the client did not know yet."""
    dialogue = CoreDialogue()
    dialogue.run(Declare(COORDINATOR, "declare", None, "one"), Detach([S]))
    dialogue.run(Send(S, [message("a")], ["h"], T1, "one"))
    (reply,) = dialogue.run(Discharge(COORDINATOR, "d", T1, False, "one")).effects
    assert isinstance(reply.error, TransactionRolledBack)


def test_nobody_else_dooms_a_transaction():
    dialogue = CoreDialogue()
    dialogue.run(Declare(COORDINATOR, "declare", None, "one"))
    dialogue.run(SetRollbackOnly(T1, "another", MessageLockLost()))
    assert dialogue >> Discharge(COORDINATOR, "d", T1, False, "one") << Reply(COORDINATOR, "d")


def test_refusals_hold_none_of_what_was_refused(dialogue):
    """Frames of a raised refusal lead to the messages: they stayed in memory until a search for circles."""
    turn = dialogue.run(send_in(T3, "x"), Settle(R, [T1], ["h"], COMPLETE, T3), discharge(T3))
    turns = [turn, dialogue.run(AttachSender(NamedPeer("T"), "no such queue"))]
    refusals = [effect.error for turn in turns for effect in turn.effects]
    assert all(refusals)
    assert [None] * len(refusals) == [refusal.__traceback__ for refusal in refusals]
