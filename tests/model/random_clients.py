"""Random clients: what they know, and how they choose their next commands.

The commands are in `random_commands.py`. Clients also make mistakes: old tokens, wrong numbers,
wrong entities.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from broker.core.contract import commands as ask
from broker.core.contract import effects as tell
from broker.core.contract.settlement_values import Settlement, SettlementKind
from config.model.definitions import TopicDefinition
from tests.model.comparison import Comparison
from tests.model.model_operations import DEAD_SUFFIX, TRANSFER_DEAD_SUFFIX
from tests.model.run_entities import (
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
    ModelClient,
    mark_of,
    new_message,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Effect
    from broker.core.contract.message import Message
    from tests.model.comparison import Watch

T = TypeVar("T")

PAUSES_MS = (1, 1_000, LOCK_MS // 2, LOCK_MS, LOCK_MS + 1, LIVE_MS, WINDOW_MS, 61_000)
FLOODS = (300, 1_100, 3_000)
STALE_KEPT = 4
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
    """What clients have learnt from answers so far."""

    senders: dict[ModelClient, str] = field(default_factory=dict)
    asked: dict[ModelClient, str] = field(default_factory=dict)
    """Receivers that wait for the answer to their attach."""
    receivers: dict[ModelClient, str] = field(default_factory=dict)
    got: dict[ModelClient, int] = field(default_factory=dict)
    """How many messages a receiver has got."""
    gone: list[ModelClient] = field(default_factory=list)
    """Links the broker or the client ended."""
    taken: list[Taken] = field(default_factory=list)
    transactions: list[bytes] = field(default_factory=list)


class Clients:
    """The clients of one run, the broker they use, and its model."""

    def __init__(
        self, choices: Choices, watch: Watch | None = None, *, floods: bool = False
    ) -> None:
        """With `floods`, thousands of messages are sent and received at once from time to time."""
        self.floods = floods
        self.focus = choices.pick(FOCUSES)
        self.comparison = _new_pair(choices, self.focus, watch)
        self.known = Known()
        self._numbers = 0
        self._requests: dict[object, Command] = {}
        self._turn: list[Command] = []
        ways: list[tuple[str, str | None]] = [(path, None) for path in self.focus]
        if self.focus == SEND_VIA:
            ways += [(path, other) for path in SEND_VIA for other in SEND_VIA if other != path]
        for path, via in ways:
            if "/Subscriptions/" not in path:
                self.do(choices, ask.AttachSender(self.client("sender"), path, via), alone=True)

    # --- plumbing ---------------------------------------------------------------------------

    def name(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}{self._numbers}"

    def client(self, kind: str) -> ModelClient:
        return ModelClient(self.name(kind), self._told)

    def do(self, choices: Choices, command: Command, *, alone: bool = False) -> None:
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
        together = not alone and not self.comparison.bodies_may_be_away and choices.rarely(4)
        if not together:
            self.end_turn()

    def end_turn(self) -> None:
        """Run what has gathered."""
        if self._turn:
            commands, self._turn = self._turn, []
            self.comparison.run(*commands)

    def start_again(self) -> None:
        """The broker was restarted: links have ended, but clients keep their knowledge."""
        self.known = Known(taken=self.known.taken, transactions=self.known.transactions[-1:])
        self._requests.clear()

    def _told(self, client: ModelClient, effect: Effect) -> None:
        known = self.known
        if client in known.gone:
            return  # it has hung up meanwhile
        match effect:
            case tell.SenderAttached():
                known.senders[client] = known.asked.pop(client)
            case tell.ReceiverAttached():
                known.receivers[client] = known.asked.pop(client)
                known.got[client] = 0
            case tell.AttachRefused() | tell.Detached():
                for clients in (known.asked, known.senders, known.receivers):
                    clients.pop(client, None)
                known.gone.append(client)
            case tell.Deliver():
                path = known.receivers[client]
                known.got[client] += len(effect.messages)
                for message, token in zip(
                    tell.messages_as_delivered(effect), effect.tokens, strict=True
                ):
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

    def send_path(self, choices: Choices) -> str:
        return choices.pick([path for path in self.focus if "/Subscriptions/" not in path])

    def receive_path(self, choices: Choices) -> str:
        path = choices.pick(
            [path for path in self.focus if not isinstance(ENTITIES[path], TopicDefinition)]
        )
        if not choices.rarely(4):
            return path
        transfer = self.focus == SEND_VIA and choices.rarely(2)
        return path + (TRANSFER_DEAD_SUFFIX if transfer else DEAD_SUFFIX)

    def has_sessions(self, path: str) -> bool:
        definition = ENTITIES.get(path)
        return definition is not None and getattr(definition, "requires_session", False)

    def transaction(self, choices: Choices) -> bytes | None:
        transactions = self.known.transactions[-2:]
        return choices.pick(transactions) if transactions and choices.rarely(3) else None

    def message(self, choices: Choices, path: str, *, scheduled: bool = False) -> Message:
        wants_session = self.has_sessions(path) or choices.rarely(3)
        session_id = choices.pick(SESSIONS) if wants_session and not choices.rarely(12) else None
        size = None
        if not self.floods and choices.rarely(12):
            size = choices.pick((LARGE_BYTES, TOO_LARGE_BYTES))
        when_ms = 0
        if (scheduled or choices.rarely(8)) and not self.may_come_late(path):
            when_ms = self.comparison.now_ms + choices.pick(PAUSES_MS)
        return new_message(
            self.name("m"),
            session_id=session_id,
            message_id=choices.pick(MESSAGE_IDS),
            label=choices.pick(LABELS),
            time_to_live_ms=choices.pick(PAUSES_MS) if choices.rarely(6) else None,
            scheduled_for_ms=when_ms,
            size=size,
        )

    def may_come_late(self, path: str) -> bool:
        """Rules look into bodies: what is scheduled for a topic waits for them, and others pass."""
        return isinstance(ENTITIES[path], TopicDefinition) and self.comparison.bodies_may_be_away

    def messages(self, choices: Choices, path: str, *, scheduled: bool = False) -> list[Message]:
        many = choices.pick(FLOODS) if self.floods and choices.rarely(3) else choices.number(1, 3)
        return [self.message(choices, path, scheduled=scheduled) for _ in range(many)]

    def numbers_of(self, choices: Choices, path: str, state: int) -> list[int]:
        """Numbers to ask for: mostly such as exist."""
        if (
            path.removesuffix(TRANSFER_DEAD_SUFFIX).removesuffix(DEAD_SUFFIX)
            not in self.comparison.model.entities
        ):
            return [1]
        entity, sub = self.comparison.model.find(path)
        there = [i.number for i in self.comparison.model.content(entity, sub) if i.state == state]
        if choices.rarely(6):
            there = [*there, 1, entity.last_number[sub], 10_000]
        return [choices.pick(there) for _ in range(choices.number(1, 2))] if there else []

    def settlement(self, choices: Choices) -> Settlement:
        kind = choices.pick(list(SettlementKind))
        if kind in (SettlementKind.COMPLETE, SettlementKind.RELEASE):
            return Settlement(kind)
        reason = choices.pick((None, "bad")) if kind is SettlementKind.DEAD_LETTER else None
        return Settlement(kind, {"tried": b"yes"} if choices.rarely(4) else None, reason)

    def some_taken(self, choices: Choices, path: str | None = None) -> list[Taken]:
        """Messages of one queue to do something with: mostly such as are still locked."""
        self._forget_old()
        taken = [one for one in self.known.taken if path in (None, one.path)]
        live = [one for one in taken if self.is_locked(one)]
        taken = taken if choices.rarely(6) else live
        if not taken:
            return []
        first = choices.pick(taken)
        rest = [one for one in taken if one.path == first.path]
        return [first, *[choices.pick(rest) for _ in range(choices.number(0, 2))]]

    def is_locked(self, one: Taken) -> bool:
        if (
            one.path.removesuffix(TRANSFER_DEAD_SUFFIX).removesuffix(DEAD_SUFFIX)
            not in self.comparison.model.entities
        ):
            return False
        entity, sub = self.comparison.model.find(one.path)
        return self.comparison.model.locked(entity, sub, one.token) is not None

    def _forget_old(self) -> None:
        """A few stale tokens are enough for mistakes."""
        stale = [one for one in self.known.taken if not self.is_locked(one)]
        for one in stale[:-STALE_KEPT]:
            self.known.taken.remove(one)


PACKED_BUDGET_BYTES = 1 << 20
"""So much that only packed messages leave memory."""


def _new_pair(choices: Choices, focus: Sequence[str], watch: Watch | None) -> Comparison:
    entities = {path: ENTITIES[path] for path in focus}
    hold_locks = choices.rarely(4)
    way = choices.pick(("at once", "late commits", "bodies away", "late reads", "in parts"))
    # Two entities that forward to a third do so part by part, and their messages mix.
    if way == "in parts" and not any(_forwards(path) for path in focus):
        return Comparison(
            entities,
            hold_locks=hold_locks,
            part_messages=choices.pick((1, 2, 3)),
            payload_budget_bytes=choices.pick((None, PACKED_BUDGET_BYTES)),
            watch=watch,
        )
    if way == "late commits" and watch is None:
        return Comparison(entities, commits_late=True, hold_locks=hold_locks)
    if way in ("at once", "late commits", "in parts"):
        return Comparison(entities, hold_locks=hold_locks, watch=watch)
    # Where one message waits for its body, another may pass it on the way to another entity.
    reads_late = way == "late reads" and not any(_leads_on(path) for path in focus)
    budget_bytes = choices.pick((0, 100, 200))
    return Comparison(
        entities,
        payload_budget_bytes=budget_bytes,
        reads_late=reads_late,
        hold_locks=hold_locks,
        watch=watch,
    )


def _leads_on(path: str) -> bool:
    return isinstance(ENTITIES[path], TopicDefinition) or _forwards(path)


def _forwards(path: str) -> bool:
    definition = ENTITIES[path]
    return not isinstance(definition, TopicDefinition) and (
        definition.forward_to is not None or definition.forward_dead_letters_to is not None
    )
