"""Bugs that are built into the broker to show that the simulation finds them.

`python -m tests.simulation.run --inject-bug NAME`. Each is a bug that a developer could write.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from broker.app.network.amqp_transport import AmqpTransport
from broker.app.runtime import uncommitted_turns
from broker.app.runtime.committer import Committer
from broker.app.runtime.connection_output import ConnectionOutput
from broker.core.contract.commands import Detach, Send
from broker.core.contract.records import MessageIdsSeen, MessagesDeleted, MessagesStored
from broker.core.contract.turn import Turn
from broker.core.namespace import Namespace
from tests.simulation.simulated_store import SimulatedBackground
from tests.simulation.simulation_run import World
from tests.support.fake_store import FakeStore, StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from broker.core.contract.commands import Command
    from broker.core.contract.records import Record

RECORDS_BETWEEN = 25
READS_BETWEEN = 100
COMMITS_BETWEEN = 15
COMMITS_MAX = 60


@contextmanager
def answer_early() -> Iterator[None]:
    """Effects are released before their records are written."""
    submit = Committer.submit

    def submit_and_release(self: Committer, turn: Turn) -> None:
        early = Turn()
        early.effects, turn.effects = turn.effects, []
        self._release(early)
        submit(self, turn)

    with mock.patch.object(Committer, "submit", submit_and_release):
        yield


@contextmanager
def deliver_early() -> Iterator[None]:
    """Deliveries do not wait until their messages are stored."""
    with mock.patch.object(uncommitted_turns, "_is_durable", return_value=True):
        yield


@contextmanager
def write_prepared_early() -> Iterator[None]:
    """Answers that are prepared while the store writes leave at once."""
    with (
        full_disks(),
        mock.patch.object(ConnectionOutput, "prepare", ConnectionOutput.flush),
    ):
        yield


@contextmanager
def full_disks() -> Iterator[None]:
    """No mistake: answers are always prepared, and the disk is often full then. In other runs that is so rare that hundreds
    of them would not find what is wrong with it."""
    begin = SimulatedBackground.begin
    make = World.__init__
    begun = 0

    def make_with_preparation(self: World, *arguments: Any) -> None:
        nonlocal begun
        begun = 0
        make(self, *arguments)
        self.faults.append("fill disk")
        self.store.commits_inline = True
        background: Any = self.store.background_commits
        background.needs_thread = False

    def begin_or_fail(
        self: SimulatedBackground, records: Sequence[Record], *, caller_waits: bool = False
    ) -> bool:
        nonlocal begun
        is_begun = begin(self, records, caller_waits=caller_waits)
        begun += is_begun and caller_waits
        # Not for ever: in the end clients read without a fault what is there.
        if is_begun and caller_waits and begun in range(0, COMMITS_MAX, COMMITS_BETWEEN):
            self._store.fault = StoreFault.FULL
        return is_begun

    with (
        mock.patch.object(World, "__init__", make_with_preparation),
        mock.patch.object(SimulatedBackground, "begin", begin_or_fail),
    ):
        yield


@contextmanager
def keep_locks() -> Iterator[None]:
    """A broken connection leaves its locks behind, as one that was closed in order."""
    apply = Namespace.apply

    def apply_as_closed(self: Namespace, command: Command, now_ms: int, turn: Turn) -> None:
        if isinstance(command, Detach):
            command = Detach(command.peers)
        apply(self, command, now_ms, turn)

    with mock.patch.object(Namespace, "apply", apply_as_closed):
        yield


@contextmanager
def drop_records() -> Iterator[None]:
    """The store sometimes loses a record of a batch."""
    commit = FakeStore.commit
    seen = 0

    def commit_others(self: FakeStore, records: Sequence[Record]) -> None:
        nonlocal seen
        kept = []
        for record in records:
            if isinstance(record, MessagesStored | MessagesDeleted):
                seen += 1
                if seen % RECORDS_BETWEEN == 0:
                    continue
            kept.append(record)
        commit(self, kept)

    with mock.patch.object(FakeStore, "commit", commit_others):
        yield


@contextmanager
def reorder_sends() -> Iterator[None]:
    """Messages that arrive together are stored from the last to the first."""
    apply = Namespace.apply

    def apply_backwards(self: Namespace, command: Command, now_ms: int, turn: Turn) -> None:
        if isinstance(command, Send):
            command = command._replace(
                messages=command.messages[::-1], handles=command.handles[::-1]
            )
        apply(self, command, now_ms, turn)

    with mock.patch.object(Namespace, "apply", apply_backwards):
        yield


@contextmanager
def forget_message_ids() -> Iterator[None]:
    """The store does not keep which message ids were seen."""
    commit = FakeStore.commit

    def commit_others(self: FakeStore, records: Sequence[Record]) -> None:
        commit(self, [record for record in records if not isinstance(record, MessageIdsSeen)])

    with mock.patch.object(FakeStore, "commit", commit_others):
        yield


@contextmanager
def end_connections() -> Iterator[None]:
    """The broker ends a connection after so many reads, and logs nothing."""
    data_received = AmqpTransport.data_received
    reads = 0

    def receive_or_end(self: AmqpTransport, data: bytes) -> None:
        nonlocal reads
        reads += 1
        if reads % READS_BETWEEN == 0 and self._stream is not None:
            self._stream.abort()
        else:
            data_received(self, data)

    with mock.patch.object(AmqpTransport, "data_received", receive_or_end):
        yield


INJECTED_BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "answer-early": answer_early,
    "deliver-early": deliver_early,
    "write-prepared-early": write_prepared_early,
    "keep-locks": keep_locks,
    "drop-records": drop_records,
    "reorder-sends": reorder_sends,
    "forget-message-ids": forget_message_ids,
    "end-connections": end_connections,
}
