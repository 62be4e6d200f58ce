"""The history: the last transitions of messages in each namespace, in memory only.

Transitions come in batches when their turn is durable, and single transitions are made when a client reads them. Each
namespace keeps a limited number of transitions and of bytes. A reader has only a position, so a reader that stops costs
nothing, and misses what is dropped meanwhile.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from broker.core.contract.transitions import Transitions
from broker.core.queues.history_recorder import HistoryRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from broker.core.namespace import Namespace

TRANSITIONS_MAX = 100_000
"""How many transitions of a namespace are kept, if no setting says it."""
TEXTS_MAX_BYTES = 16 << 20
"""The reasons and descriptions of one namespace. Clients may write long ones."""
GENERATION_MAX_BYTES = 16 << 20
"""The heads of one generation. Two generations are kept."""
COMPACT_FROM = 1_024
ROOM_SHARE = 64
"""Batches are dropped when this part more than needed is kept, so that most transitions drop nothing."""
OBSERVED_MAX = 10_000
"""How many transitions are kept if none are asked for, but they are observed."""

_FIRST_NUMBER = attrgetter("first_number")


class NamespaceHistory:
    """The transitions of one namespace."""

    def __init__(self, transitions_max: int) -> None:
        self._max = transitions_max
        self._batches: list[Transitions] = []
        self._start = 0
        """The position of the oldest batch. Those before it are dropped."""
        self._texts_bytes = 0
        self._generation_bytes = 0
        """How many bytes of heads came since the last generation of heads began."""
        self._generation_ends = transitions_max
        """The number of the transition with which the next generation begins."""
        self._room_ends = transitions_max + transitions_max // ROOM_SHARE
        """The number of the last transition for which nothing has to be dropped."""
        self.recorder: HistoryRecorder | None = None
        """None while nothing is recorded."""
        self.last_number = 0
        """The number of the last transition."""
        self.is_ended = False
        self._waiting: set[asyncio.Event] = set()

    def publish(self, batch: Transitions) -> None:
        """Adds durable transitions."""
        # Messages that come alone are published one by one, so every step here is for one message.
        last = self.last_number
        batch.first_number = last + 1
        self.last_number = last = last + len(batch.numbers)
        self._batches.append(batch)
        if batch.heads is not None:
            self._generation_bytes += batch.keep_heads()
        if type(batch) is not Transitions:
            self._texts_bytes += _texts_bytes(batch)
        if last > self._room_ends or self._texts_bytes > TEXTS_MAX_BYTES:
            self._drop_oldest()
        if last >= self._generation_ends or self._generation_bytes > GENERATION_MAX_BYTES:
            self._begin_generation()
        if self._waiting:
            self.wake()

    def _drop_oldest(self) -> None:
        """Drops batches of which no transition has to be kept."""
        batches = self._batches
        while self._start < len(batches) - 1:
            oldest, following = batches[self._start], batches[self._start + 1]
            kept = self.last_number - following.first_number + 1
            if kept < self._max and self._texts_bytes <= TEXTS_MAX_BYTES:
                break
            self._texts_bytes -= _texts_bytes(oldest)
            self._start += 1
        self._room_ends = self.last_number + self._max // ROOM_SHARE
        if self._start >= COMPACT_FROM and self._start * 2 >= len(batches):
            del batches[: self._start]
            self._start = 0

    def _begin_generation(self) -> None:
        """Every transition that is kept needs the heads of its messages. A head stays for the rest of its generation
        and the next one, so it stays as long as the transitions that came with it."""
        self._generation_bytes = 0
        self._generation_ends = self.last_number + self._max
        if self.recorder is not None:
            self.recorder.begin_generation()

    @property
    def first_number(self) -> int:
        """Returns the number of the oldest transition that is kept."""
        if self._start >= len(self._batches):
            return self.last_number + 1
        return max(self._batches[self._start].first_number, self.last_number - self._max + 1)

    def after(self, number: int, batches_max: int) -> Sequence[Transitions]:
        """Returns batches with transitions after this number, in order. The first may also have earlier ones."""
        position = bisect_right(self._batches, number, self._start, key=_FIRST_NUMBER)
        if position > self._start:
            before = self._batches[position - 1]
            if before.first_number + len(before.numbers) > number + 1:
                position -= 1
        return self._batches[position : position + batches_max]

    async def changed(self, number: int) -> bool:
        """Waits for transitions after this number. Returns False if the namespace was deleted."""
        if self.last_number <= number and not self.is_ended:
            event = asyncio.Event()
            self._waiting.add(event)
            try:
                await event.wait()
            finally:
                self._waiting.discard(event)
        return not self.is_ended

    def end(self) -> None:
        """The namespace was deleted."""
        self.is_ended = True
        self.wake()

    def wake(self) -> None:
        """Wakes all that wait, though nothing may have changed."""
        for event in self._waiting:
            event.set()
        self._waiting.clear()


class Histories:
    """The histories of all namespaces."""

    def __init__(
        self,
        transitions_max: int | None,
        namespaces: Mapping[str, Namespace],
        on_demand: Container[str],
        *,
        can_be_read: bool,
    ) -> None:
        self._max = TRANSITIONS_MAX if transitions_max is None else transitions_max
        if not can_be_read:
            self._max = 0
        self._namespaces = namespaces
        self._on_demand = on_demand
        """The names of namespaces that were created on demand. They are for tests, so they are recorded."""
        self._records_all = transitions_max is not None
        """Whether all others are recorded, too."""
        self._by_namespace: dict[str, NamespaceHistory] = {}
        self._wanted: dict[str, bool] = {}
        """Where somebody has decided whether to record."""
        self.observe: Callable[[Sequence[Transitions]], None] | None = None
        """Gets all transitions once they are durable. It is set before namespaces are attached, and all are recorded."""

    def attach(self, namespace: Namespace) -> None:
        """A namespace begins, or replaces one of the same name."""
        name = namespace.name
        if name not in self._by_namespace:
            self._by_namespace[name] = NamespaceHistory(self._max or OBSERVED_MAX)
        self._apply(namespace)

    def retain(self, names: Iterable[str]) -> None:
        """Forgets all namespaces except these."""
        for name in self._by_namespace.keys() - set(names):
            self.forget(name)

    def forget(self, name: str) -> None:
        """A namespace was deleted."""
        self._wanted.pop(name, None)
        history = self._by_namespace.pop(name, None)
        if history is not None:
            history.end()

    def of(self, name: str) -> NamespaceHistory | None:
        """Returns the history of a namespace."""
        return self._by_namespace.get(name)

    @property
    def can_record(self) -> bool:
        """Whether transitions can be kept."""
        return self._max > 0

    def is_recording(self, name: str) -> bool:
        """Returns whether the transitions of a namespace are kept."""
        if self.observe is not None:
            return True
        if not self.can_record:
            return False
        return self._wanted.get(name, self._records_all or name in self._on_demand)

    def set_recording(self, name: str, *, recording: bool) -> None:
        """Begins or ends recording. What was recorded stays."""
        self._wanted[name] = recording
        namespace = self._namespaces.get(name)
        if namespace is not None:
            self._apply(namespace)

    def _apply(self, namespace: Namespace) -> None:
        context, history = namespace.context, self._by_namespace[namespace.name]
        wants = self.is_recording(namespace.name)
        if wants and context.history is None:
            traces = self.observe is not None
            context.history = HistoryRecorder(namespace.name, context.reader, traces=traces)
        elif not wants:
            context.history = None
        history.recorder = context.history

    def publish(self, transitions: Sequence[Transitions]) -> None:
        """Adds the transitions of a durable turn to the histories of their namespaces."""
        histories = self._by_namespace
        for batch in transitions:
            history = histories.get(batch.place.namespace)
            if history is not None:  # it was not deleted meanwhile
                history.publish(batch)
        if self.observe is not None:
            self.observe(transitions)


def _texts_bytes(batch: Transitions) -> int:
    return len(batch.reason or "") + len(batch.description or "")
