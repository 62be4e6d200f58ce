"""The history of a namespace: bounded in transitions, texts and heads, and only of what is durable."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from broker.app.runtime import history as history_module
from broker.app.runtime.clock import Clock
from broker.app.runtime.durable_core import DurableCore
from broker.app.runtime.history import Histories, NamespaceHistory
from broker.core.contract.commands import ControlRequest
from broker.core.contract.control_operations import SendMessages
from broker.core.contract.errors import ServerBusy
from broker.core.contract.message import Message
from broker.core.contract.transitions import (
    DetailedTransitions,
    HistoryPlace,
    TransitionKind,
    Transitions,
)
from broker.core.queues.history_recorder import HistoryRecorder
from config.files.topology import Topology
from config.model.definitions import QueueDefinition
from config.settings.settings import Settings
from protocol.codec import DATA, PROPERTIES, Reader, encode, section_start
from tests.support.core_dialogue import PlainReader
from tests.support.core_observer import QuietObserver
from tests.support.fake_store import FakeStore, StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Peer
    from broker.core.contract.records import Record

PLACE = HistoryPlace("ns", "q", 0)


def batch(
    numbers: range, heads: list[bytes] | None = None, place: HistoryPlace = PLACE
) -> Transitions:
    kind = TransitionKind.LOCKED if heads is None else TransitionKind.SENT
    return Transitions(kind, 1, place, numbers, 0, heads, None, None)


def shown(history: NamespaceHistory, after: int = 0) -> list[int]:
    """The numbers of all transitions that a reader gets."""
    position = max(after, history.first_number - 1)
    numbers = []
    while batches := history.after(position, 2):
        for one in batches:
            for view in one.expand(max(0, position + 1 - one.first_number)):
                numbers.append(view.number)
                position = view.number
    return numbers


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_the_last_transitions_are_kept(size):
    history = NamespaceHistory(100)
    for start in range(0, 2000, size):
        history.publish(batch(range(start + 1, start + size + 1)))
    last = history.last_number
    assert list(range(last - 99, last + 1)) == shown(history)
    assert list(range(last - 9, last + 1)) == shown(history, after=last - 10)
    assert [] == shown(history, after=last)


def test_long_texts_count(monkeypatch):
    """A client may write long reasons: fewer transitions are kept then."""
    monkeypatch.setattr(history_module, "TEXTS_MAX_BYTES", 10_000)
    history = NamespaceHistory(1_000)
    for number in range(1, 501):
        one = DetailedTransitions(
            TransitionKind.DEAD_LETTERED, 1, PLACE, (number,), 0, None, None, None
        )
        one.reason = "x" * 1_000
        history.publish(one)
    assert [*range(491, 501)] == shown(history)


def test_heads_stay_as_long_as_their_transitions(monkeypatch):
    """And not much longer."""
    history = NamespaceHistory(100)
    recorder = history.recorder = HistoryRecorder("ns", PlainReader())
    place = recorder.places[1, 0] = HistoryPlace("ns", "q", 0)
    for number in range(1, 1_001):
        history.publish(batch(range(number, number + 1), [b"%d" % number], place))
        kept = [place.head(one) for one in range(max(1, number - 99), number + 1)]
        assert None not in kept
    assert 200 >= sum(place.head(number) is not None for number in range(1, 1_001))
    monkeypatch.setattr(history_module, "GENERATION_MAX_BYTES", 1_000)
    for number in range(1_001, 1_051):
        history.publish(batch(range(number, number + 1), [b"x" * 100], place))
    assert 22 >= sum(place.head(number) is not None for number in range(1, 1_051))


async def test_a_reader_is_woken_by_transitions_and_by_the_end():
    history = NamespaceHistory(100)
    waiting = asyncio.get_running_loop().create_task(history.changed(0))
    await asyncio.sleep(0)
    history.publish(batch(range(1, 3)))
    assert await waiting
    assert await history.changed(1)
    waiting = asyncio.get_running_loop().create_task(history.changed(2))
    await asyncio.sleep(0)
    history.end()
    assert not await waiting
    assert not history._waiting


def histories(transitions_max: int | None, **options: Any) -> Histories:
    return Histories(transitions_max, {}, {"made"}, can_be_read=options.get("can_be_read", True))


def test_what_is_recorded_by_default():
    """Namespaces that tests create; with the setting, all; with 0, or if nobody can read it, none."""
    assert [True, False] == [histories(None).is_recording(name) for name in ("made", "declared")]
    assert histories(5).is_recording("declared")
    assert not histories(0).is_recording("made")
    assert not histories(5, can_be_read=False).is_recording("made")


# --- with a store ----------------------------------------------------------------------------------


class Observer(QuietObserver):
    """Counts restorations."""

    def __init__(self) -> None:
        self.restored = 0

    def restored_from_store(self, reason: str) -> None:
        self.restored += 1


def sent(core: DurableCore) -> list[str]:
    """The message ids of the history."""
    history = core.histories.of("ns")
    assert history is not None
    heads = [view.head for one in history.after(0, 100) for view in one.expand()]
    return [str(Reader().message_id(head)) for head in heads if isinstance(head, bytes)]


def sending(message_id: str) -> Callable[[Peer, object], Command]:
    body = b"".join(
        (section_start(PROPERTIES), encode([message_id]), section_start(DATA), encode(b"x"))
    )

    def build(peer: Peer, request: object) -> Command:
        return ControlRequest(peer, request, SendMessages("q", [Message(body)]))

    return build


async def test_only_what_is_durable_is_shown():
    """A commit that fails leaves no trace, and the history goes on after the broker has started again from its
    store."""
    store, observer = FakeStore(), Observer()
    settings = Settings(storage="memory:", history=100)
    topology = Topology({"ns": {"q": QueueDefinition()}})
    core = DurableCore(settings, topology, Clock(), observer, store)
    await core.open()
    await core.begin()
    await core.ask("ns", sending("kept"))
    store.fault = StoreFault.FULL
    with pytest.raises(ServerBusy):
        await core.ask("ns", sending("lost"))
    await core.settle()
    assert observer.restored
    await core.ask("ns", sending("later"))
    assert ["kept", "later"] == sent(core)
    await core.close()


async def test_nothing_is_shown_before_its_commit_is_done():
    store = FakeStore()
    reached, may_end = threading.Event(), threading.Event()
    settings = Settings(storage="memory:", history=100)
    core = DurableCore(
        settings, Topology({"ns": {"q": QueueDefinition()}}), Clock(), Observer(), store
    )
    await core.open()
    await core.begin()
    commit = store.commit

    def slow_commit(records: Sequence[Record]) -> None:
        reached.set()
        assert may_end.wait(20)
        commit(records)

    store.commit = slow_commit  # type: ignore[method-assign]
    core._committer._commit._policy.allows = lambda turn: not turn  # type: ignore[method-assign]
    task = asyncio.get_running_loop().create_task(core.ask("ns", sending("a")))
    assert await asyncio.get_running_loop().run_in_executor(None, reached.wait, 20)
    assert [] == sent(core)
    may_end.set()
    await task
    assert ["a"] == sent(core)
    await core.close()
