"""What random clients do: each move is one command, made from what the clients have been told.

Owns the choice of commands, by hypothesis or by a seeded generator alike; whether the broker reacts
rightly is `pair.py`'s. Clients make mistakes too: stale tokens, wrong numbers, wrong entities.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from broker.core import commands as ask
from broker.core import effects as tell
from broker.core.commands import ReceiveMode, SessionRequest, Settlement, SettlementKind
from config.entities import (
    UNLIMITED_MS,
    CorrelationFilter,
    EntityStatus,
    RuleDefinition,
    TopicDefinition,
)
from tests.model.durable import Given, Sent
from tests.model.model import DEAD_SUFFIX, TRANSFER_DEAD_SUFFIX
from tests.model.naive import DEFERRED, SCHEDULED
from tests.model.pair import Pair
from tests.model.world import (
    ENTITIES,
    FOCUSES,
    LABELS,
    LARGEST_KILOBYTES,
    LIVE_MS,
    LOCK_MS,
    MESSAGE_IDS,
    SEND_VIA,
    SESSIONS,
    WINDOW_MS,
    Client,
    mark_of,
    new_message,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.core.commands import Command
    from broker.core.effects import Effect
    from broker.core.message import Message
    from tests.model.pair import Watch

T = TypeVar("T")

PAUSES_MS = (1, 1_000, LOCK_MS // 2, LOCK_MS, LOCK_MS + 1, LIVE_MS, WINDOW_MS, 61_000)
SHORT_PAUSES_MS = (1, 1_000, 1_000, LOCK_MS // 2)
STALE_KEPT = 4
RULES = (RuleDefinition("red", CorrelationFilter(label="red")), RuleDefinition("any"))
STATE_BYTES = (1, 3, 300 * 1024)
LARGE_BYTES = (LARGEST_KILOBYTES - 10) * 1024
TOO_LARGE_BYTES = (LARGEST_KILOBYTES + 1) * 1024


class Choices(Protocol):
    """Where chance comes from."""

    def number(self, low: int, high: int) -> int:
        """Both included; low is the simplest."""

    def pick(self, options: Sequence[T]) -> T:
        """The first is the simplest."""

    def rarely(self, one_in: int) -> bool:
        """False is the simplest."""


@dataclass(eq=False)
class Taken:
    """A message a client has been given under a lock."""

    path: str
    token: bytes
    mark: str
    id: int
    session_id: str | None


@dataclass(eq=False)
class Known:
    """What clients have been told so far."""

    senders: dict[Client, str] = field(default_factory=dict)
    asked: dict[Client, str] = field(default_factory=dict)
    """Receivers that wait for the answer to their attach."""
    receivers: dict[Client, str] = field(default_factory=dict)
    got: dict[Client, int] = field(default_factory=dict)
    """How many messages a receiver has got."""
    gone: list[Client] = field(default_factory=list)
    """Links the broker or the client ended."""
    taken: list[Taken] = field(default_factory=list)
    transactions: list[bytes] = field(default_factory=list)


class Moves:
    """A run's clients. Call a move by name with a source of choices; it returns its command."""

    def __init__(self, choices: Choices, watch: Watch | None = None) -> None:
        self.focus = choices.pick(FOCUSES)
        self.pair = _new_pair(choices, self.focus, watch)
        self.known = Known()
        self._numbers = 0
        self._requests: dict[object, Command] = {}
        self._turn: list[Command] = []
        ways: list[tuple[str, str | None]] = [(path, None) for path in self.focus]
        if self.focus == SEND_VIA:
            ways += [(path, other) for path in SEND_VIA for other in SEND_VIA if other != path]
        for path, via in ways:
            if "/Subscriptions/" not in path:
                self._do(choices, ask.AttachSender(self._client("sender"), path, via), alone=True)

    # --- plumbing ---------------------------------------------------------------------------

    def _name(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}{self._numbers}"

    def _client(self, kind: str) -> Client:
        return Client(self._name(kind), self._told)

    def _do(self, choices: Choices, command: Command, *, alone: bool = False) -> None:
        """Have a command run now, or in one turn with the next."""
        request = getattr(command, "request", None)
        if request is not None:
            self._requests[request] = command
        if alone:
            self.end_turn()
        if isinstance(command, ask.AttachSender):
            self.known.asked[command.peer] = command.path  # type: ignore[index]
        if isinstance(command, ask.AttachReceiver):
            self.known.asked[command.peer] = command.path  # type: ignore[index]
        self._turn.append(command)
        together = not alone and not self.pair.bodies_may_be_away and choices.rarely(4)
        if not together:
            self.end_turn()

    def end_turn(self) -> None:
        """Run what has gathered."""
        if self._turn:
            commands, self._turn = self._turn, []
            self.pair.run(*commands)

    def _told(self, client: Client, effect: Effect) -> None:
        known = self.known
        if client in known.gone:
            return  # it has hung up meanwhile
        match effect:
            case tell.SenderAttached():
                known.senders[client] = known.asked.pop(client)
            case tell.ReceiverAttached():
                known.receivers[client] = known.asked.pop(client)
                known.got[client] = 0
            case tell.Refused() | tell.Detached():
                for clients in (known.asked, known.senders, known.receivers):
                    clients.pop(client, None)
                known.gone.append(client)
            case tell.Deliver():
                path = known.receivers[client]
                known.got[client] += len(effect.messages)
                for message, token in zip(effect.messages, effect.tokens, strict=True):
                    self._take(path, message, token)
            case tell.Reply():
                self._answered(effect)
            case _:
                pass

    def _take(self, path: str, message: Message, token: bytes | None) -> None:
        if token is not None:
            taken = Taken(path, token, mark_of(message), message.id, message.session_id)
            self.known.taken.append(taken)

    def _answered(self, reply: tell.Reply) -> None:
        command = self._requests.pop(reply.request)
        if reply.error is not None:
            return
        if isinstance(command, ask.Declare):
            assert isinstance(reply.value, bytes)
            self.known.transactions.append(reply.value)
        elif isinstance(command, ask.ReceiveDeferred):
            assert isinstance(reply.value, list)
            for message, token in reply.value:
                self._take(command.path, message, token)

    # --- choosing ---------------------------------------------------------------------------

    def _send_path(self, choices: Choices) -> str:
        return choices.pick([path for path in self.focus if "/Subscriptions/" not in path])

    def _receive_path(self, choices: Choices) -> str:
        path = choices.pick(
            [path for path in self.focus if not isinstance(ENTITIES[path], TopicDefinition)]
        )
        if not choices.rarely(4):
            return path
        transfer = self.focus == SEND_VIA and choices.rarely(2)
        return path + (TRANSFER_DEAD_SUFFIX if transfer else DEAD_SUFFIX)

    def _has_sessions(self, path: str) -> bool:
        definition = ENTITIES.get(path)
        return definition is not None and getattr(definition, "requires_session", False)

    def _transaction(self, choices: Choices) -> bytes | None:
        transactions = self.known.transactions[-2:]
        return choices.pick(transactions) if transactions and choices.rarely(3) else None

    def _message(self, choices: Choices, path: str, *, scheduled: bool = False) -> Message:
        wants_session = self._has_sessions(path) or choices.rarely(3)
        session_id = choices.pick(SESSIONS) if wants_session and not choices.rarely(12) else None
        size = None
        if choices.rarely(12):
            size = choices.pick((LARGE_BYTES, TOO_LARGE_BYTES))
        when_ms = 0
        if (scheduled or choices.rarely(8)) and not self._may_come_late(path):
            when_ms = self.pair.now_ms + choices.pick(PAUSES_MS)
        return new_message(
            self._name("m"),
            session_id=session_id,
            message_id=choices.pick(MESSAGE_IDS),
            label=choices.pick(LABELS),
            time_to_live_ms=choices.pick(PAUSES_MS) if choices.rarely(6) else None,
            scheduled_for_ms=when_ms,
            size=size,
        )

    def _may_come_late(self, path: str) -> bool:
        """Rules look into bodies: what is scheduled for a topic waits for them, and others pass."""
        return isinstance(ENTITIES[path], TopicDefinition) and self.pair.bodies_may_be_away

    def _messages(self, choices: Choices, path: str, *, scheduled: bool = False) -> list[Message]:
        many = choices.number(1, 3)
        return [self._message(choices, path, scheduled=scheduled) for _ in range(many)]

    def _numbers_of(self, choices: Choices, path: str, state: int) -> list[int]:
        """Numbers to ask for: mostly such as exist."""
        if (
            path.removesuffix(TRANSFER_DEAD_SUFFIX).removesuffix(DEAD_SUFFIX)
            not in self.pair.model.places
        ):
            return [1]
        place, sub = self.pair.model.find(path)
        there = [i.number for i in self.pair.model.content(place, sub) if i.state == state]
        if choices.rarely(6):
            there = [*there, 1, place.last_number[sub], 10_000]
        return [choices.pick(there) for _ in range(choices.number(1, 2))] if there else []

    # --- moves: sending ---------------------------------------------------------------------

    def send(self, choices: Choices) -> None:
        if not self.known.senders:
            self.attach_sender(choices)
            return
        sender = choices.pick(list(self.known.senders))
        messages = self._messages(choices, self.known.senders[sender])
        transaction_id = self._transaction(choices)
        held = transaction_id is not None
        if choices.rarely(3):
            handle = Sent([mark_of(message) for message in messages], held=held)
            command: Command = ask.SendBatch(sender, messages, handle, transaction_id)
        else:
            handles = [
                None if choices.rarely(8) else Sent([mark_of(message)], held=held)
                for message in messages
            ]
            command = ask.Send(sender, messages, handles, transaction_id)
        self._do(choices, command)

    def schedule(self, choices: Choices) -> None:
        path = self._send_path(choices)
        messages = self._messages(choices, path, scheduled=not choices.rarely(6))
        self._do(
            choices,
            ask.Schedule(
                self._client("asker"),
                self._name("schedule"),
                path,
                messages,
                self._transaction(choices),
            ),
        )

    def cancel(self, choices: Choices) -> None:
        path = self._send_path(choices)
        numbers = self._numbers_of(choices, path, SCHEDULED)
        if not numbers:
            self.schedule(choices)
            return
        asker = self._client("asker")
        self._do(choices, ask.CancelScheduled(asker, self._name("cancel"), path, numbers))

    # --- moves: links -----------------------------------------------------------------------

    def attach_sender(self, choices: Choices) -> None:
        path = choices.pick(self.focus)
        path += DEAD_SUFFIX if choices.rarely(12) else ""
        via = None
        if self.focus == SEND_VIA:
            via = choices.pick((None, *self.focus))
        self._do(choices, ask.AttachSender(self._client("sender"), path, via))

    def attach_receiver(self, choices: Choices) -> None:
        path = self._receive_path(choices)
        session = None
        if self._has_sessions(path) != choices.rarely(12):
            session_id = choices.pick((*SESSIONS, None, None, None))
            session = SessionRequest(session_id, choices.pick((1_000, 15_000, 65_000)))
        modes = (ReceiveMode.PEEK_LOCK, ReceiveMode.PEEK_LOCK, ReceiveMode.RECEIVE_AND_DELETE)
        client = self._client("receiver")
        self._do(choices, ask.AttachReceiver(client, path, choices.pick(modes), session))
        if choices.rarely(2):
            self._do(choices, ask.Credit(client, choices.number(1, 3)))

    def credit(self, choices: Choices) -> None:
        if not self.known.receivers:
            self.attach_receiver(choices)
            return
        receiver = choices.pick(list(self.known.receivers))
        limit = self.known.got[receiver] + choices.number(0, 4)
        drain = choices.rarely(5)
        if drain:
            # What arrives in the same turn may or may not be drained: that would be a race.
            self._do(choices, ask.Tick(), alone=True)
        self._do(choices, ask.Credit(receiver, limit, drain), alone=drain)

    def detach(self, choices: Choices) -> None:
        known = self.known
        links = [*known.receivers, *known.asked, *known.senders, *known.gone[-3:]]
        if not links:
            return
        peers = [choices.pick(links)]
        if choices.rarely(3):
            peers.append(choices.pick([link for link in links if link not in peers] or peers))
        for peer in peers:
            for clients in (known.receivers, known.asked, known.senders):
                clients.pop(peer, None)
            if peer not in known.gone:
                known.gone.append(peer)
        self._do(choices, ask.Detach(list(dict.fromkeys(peers)), choices.rarely(2)))

    # --- moves: settling --------------------------------------------------------------------

    def _settlement(self, choices: Choices) -> Settlement:
        kind = choices.pick(list(SettlementKind))
        if kind in (SettlementKind.COMPLETE, SettlementKind.RELEASE):
            return Settlement(kind)
        reason = choices.pick((None, "bad")) if kind is SettlementKind.DEAD_LETTER else None
        return Settlement(kind, {"tried": b"yes"} if choices.rarely(4) else None, reason)

    def _some_taken(self, choices: Choices, path: str | None = None) -> list[Taken]:
        """Messages of one queue to do something with: mostly such as are still locked."""
        self._forget_old()
        taken = [one for one in self.known.taken if path in (None, one.path)]
        live = [one for one in taken if self._is_locked(one)]
        taken = taken if choices.rarely(6) else live
        if not taken:
            return []
        first = choices.pick(taken)
        rest = [one for one in taken if one.path == first.path]
        return [first, *[choices.pick(rest) for _ in range(choices.number(0, 2))]]

    def _is_locked(self, one: Taken) -> bool:
        if (
            one.path.removesuffix(TRANSFER_DEAD_SUFFIX).removesuffix(DEAD_SUFFIX)
            not in self.pair.model.places
        ):
            return False
        place, sub = self.pair.model.find(one.path)
        return self.pair.model.locked(place, sub, one.token) is not None

    def _forget_old(self) -> None:
        """A few stale tokens are enough for mistakes."""
        stale = [one for one in self.known.taken if not self._is_locked(one)]
        for one in stale[:-STALE_KEPT]:
            self.known.taken.remove(one)

    def settle(self, choices: Choices) -> None:
        paths = [one.path for one in self.known.taken if self._is_locked(one)]
        receivers = [one for one, path in self.known.receivers.items() if path in paths]
        if not receivers:
            self.settle_by_token(choices)
            return
        receiver = choices.pick(receivers)
        taken = self._some_taken(choices, self.known.receivers[receiver])
        transaction_id = self._transaction(choices)
        held = transaction_id is not None
        handles = [
            None if choices.rarely(8) else Given(one.mark, one.id, held=held) for one in taken
        ]
        tokens = [one.token for one in taken]
        settlement = self._settlement(choices)
        self._do(choices, ask.Settle(receiver, tokens, handles, settlement, transaction_id))

    def settle_by_token(self, choices: Choices) -> None:
        taken = self._some_taken(choices)
        if not taken:
            self.credit(choices)
            return
        one = taken[0]
        self._do(
            choices,
            ask.SettleByToken(
                self._client("asker"),
                self._name("settle"),
                one.path,
                [one.token for one in taken],
                self._settlement(choices),
                one.session_id if self._has_sessions(one.path) else None,
                self._transaction(choices),
            ),
        )

    def renew(self, choices: Choices) -> None:
        taken = self._some_taken(choices)
        if not taken:
            self.credit(choices)
            return
        tokens = list(dict.fromkeys(one.token for one in taken))
        asker = self._client("asker")
        self._do(choices, ask.RenewLocks(asker, self._name("renew"), taken[0].path, tokens))

    # --- moves: looking and fetching --------------------------------------------------------

    def peek(self, choices: Choices) -> None:
        path = self._receive_path(choices)
        session_id = choices.pick((None, *SESSIONS)) if self._has_sessions(path) else None
        command = ask.Peek(
            self._client("asker"),
            self._name("peek"),
            path,
            choices.pick((0, 1, 3, 5)),
            choices.pick((100, 1, 2)),
            session_id,
        )
        self._do(choices, command)

    def fetch(self, choices: Choices) -> None:
        path = self._receive_path(choices)
        numbers = self._numbers_of(choices, path, DEFERRED)
        if not numbers:
            self.credit(choices)
            return
        session_id = None
        if self._has_sessions(path) and choices.rarely(2):
            session_id = choices.pick(SESSIONS)
        command = ask.ReceiveDeferred(
            self._client("asker"),
            self._name("fetch"),
            path,
            numbers,
            choices.pick(list(ReceiveMode)),
            session_id,
        )
        self._do(choices, command)

    def delete_messages(self, choices: Choices) -> None:
        path = self._receive_path(choices)
        before_ms = self.pair.now_ms - choices.pick((0, -1, LOCK_MS))
        session_id = choices.pick((None, *SESSIONS)) if self._has_sessions(path) else None
        count = choices.pick((1, 2, 5, 6))
        asker = self._client("asker")
        command = ask.DeleteMessages(
            asker, self._name("delete"), path, count, before_ms, session_id
        )
        self._do(choices, command)

    # --- moves: sessions --------------------------------------------------------------------

    def session(self, choices: Choices) -> None:
        paths = [path for path in self.focus if self._has_sessions(path)] or [self.focus[-1]]
        path = choices.pick(paths)
        session_id = choices.pick(SESSIONS)
        asker, request = self._client("asker"), self._name("session")
        what = choices.pick(("set", "renew", "get", "clear", "list", "list since"))
        since_ms = self.pair.now_ms - choices.pick((0, LOCK_MS))
        commands: dict[str, Command] = {
            "renew": ask.RenewSessionLock(asker, request, path, session_id),
            "set": ask.SetSessionState(
                asker, request, path, session_id, bytes(choices.pick(STATE_BYTES))
            ),
            "clear": ask.SetSessionState(asker, request, path, session_id, None),
            "get": ask.GetSessionState(asker, request, path, session_id),
            "list": ask.ListSessions(asker, request, path, choices.number(0, 1), 2),
            "list since": ask.ListSessions(asker, request, path, 0, 100, since_ms),
        }
        self._do(choices, commands[what])

    # --- moves: entities --------------------------------------------------------------------

    def change_entity(self, choices: Choices) -> None:
        path = choices.pick(self.focus)
        place = self.pair.model.places.get(path)
        asker, request = self._client("asker"), self._name("change")
        if place is None:
            command: Command = ask.CreateEntity(asker, request, path, ENTITIES[path])
        elif choices.rarely(4):
            command = ask.DeleteEntity(asker, request, path)
        else:
            definition = replace(place.definition, status=choices.pick(list(EntityStatus)))
            if not isinstance(definition, TopicDefinition):
                definition = replace(
                    definition,
                    lock_duration_ms=choices.pick((LOCK_MS, LOCK_MS // 2)),
                    max_delivery_count=definition.max_delivery_count + choices.number(0, 1),
                    default_time_to_live_ms=choices.pick((LIVE_MS, UNLIMITED_MS)),
                    dead_lettering_on_expiration=choices.rarely(2),
                    forward_to=self._forwards_to(choices, path, "forward_to"),
                    forward_dead_letters_to=self._forwards_to(
                        choices, path, "forward_dead_letters_to"
                    ),
                )
            command = ask.UpdateEntity(asker, request, path, definition)
        self._do(choices, command, alone=True)

    @staticmethod
    def _forwards_to(choices: Choices, path: str, name: str) -> str | None:
        """Where it forwarded to from the beginning, or nowhere for now."""
        there: str | None = getattr(ENTITIES[path], name)
        return None if there is None or choices.rarely(2) else there

    def change_rules(self, choices: Choices) -> None:
        path = choices.pick(self.focus)
        asker, request = self._client("asker"), self._name("rule")
        rule = choices.pick(RULES)
        command: Command = ask.AddRule(asker, request, path, rule)
        if choices.rarely(2):
            name = choices.pick((rule.name, "$Default"))
            command = ask.RemoveRule(asker, request, path, name)
        self._do(choices, command)

    def heal(self, choices: Choices) -> None:
        """Every entity of the focus is there and enabled again."""
        for path in self.focus:
            place = self.pair.model.places.get(path)
            asker, request = self._client("asker"), self._name("heal")
            if place is None:
                topic = path.partition("/Subscriptions/")[0]
                if topic == path or topic in self.pair.model.places:
                    create = ask.CreateEntity(asker, request, path, ENTITIES[path])
                    self._do(choices, create, alone=True)
            elif place.definition.status is not EntityStatus.ACTIVE:
                definition = replace(place.definition, status=EntityStatus.ACTIVE)
                update = ask.UpdateEntity(asker, request, path, definition)
                self._do(choices, update, alone=True)

    def get_entity(self, choices: Choices) -> None:
        path = choices.pick(self.focus)
        self._do(choices, ask.GetEntity(self._client("asker"), self._name("get"), path))

    # --- moves: transactions ----------------------------------------------------------------

    def declare(self, choices: Choices) -> None:
        self._do(choices, ask.Declare(self._client("coordinator"), self._name("declare")))

    def discharge(self, choices: Choices) -> None:
        if not self.known.transactions:
            self.declare(choices)
            return
        transaction_id = choices.pick(self.known.transactions[-2:])
        if not choices.rarely(8):
            self.known.transactions.remove(transaction_id)
        asker, request = self._client("asker"), self._name("discharge")
        self._do(choices, ask.Discharge(asker, request, transaction_id, choices.rarely(3)))

    # --- moves: time and store --------------------------------------------------------------

    def wait(self, choices: Choices) -> None:
        self.end_turn()
        moments = self._moments()
        if moments and choices.rarely(3):
            # To the millisecond when something happens, or to the one before.
            until_ms = choices.pick(moments[:3]) - choices.number(0, 1)
            self.pair.advance(until_ms - self.pair.now_ms)
        else:
            long = choices.rarely(3)
            self.pair.advance(choices.pick(PAUSES_MS if long else SHORT_PAUSES_MS))
        if choices.rarely(2):
            self._do(choices, ask.Tick())

    def _moments(self) -> list[int]:
        """When anything will change by itself, the next first."""
        model = self.pair.model
        moments = {at_ms for at_ms, _, _ in model.events()}
        moments.update(item.expires_ms for item in model.items)
        for place in model.places.values():
            moments.update(place.seen.values())
        return sorted(at_ms for at_ms in moments if at_ms > self.pair.now_ms)

    def commit(self, choices: Choices) -> None:
        self.end_turn()
        self.pair.commit(choices.number(1, 5))

    def read(self, choices: Choices) -> None:
        self.end_turn()
        self.pair.read(choices.number(1, 2))

    def restart(self, choices: Choices) -> None:
        self.end_turn()
        # See `_may_come_late`: what is scheduled for a topic must not have to wait for its body.
        is_topic = any(isinstance(ENTITIES[path], TopicDefinition) for path in self.focus)
        self.pair.restart(read_bodies=is_topic or not choices.rarely(3))
        self.known = Known(taken=self.known.taken, transactions=self.known.transactions[-1:])
        self._requests.clear()


def _new_pair(choices: Choices, focus: Sequence[str], watch: Watch | None) -> Pair:
    entities = {path: ENTITIES[path] for path in focus}
    hold_locks = choices.rarely(4)
    way = choices.pick(("at once", "late commits", "bodies away", "late reads"))
    if way == "late commits" and watch is None:
        return Pair(entities, commits_late=True, hold_locks=hold_locks)
    if way in ("at once", "late commits"):
        return Pair(entities, hold_locks=hold_locks, watch=watch)
    # Where one message waits for its body, another may pass it on the way to another entity.
    reads_late = way == "late reads" and not any(_leads_on(path) for path in focus)
    budget_bytes = choices.pick((0, 100, 200))
    return Pair(
        entities,
        payload_budget_bytes=budget_bytes,
        reads_late=reads_late,
        hold_locks=hold_locks,
        watch=watch,
    )


def _leads_on(path: str) -> bool:
    definition = ENTITIES[path]
    return isinstance(definition, TopicDefinition) or (
        definition.forward_to is not None or definition.forward_dead_letters_to is not None
    )


WEIGHTS: dict[str, int] = {
    "send": 12,
    "credit": 10,
    "settle": 10,
    "attach_receiver": 6,
    "wait": 6,
    "settle_by_token": 4,
    "fetch": 4,
    "schedule": 3,
    "peek": 3,
    "session": 3,
    "detach": 3,
    "renew": 2,
    "heal": 4,
    "attach_sender": 2,
    "declare": 2,
    "discharge": 2,
    "commit": 4,
    "read": 4,
    "cancel": 1,
    "delete_messages": 1,
    "change_entity": 1,
    "get_entity": 1,
    "change_rules": 1,
    "restart": 1,
}
"""How often each move is made, by a run that has no better idea."""


def play(moves: Moves, choices: Choices, steps: int) -> None:
    """So many random moves."""
    names = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
    for _ in range(steps):
        move: Callable[[Choices], None] = getattr(moves, choices.pick(names))
        move(choices)
    moves.end_turn()
