"""Translates what the broker sends into the terms of the model.

Translates messages, entities, commands and deliveries into values that can be compared, and has the
order in which a client must get them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract import effects as tell
from tests.model.dispatch import Handed
from tests.model.naive_model import undated
from tests.model.run_entities import START_MS, fields_of, mark_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Effect, Peer
    from broker.core.contract.message import Message


def described(command: Command) -> str:
    """A command in a line; messages by their marks."""
    fields = []
    for name, value in command._asdict().items():
        if name == "messages":
            fields.append(f"messages={[described_message(message) for message in value]}")
        elif name in ("tokens", "transaction_id") and value:
            tokens = [value] if isinstance(value, bytes) else value
            fields.append(f"{name}={[int.from_bytes(token, 'big') for token in tokens]}")
        elif value not in (None, False) and name != "definition":
            fields.append(f"{name}={value if name != 'state' else len(value)}")
        elif name == "definition":
            fields.append(
                f"status={value.status.value} lock={getattr(value, 'lock_duration_ms', 0)}"
            )
    return f"{type(command).__name__}({', '.join(fields)})"


def described_message(message: Message) -> str:
    """A message as it was sent."""
    mark, session_id, message_id, label = fields_of(message.body or b"")
    marks = {"session": session_id, "id": message_id, "label": label}
    live_ms = message.time_to_live_ms
    marks["lives"] = None if live_ms is None else str(live_ms)
    at_ms = message.scheduled_enqueue_time_ms
    marks["at"] = str(at_ms - START_MS) if at_ms else None
    marks["size"] = str(message.size) if message.size > 1_000 else None
    return " ".join([mark, *[f"{name}={one!r}" for name, one in marks.items() if one is not None]])


def seen(message: Message, mark: str | None = None) -> tuple[object, ...]:
    """A real message in the words of the model."""
    changes = message.changes
    return (
        mark or mark_of(message),
        message.sequence_number,
        message.enqueue_sequence_number,
        int(message.state),
        message.delivery_count,
        changes and changes.dead_letter_reason,
        changes and changes.dead_letter_source,
        tuple(sorted(changes.properties.items())) if changes else (),
        message.enqueued_time_ms,
        message.expires_at_ms,
    )


def view_of(view: tell.EntityView) -> tuple[object, ...]:
    """An entity's counts in the words of the model."""
    return (
        view.path,
        undated(view.definition),
        view.active_count,
        view.deferred_count,
        view.scheduled_count,
        view.dead_letter_count,
        view.transfer_dead_letter_count,
        view.locked_count,
        view.size_bytes,
    )


def told_by(effect: Effect, value: object) -> Iterator[tuple[object, ...]]:
    """An effect in the words of the model; `value` is that of a reply."""
    match effect:
        case tell.SenderAttached():
            yield "sender attached", effect.to
        case tell.ReceiverAttached():
            locked_until_ms = effect.session_locked_until_ms
            yield "receiver attached", effect.to, effect.session_id, locked_until_ms
        case tell.AttachRefused():
            yield "refused", effect.to, type(effect.error).__name__
        case tell.Detached():
            yield "detached", effect.to, type(effect.error).__name__
        case tell.SendAccepted():
            for handle in effect.handles:
                yield "accepted", effect.to, handle
        case tell.SendRefused():
            yield "send refused", effect.to, effect.handle, type(effect.error).__name__
        case tell.Settled():
            for handle in effect.handles:
                yield "settled", effect.to, handle, effect.settlement.kind
        case tell.SettlementHeld():
            for handle in effect.handles:
                yield "settlement held", effect.to, handle, effect.settlement.kind
        case tell.TransactionRefused():
            yield "transaction refused", effect.to, type(effect.error).__name__
        case tell.SettleRefused():
            for handle in effect.handles:
                yield "settle refused", effect.to, handle, type(effect.error).__name__
        case tell.Drained():
            yield "drained", effect.to
        case tell.CreditNeeded():
            yield "credit needed", effect.to
        case tell.Reply():
            error = None if effect.error is None else type(effect.error).__name__
            yield "reply", effect.request, value, error
        case _:
            raise AssertionError(f"unexpected: {effect}")


def handed_by(effect: tell.Deliver, burst: int) -> Iterator[Handed]:
    for message, token in zip(effect.messages, effect.tokens, strict=True):
        yield Handed(seen(message), token, message.locked_until_ms, message.size, burst)


def check_order(effects: Sequence[Effect]) -> None:
    """To each client: attached before delivered, delivered before drained, ended last of all."""
    stages = {
        tell.ReceiverAttached: 0,
        tell.Deliver: 1,
        tell.CreditNeeded: 2,
        tell.Drained: 2,
        tell.Detached: 3,
        tell.AttachRefused: 3,
    }
    last: dict[Peer, int] = {}
    for effect in effects:
        stage = stages.get(type(effect))
        if stage is not None:
            peer = effect.to
            assert last.get(peer, 0) <= stage, f"{peer} was told {effect} too late"
            last[peer] = stage
