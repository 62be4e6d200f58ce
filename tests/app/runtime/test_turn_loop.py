"""The turn loop: when deadlines are acted on, and who waits for whom."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from broker.app.runtime import unfinished_commands
from broker.app.runtime.clock import Clock
from broker.app.runtime.turn_loop import GATHERED_MAX, TURN_S, TurnLoop
from broker.app.runtime.unfinished_commands import PART_INTERVAL_S
from broker.core.contract.commands import Credit, Detach, Send, Settle, Tick
from broker.core.contract.effects import Reply
from broker.core.contract.message import Message
from broker.core.contract.settlement_values import COMPLETE
from broker.core.contract.turn import Turn

if TYPE_CHECKING:
    from broker.core.contract.commands import Command


class DueNamespace:
    """A namespace in which something is always due. Counts the ticks."""

    name = "one"

    def __init__(self, enough: int) -> None:
        self.ticks = 0
        self.had_enough = asyncio.Event()
        self._enough = enough

    def apply(self, command: Command, now_ms: int, turn: Turn) -> None:
        assert isinstance(command, Tick)
        turn.effects.append(Nothing())  # type: ignore[arg-type]
        self.ticks += 1
        if self.ticks == self._enough:
            self.had_enough.set()

    def dispatch(self, now_ms: int, turn: Turn) -> None: ...

    def parts(self, command):
        del command

    def next_deadline_ms(self) -> int:
        return 1


class Nothing:
    """An effect without content."""


class BusyCommitter:
    """Is never idle: while one commit runs, the next is gathered. Each turn is durable at last."""

    idle = False
    takes_time = False

    def __init__(self) -> None:
        self.submitted = 0
        self.released = 0
        self.turns: list[Turn] = []

    def submit(self, turn: Turn) -> None:
        self.submitted += 1
        self.turns.append(turn)

    def has_released(self, turn_count: int) -> bool:
        return self.released >= turn_count


def _loop(namespace: DueNamespace, committer: BusyCommitter) -> TurnLoop:
    def fail(error: Exception) -> None:
        raise error

    turns = TurnLoop({"one": namespace}, Clock(), lambda _: None, fail)  # type: ignore[dict-item]
    turns.attach(committer)  # type: ignore[arg-type]
    turns.tick()
    return turns


class Asker:
    """The peer of a request that is no AMQP client."""

    def __init__(self) -> None:
        self.received: list[object] = []

    def receive(self, effect: object) -> None:
        self.received.append(effect)


class Link(Asker):
    """A link of an AMQP client, whose connection has output when it gets an effect."""

    def __init__(self, turns: TurnLoop) -> None:
        super().__init__()
        self.connection = self
        self.calls: list[str] = []
        self._turns = turns

    def receive(self, effect: object) -> None:
        super().receive(effect)
        self._turns.touch(self)

    def prepare(self) -> None:
        self.calls.append("prepare")

    def write_prepared(self) -> None:
        self.calls.append("write")

    def flush(self) -> None:
        self.calls.append("flush")

    def abort(self) -> None:
        self.calls.append("abort")


@pytest.mark.parametrize("is_stored", [False, True])
async def test_the_answers_to_links_are_prepared_and_leave_when_they_are_released(
    *, is_stored: bool
):
    """If the turn cannot be stored, their connections end."""
    turns = _loop(DueNamespace(1), BusyCommitter())
    link, turn = Link(turns), Turn()
    turn.effects.append(Reply(link, "request"))
    turns.prepare(turn)
    assert (1, ["prepare"], []) == (len(link.received), link.calls, turn.effects)
    if is_stored:
        turns.release(turn.effects)
    else:
        turns.drop_prepared()
    assert ["prepare", "write" if is_stored else "abort"] == link.calls


async def test_answers_of_earlier_turns_leave_although_a_turn_that_was_not_prepared_fails():
    """They are durable. So are those of the connections that have output meanwhile."""
    turns = _loop(DueNamespace(1), BusyCommitter())
    asker, link, turn = Asker(), Link(turns), Turn()
    turns.touch(link)
    turn.effects.append(Reply(asker, "request"))
    turns.prepare(turn)
    turns.drop_prepared()
    turns.release([])
    assert ["flush"] == link.calls


async def test_nothing_is_prepared_if_somebody_would_act_on_it():
    """An HTTP request is answered as soon as it gets its effect."""
    turns = _loop(DueNamespace(1), BusyCommitter())
    asker, link, turn = Asker(), Link(turns), Turn()
    turn.effects += (Reply(link, "first"), Reply(asker, "second"))
    turns.prepare(turn)
    assert ([], [], 2) == (asker.received, link.received, len(turn.effects))
    turns.release(turn.effects)
    assert (1, ["flush"]) == (len(asker.received), link.calls)


async def test_deadlines_are_acted_on_while_the_store_is_never_idle():
    """A namespace that keeps the store busy does not stop time for the others."""
    namespace = DueNamespace(enough=5)
    committer = BusyCommitter()
    turns = _loop(namespace, committer)
    async with asyncio.timeout(10):
        while not namespace.had_enough.is_set():
            committer.released = committer.submitted
            await asyncio.sleep(0)
    turns.stop()


async def test_the_next_deadlines_wait_for_the_ones_before_to_be_durable():
    """Otherwise a million messages that are due at once would pile up in front of a slow store."""
    namespace = DueNamespace(enough=2)
    committer = BusyCommitter()
    turns = _loop(namespace, committer)
    async with asyncio.timeout(10):
        await namespace.had_enough.wait()
    ticks_before = namespace.ticks
    for _ in range(20):
        await asyncio.sleep(0.002)  # as often as the loop looks again
    assert ticks_before == namespace.ticks
    committer.released = committer.submitted
    namespace.had_enough.clear()
    namespace._enough = ticks_before + 1
    async with asyncio.timeout(10):
        await namespace.had_enough.wait()
    turns.stop()


async def test_a_turn_that_cannot_be_handed_over_is_reported():
    """Memory has changes that the store will never have, so the owner must be called."""

    class FullCommitter(BusyCommitter):
        def submit(self, turn: Turn) -> None:
            raise MemoryError

    failures: list[Exception] = []
    namespace = DueNamespace(enough=1)
    turns = TurnLoop({"one": namespace}, Clock(), lambda _: None, failures.append)  # type: ignore[dict-item]
    turns.attach(FullCommitter())  # type: ignore[arg-type]
    turns.tick()
    async with asyncio.timeout(10):
        await namespace.had_enough.wait()
    assert [MemoryError] == [type(failure) for failure in failures]


class WideNamespace:
    """Takes each message of a send as a part; notes what is done, in order."""

    name = "one"

    def __init__(self) -> None:
        self.done: list[tuple[str, object]] = []
        self.limits: dict[str, int] = {}

    def parts(self, command):
        if not isinstance(command, Send) or len(command.messages) < 2:
            return None
        pairs = zip(command.messages, command.handles, strict=True)
        return [Send(command.peer, [one], [handle]) for one, handle in pairs]

    def apply(self, command: Command, now_ms: int, turn: Turn) -> None:
        if isinstance(command, Send):
            self.done.append((str(command.peer), command.handles[0]))
            turn.effects.append(Nothing())  # type: ignore[arg-type]
        elif isinstance(command, Credit):
            self.limits[str(command.peer)] = command.limit
        else:
            self.done.append(("-", type(command).__name__))

    def dispatch(self, now_ms: int, turn: Turn) -> None: ...

    def next_deadline_ms(self) -> None: ...


class LoadedCommitter(BusyCommitter):
    """A committer that is loaded until a test changes it."""

    is_loaded = True


class StoppedWatch(Clock):
    """Its stopwatch shows what a test sets."""

    watch_s = 0.0

    def stopwatch_s(self) -> float:
        return self.watch_s


_FAILURES: list[Exception] = []


@pytest.fixture(autouse=True)
def _no_turn_fails():
    """A turn that fails is reported in a callback of the event loop, where it would fail no test."""
    _FAILURES.clear()
    yield
    assert not _FAILURES


def _wide_loop(clock: Clock | None = None) -> tuple[TurnLoop, WideNamespace, LoadedCommitter]:
    namespace, committer = WideNamespace(), LoadedCommitter()
    watch = clock or StoppedWatch()
    turns = TurnLoop({"one": namespace}, watch, lambda _: None, _FAILURES.append)  # type: ignore[dict-item]
    turns.attach(committer)  # type: ignore[arg-type]
    return turns, namespace, committer


def _send(peer: str, *handles: object) -> Send:
    return Send(peer, [Message(b"") for _ in handles], handles)  # type: ignore[arg-type]


async def _passes() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_others_pass_a_peer_that_has_parts_left_and_the_peer_itself_does_not():
    """Heavy work waits until the store has taken what waits for it; the peer's order is kept."""
    turns, namespace, committer = _wide_loop()
    one: Any = namespace
    turns.submit(one, _send("heavy", 1, 2, 3))
    turns.submit(one, _send("light", "a"))
    turns.submit(one, _send("heavy", 4))
    turns.submit(one, Detach(["other", "heavy"]))  # type: ignore[list-item]
    turns.submit(one, _send("light", "b"))
    await _passes()
    assert [("light", "a"), ("light", "b")] == namespace.done
    committer.is_loaded = False
    turns.release([])
    await _passes()
    assert [*(("heavy", number) for number in range(1, 5)), ("-", "Detach")] == namespace.done[2:]


