"""Checks at each release that the store has everything that clients get an answer about.

Has the commits of a run. What can change later in the same turn (a deferred message is received
again) is compared after a restart instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.effects import Deliver, SendAccepted, Settled
from broker.core.contract.records import MessagesStored
from broker.core.contract.settlement_values import SettlementKind
from tests.model.run_entities import fields_of, mark_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.effects import Effect
    from broker.core.contract.records import Record
    from storage.memory import MemoryStore


class Durable:
    """A store, and what has ever been in it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._ever: set[str] = set()
        self.fresh: list[Record] = []
        """What was committed since somebody emptied this."""

    def commit(self, records: Sequence[Record]) -> None:
        """The store takes a batch."""
        self._store.commit(records)
        self.fresh += records
        for record in records:
            if isinstance(record, MessagesStored):
                self._ever.update(fields_of(payload.body)[0] for payload in record.payloads)

    def check(self, effects: Sequence[Effect], vanished: set[str]) -> None:
        """Checks effects that are about to be released. `vanished` are messages that were accepted
        and rightly not stored."""
        for effect in effects:
            if isinstance(effect, SendAccepted):
                for handle in effect.handles:
                    assert isinstance(handle, Sent)
                    lost = set() if handle.held else set(handle.marks) - self._ever - vanished
                    assert not lost, f"{lost} were accepted and are not stored"
            elif isinstance(effect, Deliver):
                for message, token in zip(effect.messages, effect.tokens, strict=True):
                    if token is None:
                        assert not self._has(message.id), f"{mark_of(message)} would come again"
            elif isinstance(effect, Settled) and effect.settlement.kind is SettlementKind.COMPLETE:
                for handle in effect.handles:
                    assert isinstance(handle, Given)
                    assert handle.held or not self._has(handle.id), f"{handle} would come again"

    def _has(self, message_id: int) -> bool:
        return message_id in self._store._messages


class Sent:
    """The handle of a send: which messages it was about."""

    def __init__(self, marks: Sequence[str], *, held: bool) -> None:
        self.marks = tuple(marks)
        self.held = held
        """Inside a transaction: nothing is stored yet."""

    def __repr__(self) -> str:
        return f"sent {','.join(self.marks)}"


class Given:
    """The handle of a settlement: which message was given to the client under which token."""

    def __init__(self, mark: str, message_id: int, *, held: bool) -> None:
        self.mark = mark
        self.id = message_id
        self.held = held

    def __repr__(self) -> str:
        return f"given {self.mark}"
