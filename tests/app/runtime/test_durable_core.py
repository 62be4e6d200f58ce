"""The core and its store together: what a stop keeps and what it drops."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING

import pytest

from broker.app.runtime import postponed_work
from broker.app.runtime.clock import Clock
from broker.app.runtime.durable_core import DurableCore
from broker.core.contract.commands import CreateEntity, PayloadsLoaded, Tick
from broker.core.contract.counting import Counts, Outcome
from broker.core.contract.errors import ServerBusy
from broker.core.namespace import Namespace
from config.files.topology import Topology
from config.model.definitions import QueueDefinition
from config.settings.settings import Settings
from storage.sqlite.store import SqliteStore
from tests.support.core_observer import QuietObserver

if TYPE_CHECKING:
    from pathlib import Path

    from broker.core.contract.turn import Turn

NAMESPACE = "sbemulatorns"


async def _opened(file: Path) -> DurableCore:
    settings = Settings(storage=f"sqlite:///{file}")
    core = DurableCore(settings, Topology({NAMESPACE: {}}), Clock(), QuietObserver())
    await core.open()
    await core.begin()
    return core


def _create(core: DurableCore, name: str) -> asyncio.Task[object]:
    build = partial(CreateEntity, path=name, definition=QueueDefinition())
    return asyncio.get_running_loop().create_task(core.ask(NAMESPACE, build))


async def _through_a_turn() -> None:
    """Asked, run, and handed to the committer."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_is_on_its_way_into_the_store_when_it_closes_is_kept_and_answered(
    tmp_path: Path,
) -> None:
    """A close in the middle of a commit waits for it, and for the one that gathered behind it."""
    core = await _opened(tmp_path / "core.db")
    first = _create(core, "first")
    await _through_a_turn()
    assert core.is_writing
    second = _create(core, "second")
    await _through_a_turn()
    await core.close()
    assert not [task for task in (first, second) if not task.done() or task.exception()]

    again = await _opened(tmp_path / "core.db")
    views = {view.path for view in again.namespaces[NAMESPACE].views()}
    await again.close()
    assert {"first", "second"} <= views


async def test_what_comes_after_the_close_is_refused_not_left_waiting(tmp_path: Path) -> None:
    """A request during the stop gets an error, and does not reach the closed store."""
    core = await _opened(tmp_path / "core.db")
    late = _create(core, "late")
    await asyncio.sleep(0)  # it is in the inbox, and no turn has run yet
    await core.close()
    with pytest.raises(ServerBusy):
        await late

    again = await _opened(tmp_path / "core.db")
    views = {view.path for view in again.namespaces[NAMESPACE].views()}
    await again.close()
    assert "late" not in views


async def test_the_store_is_not_loaded_while_it_finishes_what_it_has_postponed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both move commits of the journal. The broker starts again because of an error that is none of the store."""
    core = await _opened(tmp_path / "core.db")
    users: list[str] = []
    overlapping: list[list[str]] = []

    def watch(name: str) -> None:
        method = getattr(core._store, name)

        def watched(*given: object) -> object:
            users.append(name)
            if len(users) > 1:
                overlapping.append(list(users))
            if name == "load":
                time.sleep(
                    2 * postponed_work.IDLE_S
                )  # so that another user of the store would meet it
            try:
                return method(*given)
            finally:
                users.remove(name)

        monkeypatch.setattr(core._store, name, watched)

    watch("commit")
    watch("load")
    for number in range(2):
        await _create(core, f"queue-{number}")
        core._restart_from_store(RuntimeError("a bug"))
        assert core._restarting is not None
        await core._restarting
    await core.close()
    assert [] == overlapping


async def test_namespaces_that_are_replaced_leave_the_memory(tmp_path: Path) -> None:
    """Also those of the start, which the garbage collector does not examine otherwise."""
    core = await _opened(tmp_path / "core.db")
    await _create(core, "queue")
    replaced = weakref.ref(core.namespaces[NAMESPACE])
    gc.freeze()
    try:
        core._restart_from_store(RuntimeError("a bug"))
        assert core._restarting is not None
        await core._restarting
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
    assert replaced() is None
    await core.close()


async def test_bodies_that_are_still_to_be_read_are_dropped_by_a_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody gets them, and the thread that would read them has ended."""
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    core = await _opened(tmp_path / "core.db")
    may_end = threading.Event()
    monkeypatch.setattr(SqliteStore, "read_payloads", lambda *_: may_end.wait(30) and {})
    core._payload_reads.begin([1])
    core._payload_reads.begin([2])
    threading.Timer(0.02, may_end.set).start()  # during the close, which waits for the thread
    await core.close()
    await _through_a_turn()
    assert [] == failures


@pytest.mark.parametrize("others_succeed", [False, True])
async def test_a_broker_that_fails_after_each_restoration_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others_succeed: bool
) -> None:
    """Otherwise it would start again forever and serve no client. Turns before the one that fails may succeed."""
    failed = asyncio.Event()

    class Told(QuietObserver):
        def failed(self, error: Exception) -> None:
            assert isinstance(error, MemoryError)
            failed.set()

    settings = Settings(storage=f"sqlite:///{tmp_path / 'core.db'}")
    core = DurableCore(settings, Topology({NAMESPACE: {}}), Clock(), Told())
    await core.open()
    await core.begin()

    def apply(namespace: Namespace, command: object, _: int, turn: Turn) -> None:
        if others_succeed and isinstance(command, Tick):
            turn.count(Counts(), Outcome.UNMATCHED, 0)
            next_command = PayloadsLoaded({})
            asyncio.get_running_loop().call_soon(core.turns.submit, namespace, next_command)
            return
        raise MemoryError

    monkeypatch.setattr(Namespace, "apply", apply)
    core.turns.tick()
    async with asyncio.timeout(20):
        await failed.wait()
    await core.close()