async def test_a_peer_that_has_parts_left_gets_one_at_intervals_while_the_store_stays_loaded():
    """Other clients can keep the store loaded for ever. The peer is slow then, but served."""
    clock = StoppedWatch()
    turns, namespace, _ = _wide_loop(clock)
    one: Any = namespace
    turns.submit(one, _send("heavy", 1, 2, 3))
    turns.submit(one, Detach(["heavy"]))  # type: ignore[list-item]
    expected: list[tuple[str, object]] = []
    for done in (("heavy", 1), ("heavy", 2), ("heavy", 3), ("-", "Detach")):
        turns.submit(one, _send("light", "a"))
        await _passes()
        turns.release([])
        await _passes()
        expected.append(("light", "a"))
        assert expected == namespace.done
        clock.watch_s += PART_INTERVAL_S
        turns.release([])
        await _passes()
        expected.append(done)
        assert expected == namespace.done


async def test_parts_have_a_turn_of_their_own():
    """A client with one message does not wait until the many records of a part are stored."""
    turns, namespace, committer = _wide_loop()
    committer.is_loaded = False
    one: Any = namespace
    turns.submit(one, _send("heavy", 1, 2))
    turns.submit(one, _send("light", "a"))
    await _passes()
    assert [("light", "a"), ("heavy", 1), ("heavy", 2)] == namespace.done
    assert [1, 2] == [len(turn.effects) for turn in committer.turns]


