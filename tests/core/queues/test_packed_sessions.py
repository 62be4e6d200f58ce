"""Waiting messages of sessions are packed as others are, and each session still has its own, in order."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    DeleteEntity,
    DeleteMessages,
    PayloadsLoaded,
    Peek,
    Settle,
    UpdateEntity,
)
from broker.core.contract.effects import PayloadsNeeded, Reply
from broker.core.contract.settlement_values import ABANDON, COMPLETE
from config.model.definitions import QueueDefinition
from tests.model.invariants import check_invariants
from tests.support.core_dialogue import (
    CLIENT,
    Advance,
    CoreDialogue,
    Deliver,
    NamedPeer,
    R,
    attach_receiver,
    credit,
    message,
    send,
)
from tests.support.packed_blocks import BLOCK_SIZE, COUNT, SENT, packed_count, queue_of, texts
from tests.support.unfinished_work import finish_work

SESSIONS = "abcdefgh"
WITH_SESSIONS = QueueDefinition(requires_session=True)
OTHER = NamedPeer("OTHER")


def new_dialogue(
    definition: QueueDefinition = WITH_SESSIONS, *, sent: bool = True, **options
) -> CoreDialogue:
    """Returns a queue that packs what it can. The sessions are sent to in turn."""
    dialogue = CoreDialogue(definition, budget_bytes=1 << 20, **options)
    pack_all(dialogue)
    if sent:
        for start in range(0, COUNT, 10):
            part = range(start, min(start + 10, COUNT))
            dialogue.serve(send(*[message(SENT[n], session=session_of(n)) for n in part]))
        assert packed_count(dialogue) >= COUNT - 2 * BLOCK_SIZE
    return dialogue


def pack_all(dialogue: CoreDialogue) -> None:
    dialogue.namespace._context.payloads.messages_max = 0


def session_of(number: int) -> str:
    return SESSIONS[number % len(SESSIONS)]


def texts_of(session: str) -> list[str]:
    return SENT[SESSIONS.index(session) :: len(SESSIONS)]


def receive_all(dialogue: CoreDialogue, session: str, peer: NamedPeer) -> list[str]:
    dialogue.serve(attach_receiver(peer, session=session))
    return texts(dialogue.receive(credit(COUNT, to=peer)))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_each_session_delivers_its_packed_messages_in_order(is_restarted):
    """Also after a restart, which keeps them packed. Completing them leaves nothing."""
    dialogue = new_dialogue()
    if is_restarted:
        dialogue = dialogue.restarted()
        pack_all(dialogue)
        assert packed_count(dialogue) >= COUNT - 2 * BLOCK_SIZE
    for session in reversed(SESSIONS):
        peer = NamedPeer(session)
        dialogue.serve(attach_receiver(peer, session=session))
        effects = [e for e in dialogue.serve(credit(COUNT, to=peer)) if isinstance(e, Deliver)]
        assert texts_of(session) == [text for e in effects for text in texts(e.messages)]
        tokens = [token for effect in effects for token in effect.tokens]
        dialogue.serve(Settle(peer, tokens, tokens, COMPLETE))
    check_invariants(dialogue.namespace)
    payloads = dialogue.namespace._context.payloads
    assert (0, 0) == (queue_of(dialogue).count, queue_of(dialogue).size_bytes)
    assert (0, 0) == (payloads.message_count, payloads.resident_bytes)
    assert {} == dialogue.commit().rows


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_counts_of_sessions_do_not_depend_on_packing(is_restarted):
    """What clients and the console see of a session."""
    dialogue = new_dialogue()
    if is_restarted:
        dialogue = dialogue.restarted()
    sessions = queue_of(dialogue).sessions
    assert sessions is not None
    counts = {session.id: len(session.messages) for session in sessions}
    assert dict.fromkeys(SESSIONS, COUNT // len(SESSIONS)) == counts
    assert {len(session.ready) for session in sessions} == {COUNT // len(SESSIONS)}
    assert COUNT == queue_of(dialogue).count


def test_a_receiver_of_the_next_session_gets_packed_messages():
    """The sessions are still available in the order in which they came."""
    dialogue = new_dialogue().restarted()
    dialogue.serve(attach_receiver(R, any_session=True))
    assert texts_of("a") == texts(dialogue.receive(credit(COUNT)))


def test_new_messages_of_a_session_come_after_its_packed_ones():
    """Whether or not its blocks were unpacked meanwhile."""
    dialogue = new_dialogue()
    dialogue.serve(send(message("later", session="c")))
    assert [*texts_of("c"), "later"] == receive_all(dialogue, "c", R)


def test_an_abandoned_message_comes_back_before_packed_ones():
    """At its old place in the session."""
    dialogue = new_dialogue()
    dialogue.serve(attach_receiver(R, session="b"))
    (first,) = [e for e in dialogue.serve(credit(1)) if isinstance(e, Deliver)]
    dialogue.serve(Settle(R, first.tokens, first.tokens, ABANDON))
    assert texts_of("b")[:3] == texts(dialogue.receive(credit(4)))


def test_ids_that_differ_in_case_are_one_session_after_a_restart():
    """The store has the ids as they were sent."""
    dialogue = new_dialogue(sent=False)
    ids = ["One", "oNE", "two"]
    dialogue.serve(send(*[message(SENT[n], session=ids[n % 3]) for n in range(COUNT)]))
    later = dialogue.restarted()
    assert packed_count(later) > 0
    check_sessions = {session.id: len(session.messages) for session in queue_of(later).sessions}
    assert {"One": COUNT - COUNT // 3, "two": COUNT // 3} == check_sessions
    expected = [SENT[n] for n in range(COUNT) if n % 3 < 2]
    assert expected == receive_all(later, "ONE", R)
    check_invariants(later.namespace)


@pytest.mark.parametrize("number", [1, 2, BLOCK_SIZE - 1, BLOCK_SIZE, BLOCK_SIZE + 1, COUNT + 1])
def test_a_session_is_peeked_from_any_number(number):
    """Also from the middle of a packed block, and only as much is unpacked as is asked for."""
    dialogue = new_dialogue()
    packed = packed_count(dialogue)
    effects = dialogue.serve(Peek(CLIENT, "p", "q", number, 3, session_id="d"))
    (found,) = [effect.value for effect in effects if isinstance(effect, Reply)]
    expected = [text for text in texts_of("d") if int(text) + 1 >= number]
    assert isinstance(found, list)
    assert expected[:3] == texts(found)
    assert packed_count(dialogue) >= packed - 2 * BLOCK_SIZE


def test_the_packed_messages_of_one_session_are_deleted_by_request():
    """Those of others stay."""
    dialogue = new_dialogue()
    request = DeleteMessages(CLIENT, "d", "q", COUNT, dialogue.now_ms + 1, session_id="e")
    assert COUNT // len(SESSIONS) == dialogue.ask(request)
    assert [] == receive_all(dialogue, "e", R)
    assert texts_of("f") == receive_all(dialogue, "f", OTHER)
    check_invariants(dialogue.namespace)


def test_packed_messages_of_sessions_go_with_their_entity():
    """None is left in the store, also if a part was unpacked before."""
    dialogue = new_dialogue()
    assert texts_of("a") == receive_all(dialogue, "a", R)
    dialogue.ask(DeleteEntity(CLIENT, 1, "q"))
    finish_work(dialogue)
    assert {} == dialogue.commit().rows
    assert 0 == dialogue.namespace._context.payloads.message_count


@pytest.mark.parametrize("is_restarted", [False, True])
def test_packed_messages_of_sessions_are_forwarded_in_the_order_of_their_numbers(is_restarted):
    """When forwarding of their queue begins, and those that wait for a start of their destination."""
    entities = {"q": WITH_SESSIONS, "next": QueueDefinition()}
    dialogue = new_dialogue(WITH_SESSIONS, entities=entities)
    forwarding = QueueDefinition(requires_session=True, forward_to="next")
    dialogue.serve(UpdateEntity(CLIENT, 1, "q", forwarding))
    if is_restarted:
        dialogue = dialogue.restarted()
    dialogue.run(attach_receiver(OTHER, "next"))
    assert SENT == texts(dialogue.receive(credit(COUNT, to=OTHER)))


def test_packed_messages_of_sessions_expire():
    """In the order of their numbers."""
    definition = QueueDefinition(
        requires_session=True, default_time_to_live_ms=60_000, dead_lettering_on_expiration=True
    )
    dialogue = new_dialogue(definition)
    dialogue.serve(Advance(60_000))
    finish_work(dialogue)
    assert (0, 0) == (queue_of(dialogue).count, packed_count(dialogue))
    dead = queue_of(dialogue, "q/$DeadLetterQueue").index.walk()
    assert list(range(1, COUNT + 1)) == [one.enqueue_sequence_number for one in dead]
    check_invariants(dialogue.namespace)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_scheduled_messages_of_sessions_are_packed_until_they_are_due(is_restarted):
    """Then their sessions have them."""
    dialogue = new_dialogue(sent=False)
    due_ms = dialogue.now_ms + 60_000
    scheduled = [message(SENT[n], session=session_of(n), at_ms=due_ms) for n in range(COUNT)]
    dialogue.serve(send(*scheduled))
    assert packed_count(dialogue) > 0
    if is_restarted:
        dialogue = dialogue.restarted()
        pack_all(dialogue)
        assert packed_count(dialogue) > 0
    dialogue.serve(Advance(60_000))
    finish_work(dialogue)
    assert texts_of("g") == receive_all(dialogue, "g", R)
    check_invariants(dialogue.namespace)


def test_a_receiver_unpacks_few_blocks_at_once(monkeypatch):
    """A session may have one message in each of many blocks, and nobody should wait until all are unpacked."""
    monkeypatch.setattr("broker.core.queues.ready_messages.UNPACKED_MAX", 1)
    monkeypatch.setattr("broker.core.queues.session_read_ahead.READ_AHEAD_MESSAGES", 2)
    dialogue = new_dialogue()
    dialogue.serve(send(*[message(SENT[n], session=session_of(n)) for n in range(COUNT)]))
    dialogue.serve(send(message("last", session="h")))
    packed = packed_count(dialogue)
    assert packed > 6 * BLOCK_SIZE
    dialogue.run(attach_receiver(R, session="h"), credit(COUNT))
    assert packed - 2 * BLOCK_SIZE <= packed_count(dialogue)
    needed = [e.payload_ids for e in dialogue.turns[-1].effects if isinstance(e, PayloadsNeeded)]
    bodies = dialogue.commit().read_payloads([one for ids in needed for one in ids])
    assert [*texts_of("h") * 2, "last"] == texts(dialogue.receive(PayloadsLoaded(bodies)))
