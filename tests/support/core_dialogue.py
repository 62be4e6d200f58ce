"""Dialogues with the core: `>>` a command, `<<` a record or effect that must follow.

A `CoreDialogue` is a namespace whose clock the test moves. What a step leads to is shown in short: records as
`Stored`, `Updated` and `Deleted` with message ids, effects as themselves with messages replaced by
their sequence numbers and errors by their classes. Whatever is not expected is a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.core.contract import effects, records
from broker.core.contract.commands import (
    AttachReceiver,
    AttachSender,
    Command,
    Credit,
    PayloadsLoaded,
    Send,
    SessionRequest,
    Tick,
)
from broker.core.contract.errors import BrokerError, UndecodableMessage
from broker.core.contract.message import Message
from broker.core.contract.settlement_values import ReceiveMode
from broker.core.contract.storage_room import StorageRoom
from broker.core.contract.turn import Turn
from broker.core.messages.identifiers import MessageIds
from broker.core.namespace import Namespace
from config.model.definitions import EntityDefinition, QueueDefinition
from config.model.limits import RELAXED, Limits
from tests.support.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import Mapping

START_MS = 1_000_000


@dataclass(frozen=True)
class NamedPeer:
    """A peer with a name."""

    name: str

    def receive(self, effect: effects.Effect) -> None:
        raise AssertionError("the core never calls a peer")

    def __repr__(self) -> str:
        return self.name


S = NamedPeer("S")
"""A sender. By default it is attached to `q`."""
R = NamedPeer("R")
"""A receiver. By default it is attached to `q` in peek-lock mode."""
CLIENT = NamedPeer("CLIENT")
"""The peer of requests."""


def token(number: int) -> bytes:
    """Returns the n-th lock token that the core assigns."""
    return b"token%011d" % number


T1, T2, T3, T4, T5 = (token(number) for number in range(1, 6))


# --- messages ------------------------------------------------------------------------------------


def message(
    text: str = "hello",
    *,
    session: str | None = None,
    message_id: str | None = None,
    partition_key: str | None = None,
    time_to_live_ms: int | None = None,
    at_ms: int = 0,
    **properties: str,
) -> Message:
    """Returns a message whose body the `PlainReader` can read."""
    parts = [text]
    if session is not None:
        parts.append(f"session={session}")
    if message_id is not None:
        parts.append(f"id={message_id}")
    parts += [f"{name}={value}" for name, value in properties.items()]
    return Message(
        ";".join(parts).encode(),
        annotations=b"" if partition_key is None else partition_key.encode(),
        time_to_live_ms=time_to_live_ms,
        scheduled_enqueue_time_ms=at_ms,
    )


class PlainReader:
    """Reads bodies of the form `text;session=a;id=b;color=red`."""

    @staticmethod
    def fields(body: bytes) -> dict[str, str]:
        """Returns the fields in the body, without the text."""
        if body.startswith(b"undecodable"):
            raise UndecodableMessage("The message cannot be read.")
        parts = (part.partition("=") for part in body.decode().split(";")[1:])
        return {name: value for name, _, value in parts}

    def session_id(self, body: bytes) -> str | None:
        return self.fields(body).get("session")

    def session_ids(self, bodies: list[bytes | None]) -> list[str | None]:
        return [
            None if body is None or body.startswith(b"undecodable") else self.session_id(body)
            for body in bodies
        ]

    def message_id(self, body: bytes) -> str | None:
        return self.fields(body).get("id")

    def heads(self, bodies: list[bytes | None]) -> list[bytes | None]:
        return bodies

    def trace_parent(self, head: bytes) -> str | None:
        return self.fields(head).get("traceparent")

    def partition_key(self, annotations: bytes) -> str | None:
        return annotations.decode() or None

    def via_partition_key(self, annotations: bytes) -> str | None:
        return annotations.decode() or None

    def system_properties(self, message: Message) -> Mapping[str, object]:
        fields = self.fields(message.body or b"")
        return {
            "messageid": fields.get("id"),
            "sessionid": fields.get("session"),
            "label": fields.get("label"),
        }

    def application_properties(self, message: Message) -> Mapping[str, object]:
        return self.fields(message.body or b"")

    def encode_property(self, value: object) -> bytes:
        return str(value).encode()


def text_of(message: Message) -> str:
    """Returns the text with which a message was created."""
    assert message.body is not None
    return message.body.decode().split(";")[0]


# --- steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Advance:
    """Moves the clock ahead."""

    ms: int


def send(*messages: str | Message, to: NamedPeer = S) -> Send:
    """Returns a command that sends messages. The handle of each is its text."""
    built = [message(item) if isinstance(item, str) else item for item in messages]
    return Send(to, built, [text_of(item) for item in built])


def credit(limit: int, *, to: NamedPeer = R, drain: bool = False) -> Credit:
    """Returns a command that grants a receiver so many messages in total."""
    return Credit(to, limit, drain)


def attach_receiver(
    peer: NamedPeer,
    path: str = "q",
    *,
    session: str | None = None,
    any_session: bool = False,
    timeout_ms: int = 65_000,
    mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
) -> AttachReceiver:
    """Attach a receiver, to a session or not."""
    wanted = None
    if any_session or session is not None:
        wanted = SessionRequest(session, timeout_ms)
    return AttachReceiver(peer, path, mode, wanted)


# --- outcomes ------------------------------------------------------------------------------------

# Effects as tests write them, with numbers for messages and classes for errors: typed loosely.
Accepted: Any = effects.SendAccepted
Deliver: Any = effects.Deliver
Detached: Any = effects.Detached
Drained: Any = effects.Drained
CreditNeeded: Any = effects.CreditNeeded
PayloadsNeeded: Any = effects.PayloadsNeeded
ReceiverAttached: Any = effects.ReceiverAttached
Refused: Any = effects.AttachRefused
Reply: Any = effects.Reply
SenderAttached: Any = effects.SenderAttached
SendRefused: Any = effects.SendRefused
Settled: Any = effects.Settled
SettlementHeld: Any = effects.SettlementHeld
SettleRefused: Any = effects.SettleRefused
TransactionRefused: Any = effects.TransactionRefused


class Stored(NamedTuple):
    ids: tuple[int, ...]
    payload_ids: tuple[int, ...]


class Updated(NamedTuple):
    ids: tuple[int, ...]


class Deleted(NamedTuple):
    ids: tuple[int, ...]


def stored(*ids: int, payloads: tuple[int, ...] | None = None) -> Stored:
    """Messages were added to the store, each with its payload unless a test says otherwise."""
    return Stored(ids, ids if payloads is None else payloads)


def updated(*ids: int) -> Updated:
    """Messages were updated in the store."""
    return Updated(ids)


def deleted(*ids: int) -> Deleted:
    """Messages were deleted from the store."""
    return Deleted(ids)


def shorten(outcome: object) -> object:
    """Returns a record or effect in the short form that tests write."""
    if isinstance(outcome, records.MessagesStored):
        ids = tuple(row.id for row in outcome.rows)
        return Stored(ids, tuple(payload.id for payload in outcome.payloads))
    if isinstance(outcome, records.MessagesUpdated):
        return Updated(tuple(row.id for row in outcome.rows))
    if isinstance(outcome, records.MessagesDeleted):
        return Deleted(tuple(outcome.ids))
    if isinstance(outcome, Deliver):
        numbers = [message.sequence_number for message in outcome.messages]
        return Deliver(outcome.to, numbers, list(outcome.tokens))
    if hasattr(outcome, "_replace"):
        named: Any = outcome
        short = {
            name: type(value) if isinstance(value, BrokerError) else list(value)
            for name, value in named._asdict().items()
            if isinstance(value, BrokerError | list)
        }
        return named._replace(**short)
    return outcome


class CoreDialogue:
    """A namespace with a clock that the test moves. By default it has a queue `q` with the links
    `S` and `R`."""

    def __init__(
        self,
        definition: EntityDefinition | None = None,
        *,
        entities: Mapping[str, EntityDefinition] | None = None,
        attach: bool = True,
        limits: Limits = RELAXED,
        budget_bytes: int | None = None,
        hold_locks: bool = False,
    ) -> None:
        self.now_ms = START_MS
        self.ids = MessageIds()
        self._tokens = 0
        self.room = StorageRoom()
        """What the store can take. A test may limit it."""
        self.options: dict[str, Any] = {
            "reader": PlainReader(),
            "new_lock_tokens": self._new_tokens,
            "limits": limits,
            "payload_budget_bytes": budget_bytes,
            "hold_locks_after_connection_loss": hold_locks,
            "room": self.room,
        }
        self.namespace = Namespace("ns", ids=self.ids, **self.options)
        self.turns: list[Turn] = []
        self.store = FakeStore()
        self._committed = 0
        self.reads: list[list[int]] = []
        """Payload ids that were read back, read by read."""
        self._pending: list[object] = []
        self._log: list[str] = []
        first = Turn()
        if entities is None:
            entities = {"q": definition or QueueDefinition()}
        self.namespace.declare(entities, self.now_ms, first)
        self.turns.append(first)
        if attach:
            self.outcomes_of(AttachSender(S, "q"))
            sessionful = getattr(entities.get("q"), "requires_session", False)
            if not sessionful and "q" in entities:
                self.outcomes_of(attach_receiver(R))

    def _new_tokens(self, count: int) -> list[bytes]:
        first = self._tokens + 1
        self._tokens += count
        return [token(number) for number in range(first, first + count)]

    # --- plain use --------------------------------------------------------------------------

    def run(self, *steps: Command | Advance) -> Turn:
        """Run steps in one turn."""
        turn = Turn()
        for step in steps:
            if isinstance(step, Advance):
                self.now_ms += step.ms
                self.namespace.apply(Tick(), self.now_ms, turn)
            else:
                self.namespace.apply(step, self.now_ms, turn)
        self.namespace.dispatch(self.now_ms, turn)
        self.turns.append(turn)
        return turn

    def outcomes_of(self, *steps: Command | Advance) -> list[object]:
        """Run steps in one turn. Returns their records and effects in short form, without the numbers
        that a topic reserves now and then."""
        turn = self.run(*steps)
        return [
            shorten(outcome)
            for outcome in (*turn.records, *turn.effects)
            if not isinstance(outcome, records.SequenceNumbersSkipped)
        ]

    def ask(self, command: Command) -> Any:
        """Returns the value of the reply to a request. Raises the refusal."""
        for effect in self.run(command).effects:
            if isinstance(effect, Reply):
                if effect.error is not None:
                    raise effect.error
                return effect.value
        raise AssertionError(f"no reply to {command}")

    def deliveries(self, *steps: Command | Advance) -> list[Message]:
        """Run steps. Returns the messages that are delivered to any receiver, in order."""
        return [
            message
            for effect in self.run(*steps).effects
            if isinstance(effect, Deliver)
            for message in effect.messages
        ]

    # --- with a store -----------------------------------------------------------------------

    def commit(self) -> FakeStore:
        """Commit all turns so far. Returns the store."""
        for turn in self.turns[self._committed :]:
            self.store.commit(turn.records)
        self._committed = len(self.turns)
        return self.store

    def serve(self, *steps: Command | Advance) -> list[Any]:
        """Run steps and load the bodies that they need from the store. Returns all effects, in
        order."""
        told: list[Any] = list(self.run(*steps).effects)
        for effect in told:  # which grows meanwhile
            if isinstance(effect, PayloadsNeeded):
                self.reads.append(list(effect.payload_ids))
                found = self.commit().read_payloads(effect.payload_ids)
                told += self.run(PayloadsLoaded(found)).effects
        return told

    def receive(self, *steps: Command | Advance) -> list[Message]:
        """Run steps. Returns the delivered messages, after their bodies are loaded."""
        effects = self.serve(*steps)
        return [message for e in effects if isinstance(e, Deliver) for message in e.messages]

    def restarted(self, after_ms: int = 0) -> CoreDialogue:
        """Returns a new namespace that is restored from the committed records, as after a
        restart."""
        budget_bytes = self.options["payload_budget_bytes"]
        later = CoreDialogue(entities={}, attach=False, budget_bytes=budget_bytes)
        later.store = self.commit()
        later.now_ms = self.now_ms + after_ms
        later._tokens = self._tokens
        later.namespace = Namespace("ns", ids=later.ids, **later.options)
        later.namespace.restore(later.store.load(), later.now_ms)
        return later

    # --- dialogue ---------------------------------------------------------------------------

    def __rshift__(self, step: Command | Advance) -> CoreDialogue:
        self._expect_nothing_more()
        self._log.append(f">> {step}")
        self._pending = self.outcomes_of(step)
        return self

    def __lshift__(self, expected: object) -> CoreDialogue:
        actual = self._pending.pop(0) if self._pending else "nothing"
        self._log.append(f"   << {actual}")
        if type(expected) is not type(actual) or expected != actual:
            raise AssertionError(
                "\n".join(["", *self._log, f"   expected {expected}"])
                + "".join(f"\n   then << {later}" for later in self._pending)
            )
        return self

    def __bool__(self) -> bool:
        self._expect_nothing_more()
        return True

    def _expect_nothing_more(self) -> None:
        if self._pending:
            raise AssertionError(
                "\n".join(
                    [*self._log, *(f"   << {left}   (not expected)" for left in self._pending)]
                )
            )
