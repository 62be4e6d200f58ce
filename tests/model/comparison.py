"""Runs the core and the model with the same commands and times, and compares their answers.

Records are committed late on purpose, and effects are released only after that, so that no client
knows more than the store.
"""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract import effects as tell
from broker.core.contract.commands import Declare, PayloadsLoaded, Peek, ReceiveDeferred, Tick
from broker.core.contract.effects import PayloadsNeeded
from broker.core.contract.turn import Turn
from broker.core.messages.payloads import MESSAGES_MAX
from config.model.definitions import RuleDefinition
from storage.memory import MemoryStore
from tests.model.dispatch import Handed, dispatch
from tests.model.durability_checks import Durable
from tests.model.invariants import check_invariants, check_nothing_is_left
from tests.model.model_entities import DEAD, MAIN, TRANSFER_DEAD
from tests.model.model_operations import DEAD_SUFFIX, TRANSFER_DEAD_SUFFIX
from tests.model.naive_model import Model, shown
from tests.model.packing import pack_all
from tests.model.run_entities import (
    ENTITIES,
    LIMITS,
    START_MS,
    ModelClient,
    counted_tokens,
    fields_of,
    mark_of,
    new_namespace,
)
from tests.model.vocabulary import check_order, described, handed_by, seen, told_by, view_of
from tests.support.unfinished_work import has_unfinished_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Effect, Peer
    from broker.core.contract.message import Message
    from broker.core.contract.records import Record
    from broker.core.namespace import Namespace
    from broker.core.queues.queue import Queue
    from config.model.definitions import EntityDefinition

    Watch = Callable[[Sequence[Record], Namespace, int], None]

SUFFIXES = {MAIN: "", DEAD: DEAD_SUFFIX, TRANSFER_DEAD: TRANSFER_DEAD_SUFFIX}
MOST_READS = 100
"""How often bodies may be read back before a turn must be over."""


class Pending(NamedTuple):
    """A turn that is not durable yet, and the model as it was after it."""

    turn: Turn
    model: Model


