"""Bodies beyond the budget live in the store, and are read back ahead of delivery."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    AttachSender,
    DeleteMessages,
    Detach,
    PayloadsLoaded,
    Peek,
    ReceiveDeferred,
    Settle,
    UpdateEntity,
)
from broker.core.contract.settlement_values import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    ReceiveMode,
)
from broker.core.queues.ready_messages import READ_AHEAD_MESSAGES
from config.model.definitions import (
    EntityDefinition,
    QueueDefinition,
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
    Deliver,
    Drained,
    NamedPeer,
    PayloadsNeeded,
    R,
    Reply,
    S,
    attach_receiver,
    credit,
    message,
    send,
    text_of,
)

OTHER = NamedPeer("OTHER")


def resident_bytes(dialogue):
    return dialogue.namespace._context.payloads.resident_bytes


def texts(messages):
    return [text_of(message) for message in messages]


@pytest.fixture
def dialogue():
    """A queue with room for ten bytes of bodies in memory."""
    return CoreDialogue(budget_bytes=10)


def test_bodies_over_the_budget_leave_memory(dialogue):
    """The head stays, the tail goes."""
    dialogue.serve(send("aaaa", "bbbb"))
    assert 8 == resident_bytes(dialogue)
    dialogue.serve(send("cccc"), send("dddd"))
    assert resident_bytes(dialogue) <= 12


def test_what_is_delivered_at_once_is_never_paged(dialogue):
    """Through traffic costs no read, however full memory is."""
    dialogue.serve(credit(100))
    assert ["x" * 50] == texts(dialogue.receive(send("x" * 50)))
    assert ["y" * 50] == texts(dialogue.receive(send("y" * 50)))
    assert [] == dialogue.reads


def test_paged_messages_are_delivered_in_order(dialogue):
    """Their bodies are asked for once, in batches."""
    sent = [f"{number:04}" for number in range(50)]
    for text in sent:
        dialogue.serve(send(text))
    assert sent == texts(dialogue.receive(credit(100)))
    asked = [payload_id for read in dialogue.reads for payload_id in read]
    assert len(asked) == len(set(asked))
    assert len(dialogue.reads) <= 3


def test_nothing_is_delivered_without_its_body(dialogue):
    """Delivery stops at the first message without a body, and continues when the body is loaded."""
    dialogue.serve(send("x" * 20))
    dialogue.serve(send("a"), send("b"))
    dialogue.commit()
    assert dialogue >> credit(9) << PayloadsNeeded([1])
    loaded = PayloadsLoaded(dialogue.store.read_payloads([1]))
    assert dialogue >> loaded << Deliver(R, [1, 2, 3], [T1, T2, T3])


def test_reading_ahead_is_bounded():
    """A queue of any length is read in pieces, before they are needed."""
    dialogue = CoreDialogue(budget_bytes=0)
    count = 3 * READ_AHEAD_MESSAGES
    dialogue.serve(send(*["m"] * count))
    assert 100 == len(texts(dialogue.receive(credit(100))))
    assert sum(map(len, dialogue.reads)) <= 2 * READ_AHEAD_MESSAGES
    rest = 0
    while more := texts(dialogue.receive(credit(count + 10))):
        rest += len(more)
    assert count - 100 == rest
    assert max(map(len, dialogue.reads)) <= READ_AHEAD_MESSAGES


def test_completing_frees_memory(dialogue):
    """The account follows what is there."""
    sent = [f"{number:04}" for number in range(20)]
    for text in sent:
        dialogue.serve(send(text))
    effects = dialogue.serve(credit(100))
    tokens = [t for e in effects if isinstance(e, Deliver) for t in e.tokens]
    dialogue.serve(Settle(R, tokens, tokens, COMPLETE))
    assert 0 == resident_bytes(dialogue)


def test_draining_waits_for_bodies(dialogue):
    """Everything available is delivered before the credit is given back."""
    dialogue.serve(send("x" * 20))
    for text in "abc":
        dialogue.serve(send(text))
    effects = dialogue.serve(credit(100, drain=True))
    texts = [text_of(m) for e in effects if isinstance(e, Deliver) for m in e.messages]
    assert ["x" * 20, "a", "b", "c"] == texts
    assert Drained(R) == effects[-1]


def test_peeking_reads_bodies_and_leaves_memory_as_it_was(dialogue):
    """A look is no reason to keep a body."""
    sent = [f"{number:04}" for number in range(20)]
    for text in sent:
        dialogue.serve(send(text))
    before = resident_bytes(dialogue)
    effects = dialogue.serve(Peek(CLIENT, "p", "q", 0, 100))
    assert sent == [text_of(m) for m in effects[-1].value]
    assert resident_bytes(dialogue) <= max(before, 12)
    assert sent == texts(dialogue.receive(credit(100)))


def test_a_body_stays_in_memory_until_the_last_request_for_it_is_answered():
    """Requests that overlap would evict the bodies of each other again and again otherwise."""
    dialogue = CoreDialogue(budget_bytes=10)
    for text in ("a" * 20, "b" * 20):
        dialogue.serve(send(text))
    store = dialogue.commit()
    turn = dialogue.run(Peek(CLIENT, "one", "q", 0, 1), Peek(OTHER, "both", "q", 0, 2))
    needed = [e.payload_ids for e in turn.effects if isinstance(e, PayloadsNeeded)]
    assert [[1], [2]] == needed
    turn = dialogue.run(PayloadsLoaded(store.read_payloads([1])))
    assert ["one"] == [e.request for e in turn.effects if isinstance(e, Reply)]
    turn = dialogue.run(PayloadsLoaded(store.read_payloads([2])))
    (reply,) = turn.effects
    assert ["a" * 20, "b" * 20] == texts(reply.value)
    assert 0 == resident_bytes(dialogue)


def test_a_peeked_message_keeps_the_body_it_was_shown_with(dialogue):
    """Also if the body leaves memory in the same turn."""
    effects = dialogue.serve(send("x" * 20), Peek(CLIENT, "p", "q", 0, 1))
    (reply,) = [e for e in effects if isinstance(e, Reply)]
    assert "x" * 20 == text_of(reply.value[0])


def test_deferred_messages_are_fetched_from_the_store(dialogue):
    """Their bodies need not wait in memory."""
    dialogue.serve(send("a" * 20), credit(1))
    dialogue.serve(Settle(R, [T1], ["h"], DEFER))
    assert 0 == resident_bytes(dialogue)
    fetch = ReceiveDeferred(CLIENT, "f", "q", [1], ReceiveMode.PEEK_LOCK)
    effects = dialogue.serve(fetch)
    ((fetched, _),) = effects[-1].value
    assert "a" * 20 == text_of(fetched)


@pytest.mark.parametrize("connection_lost", [True, False])
@pytest.mark.parametrize("mode", list(ReceiveMode))
def test_a_deferred_message_is_not_received_for_a_client_that_ended(
    dialogue, mode, connection_lost
):
    """Its body was still being read. Nobody would release the lock, or get the deleted message."""
    dialogue.serve(send("a" * 20), credit(1))
    dialogue.serve(Settle(R, [T1], ["h"], DEFER))
    turn = dialogue.run(ReceiveDeferred(CLIENT, "f", "q", [1], mode))
    (needed,) = [e.payload_ids for e in turn.effects if isinstance(e, PayloadsNeeded)]
    dialogue.run(Detach([CLIENT], connection_lost=connection_lost))
    dialogue.serve(PayloadsLoaded({}))  # of another message
    effects = dialogue.serve(PayloadsLoaded(dialogue.commit().read_payloads(needed)))
    assert [] == [e for e in effects if isinstance(e, Reply)]
    assert 0 == resident_bytes(dialogue)
    effects = dialogue.serve(ReceiveDeferred(OTHER, "f", "q", [1], ReceiveMode.PEEK_LOCK))
    ((fetched, _),) = effects[-1].value
    assert "a" * 20 == text_of(fetched)


def test_dead_letters_leave_memory(dialogue):
    """Most dead letters are never read."""
    dialogue.serve(send("a" * 20), credit(1))
    dialogue.serve(Settle(R, [T1], ["h"], DEAD_LETTER))
    assert 0 == resident_bytes(dialogue)
    dialogue.serve(attach_receiver(OTHER, "q/$DeadLetterQueue"))
    assert ["a" * 20] == texts(dialogue.receive(credit(1, to=OTHER)))


def test_a_message_removed_while_its_body_is_read_is_not_delivered(dialogue):
    """And the one behind it is."""
    dialogue.serve(send("x" * 20))
    dialogue.serve(send("gone"), Advance(1_000))
    dialogue.serve(send("next"))
    dialogue.commit()
    needed = [
        payload_id
        for e in dialogue.run(credit(9)).effects
        if isinstance(e, PayloadsNeeded)
        for payload_id in e.payload_ids
    ]
    dialogue.ask(DeleteMessages(CLIENT, "d", "q", 9, START_MS + 1))
    loaded = dialogue.store.read_payloads(needed)
    effects = dialogue.serve(PayloadsLoaded(loaded), credit(9))
    assert "gone" not in [text_of(m) for e in effects if isinstance(e, Deliver) for m in e.messages]


def test_sessions_are_paged_too():
    """Each reads its own ahead."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True), budget_bytes=0)
    dialogue.serve(send(*[message(f"{t}{s}", session=s) for t in range(9) for s in "xy"]))
    dialogue.serve(attach_receiver(R, session="y"))
    assert [f"{t}y" for t in range(9)] == texts(dialogue.receive(credit(99)))


