"""Copying a namespace: what the copy has, and what ends with the original."""

from __future__ import annotations

import pytest

from broker.core.contract.commands import (
    AttachSender,
    CreateEntity,
    GetSessionState,
    SetSessionState,
)
from broker.core.contract.effects import AttachRefused, Detached
from broker.core.contract.errors import NamespaceRestored
from broker.core.contract.records import EntityDeleted, MessagesDeleted
from broker.core.contract.settlement_values import ReceiveMode
from broker.core.contract.turn import Turn
from broker.core.namespace import Namespace
from broker.core.namespace_copy import NamespaceCopy
from broker.core.queues.message_index import BLOCK_BITS
from config.model.definitions import QueueDefinition
from tests.support.core_dialogue import (
    CLIENT,
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

BLOCK_SIZE = 1 << BLOCK_BITS


def copy_of(
    dialogue: CoreDialogue, *, part: int = 3, budget_bytes: int | None = None, messages_max=None
) -> CoreDialogue:
    """Returns a dialogue with a copy, whose records are committed to the same store."""
    later = CoreDialogue(entities={}, attach=False, budget_bytes=budget_bytes)
    later.store = dialogue.commit()
    later.now_ms = dialogue.now_ms
    later.ids = dialogue.ids
    later._tokens = 1_000
    later.namespace = Namespace("copy", ids=dialogue.ids, **later.options)
    if messages_max is not None:
        later.namespace.context.payloads.messages_max = messages_max
    copying = NamespaceCopy(dialogue.namespace, later.namespace, later.now_ms)
    turn = Turn()
    while copying.copy_entities(part):
        pass
    while messages := copying.next_messages(part):
        missing = [one.payload_id for one in messages if one.body is None]
        copying.copy_messages(messages, later.store.read_payloads(missing), turn)
    while copying.copy_message_ids(part, turn):
        pass
    copying.finish(turn)
    later.turns.append(turn)
    return later


def receive_all(dialogue: CoreDialogue, path: str = "q", peer: NamedPeer = CLIENT):
    return dialogue.receive(attach_receiver(peer, path), credit(1_000, to=peer))


@pytest.mark.parametrize("budget_bytes", [None, 1 << 20], ids=["in memory", "in the store"])
def test_a_locked_message_is_available_in_the_copy(budget_bytes):
    """With the delivery count from before this delivery. The lock of the original stays."""
    dialogue = CoreDialogue()
    dialogue.run(send("a", "b"), credit(1))
    copy = copy_of(dialogue, budget_bytes=budget_bytes)
    assert [("a", 0, 1), ("b", 0, 2)] == [
        (text_of(one), one.delivery_count, one.sequence_number) for one in receive_all(copy)
    ]
    assert ["b"] == [text_of(one) for one in receive_all(dialogue)]


def test_the_copy_continues_with_the_numbers_of_the_original():
    """Also if the messages with the last numbers are gone, and after a restart."""
    dialogue = CoreDialogue(QueueDefinition(), attach=False)
    dialogue.run(AttachSender(S, "q"), send("a", "b"))
    receiving = attach_receiver(R, mode=ReceiveMode.RECEIVE_AND_DELETE)
    dialogue.run(receiving, credit(2))
    copy = copy_of(dialogue)
    restarted = CoreDialogue(entities={}, attach=False)
    restarted.store = copy.commit()
    both = {
        name: Namespace(name, ids=restarted.ids, **restarted.options) for name in ("ns", "copy")
    }
    Namespace.restore_all(both, restarted.store.load(), copy.now_ms)
    restarted.namespace = both["copy"]
    for later in (copy, restarted):
        later.run(AttachSender(S, "q"), send("c"))
        assert [("c", 3)] == [(text_of(one), one.sequence_number) for one in receive_all(later)]


def test_packed_messages_stay_packed_in_the_original_and_are_packed_in_the_copy():
    """Copying a million messages must not unpack them."""
    dialogue = CoreDialogue(attach=False, budget_bytes=0)
    dialogue.namespace.context.payloads.messages_max = 0
    texts = [f"{number:03}" for number in range(4 * BLOCK_SIZE)]
    dialogue.run(AttachSender(S, "q"))
    for start in range(0, len(texts), BLOCK_SIZE):
        dialogue.run(send(*texts[start : start + BLOCK_SIZE]))
    (queue,) = [entity.main for entity in dialogue.namespace.entities()]
    packed_before = len(queue.index.packed)
    copy = copy_of(dialogue, part=2 * BLOCK_SIZE, budget_bytes=1 << 20, messages_max=-1)
    assert packed_before == len(queue.index.packed) > 0
    (copied,) = [entity.main for entity in copy.namespace.entities()]
    assert copied.index.packed
    assert texts == [text_of(one) for one in receive_all(copy)]


def test_session_states_and_seen_message_ids_are_copied():
    """A duplicate of a message of the original is one in the copy, for as long."""
    dialogue = CoreDialogue(
        entities={
            "q": QueueDefinition(requires_duplicate_detection=True, duplicate_window_ms=60_000),
            "grouped": QueueDefinition(requires_session=True),
        }
    )
    dialogue.run(send(message("a", message_id="1")))
    dialogue.run(
        attach_receiver(CLIENT, "grouped", session="s"),
        SetSessionState(CLIENT, 1, "grouped", "s", b"state"),
    )
    copy = copy_of(dialogue)
    copy.run(AttachSender(S, "q"), send(message("again", message_id="1")))
    copy.run(attach_receiver(R, "grouped", session="s"))
    assert b"state" == copy.ask(GetSessionState(R, 1, "grouped", "s"))
    assert ["a"] == [text_of(one) for one in receive_all(copy)]
    later = copy.receive(Advance(60_001), send(message("later", message_id="1")))
    assert "later" in [text_of(one) for one in later]


def test_a_closed_namespace_tells_its_clients_and_deletes_its_messages_in_parts():
    """Links end with the error, and so do receivers that wait for a session."""
    dialogue = CoreDialogue()
    waiting = NamedPeer("WAITING")
    grouped = QueueDefinition(requires_session=True)
    dialogue.run(CreateEntity(CLIENT, 1, "grouped", grouped))
    dialogue.run(attach_receiver(waiting, "grouped", any_session=True))
    dialogue.run(send(*(f"{number}" for number in range(10))), credit(3))
    turn = Turn()
    error = NamespaceRestored("ns")
    (work,) = dialogue.namespace.close(error, turn)
    assert {Detached(S, error), Detached(R, error), AttachRefused(waiting, error)} == set(
        turn.effects
    )
    assert [EntityDeleted] * 2 == [type(record) for record in turn.records]
    turns = [turn, Turn()]
    while work.do_part(4, turns[-1]):
        turns.append(Turn())
    records = [record for one in turns for record in one.records]
    deleted = [record for record in records if isinstance(record, MessagesDeleted)]
    assert [4, 4, 2] == [len(record.ids) for record in deleted]
    dialogue.turns += turns
    content = dialogue.commit().load()
    assert ([], []) == (content.entities, content.messages)


def test_an_unfinished_copy_is_deleted_at_the_next_start():
    """The broker stopped in the middle: the store has messages of no entity."""
    dialogue = CoreDialogue(QueueDefinition(requires_duplicate_detection=True))
    dialogue.run(send(message("a", message_id="1"), message("b", message_id="2")))
    dialogue.commit()
    copy = Namespace("copy", ids=dialogue.ids, **dialogue.options)
    copying = NamespaceCopy(dialogue.namespace, copy, dialogue.now_ms)
    turn = Turn()
    while copying.copy_entities(10):
        pass
    copying.copy_messages(copying.next_messages(10), {}, turn)
    assert not copying.copy_message_ids(10, turn)
    dialogue.turns.append(turn)
    expected = [row.id for row in dialogue.store.load().messages]
    later = dialogue.restarted()
    while later.namespace.next_deadline_ms() == later.namespace._now_ms:
        later.run(Advance(0))
    content = later.commit().load()
    assert expected == [row.id for row in content.messages]
    assert 1 == len({entity_id for entity_id, _ in content.sequence_numbers})
    assert 1 == len({entity_id for entity_id, _, _ in content.message_ids})
    assert set(expected) == set(later.store.read_payloads(range(100)))