async def test_parts_wait_for_the_next_pass_after_a_long_turn():
    """Sockets are read and written first."""
    clock = StoppedWatch()
    turns, namespace, committer = _wide_loop(clock)
    committer.is_loaded = False
    one: Any = namespace
    apply = namespace.apply

    def apply_slowly(command: Any, now_ms: int, turn: Any) -> None:
        apply(command, now_ms, turn)
        if command.peer == "light":
            clock.watch_s += 2 * unfinished_commands.SHORT_TURN_S

    namespace.apply = apply_slowly  # type: ignore[method-assign]
    turns.submit(one, _send("heavy", 1, 2))
    turns.submit(one, _send("light", "a"))
    await asyncio.sleep(0)
    assert [("light", "a")] == namespace.done
    await asyncio.sleep(0)
    assert [("light", "a"), ("heavy", 1), ("heavy", 2)] == namespace.done


async def test_a_large_part_waits_until_the_one_before_it_is_durable(monkeypatch):
    """However long the commit takes: a second one in the store would only delay other clients."""
    monkeypatch.setattr(unfinished_commands, "LARGE_PART_WEIGHT", 0)
    monkeypatch.setattr(unfinished_commands, "PART_WEIGHT", 0)
    clock = StoppedWatch()
    turns, namespace, committer = _wide_loop(clock)
    committer.is_loaded = False
    one: Any = namespace
    turns.submit(one, _send("heavy", 1, 2))
    await _passes()
    clock.watch_s += 2 * PART_INTERVAL_S
    turns.submit(one, _send("light", "a"))
    turns.release([])
    await _passes()
    assert [("heavy", 1), ("light", "a")] == namespace.done
    committer.released = committer.submitted
    turns.release([])
    await _passes()
    assert [("heavy", 1), ("light", "a"), ("heavy", 2)] == namespace.done


async def test_a_link_that_is_gone_gets_no_more_messages_while_its_parts_are_done():
    """The client would not get them. Credit that it gave before is not granted any more."""
    turns, namespace, committer = _wide_loop()
    one: Any = namespace
    turns.submit(one, Credit("gone", 100))  # type: ignore[arg-type]
    turns.submit(one, _send("gone", 1, 2))
    turns.submit(one, Credit("gone", 200))  # type: ignore[arg-type]
    await _passes()
    assert {"gone": 100} == namespace.limits
    turns.submit(one, Detach(["gone"], connection_lost=True))  # type: ignore[list-item]
    await _passes()
    assert ({"gone": 0}, []) == (namespace.limits, namespace.done)
    committer.is_loaded = False
    turns.release([])
    await _passes()
    assert [("gone", 1), ("gone", 2), ("-", "Detach")] == namespace.done
    assert {"gone": 0} == namespace.limits