def test_the_sessions_that_are_next_are_read_together():
    """Their messages are in the same blocks of the store. Each is read once, whoever gets the sessions."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True), budget_bytes=0)
    names = [f"s{number}" for number in range(30)]
    dialogue.serve(send(*[message(f"{t}{s}", session=s) for t in range(5) for s in names]))
    for name in names:
        peer = NamedPeer(name)
        dialogue.serve(attach_receiver(peer, any_session=True))
        assert [f"{t}{name}" for t in range(5)] == texts(dialogue.receive(credit(99, to=peer)))
    assert [150] == [len(read) for read in dialogue.reads]


def test_reading_ahead_for_sessions_is_bounded():
    """What is in memory for sessions that nobody holds, too. They are read on when half of that is used."""
    dialogue = CoreDialogue(QueueDefinition(requires_session=True), budget_bytes=0)
    share = READ_AHEAD_MESSAGES // 4
    for name in "abcdefghij":
        dialogue.serve(send(*[message(f"{t}", session=name) for t in range(share)]))
    dialogue.serve(attach_receiver(R, any_session=True))
    assert [5 * share] == [len(read) for read in dialogue.reads]
    dialogue.serve(attach_receiver(OTHER, session="j"))
    assert [5 * share, share] == [len(read) for read in dialogue.reads]
    dialogue.serve(attach_receiver(NamedPeer("b"), session="b"))
    assert 2 == len(dialogue.reads)
    dialogue.serve(attach_receiver(NamedPeer("c"), session="c"))
    assert [5 * share, share, 2 * share] == [len(read) for read in dialogue.reads]


def test_copies_share_a_payload_and_read_it_once():
    """Every subscription gets its body from the same read if both wait for it."""
    entities: dict[str, EntityDefinition] = {
        "t": TopicDefinition(),
        **{f"t/Subscriptions/{name}": SubscriptionDefinition() for name in "xy"},
    }
    dialogue = CoreDialogue(entities=entities, attach=False, budget_bytes=0)
    dialogue.serve(AttachSender(S, "t"), send("a"))
    dialogue.serve(
        attach_receiver(R, "t/Subscriptions/x"), attach_receiver(OTHER, "t/Subscriptions/y")
    )
    assert ["a", "a"] == texts(dialogue.receive(credit(1), credit(1, to=OTHER)))
    assert [[1]] == dialogue.reads


def test_a_scheduled_topic_message_is_read_back_when_due():
    """Rules must look into it."""
    entities: dict[str, EntityDefinition] = {
        "t": TopicDefinition(),
        "t/Subscriptions/x": SubscriptionDefinition(),
    }
    dialogue = CoreDialogue(entities=entities, attach=False, budget_bytes=0)
    dialogue.serve(AttachSender(S, "t"), send(message("a", at_ms=START_MS + 1_000)))
    (scheduled,) = dialogue.namespace._directory.queue("t").index.walk()
    dialogue.namespace._context.payloads.evict(scheduled)
    dialogue.serve(Advance(1_000))
    effects = dialogue.serve(Peek(CLIENT, "p", "t/Subscriptions/x", 0, 9))
    assert ["a"] == [text_of(m) for m in effects[-1].value]


def test_forwarding_reads_back_what_it_moves():
    """Bodies follow their messages."""
    entities: dict[str, EntityDefinition] = {"q": QueueDefinition(), "end": QueueDefinition()}
    dialogue = CoreDialogue(entities=entities, budget_bytes=0)
    for text in "abc":
        dialogue.serve(send(text))
    dialogue.serve(UpdateEntity(CLIENT, "u", "q", QueueDefinition(forward_to="end")))
    effects = dialogue.serve(Peek(CLIENT, "p", "end", 0, 9))
    assert ["a", "b", "c"] == [text_of(m) for m in effects[-1].value]


def test_without_a_budget_nothing_is_paged():
    """A store that keeps bodies in memory anyway gains nothing."""
    dialogue = CoreDialogue()
    dialogue.serve(send("x" * 10**6))
    assert 10**6 == resident_bytes(dialogue)


@pytest.mark.parametrize("gives_back", ["abandon", "connection lost"])
def test_what_is_given_back_may_leave_memory(dialogue, gives_back):
    """A receiver that takes much and completes nothing does not keep it all in memory."""
    sent = [f"{number:04}" for number in range(20)]
    for text in sent:
        dialogue.serve(send(text))
    effects = dialogue.serve(credit(100))
    tokens = [t for e in effects if isinstance(e, Deliver) for t in e.tokens]
    assert 20 == len(tokens)
    dialogue.serve(credit(0))
    if gives_back == "abandon":
        dialogue.serve(Settle(R, tokens, tokens, ABANDON))
    else:
        dialogue.serve(Detach([R], connection_lost=True))
        dialogue.serve(attach_receiver(R))
    assert resident_bytes(dialogue) <= 10
    effects = dialogue.serve(credit(100))
    assert sent == [text_of(m) for e in effects if isinstance(e, Deliver) for m in e.messages]
