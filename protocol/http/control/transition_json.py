"""Transitions in the JSON of the control API, and which of them a request asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from broker.core.contract.errors import UndecodableMessage
from broker.core.contract.message import Message
from broker.core.contract.transitions import ChangedHead, HistoryPlace
from broker.core.messages.session_ids import session_key
from protocol.codec import Reader
from protocol.http.control.request_models import AnswerModel, SubQueue, queue_path, split_queue_path
from protocol.http.control.times import write_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.transitions import Transitions, TransitionView
    from protocol.http.control.expressions import MessageFilter

SUB_QUEUES: tuple[str | None, ...] = (
    None,
    SubQueue.DEAD_LETTER.value,
    SubQueue.TRANSFER_DEAD_LETTER.value,
)
_READER = Reader()


class ClientAnswer(AnswerModel):
    """The client that caused a transition, or that held the lock."""

    connection: str = Field(description="the id of the connection, as in /connections")
    container_id: str
    key_name: str | None = Field(
        description="the key that it used; null without one, or for a bearer token"
    )


class PlaceAnswer(AnswerModel):
    """Where a message went."""

    entity: str
    sub_queue: str | None
    sequence_number: int | None = Field(description="null: it was dropped there as a duplicate")


class TransitionAnswer(AnswerModel):
    """One transition of one message."""

    number: int = Field(description="rises by one for each transition of the namespace")
    time: str | None = Field(description="by the clock of the namespace")
    entity: str
    sub_queue: str | None = Field(description="null, dead_letter or transfer_dead_letter")
    sequence_number: int | None = Field(description="null: it never had one")
    message_id: str | None
    session_id: str | None
    event: str
    delivery_count: int
    client: ClientAnswer | None
    rule: str | None = Field(description="the rule that matched")
    locked_until: str | None
    reason: str | None = Field(description="the reason of a dead letter")
    description: str | None
    transaction: str | None = Field(description="the id of the transaction, in hexadecimal digits")
    to: PlaceAnswer | None = Field(description="where the message went, if it moved")


class TransitionSelection:
    """Which transitions are asked for."""

    __slots__ = ("_filter", "_message_id", "_number", "_path", "_session", "_sub_queue")

    def __init__(
        self,
        entity: str | None,
        sub_queue: SubQueue | None,
        message_id: str | None,
        sequence_number: int | None,
        session: str | None,
        expression: MessageFilter | None,
    ) -> None:
        """Raises `ControlError` if entity and sub-queue contradict each other."""
        self._path: str | None = None
        self._sub_queue = None if sub_queue is None else _NUMBERS[sub_queue]
        if entity is not None:
            path, named = split_queue_path(queue_path(entity, sub_queue or SubQueue.MAIN))
            self._path = path.lower()
            if named is not SubQueue.MAIN:
                self._sub_queue = _NUMBERS[named]
        self._message_id = message_id
        self._number = sequence_number
        self._session = None if session is None else session_key(session)
        self._filter = expression

    def may_match(self, batch: Transitions) -> bool:
        """Whether a batch can have transitions that match. Quicker than to look at each of them."""
        number = self._number
        if number is not None and number not in batch.numbers and number not in batch.to_numbers:
            return False
        if self._path is None and self._sub_queue is None:
            return True
        if self._is_at(batch.place) or isinstance(batch.to_places, list):
            return True
        return isinstance(batch.to_places, HistoryPlace) and self._is_at(batch.to_places)

    def matches(self, view: TransitionView) -> bool:
        """Whether a transition is asked for."""
        is_here = self._is_at(view.batch.place) and self._number in {None, view.sequence_number}
        to = view.to
        is_there = to is not None and self._is_at(to[0]) and self._number in {None, to[1]}
        if not (is_here or is_there):
            return False
        if self._message_id is not None and message_id_of(view) != self._message_id:
            return False
        if self._session is not None:
            session_id = session_id_of(view)
            if session_id is None or session_key(session_id) != self._session:
                return False
        return self._filter is None or self._fulfils(view)

    def _is_at(self, place: HistoryPlace) -> bool:
        if self._sub_queue is not None and place.sub_queue != self._sub_queue:
            return False
        return self._path is None or place.entity.lower() == self._path

    def _fulfils(self, view: TransitionView) -> bool:
        assert self._filter is not None
        message = message_of(view)
        batch = view.batch
        named = {
            "event": batch.kind.value,
            "entity": batch.place.entity,
            "sub_queue": SUB_QUEUES[batch.place.sub_queue],
            "rule": view.rule,
            "reason": batch.reason,
            "description": batch.description,
        }
        known = {name: value for name, value in named.items() if value is not None}
        return self._filter.matches(message, known)


_NUMBERS = {SubQueue.MAIN: 0, SubQueue.DEAD_LETTER: 1, SubQueue.TRANSFER_DEAD_LETTER: 2}


def message_of(view: TransitionView) -> Message:
    """Returns the message of a transition, without its content. What is not known any more is empty."""
    head = view.head
    if isinstance(head, ChangedHead):
        message = Message(head.sent)
        message.changes = head.changes
    else:
        message = Message(head or b"")
    message.sequence_number = view.sequence_number
    message.delivery_count = view.delivery_count
    message.locked_until_ms = view.batch.locked_until_ms
    return message


def message_id_of(view: TransitionView) -> str | None:
    """Returns the message id, or None if it is not known."""
    return _text(view, _READER.message_id)


def session_id_of(view: TransitionView) -> str | None:
    """Returns the session id, or None if there is none or it is not known."""
    return _text(view, _READER.session_id)


def _text(view: TransitionView, read: Callable[[bytes], str | None]) -> str | None:
    head = view.head
    if head is None:
        return None
    try:
        return read(head.sent if isinstance(head, ChangedHead) else head)
    except UndecodableMessage:
        return None


def write_transition(view: TransitionView) -> dict[str, Any]:
    """Returns a transition as plain data."""
    batch = view.batch
    client: Any = batch.client
    to = None
    if view.to is not None:
        there, number = view.to
        to = {
            "entity": there.entity,
            "sub_queue": SUB_QUEUES[there.sub_queue],
            "sequence_number": number or None,
        }
    return {
        "number": view.number,
        "time": write_time(batch.time_ms),
        "entity": batch.place.entity,
        "sub_queue": SUB_QUEUES[batch.place.sub_queue],
        "sequence_number": view.sequence_number or None,
        "message_id": message_id_of(view),
        "session_id": session_id_of(view),
        "event": batch.kind.value,
        "delivery_count": view.delivery_count,
        "client": None
        if client is None
        else {
            "connection": client.connection_id,
            "container_id": client.container_id,
            "key_name": client.key_name,
        },
        "rule": view.rule,
        "locked_until": write_time(batch.locked_until_ms),
        "reason": batch.reason,
        "description": batch.description,
        "transaction": None if batch.transaction_id is None else batch.transaction_id.hex(),
        "to": to,
    }
