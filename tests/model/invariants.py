"""Invariants of the core that do not depend on the model.

Reads private state: queues, locks, sessions, links and bodies must agree with each other after
every turn, and be empty when everything is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.message import MessageState
from broker.core.messages.session_ids import session_key
from broker.core.queues.locks import group_of
from tests.support.unfinished_work import has_unfinished_work

if TYPE_CHECKING:
    from broker.core.contract.message import Message
    from broker.core.namespace import Namespace
    from broker.core.queues.queue import Queue
    from storage.memory import MemoryStore


def check_invariants(namespace: Namespace) -> None:
    """After every turn."""
    places: dict[int, Queue] = {}
    for entity in namespace._directory:
        for queue in entity.queues:
            numbers = []
            for message in queue.index.walk():
                assert message.queue is queue
                assert message.id not in places, "a message is in two places"
                places[message.id] = queue
                numbers.append(message.sequence_number)
            assert numbers == sorted(set(numbers))
            assert not numbers or numbers[-1] <= queue.last_sequence_number
            _check_counts(queue)
            _check_locks(queue)
            _check_sessions(queue)
    context = namespace._context
    if not context.backlog:  # else messages of deleted entities count, too
        assert context.payloads.message_count == len(places)
    for receiver in namespace._links._receivers.values():
        assert not receiver.burst


def _check_counts(queue: Queue) -> None:
    messages = list(queue.index.walk())
    states = [message.state for message in messages]
    assert queue.count == len(messages)
    assert queue.deferred_count == states.count(MessageState.DEFERRED)
    assert queue.scheduled_count == states.count(MessageState.SCHEDULED)
    assert queue.size_bytes == sum(message.size for message in messages)
    if queue.max_delivery_count:
        for message in messages:
            assert message.delivery_count < queue.max_delivery_count


def _check_locks(queue: Queue) -> None:
    locked = [message for message in queue.index.walk() if message.lock_token is not None]
    assert queue.locks.keys() == {message.lock_token for message in locked}
    for message in locked:
        assert message.state is not MessageState.SCHEDULED
        assert message.lock_token is not None
        assert queue.locks[message.lock_token] is message
        group = group_of(message)
        assert message in group
        assert group in group.holder.lock_groups


def _check_sessions(queue: Queue) -> None:
    sessions = queue.sessions
    if sessions is None:
        return
    grouped: dict[str | None, list[Message]] = {}
    for message in queue.index.walk():
        grouped.setdefault(message.session_id, []).append(message)
    for session in sessions._by_id.values():
        expected = grouped.pop(session.id, [])
        assert expected == list(session.messages.from_number(0))
        assert len(expected) == len(session.messages)
        assert not session.is_empty, "an empty session is remembered"
        if session.holder is None:
            assert all(message.lock_token is None for message in expected)
        else:
            assert session.holder.source is session
            assert session not in sessions._available
    assert not grouped, "a message is in no session"
    by_key = {session_key(session.id): session for session in sessions._by_id.values()}
    assert by_key == sessions._by_key, "two sessions differ only by case"
    for session in sessions._available:
        assert sessions._by_id.get(session.id) is session, "a session that is gone is on offer"
    holders = [s.holder for s in sessions._by_id.values() if s.holder is not None]
    assert len(holders) == len(set(holders)), "a receiver holds two sessions"


def check_nothing_is_left(namespace: Namespace, store: MemoryStore) -> None:
    """Checks the state after all entities are deleted and all links are detached."""
    context = namespace._context
    assert not list(namespace._directory)
    assert not context.deadlines._buckets, "something still waits for its time"
    assert not context.payloads.references
    assert not context.payloads._awaited, "bodies are still awaited"
    assert 0 == context.payloads.resident_bytes
    assert not namespace._awaiting_bodies
    assert not namespace._awaiting_queue
    assert not has_unfinished_work(namespace)
    assert not namespace._links._senders
    assert not namespace._links._receivers, "receivers are remembered for ever"
    assert not namespace._transactions._open
    assert not namespace._transactions._owned
    snapshot = store.load()
    assert not snapshot.entities
    assert not [*snapshot.messages, *snapshot.packed_messages]
    assert not store._payloads, "bodies are stored that nothing refers to"
    assert not snapshot.session_states
    assert not list(snapshot.message_ids)