async def test_peers_with_parts_left_take_turns_and_who_leaves_waits_for_all_of_its_links():
    """One part each; the connection's end comes after the last part of either."""
    turns, namespace, committer = _wide_loop()
    one: Any = namespace
    turns.submit(one, _send("x", 1, 2))
    turns.submit(one, _send("y", 1, 2, 3))
    turns.submit(one, Detach(["x", "y"]))  # type: ignore[list-item]
    committer.is_loaded = False
    await _passes()
    sent = [("x", 1), ("y", 1), ("x", 2), ("y", 2), ("y", 3)]
    assert [*sent, ("-", "Detach")] == namespace.done


async def test_who_leaves_may_have_given_credit_after_its_last_part():
    """Nothing is left of its link, and its connection waits for the parts of another link."""
    clock = StoppedWatch()
    turns, namespace, committer = _wide_loop(clock)
    one: Any = namespace
    turns.submit(one, _send("x", 1, 2, 3))
    turns.submit(one, _send("y", 1, 2))
    turns.submit(one, Credit("y", 100))  # type: ignore[arg-type]
    await _passes()
    while ("y", 2) not in namespace.done:
        clock.watch_s += PART_INTERVAL_S
        turns.release([])
        await _passes()
    turns.submit(one, Detach(["x", "y"], connection_lost=True))  # type: ignore[list-item]
    await _passes()
    assert {"x": 0, "y": 0} == namespace.limits
    committer.is_loaded = False
    turns.release([])
    await _passes()
    assert [("x", 3), ("-", "Detach")] == namespace.done[4:]


class SlowClock(Clock):
    """Each look at its stopwatch takes as long as a turn may take."""

    watch_s = 0.0

    def stopwatch_s(self) -> float:
        self.watch_s += TURN_S
        return self.watch_s


async def test_a_turn_ends_when_its_time_is_over_and_the_rest_follows_in_order():
    """Between two turns others are read, answered and written to."""
    turns, namespace, _ = _wide_loop(SlowClock())
    one: Any = namespace
    for number in range(6):
        turns.submit(one, _send("p", number))
    seen = []
    while len(namespace.done) < 6:
        await asyncio.sleep(0)
        seen.append(len(namespace.done))
    assert seen == sorted(set(seen)), "a turn took everything"
    assert [("p", number) for number in range(6)] == namespace.done


async def test_commands_for_memory_that_was_given_up_are_not_run():
    """A connection that ends after the broker started again submits commands to the old namespace.
    Their records would be about messages that the store may have deleted since."""
    given_up, current = DueNamespace(enough=1), DueNamespace(enough=1)
    turns = _loop(current, BusyCommitter())
    turns.submit(given_up, Tick())  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        await current.had_enough.wait()
    turns.stop()
    assert 0 == given_up.ticks


class AnsweredPeer:
    """A peer whose answers are written by a connection. Its second answer makes it submit a command."""

    def __init__(self, turns: TurnLoop, namespace: object) -> None:
        self.flushed = 0
        self.answers = 0
        self._turns = turns
        self._namespace: Any = namespace

    def receive(self, effect: object) -> None:
        del effect
        self.answers += 1
        self._turns.touch(self)
        if self.answers == 2:
            self._turns.submit(self._namespace, Tick())

    def flush(self) -> None:
        self.flushed += 1

    def prepare(self) -> None: ...

    def write_prepared(self) -> None: ...

    def abort(self) -> None: ...


class Answer:
    """An effect for a peer."""

    def __init__(self, peer: AnsweredPeer) -> None:
        self.to = peer


async def test_what_effects_have_touched_is_flushed_without_another_pass():
    """A pass of the event loop without work costs as much as a part of an answer."""
    turns, namespace, _ = _wide_loop()
    peer: Any = AnsweredPeer(turns, namespace)
    turns.release([Answer(peer)])  # type: ignore[list-item]
    assert (1, False) == (peer.flushed, turns._scheduled)


