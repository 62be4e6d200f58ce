"""The store of a simulation: it also has commits in the background, on the virtual loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.virtual_loop import Socket
from tests.support.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from broker.core.contract.records import Record
    from tests.simulation.virtual_loop import VirtualLoop

DESCRIPTOR = -1
"""No socket has this number."""
BACKGROUND_SHARE = 0.7
"""How many of the commits that are not inline are begun in the background."""


class SimulatedStore(FakeStore):
    """Outlives the runs of the broker."""

    def __init__(self, loop: VirtualLoop, chance: Random, note: Callable[[str], None]) -> None:
        super().__init__(checks=False, note=note)
        self.commits_inline = chance.random() < 0.5
        # The virtual loop takes objects as descriptors.
        self.background_commits = SimulatedBackground(self, loop, chance)  # type: ignore[assignment]


class SimulatedBackground(Socket):
    """Implements `BackgroundCommits`. Stands for a descriptor of the loop, too."""

    def __init__(self, store: SimulatedStore, loop: VirtualLoop, chance: Random) -> None:
        self._store = store
        self._loop = loop
        self._chance = chance
        self._records: Sequence[Record] | None = None
        """What was begun and is not written."""
        self._error: Exception | None = None
        self.needs_thread = chance.random() < 0.5
        """If not, answers are prepared while a commit is written."""
        self.examination_is_due = False
        loop.sockets[DESCRIPTOR] = self

    @property
    def descriptor(self) -> SimulatedBackground:
        return self

    def fileno(self) -> int:
        return DESCRIPTOR

    def begin(self, records: Sequence[Record], *, caller_waits: bool = False) -> bool:
        """A kill before the write drops it. A kill after the write leaves it stored and unanswered."""
        if self._chance.random() > BACKGROUND_SHARE:
            return False
        self._records, self._error = records, None
        if caller_waits:
            return True  # `end` is called before anything else happens
        self._loop.run_in_executor(self, self._write).add_done_callback(self._readable)
        return True

    def end(self) -> bool:
        self._write()
        if self._error is not None:
            raise self._error
        return True

    def examine(self) -> None:
        raise AssertionError("nothing is due")

    def _write(self) -> None:
        records, self._records = self._records, None
        if records is not None:
            try:
                self._store.commit(records)
            except Exception as error:  # noqa: BLE001 -- `end` raises it
                self._error = error

    def _readable(self, _: object) -> None:
        if self.reader is not None:
            self.reader()