class Comparison:
    """`run` commands, `advance` time, `commit` what waits, `restart`; any difference raises."""

    def __init__(
        self,
        entities: Mapping[str, EntityDefinition] = ENTITIES,
        *,
        commits_late: bool = False,
        reads_late: bool = False,
        payload_budget_bytes: int | None = None,
        hold_locks: bool = False,
        part_messages: int | None = None,
        watch: Watch | None = None,
    ) -> None:
        """With a budget, bodies leave memory. They are read back within the turn that asks for
        them, or, with `reads_late`, when `read` is called. With `part_messages`, what concerns
        more messages than this at once is done in parts, which nobody may notice."""
        assert payload_budget_bytes is None or not commits_late
        assert watch is None or not commits_late
        self.now_ms = START_MS
        self.commits_late = commits_late
        self.steps = 0
        self.log: list[str] = []
        self.store = MemoryStore()
        self.durable = Durable(self.store)
        self._watch = watch
        self.model = Model(LIMITS, hold_locks=hold_locks)
        self._budget_bytes = payload_budget_bytes
        self._hold_locks = hold_locks
        self._part_messages = part_messages
        self._new_lock_tokens = counted_tokens()
        self._pending: deque[Pending] = deque()
        self._requests: dict[object, Any] = {}
        self._reads_late = reads_late
        self._reads: deque[PayloadsNeeded] = deque()
        self._parked: dict[object, Command] = {}
        """Requests that wait for bodies: they are asked, on both sides, when those are there."""
        self.bodies_may_be_away = (
            payload_budget_bytes is not None and not reads_late
        ) or part_messages is not None
        """One command a turn then: requests may be answered after others."""
        self.real = self._new_namespace()
        self._declare(entities)

    def _new_namespace(self) -> Namespace:
        namespace = new_namespace(
            payload_budget_bytes=self._budget_bytes,
            hold_locks=self._hold_locks,
            new_lock_tokens=self._new_lock_tokens,
        )
        namespace._context.block_bits = 1
        if self._part_messages is not None:
            namespace._context.backlog.part_messages = self._part_messages
        return namespace

    def _declare(self, entities: Mapping[str, EntityDefinition]) -> None:
        turn = Turn()
        self.real.declare(entities, self.now_ms, turn)
        self.real.dispatch(self.now_ms, turn)
        self.model.declare(
            {path: self.real._directory.entity(path).view().definition for path in entities}
        )
        self._later(turn)
        self.commit()
        self.compare_states()
        self._show()

    # --- what happens -----------------------------------------------------------------------

    def advance(self, milliseconds: int) -> None:
        """Moves the clock. The core notices it with the next command."""
        self.now_ms += milliseconds
        if self.bodies_may_be_away:
            self.run(Tick())

    def run(self, *commands: Command) -> None:
        """One turn on both sides."""
        self.steps += 1
        turn = Turn()
        for command in commands:
            self.log.append(f"{self.now_ms - START_MS:>7} {described(command)}")
            request = getattr(command, "request", None)
            if request is not None:
                self._requests[request] = command
            if isinstance(command, Peek | ReceiveDeferred):
                self._parked[command.request] = command
                self.model.apply(Tick(), self.now_ms)
            else:
                self.model.apply(command, self.now_ms)  # first: the broker writes into messages
            self._apply(command, turn)
        self.real.dispatch(self.now_ms, turn)
        self._finish_turn(turn)

    def _apply(self, command: Command, turn: Turn) -> None:
        """On the real side; requests that it answers now, the model answers now."""
        before = len(turn.effects)
        self.real.apply(command, self.now_ms, turn)
        for effect in turn.effects[before:]:
            if isinstance(effect, tell.Reply) and effect.request in self._parked:
                self.model.apply(self._parked.pop(effect.request), self.now_ms)

    def read(self, reads: int | None = None) -> None:
        """So many requests for bodies are answered, or all until there are none, each in a turn."""
        for _ in range(MOST_READS if reads is None else reads):
            if not self._reads:
                return
            ids = self._reads.popleft().payload_ids
            self.log.append(f"{self.now_ms - START_MS:>7} read {ids}")
            turn = Turn()
            self.model.apply(Tick(), self.now_ms)
            self._apply(PayloadsLoaded(self.store.read_payloads(ids)), turn)
            self.real.dispatch(self.now_ms, turn)
            self._finish_turn(turn)
        assert reads is not None, "bodies are read back again and again, and nothing comes of it"

    def _catch_up(self, turn: Turn) -> None:
        """Do every part of what is overdue."""
        while has_unfinished_work(self.real):
            self._apply(Tick(), turn)
            self.real.dispatch(self.now_ms, turn)

    def _finish_turn(self, turn: Turn) -> None:
        self._catch_up(turn)
        if self._reads_late:
            self._reads += [one for one in turn.effects if isinstance(one, PayloadsNeeded)]
            turn.effects = [one for one in turn.effects if not isinstance(one, PayloadsNeeded)]
        else:
            self._read_bodies(turn)
        assert self._reads or not self._parked, f"{self._parked} are never answered"
        self._compare(turn.effects)
        self._later(turn)
        assert not self.real._context.touched, "something was not dispatched"
        self.compare_states()
        self._show()

    def _show(self) -> None:
        """Passes the new commits and the live state to the observer, if there is one."""
        records, self.durable.fresh = self.durable.fresh, []
        if self._watch is not None:
            self._watch(records, self.real, self.now_ms)

    def _read_bodies(self, turn: Turn) -> None:
        """Answer each request for bodies, as it came, until there are none: the turn is over."""
        for _ in range(MOST_READS):
            needed = [one for one in turn.effects if isinstance(one, PayloadsNeeded)]
            if not needed:
                return
            turn.effects.remove(needed[0])
            if self._budget_bytes is not None:
                self.durable.commit(turn.records)
                turn.records = []
            payloads = self.store.read_payloads(needed[0].payload_ids)
            self._apply(PayloadsLoaded(payloads), turn)
            self.real.dispatch(self.now_ms, turn)
            self._catch_up(turn)
        raise AssertionError("bodies are read back again and again, and nothing comes of it")

    def _later(self, turn: Turn) -> None:
        # A copy only where it may be needed: it is most of the cost of a step.
        model = self._copy() if self.commits_late else self.model
        self._pending.append(Pending(turn, model))
        if not self.commits_late:
            self.commit()

    def _copy(self) -> Model:
        definitions = [entity.definition for entity in self.model.entities.values()]
        return deepcopy(self.model, {id(one): one for one in definitions})

    def commit(self, turns: int | None = None) -> None:
        """The store takes so many turns, or all; their effects are released."""
        for _ in range(len(self._pending) if turns is None else min(turns, len(self._pending))):
            turn = self._pending[0].turn
            self.durable.commit(turn.records)
            self.durable.check(turn.effects, self.model.vanished)
            # The newest one stays: a restart begins with the model of the last commit.
            self._last = self._pending.popleft()
            for effect in turn.effects:
                effect.to.receive(effect)

    def restart(self, *, read_bodies: bool = True) -> None:
        """The broker is killed: what was not committed is lost, and no client has an answer about
        it."""
        self.log.append(f"{self.now_ms - START_MS:>7} killed, {len(self._pending)} turns lost")
        if self.commits_late:
            self.model = self._last.model
            self._last = self._last._replace(model=self._copy())
        self._pending.clear()
        self._requests.clear()
        self._reads.clear()
        self._parked.clear()
        self.real = self._new_namespace()
        payloads = self.real._context.payloads
        payloads.messages_max = -1  # what can be packed is packed from the start
        self.real.restore(self.store.load(), self.now_ms)
        payloads.messages_max = MESSAGES_MAX
        self.model.restart()
        self._adopt_numbers()
        self.compare_states()
        self._show()
        self.bodies_may_be_away = not self._reads_late
        self.run(Tick())
        if read_bodies and self._budget_bytes is None:
            nobody = ModelClient("warming")
            for number, (path, _) in enumerate(list(self._queues())):
                self.run(Peek(nobody, ("warming", self.steps, number), path, 0, 1_000))
            self.bodies_may_be_away = self._part_messages is not None

    def _adopt_numbers(self) -> None:
        """A reserved sequence number that no message got may be used again. The number of a stored
        message never is."""
        for entity in self.model.entities.values():
            for sub, queue in enumerate(self.real._directory.entity(entity.path).queues):
                last = queue.last_sequence_number
                if not entity.is_topic:  # whose numbers only its copies remember
                    assert last <= entity.last_number[sub]
                    assert entity.highest_number[sub] <= last, "a number would be given twice"
                entity.last_number[sub] = last

    def finish(self) -> None:
        """Delete and detach everything: then nothing may be left, of either."""
        self.commit()
        self.read()
        nobody = ModelClient("end")
        from broker.core.contract.commands import DeleteEntity, Detach

        peers = {id(one.peer): one.peer for one in self.model.receivers}
        peers |= {id(peer): peer for peer in self.model.senders}
        peers |= {
            id(transaction.owner): transaction.owner
            for transaction in self.model.transactions.values()
        }
        self.run(Detach(list(peers.values())))
        for path in [path for path in self.model.entities if "/Subscriptions/" not in path]:
            self.run(DeleteEntity(nobody, ("end", path), path))
        self.read()
        self.commit()
        check_nothing_is_left(self.real, self.store)

    # --- comparing what was told ------------------------------------------------------------

    def _compare(self, effects: Sequence[Effect]) -> None:
        model = self.model
        waiting = {one.peer for one in model.receivers if one.attached and one.waits_until_ms}
        sessions: list[tuple[Peer, str]] = []
        deliveries: dict[Peer, list[Handed]] = {}
        told: list[tuple[object, ...]] = []
        for effect in effects:
            if isinstance(effect, tell.Deliver):
                handed = deliveries.setdefault(effect.to, [])
                handed += handed_by(effect, len(handed))
                continue
            if isinstance(effect, tell.ReceiverAttached) and effect.to in waiting:
                assert effect.session_id is not None
                sessions.append((effect.to, effect.session_id))
            value = self._value(effect) if isinstance(effect, tell.Reply) else None
            told += told_by(effect, value)
        check_order(effects)
        drained = {effect.to for effect in effects if isinstance(effect, tell.Drained)}
        dispatch(model, sessions, deliveries, drained if self._reads else None)
        expected, model.answers = sorted(map(repr, model.answers)), []
        assert expected == sorted(map(repr, told))

    def _value(self, reply: tell.Reply) -> object:
        """The value of a reply as the model has it; tokens and ids in it are made the model's."""
        value: Any = reply.value
        if reply.error is not None:
            return None
        if isinstance(self._requests[reply.request], Declare):
            (transaction,) = [b for request, b in self.model.declared if request == reply.request]
            self.model.declared = [d for d in self.model.declared if d[1] is not transaction]
            self.model.transactions[value] = transaction
            return "any id"
        if isinstance(value, tell.EntityView):
            return view_of(value)
        if isinstance(value, RuleDefinition):
            return replace(value, created_time_ms=0)
        if not isinstance(value, list) or not value or isinstance(value[0], int | str):
            return value
        if isinstance(value[0], tuple):
            for message, token in value:
                self._adopt_token(message, token)
            return [seen(message) for message, _ in value]
        return [seen(message) for message in value]

    def _adopt_token(self, message: Message, token: bytes | None) -> None:
        same = (mark_of(message), message.sequence_number)
        for item in self.model.items:
            untold = item.lock is not None and item.lock.token is None
            if untold and same == (item.mark, item.number):
                assert item.lock is not None
                assert token is not None
                item.lock.token = token

    # --- comparing what is there ------------------------------------------------------------

    def _queues(self) -> Iterator[tuple[str, Queue]]:
        for path in self.model.entities:
            for suffix in SUFFIXES.values():
                yield path + suffix, self.real._directory.queue(path + suffix)

    def compare_states(self) -> None:
        """Messages, locks, counts and numbers are the same on both sides."""
        real, model = self.real, self.model
        views = {view.path: view_of(view) for view in real.views()}
        assert {entity.path: model.view(entity) for entity in model.entities.values()} == views
        for path, queue in self._queues():
            entity, sub = model.find(path)
            expected = [
                (*shown(item), None if item.lock is None else item.lock.token)
                for item in model.content(entity, sub)
            ]
            assert expected == [
                (*seen(message, self._mark(message)), message.lock_token)
                for message in queue.index.walk()
            ], f"in {path}"
            assert entity.last_number[sub] == queue.last_sequence_number, f"in {path}"
        self._compare_sessions()
        earliest_ms = min((event[0] for event in model.events()), default=None)
        if earliest_ms is not None:
            next_ms = real.next_deadline_ms()
            assert next_ms is not None, f"nothing will happen at {earliest_ms}"
            assert next_ms <= earliest_ms
        check_invariants(real)
        if self._budget_bytes is not None:
            pack_all(real)

    def _mark(self, message: Message) -> str:
        if message.body is not None:
            return mark_of(message)
        (payload,) = self.store.read_payloads([message.payload_id]).values()
        return fields_of(payload[0])[0]

    def _compare_sessions(self) -> None:
        for entity in self.model.entities.values():
            sessions = self.real._directory.entity(entity.path).main.sessions
            if sessions is None:
                continue
            held = {
                one.session_id: (one.peer, one.session_until_ms)
                for one in self.model.receivers
                if one.entity is entity and one.attached and one.session_id is not None
            }
            assert held == {
                session.id: (session.holder.peer, session.locked_until_ms)
                for session in sessions._by_id.values()
                if session.holder is not None
            }
            assert entity.states == {
                session.id: (session.state, session.state_updated_ms)
                for session in sessions._by_id.values()
                if session.state is not None
            }