async def test_commands_that_effects_submit_run_in_the_next_pass():
    """Nothing else would schedule that pass."""
    turns, namespace, _ = _wide_loop()
    peer: Any = AnsweredPeer(turns, namespace)
    turns.release([Answer(peer), Answer(peer)])  # type: ignore[list-item]
    assert [] == namespace.done
    await _passes()
    assert ([("-", "Tick")], 1) == (namespace.done, peer.flushed)


def _complete(peer: str) -> Settle:
    return Settle(peer, [bytes(16)], [None], COMPLETE)  # type: ignore[arg-type]


async def test_what_nobody_waits_for_runs_with_the_next_turn():
    """In order, and before the command that somebody waits for."""
    turns, namespace, committer = _wide_loop()
    one: Any = namespace
    turns.submit(one, _complete("a"))
    await _passes()
    assert ([], 0) == (namespace.done, committer.submitted)
    turns.submit(one, _complete("b"))
    turns.submit(one, _send("c", 1))
    turns.submit(one, _complete("d"))
    await _passes()
    assert [("-", "Settle"), ("-", "Settle"), ("c", 1), ("-", "Settle")] == namespace.done
    assert 1 == committer.submitted


async def test_what_nobody_waits_for_runs_soon_without_another_turn():
    """The messages must be gone, also if nobody does anything else."""
    turns, namespace, _ = _wide_loop()
    one: Any = namespace
    ran = asyncio.Event()
    turns.after_turn = lambda _: ran.set()
    for _ in range(2):
        ran.clear()
        namespace.done.clear()
        turns.submit(one, _complete("a"))
        async with asyncio.timeout(10):
            await ran.wait()
        assert [("-", "Settle")] == namespace.done


async def test_what_has_come_runs_before_the_clock_is_moved_or_a_namespace_is_held():
    """Otherwise a lock would have ended, or a copy would contain a completed message."""
    turns, namespace, _ = _wide_loop()
    one: Any = namespace
    turns.submit(one, _complete("a"))
    turns.run_waiting()
    assert [("-", "Settle")] == namespace.done
    turns.submit(one, _complete("a"))
    turns.hold(one)
    turns.submit(one, _send("b", 1))
    await _passes()
    assert [("-", "Settle"), ("-", "Settle")] == namespace.done


async def test_all_that_has_come_runs_before_the_clock_is_moved_however_long_it_takes():
    """A single turn would end before that."""
    turns, namespace, committer = _wide_loop(SlowClock())
    one: Any = namespace
    for number in range(6):
        turns.submit(one, _send("p", number))
    turns.run_waiting()
    assert [("p", number) for number in range(6)] == namespace.done
    assert committer.submitted > 1


async def test_what_nobody_waits_for_waits_while_commands_are_suspended():
    """The namespaces are being replaced."""
    turns, namespace, _ = _wide_loop()
    one: Any = namespace
    turns.submit(one, _complete("a"))
    turns.suspend()
    turns.run_waiting()
    await _passes()
    assert [] == namespace.done
    turns.resume()
    await _passes()
    assert [("-", "Settle"), ("-", "Tick")] == namespace.done


@pytest.mark.parametrize(("takes_time", "turn_count"), [(True, 1), (False, 2)])
async def test_commands_that_come_together_get_one_commit_if_commits_take_time(
    takes_time, turn_count
):
    """What comes while the first are looked at would have to wait for their commit, and get one of its own."""
    turns, namespace, committer = _wide_loop()
    committer.takes_time = takes_time
    one: Any = namespace
    turns.submit(one, _send("a", 1))
    turns.submit(one, _send("b", 1))
    await asyncio.sleep(0)
    turns.submit(one, _send("c", 1))
    await _passes()
    assert [("a", 1), ("b", 1), ("c", 1)] == namespace.done
    assert turn_count == committer.submitted


async def test_a_command_that_comes_alone_does_not_wait_for_others():
    """Most clients wait for the answer before they send more."""
    turns, namespace, committer = _wide_loop()
    committer.takes_time = True
    one: Any = namespace
    turns.submit(one, _send("a", 1))
    await asyncio.sleep(0)
    assert [("a", 1)] == namespace.done


async def test_gathering_ends_when_there_are_enough_commands():
    """However fast they come."""
    turns, namespace, committer = _wide_loop()
    committer.takes_time = True
    one: Any = namespace
    for number in range(GATHERED_MAX):
        turns.submit(one, _send("a", number))
        turns.submit(one, _send("b", number))
        await asyncio.sleep(0)
        if namespace.done:
            break
    assert GATHERED_MAX == len(namespace.done)
