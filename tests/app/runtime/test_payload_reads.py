"""Bodies that are read from a store: what a reader gets, and who learns of a failure."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from broker.app.runtime.payload_reads import TOGETHER_MAX, PayloadReads
from broker.core.contract.errors import ServerBusy
from storage.contract import StorageError
from tests.support.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from broker.app.runtime.payload_reads import Payloads

BODIES = {1: (b"body", b"annotations")}


class ReadableStore(FakeStore):
    """A store with one body. Reading fails with `error`, if there is one."""

    error: Exception | None = None

    def read_payloads(self, payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        if self.error is not None:
            raise self.error
        return {number: BODIES[number] for number in payload_ids}


class Reads(PayloadReads):
    """Notes what it reports."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self.store = ReadableStore()
        self.loaded: list[Payloads] = []
        self.failures: list[Exception] = []
        self.reported = asyncio.Event()
        super().__init__(self.store, thread, self._note_loaded, self._note_failure)

    def _note_loaded(self, payloads: Payloads) -> None:
        self.loaded.append(payloads)
        self.reported.set()

    def _note_failure(self, error: Exception) -> None:
        self.failures.append(error)
        self.reported.set()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


@pytest.mark.parametrize("blocking", [True, False])
async def test_bodies_are_read_for_a_request_and_for_the_core(
    thread: ThreadPoolExecutor, blocking: bool
) -> None:
    reads = Reads(thread)
    reads.store.blocking = blocking
    assert BODIES == await reads.read([1])
    reads.begin([1])
    await reads.reported.wait()
    assert [BODIES] == reads.loaded
    assert [] == reads.failures


async def test_a_request_whose_read_fails_is_refused_and_the_failure_reported(
    thread: ThreadPoolExecutor,
) -> None:
    reads = Reads(thread)
    reads.store.error = StorageError("broken")
    with pytest.raises(ServerBusy):
        await reads.read([1])
    assert [reads.store.error] == reads.failures


@pytest.mark.parametrize("error", [StorageError("broken"), MemoryError("too much")])
async def test_a_read_for_the_core_that_fails_is_reported_as_a_failure_of_the_store(
    thread: ThreadPoolExecutor, error: Exception
) -> None:
    """Whatever the error is: a receiver would wait for the body for ever."""
    reads = Reads(thread)
    reads.store.error = error
    reads.begin([1])
    await reads.reported.wait()
    (failure,) = reads.failures
    assert isinstance(failure, StorageError)
    assert str(error) == str(failure)
    assert [] == reads.loaded


async def test_what_is_requested_during_a_read_is_read_together(thread: ThreadPoolExecutor) -> None:
    """A hundred receivers need bodies of the same blocks."""
    reads = Reads(thread)
    may_end = threading.Event()
    read_ids: list[list[int]] = []

    def slow(payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
        read_ids.append(list(payload_ids))
        assert may_end.wait(10)
        return dict.fromkeys(payload_ids, (b"", b""))

    reads.store.read_payloads = slow  # type: ignore[method-assign]
    for number in range(1, 6):
        reads.begin([number])
    reads.begin(list(range(6, 6 + TOGETHER_MAX)))
    may_end.set()
    while sum(map(len, reads.loaded)) < 5 + TOGETHER_MAX:
        reads.reported.clear()
        await reads.reported.wait()
    assert [1, TOGETHER_MAX, 4] == [len(ids) for ids in read_ids]
    assert list(range(1, 6 + TOGETHER_MAX)) == [number for ids in read_ids for number in ids]


def test_reads_that_have_not_begun_can_be_dropped(thread: ThreadPoolExecutor) -> None:
    """What is read after them need not wait. The result of the read that the thread is doing is dropped, too."""

    async def run() -> None:
        reads = Reads(thread)
        is_reading, may_end = threading.Event(), threading.Event()
        read_payloads = reads.store.read_payloads

        def slow(payload_ids: Sequence[int]) -> Mapping[int, tuple[bytes, bytes]]:
            is_reading.set()
            assert may_end.wait(10)
            return read_payloads(payload_ids)

        reads.store.read_payloads = slow  # type: ignore[method-assign]
        for _ in range(3):
            reads.begin([1])
        await asyncio.to_thread(is_reading.wait, 10)
        reads.cancel()
        reads.store.read_payloads = read_payloads  # type: ignore[method-assign]
        may_end.set()
        assert BODIES == await reads.read([1])
        assert ([], []) == (reads.loaded, reads.failures)

    asyncio.run(run())
