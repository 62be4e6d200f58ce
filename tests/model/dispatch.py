"""Deliveries: checks the broker's choice, where it has one, and applies it to the model.

The broker may choose which of several receivers gets the next message, and which receiver gets a
waiting session. It must deliver the next messages in order, to receivers with credit, and hold none
back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.settlement_values import ReceiveMode
from broker.core.queues.receiver import BURST_MAX_BYTES, BURST_MAX_MESSAGES
from config.model.definitions import TopicDefinition
from tests.model.model_entities import (
    DEAD,
    MAIN,
    MESSAGE_LOCK_IN_SESSION_UNTIL_MS,
    TRANSFER_DEAD,
    ModelEntity,
    ModelLock,
    ModelMessage,
    ModelReceiver,
)
from tests.model.naive_model import Model, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from broker.core.contract.effects import Peer


class Handed(NamedTuple):
    """One message the broker gave to a receiver."""

    shown: tuple[object, ...]
    token: bytes | None
    locked_until_ms: int
    size: int
    burst: int
    """Which delivery of the turn it was part of."""


def dispatch(
    model: Model,
    sessions: Sequence[tuple[Peer, str]],
    deliveries: Mapping[Peer, Sequence[Handed]],
    drained: Collection[Peer] | None = None,
) -> None:
    """At the end of a turn: forward, give sessions to those who wait, deliver, drain.

    With `drained` some bodies are on their way: then less may be delivered than there is, and only
    these were drained.
    """
    complete = drained is None
    model.forward_everything()
    _give_sessions(model, sessions)
    left = dict(deliveries)
    for entity in model.entities.values():
        for sub in (MAIN, DEAD, TRANSFER_DEAD):
            receivers = [
                one
                for one in model.receivers
                if one.attached and one.entity is entity and one.sub == sub
            ]
            if entity.has_sessions(sub):
                for receiver in receivers:
                    handed = left.pop(receiver.peer, ())
                    _deliver_session(model, receiver, handed, complete=complete)
            else:
                _deliver(model, entity, sub, receivers, left, complete=complete)
    assert not left, f"delivered to somebody who is not attached or waits for a session: {left}"
    for receiver in model.receivers:
        if not receiver.attached or not receiver.draining or receiver.waits_until_ms:
            continue
        if receiver.drains_later:
            continue
        if drained is None or receiver.peer in drained:
            assert not receiver.room or not _next(model, receiver)
            receiver.draining = False
            receiver.limit = receiver.delivered
            model.answers.append(("drained", receiver.peer))


def _give_sessions(model: Model, sessions: Sequence[tuple[Peer, str]]) -> None:
    for peer, session_id in sessions:
        waiting = [one for one in model.receivers if one.attached and one.waits_until_ms]
        receiver = next((one for one in waiting if one.peer is peer), None)
        assert receiver is not None, f"{peer} got session {session_id!r} without waiting for one"
        assert session_id in model.ready_sessions(receiver.entity), (
            f"{peer} got session {session_id!r}, which is held or has nothing to deliver"
        )
        model.give_session(receiver, session_id)
    for receiver in model.receivers:
        if receiver.attached and receiver.waits_until_ms:
            free = model.ready_sessions(receiver.entity)
            assert not free, f"{receiver.peer} waits while sessions {free} are available"


def _next(model: Model, receiver: ModelReceiver) -> list[ModelMessage]:
    """What could be delivered to a receiver, had it credit for all of it."""
    ready = model.ready(receiver.entity, receiver.sub)
    if not receiver.entity.has_sessions(receiver.sub):
        return ready
    return [item for item in ready if item.session_id == receiver.session_id]


def _deliver_session(
    model: Model, receiver: ModelReceiver, handed: Sequence[Handed], *, complete: bool
) -> None:
    """The holder of a session gets its messages, strictly in order."""
    expected: list[ModelMessage] = []
    if receiver.session_id is not None:
        expected = _next(model, receiver)[: receiver.room]
    if not complete or _fills(handed):
        expected = expected[: len(handed)]
    _hand_over(model, receiver, expected, handed)


def _deliver(
    model: Model,
    entity: ModelEntity,
    sub: int,
    receivers: Sequence[ModelReceiver],
    left: dict[Peer, Sequence[Handed]],
    *,
    complete: bool,
) -> None:
    """Competing receivers get the next messages between them, each its own in order."""
    room = sum(receiver.room for receiver in receivers)
    if not complete or any(_fills(left.get(one.peer, ())) for one in receivers):
        room = sum(len(left.get(receiver.peer, ())) for receiver in receivers)
    expected = model.ready(entity, sub)[:room]
    by_mark = {item.mark: item for item in expected}
    given = []
    for receiver in receivers:
        handed = left.pop(receiver.peer, ())
        marks = [one.shown[0] for one in handed]
        given += marks
        assert len(handed) <= receiver.room, (
            f"{receiver.peer} has credit for {receiver.room}, and got {marks}"
        )
        unknown = [mark for mark in marks if mark not in by_mark]
        assert not unknown, f"{unknown} were not next in {entity}; those were {expected}"
        items = [by_mark[str(mark)] for mark in marks]
        assert items == sorted(items, key=lambda item: item.number), (
            f"{receiver.peer} got {items}, out of order"
        )
        _hand_over(model, receiver, items, handed)
    assert sorted(map(str, given)) == sorted(by_mark), (
        f"of {entity} should have been delivered {sorted(by_mark)}, and was {given}"
    )


def _fills(handed: Sequence[Handed]) -> bool:
    """Whether a receiver got a full burst. The other messages may then wait."""
    bursts: dict[int, list[int]] = {}
    for one in handed:
        bursts.setdefault(one.burst, []).append(one.size)
    return any(
        sum(sizes) >= BURST_MAX_BYTES or len(sizes) >= BURST_MAX_MESSAGES
        for sizes in bursts.values()
    )


def _hand_over(
    model: Model, receiver: ModelReceiver, items: Sequence[ModelMessage], handed: Sequence[Handed]
) -> None:
    expected = [shown(item) for item in items]
    assert expected == [one.shown for one in handed], (
        f"{receiver.peer} should have got {expected}, and got {[one.shown for one in handed]}"
    )
    receiver.delivered += len(items)
    if _fills(handed):
        receiver.full = True
        if receiver.limit > receiver.delivered:
            model.answers.append(("credit needed", receiver.peer))
    if receiver.mode is ReceiveMode.RECEIVE_AND_DELETE:
        assert all(one.token is None for one in handed)
        model.delete(items)
        return
    definition = receiver.entity.definition
    assert not isinstance(definition, TopicDefinition)
    in_session = receiver.session_id is not None
    until_ms = model.now_ms + definition.lock_duration_ms
    if in_session:
        until_ms = MESSAGE_LOCK_IN_SESSION_UNTIL_MS
    for item, one in zip(items, handed, strict=True):
        assert one.token is not None
        assert until_ms == one.locked_until_ms
        item.lock = ModelLock(one.token, until_ms, receiver, in_session)
