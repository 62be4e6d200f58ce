"""A namespace: carries out commands.

Before each command it carries out everything that is due. After the commands of a turn it
dispatches messages. Work on too many messages for one turn is done in parts, one in each tick: see
`backlog.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract import commands as ask
from broker.core.contract.effects import Reply
from broker.core.contract.errors import BrokerError
from broker.core.contract.message import MessageState
from broker.core.contract.observations import Observations
from broker.core.entities.directory import Directory
from broker.core.messages.payloads import Payloads
from broker.core.namespace_clock import NamespaceClock
from broker.core.operations.admission import Admission
from broker.core.operations.command_parts import divided
from broker.core.operations.due_actions import DueActions
from broker.core.operations.entity_administration import EntityAdministration
from broker.core.operations.eviction import Eviction
from broker.core.operations.link_operations import LinkOperations
from broker.core.operations.message_requests import BodiesAwaited, MessageRequests
from broker.core.operations.namespace_closing import close_namespace
from broker.core.operations.rule_administration import RuleAdministration
from broker.core.operations.scheduled_activation import ScheduledActivation
from broker.core.operations.scheduling_requests import SchedulingRequests
from broker.core.operations.send import SendHandler
from broker.core.operations.session_requests import SessionRequests
from broker.core.operations.settle import SettleHandler
from broker.core.operations.transactions import Transactions
from broker.core.operations.waiting_requests import cancel_receives
from broker.core.queues.messages_by_queue import by_queue
from broker.core.queues.namespace_context import NamespaceContext
from broker.core.restore import restore_messages, restore_session_states
from config.model.definitions import EntityKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from broker.core.contract.commands import Command
    from broker.core.contract.counting import Counts
    from broker.core.contract.effects import EntityView
    from broker.core.contract.message import Message, MessageReader
    from broker.core.contract.records import EntityStored, RuleRow
    from broker.core.contract.storage_room import StorageRoom
    from broker.core.contract.turn import Turn
    from broker.core.entities.authorization_index import AuthorizationIndex
    from broker.core.entities.entity import Entity
    from broker.core.messages.identifiers import MessageIds
    from broker.core.operations.control_requests import ControlRequests
    from broker.core.operations.queue_watch import QueueWatch
    from broker.core.operations.waiting_requests import WaitingRequest
    from broker.core.queues.backlog import Work
    from broker.core.restore import StoredState
    from config.model.definitions import EntityDefinition
    from config.model.limits import Limits

    Handler = Callable[[Any, int, Turn], None]
    Answer = Callable[[Any, int, Turn], object]

_ABOUT_MESSAGES = frozenset(
    {
        ask.RenewLocks,
        ask.SettleByToken,
        ask.Peek,
        ask.ReceiveDeferred,
        ask.DeleteMessages,
        ask.RenewSessionLock,
        ask.SetSessionState,
        ask.GetSessionState,
        ask.ListSessions,
        ask.ControlRequest,
    }
)
"""Requests that wait while their queue has work in the backlog."""


class Namespace:
    """One namespace: `apply` commands, then `dispatch` once a turn."""

    def __init__(
        self,
        name: str,
        *,
        reader: MessageReader,
        new_lock_tokens: Callable[[int], list[bytes]],
        limits: Limits,
        ids: MessageIds,
        payload_budget_bytes: int | None,
        hold_locks_after_connection_loss: bool = False,
        create_on_first_use: bool = False,
        azure_limits: Limits | None = None,
        room: StorageRoom | None = None,
    ) -> None:
        """`azure_limits` are compared with what clients do, for a report. None: nothing is compared. `room` is that of
        the store. None: there is no limit."""
        self.name = name
        self.clock = NamespaceClock()
        """The times that callers pass are of the broker's clock."""
        payloads = Payloads(payload_budget_bytes)
        self.observations = Observations(azure_limits or limits, reader)
        context = NamespaceContext(
            reader, new_lock_tokens, limits, ids, payloads, self.observations, name
        )
        if room is not None:
            context.room = room
        directory = Directory()
        admission = Admission(context, directory)
        links = LinkOperations(context, directory, hold_locks=hold_locks_after_connection_loss)
        transactions = Transactions(context)
        sends = SendHandler(limits, links, directory, admission, transactions)
        settlements = SettleHandler(links, directory, transactions)
        requests = MessageRequests(context, directory, links, settlements)
        scheduling = SchedulingRequests(limits, directory, admission, transactions)
        sessions = SessionRequests(context, directory)
        rules = RuleAdministration(limits, directory)
        administration = EntityAdministration(name, context, directory, links, admission, rules)
        self._context = context
        self._eviction = Eviction(context)
        self._directory = directory
        self._admission = admission
        self._activations = ScheduledActivation(directory, admission, context)
        self._is_turn_of_backlog = False
        """Whether the next tick works on the backlog first, and not on scheduled messages. They take turns, because
        each may take as much as a tick can do."""
        self._now_ms = 0
        self._links = links
        self._transactions = transactions
        self._administration = administration
        self._control: ControlRequests | None = None
        self._awaiting_bodies: list[WaitingRequest] = []
        """Requests to repeat when bodies are loaded, with the messages that they need."""
        self._awaiting_queue: list[WaitingRequest] = []
        """Requests to repeat when their queue has no work in the backlog."""
        self._handlers: dict[type, Handler] = {
            ask.Send: sends.send,
            ask.SendBatch: sends.send_batch,
            ask.Settle: settlements.settle,
            ask.Credit: self._credit,
            ask.AttachSender: links.attach_sender,
            ask.AttachReceiver: links.attach_receiver,
            ask.Detach: self._detach,
            ask.Declare: transactions.declare,
            ask.Discharge: transactions.discharge,
            ask.SetRollbackOnly: transactions.apply_rollback_only,
            ask.PayloadsLoaded: self._payloads_loaded,
            ask.Tick: self._tick,
        }
        self._answers: dict[type, Answer] = {
            ask.RenewLocks: requests.renew_locks,
            ask.SettleByToken: requests.settle_by_token,
            ask.Peek: requests.peek,
            ask.ReceiveDeferred: requests.receive_deferred,
            ask.Schedule: scheduling.schedule,
            ask.CancelScheduled: scheduling.cancel_scheduled,
            ask.RenewSessionLock: sessions.renew_session_lock,
            ask.SetSessionState: sessions.set_session_state,
            ask.GetSessionState: sessions.get_session_state,
            ask.ListSessions: sessions.list_sessions,
            ask.DeleteMessages: requests.delete_messages,
            ask.ReplyAfterEarlier: lambda *_: None,
            ask.CreateEntity: administration.create_entity,
            ask.UpdateEntity: administration.update_entity,
            ask.DeleteEntity: administration.delete_entity,
            ask.GetEntity: administration.get_entity,
            ask.ListEntities: administration.list_entities,
            ask.AddRule: rules.add_rule,
            ask.RemoveRule: rules.remove_rule,
            ask.GetRule: rules.get_rule,
            ask.ListRules: rules.list_rules,
            ask.ControlRequest: self._carry_out,
        }
        self._handlers.update(dict.fromkeys(self._answers, self._answer))
        self._create_on_first_use = create_on_first_use
        if create_on_first_use:
            for attach in (ask.AttachSender, ask.AttachReceiver):
                self._handlers[attach] = self._creating_first(self._handlers[attach])
        self._due = DueActions(context, links, transactions, administration, self._activations)

    # --- start ------------------------------------------------------------------------------

    def declare(self, entities: Mapping[str, EntityDefinition], now_ms: int, turn: Turn) -> None:
        """Create or change entities, so that they are as defined."""
        self._administration.declare(entities, now_ms, turn)

    def delete_if_exists(self, path: str, now_ms: int, turn: Turn) -> None:
        """Delete an entity with its messages, if it exists."""
        self._administration.delete_if_exists(path, now_ms, turn)

    def restore(self, stored_state: StoredState, now_ms: int) -> None:
        """Restore the state from a store that has only this namespace."""
        Namespace.restore_all({self.name: self}, stored_state, now_ms)

    @staticmethod
    def restore_all(
        namespaces: Mapping[str, Namespace], stored_state: StoredState, now_ms: int
    ) -> None:
        """Restore the state of several namespaces, which share their ids.

        Locks are lost and counts are kept. What became due meanwhile is carried out with the first
        command.
        """
        by_id: dict[int, Entity] = {}
        rules: dict[int, list[RuleRow]] = {}
        for row in sorted(stored_state.rules):
            rules.setdefault(row.entity_id, []).append(row)
        # A topic comes before its subscriptions.
        for stored in sorted(
            stored_state.entities, key=lambda stored: stored.kind == EntityKind.SUBSCRIPTION
        ):
            namespace = namespaces[stored.namespace]
            by_id[stored.entity_id] = namespace.restore_entity(
                stored, rules.get(stored.entity_id, ()), now_ms
            )
        orphans = restore_messages(by_id, stored_state)
        highest_entity_id = max(by_id.keys() | orphans.entity_ids, default=0)
        for namespace in namespaces.values():
            namespace.skip_ids(stored_state.highest_message_id, highest_entity_id)
        if orphans:
            next(iter(namespaces.values())).add_background_work(orphans)
        restore_session_states(by_id, stored_state.session_states)

    def restore_entity(self, stored: EntityStored, rules: Sequence[RuleRow], now_ms: int) -> Entity:
        """Restore one entity without messages."""
        return self._administration.restore(stored, rules, now_ms)

    def add_background_work(self, work: Work) -> None:
        """Do work in parts, from the next tick on."""
        self._context.backlog.add(work)

    def close(self, error: BrokerError, turn: Turn) -> list[Work]:
        """End the namespace: detach all links and refuse all waiting requests with this error, and delete
        its entities. Returns the work that deletes its messages and seen ids; another namespace has to do it."""
        self._context.history = None  # it ends with the namespace
        waiting = (*self._awaiting_bodies, *self._awaiting_queue)
        return close_namespace(self._directory, self._context, waiting, error, turn)

    @property
    def context(self) -> NamespaceContext:
        """Returns what its queues share."""
        return self._context

    def skip_ids(self, message_id: int, entity_id: int) -> None:
        """Never use these or lower ids: the store has them."""
        self._context.ids.skip(message_id=message_id, entity_id=entity_id)

    # --- the turn ---------------------------------------------------------------------------

    def apply(self, command: Command, now_ms: int, turn: Turn) -> None:
        """Carry out what is due, and then the command."""
        self._now_ms = now_ms = self.clock.time_ms(now_ms)
        earliest_ms = self._context.deadlines.earliest_ms()
        history = self._context.history
        if earliest_ms is not None and earliest_ms <= now_ms:
            self._due.act(now_ms, turn)
        if history is not None:
            history.actor, history.now_ms = getattr(command, "peer", None), now_ms
        self._handlers[type(command)](command, now_ms, turn)

    def parts(self, command: Command) -> Sequence[ask.Send | ask.Settle] | None:
        """Returns smaller commands that do the same one after the other, if this one takes long."""
        return divided(command, self._links, self._context.backlog.part_messages)

    def _creating_first(self, attach: Handler) -> Handler:
        def create_and_attach(
            command: ask.AttachSender | ask.AttachReceiver, now_ms: int, turn: Turn
        ) -> None:
            self._administration.create_on_first_use(command.path, now_ms, turn)
            attach(command, now_ms, turn)

        return create_and_attach

    def dispatch(self, now_ms: int, turn: Turn) -> None:
        """Deliver messages where this turn has changed messages, credit or receivers."""
        now_ms = self.clock.time_ms(now_ms)
        context = self._context
        context.backlog.new_turn()
        if context.history is not None:
            context.history.actor, context.history.now_ms = None, now_ms
        while touched := context.touched:
            context.touched = {}
            for dispatcher in touched:
                dispatcher.dispatch(now_ms, turn)
        if self._eviction:
            self._eviction.run()

    def next_deadline_ms(self) -> int | None:
        """Returns when the next `Tick` is due, or None."""
        if self._context.backlog or self._eviction:
            return self.clock.broker_time_ms(self._now_ms)
        due_ms = self._activations.due_since_ms
        if due_ms is None:
            due_ms = self._context.deadlines.earliest_ms()
        return None if due_ms is None else self.clock.broker_time_ms(due_ms)

    @property
    def awaits_bodies(self) -> bool:
        """Whether it waits for bodies from the store."""
        return self._context.payloads.awaits_any

    def watch(self, path: str | None) -> QueueWatch:
        """Returns a watch that tells whether a turn has changed a queue, or any queue."""
        from broker.core.operations.queue_watch import QueueWatch

        return QueueWatch(self._context, self._directory, path)

    def has_entity(self, path: str) -> bool:
        """Returns whether an entity exists at this path or below it, or would be created on first
        use."""
        return self._create_on_first_use or self._directory.has_at_or_below(path)

    def views(self) -> Iterator[EntityView]:
        """Returns the view of every entity."""
        return (entity.view() for entity in self._directory)

    def entities(self) -> list[Entity]:
        """Returns all entities."""
        return list(self._directory)

    @property
    def counts(self) -> Counts:
        """Returns the counts that belong to no entity."""
        return self._context.counts

    @property
    def keys(self) -> AuthorizationIndex:
        """Returns the authorization rules of its entities."""
        return self._directory.keys

    def retry_forwarding(self) -> None:
        """Continue forwarding with the next turn, because the store has room again."""
        self._administration.retry_forwarding()

    # --- commands ---------------------------------------------------------------------------

    def _credit(self, command: ask.Credit, now_ms: int, turn: Turn) -> None:
        del now_ms, turn
        self._links.grant(command)

    def _detach(self, command: ask.Detach, now_ms: int, turn: Turn) -> None:
        self._transactions.roll_back_owned_by(command.peers, now_ms, turn)
        self._links.detach(command.peers, now_ms, turn, connection_lost=command.connection_lost)
        for awaiting in (self._awaiting_bodies, self._awaiting_queue):
            cancel_receives(awaiting, command.peers)

    def _carry_out(self, command: ask.ControlRequest, now_ms: int, turn: Turn) -> object:
        """Carry out an operation of the control API. Most brokers never get one, so its code is
        loaded with the first."""
        if self._control is None:
            from broker.core.operations.control_requests import ControlRequests

            self._control = ControlRequests(
                self._context, self._directory, self._admission, self._administration
            )
        return self._control.carry_out(command.operation, now_ms, turn)

    def _tick(self, command: ask.Tick, now_ms: int, turn: Turn) -> None:
        """Do a part of the remaining work. `apply` has already carried out what is due."""
        del command
        backlog = self._context.backlog
        self._is_turn_of_backlog = not self._is_turn_of_backlog
        if self._activations.due_since_ms is not None and not (
            backlog and self._is_turn_of_backlog
        ):
            self._activations.activate_next(turn)
            self._due.act(now_ms, turn)  # what was activated late may be over already
        if backlog:
            backlog.run_next_part(turn, lambda: self._due.act(now_ms, turn))
        if self._awaiting_queue:
            awaiting, self._awaiting_queue = self._awaiting_queue, []
            self._repeat(awaiting, now_ms, turn)

    def _repeat(self, awaiting: Sequence[WaitingRequest], now_ms: int, turn: Turn) -> None:
        """Repeat requests that waited."""
        for request, read_back in awaiting:
            if request is not None:
                self._answer(request, now_ms, turn, read_back)
            elif self._context.payloads.are_awaited(read_back):
                self._awaiting_bodies.append((None, read_back))  # they are evicted once loaded
            else:
                self._end_request(read_back)

    def _end_request(self, read_back: Sequence[Message]) -> None:
        self._context.arrived += read_back
        self._context.payloads.end_request(read_back)

    def _answer(
        self, command: Any, now_ms: int, turn: Turn, read_back: Sequence[Message] = ()
    ) -> None:
        """Answer a request with its value or its error. Bodies that were loaded for it stay in
        memory until then."""
        if self._context.backlog and self._waits_for_queue(command):
            self._awaiting_queue.append((command, read_back))
            return
        try:
            value = self._answers[type(command)](command, now_ms, turn)
        except BodiesAwaited as awaited:
            self._awaiting_bodies.append((command, [*read_back, *awaited.messages]))
            self._context.payloads.keep_for_request(awaited.messages)
            return
        except BrokerError as error:
            turn.effects.append(Reply(command.peer, command.request, error=error.as_value()))
            transaction_id = getattr(command, "transaction_id", None)
            if transaction_id is not None:
                self._transactions.set_rollback_only(transaction_id, command.connection, error)
        else:
            turn.effects.append(Reply(command.peer, command.request, value))
        self._end_request(read_back)

    def _waits_for_queue(self, command: Any) -> bool:
        """Returns whether a request must wait because its queue has work in the backlog."""
        if type(command) not in _ABOUT_MESSAGES or command.path is None:
            return False
        try:
            return self._directory.queue(command.path).overdue_ms > 0
        except BrokerError:
            return False

    def _payloads_loaded(self, command: ask.PayloadsLoaded, now_ms: int, turn: Turn) -> None:
        loaded = self._context.payloads.loaded(command.payloads)
        for queue, messages in by_queue(loaded).items():
            queue.delivery.touch_for(messages)
            if queue.is_closed or self._directory.entity_of(queue).kind != "topic":
                continue
            late: dict[int, list[Message]] = {}  # only a topic needs bodies for activation
            for message in messages:
                at_ms = message.scheduled_enqueue_time_ms
                if message.state is MessageState.SCHEDULED and at_ms <= now_ms:
                    late.setdefault(at_ms, []).append(message)
            for at_ms in sorted(late):
                self._admission.activate(late[at_ms], at_ms, turn)
        self._due.act(now_ms, turn)  # messages that were activated late may have expired already
        awaiting, self._awaiting_bodies = self._awaiting_bodies, []
        self._repeat(awaiting, now_ms, turn)
