"""Who gets what: checks the broker's choice, where there is one, and makes it the model's.

Which of several receivers gets the next message is free, and so is which waiting session goes to
whom. That the next messages go out, in order, to those with credit, and that nothing is held back,
is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.core.contract.commands import ReceiveMode
from broker.core.queues.dispatcher import BURST_MAX_BYTES, BURST_MAX_MESSAGES
from config.model.definitions import TopicDefinition
from tests.model.model_entities import (
    DEAD,
    MAIN,
    MESSAGE_LOCK_IN_SESSION_UNTIL_MS,
    TRANSFER_DEAD,
    Item,
    Listener,
    Lock,
    Place,
)
from tests.model.naive_model import Model, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from broker.core.contract.commands import Peer


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
    for place in model.places.values():
        for sub in (MAIN, DEAD, TRANSFER_DEAD):
            listeners = [
                one
                for one in model.listeners
                if one.attached and one.place is place and one.sub == sub
            ]
            if place.has_sessions(sub):
                for listener in listeners:
                    handed = left.pop(listener.peer, ())
                    _deliver_session(model, listener, handed, complete=complete)
            else:
                _deliver(model, place, sub, listeners, left, complete=complete)
    assert not left, f"delivered to somebody who is not attached or waits for a session: {left}"
    for listener in model.listeners:
        if not listener.attached or not listener.draining or listener.waits_until_ms:
            continue
        if listener.drains_later:
            continue
        if drained is None or listener.peer in drained:
            assert not listener.room or not _next(model, listener)
            listener.draining = False
            listener.limit = listener.delivered
            model.answers.append(("drained", listener.peer))


def _give_sessions(model: Model, sessions: Sequence[tuple[Peer, str]]) -> None:
    for peer, session_id in sessions:
        waiting = [one for one in model.listeners if one.attached and one.waits_until_ms]
        receiver = next((one for one in waiting if one.peer is peer), None)
        assert receiver is not None, f"{peer} got session {session_id!r} without waiting for one"
        assert session_id in model.ready_sessions(receiver.place), (
            f"{peer} got session {session_id!r}, which is held or has nothing to deliver"
        )
        model.give_session(receiver, session_id)
    for listener in model.listeners:
        if listener.attached and listener.waits_until_ms:
            free = model.ready_sessions(listener.place)
            assert not free, f"{listener.peer} waits while sessions {free} are available"


def _next(model: Model, listener: Listener) -> list[Item]:
    """What could be delivered to a receiver, had it credit for all of it."""
    ready = model.ready(listener.place, listener.sub)
    if not listener.place.has_sessions(listener.sub):
        return ready
    return [item for item in ready if item.session_id == listener.session_id]


def _deliver_session(
    model: Model, listener: Listener, handed: Sequence[Handed], *, complete: bool
) -> None:
    """The holder of a session gets its messages, strictly in order."""
    expected: list[Item] = []
    if listener.session_id is not None:
        expected = _next(model, listener)[: listener.room]
    if not complete or _fills(handed):
        expected = expected[: len(handed)]
    _hand_over(model, listener, expected, handed)


def _deliver(
    model: Model,
    place: Place,
    sub: int,
    listeners: Sequence[Listener],
    left: dict[Peer, Sequence[Handed]],
    *,
    complete: bool,
) -> None:
    """Competing receivers get the next messages between them, each its own in order."""
    room = sum(listener.room for listener in listeners)
    if not complete or any(_fills(left.get(one.peer, ())) for one in listeners):
        room = sum(len(left.get(listener.peer, ())) for listener in listeners)
    expected = model.ready(place, sub)[:room]
    by_mark = {item.mark: item for item in expected}
    given = []
    for listener in listeners:
        handed = left.pop(listener.peer, ())
        marks = [one.shown[0] for one in handed]
        given += marks
        assert len(handed) <= listener.room, (
            f"{listener.peer} has credit for {listener.room}, and got {marks}"
        )
        unknown = [mark for mark in marks if mark not in by_mark]
        assert not unknown, f"{unknown} were not next in {place}; those were {expected}"
        items = [by_mark[str(mark)] for mark in marks]
        assert items == sorted(items, key=lambda item: item.number), (
            f"{listener.peer} got {items}, out of order"
        )
        _hand_over(model, listener, items, handed)
    assert sorted(map(str, given)) == sorted(by_mark), (
        f"of {place} should have been delivered {sorted(by_mark)}, and was {given}"
    )


def _fills(handed: Sequence[Handed]) -> bool:
    """Whether a receiver got as much as is delivered at once; then the rest may wait."""
    bursts: dict[int, list[int]] = {}
    for one in handed:
        bursts.setdefault(one.burst, []).append(one.size)
    return any(
        sum(sizes) >= BURST_MAX_BYTES or len(sizes) >= BURST_MAX_MESSAGES
        for sizes in bursts.values()
    )


def _hand_over(
    model: Model, listener: Listener, items: Sequence[Item], handed: Sequence[Handed]
) -> None:
    expected = [shown(item) for item in items]
    assert expected == [one.shown for one in handed], (
        f"{listener.peer} should have got {expected}, and got {[one.shown for one in handed]}"
    )
    listener.delivered += len(items)
    if _fills(handed):
        listener.full = True
        if listener.drains_later:
            model.answers.append(("drain goes on", listener.peer))
    if listener.mode is ReceiveMode.RECEIVE_AND_DELETE:
        assert all(one.token is None for one in handed)
        model.delete(items)
        return
    definition = listener.place.definition
    assert not isinstance(definition, TopicDefinition)
    in_session = listener.session_id is not None
    until_ms = model.now_ms + definition.lock_duration_ms
    if in_session:
        until_ms = MESSAGE_LOCK_IN_SESSION_UNTIL_MS
    for item, one in zip(items, handed, strict=True):
        assert one.token is not None
        assert until_ms == one.locked_until_ms
        item.lock = Lock(one.token, until_ms, listener, in_session)
