"""Which effects may leave before the commit of their turn, and which may not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.app.runtime.uncommitted_turns import UncommittedTurns
from broker.core.contract.effects import (
    CreditNeeded,
    Deliver,
    Drained,
    PayloadsNeeded,
    ReceiverAttached,
    Reply,
    Settled,
)
from broker.core.contract.message import Message
from broker.core.contract.records import MessagesDeleted, MessagesStored, MessagesUpdated
from broker.core.contract.sent_rows import SentPayloads, SentRows
from broker.core.contract.settlement_values import COMPLETE
from broker.core.contract.turn import Turn
from broker.core.messages.message_rows import rows_of

if TYPE_CHECKING:
    from broker.core.contract.effects import Effect
    from broker.core.contract.records import Record


class Link:
    """A peer."""

    def receive(self, effect: Effect) -> None:
        del effect


RECEIVER, OTHER = Link(), Link()


def _message(message_id: int) -> Message:
    message = Message(b"body")
    message.id = message.payload_id = message_id
    message.queue = _Queue()
    return message


class _Queue:
    """The place of a message."""

    entity_id = 1
    sub_queue = 0


def _deliver(*ids: int, to: Link = RECEIVER, is_locked: bool = True) -> Deliver:
    token = b"t" * 16 if is_locked else None
    return Deliver(to, [_message(one) for one in ids], [token] * len(ids))


def _sent(first_id: int, count: int = 1) -> MessagesStored:
    rows = SentRows(first_id, 1, 0, first_id, first_id, 0, None, 0, [0] * count, [4] * count, None)
    return MessagesStored(rows, SentPayloads(first_id, [b"body"] * count, None))


def _updated(*ids: int) -> MessagesUpdated:
    return MessagesUpdated(rows_of([_message(one) for one in ids]))


def _turn(*effects: Effect, records: tuple[Record, ...] = ()) -> Turn:
    turn = Turn()
    turn.effects += effects
    turn.records += records
    return turn


def _taken(turn: Turn, *waiting: Turn) -> list[Effect]:
    """What may leave, of a turn after others that wait. The rest stays, in order."""
    uncommitted = UncommittedTurns()
    for one in waiting:
        uncommitted.add(one)
    before = list(turn.effects)
    taken = uncommitted.take_independent(turn)
    assert [effect for effect in before if effect not in taken] == turn.effects
    return taken


def test_a_delivery_of_durable_messages_leaves_beside_the_records_of_others():
    """A receiver does not wait for the sends and completions of other clients."""
    delivery = _deliver(1, 2)
    turn = _turn(delivery, records=(_sent(3, 5), MessagesDeleted([9], [9])))
    assert [delivery] == _taken(turn)


def test_a_delivery_leaves_while_earlier_turns_wait():
    """Their messages are not its messages."""
    delivery = _deliver(1, 2)
    waiting = _turn(records=(_sent(3), _updated(9)))
    assert [delivery] == _taken(_turn(delivery), waiting)


NOT_DURABLE: dict[str, tuple[tuple[Record, ...], Effect]] = {
    "new": ((_sent(2),), _deliver(1, 2)),
    "new, and not the last": ((_sent(2),), _deliver(2, 1)),
    "new, in rows": ((MessagesStored(rows_of([_message(2)]), ()),), _deliver(2, 1)),
    "changed": ((_updated(1),), _deliver(1)),
    "one of them changed": ((_updated(2),), _deliver(1, 2, 3)),
    "deleted by the delivery itself": ((), _deliver(1, is_locked=False)),
    "a body that is not durable": ((_sent(2),), PayloadsNeeded([1, 2])),
}


@pytest.mark.parametrize("is_earlier", [False, True], ids=["same turn", "earlier turn"])
@pytest.mark.parametrize(("records", "effect"), NOT_DURABLE.values(), ids=NOT_DURABLE)
def test_a_delivery_waits_for_what_is_not_durable(
    records: tuple[Record, ...], effect: Effect, *, is_earlier: bool
):
    """Nothing leaves before what it promises is durable."""
    if is_earlier:
        assert [] == _taken(_turn(effect), _turn(records=records))
    else:
        assert [] == _taken(_turn(effect, records=records))


@pytest.mark.parametrize("effect", [Reply(RECEIVER, 1), ReceiverAttached(RECEIVER)])
def test_other_answers_wait(effect: Effect):
    """They may be about what is not durable."""
    assert [] == _taken(_turn(effect, records=(_sent(1),)))


BEFORE: dict[str, Effect] = {
    "a delivery that waits": _deliver(5),
    "an attach": ReceiverAttached(RECEIVER),
    "an answer of the same peer": Reply(RECEIVER, 1),
}


@pytest.mark.parametrize("is_earlier", [False, True], ids=["same turn", "earlier turn"])
@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_a_peer_gets_its_deliveries_in_order(before: Effect, *, is_earlier: bool):
    """So do the answers to drain, and the burst that follows."""
    after: list[Effect] = [_deliver(1), Drained(RECEIVER), CreditNeeded(RECEIVER)]
    others = _deliver(2, to=OTHER)
    if is_earlier:
        waiting = _turn(before, records=(_sent(5),))
        assert [others] == _taken(_turn(*after, others), waiting)
    else:
        assert [others] == _taken(_turn(before, *after, others, records=(_sent(5),)))


def test_a_delivery_overtakes_the_outcomes_of_settlements():
    """AMQP gives transfers and dispositions no order, and a processor waits for the next message meanwhile."""
    settled = Settled(RECEIVER, [object()], COMPLETE)
    records = (MessagesDeleted([1], [1]),)
    delivery = _deliver(2)
    assert [delivery] == _taken(_turn(settled, delivery, records=records))
    assert [delivery] == _taken(_turn(delivery), _turn(settled, records=records))


def test_drains_and_credit_leave_with_their_delivery():
    """A receiver that drains waits for the answer, and one with much credit for the next burst."""
    effects: list[Effect] = [
        _deliver(1),
        CreditNeeded(RECEIVER),
        Drained(OTHER),
        PayloadsNeeded([1]),
    ]
    assert effects == _taken(_turn(*effects, records=(_sent(2),)))


def test_what_is_durable_is_not_waited_for_any_more():
    """Each turn that ends makes its own messages and peers free, and nothing else."""
    uncommitted = UncommittedTurns()
    uncommitted.add(_turn(records=(_sent(1), _updated(9))))
    uncommitted.add(_turn(_deliver(1), records=(_sent(2), _updated(9))))
    steps = [
        [uncommitted.take_independent(_turn(_deliver(one, to=to))) != [] for one, to in PROBES]
    ]
    for _ in range(2):
        uncommitted.remove(1)
        steps.append(
            [uncommitted.take_independent(_turn(_deliver(one, to=to))) != [] for one, to in PROBES]
        )
    assert [
        [False, False, False, False],
        [False, True, False, False],
        [True, True, True, True],
    ] == steps


PROBES = [(1, RECEIVER), (1, OTHER), (2, OTHER), (9, OTHER)]


def test_nothing_is_waited_for_after_a_failure():
    """Memory is restored from the store, and everything in it is durable."""
    uncommitted = UncommittedTurns()
    uncommitted.add(_turn(_deliver(1), records=(_sent(1), _updated(2))))
    uncommitted.clear()
    delivery = _deliver(1, 2)
    assert [delivery] == uncommitted.take_independent(_turn(delivery))
