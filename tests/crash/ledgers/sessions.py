"""Sessions: their messages in order, their state as it was set, and one holder at a time.

Messages have their session as key, so that the order is checked within each session. A kill ends
every session lock; the state must survive it.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING

from tests.crash.ledgers.messages import Ledger, Order
from tests.crash.ledgers.registers import Register
from tests.crash.ledgers.report import Book, Report

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


NOTICED_WITHIN_MS = 100
"""A client hears of the end of its connection at most so long after the broker."""


class SessionLedger(Book):
    """Sessions of one entity."""

    kinds = ("state lost", "held twice", "never free", "session forgotten")

    def __init__(self, sessions: Iterable[str]) -> None:
        super().__init__()
        self.messages = Ledger(Order.STRICT)
        self._states: dict[str, Register[bytes | None]] = {
            name: Register(None) for name in sessions
        }
        self._holders: dict[str, int] = {}
        self._suspicions: list[tuple[int, str]] = []
        """Sessions given twice, unless the first holder is about to hear that its connection broke."""
        self._counts: Counter[str] = Counter()

    # ---- holding ------------------------------------------------------------------------------

    def taken(self, session: str, holder: int, now_ms: int) -> None:
        """The broker gave the session to this link."""
        self._counts["sessions accepted"] += 1
        other = self._holders.get(session)
        if other is not None:
            self._suspicions.append((now_ms, f"{session} by link {other} and by link {holder}"))
        self._holders[session] = holder

    def not_taken(self) -> None:
        """The broker answered that another receiver holds the session, or that none was
        available."""
        self._counts["accepts refused"] += 1

    def never_free(self, session: str) -> None:
        """It could not be accepted for long after all holders had gone."""
        self.violate("never free", session)

    def giving_back(self, session: str) -> None:
        """The holder is about to release the session: the next holder may get its answer before the
        last one does."""
        self._holders.pop(session, None)

    def all_dropped(self, now_ms: int) -> None:
        """The connections are gone, with the broker or without it. The broker may have noticed it first, and have
        given the sessions to others before their holders heard of it."""
        self._judge(now_ms - NOTICED_WITHIN_MS)
        self._suspicions.clear()
        self._holders.clear()

    def _judge(self, before_ms: float) -> None:
        for at_ms, text in self._suspicions:
            if at_ms < before_ms:
                self.violate("held twice", text)

    # ---- state --------------------------------------------------------------------------------

    def setting_state(self, session: str, state: bytes | None) -> None:
        self._counts["states set"] += 1
        self._states[session].setting(state)

    def state_set(self, session: str) -> None:
        self._counts["states confirmed"] += 1
        self._states[session].confirmed()

    def state_seen(self, session: str, state: bytes | None) -> None:
        """What the holder reads."""
        register = self._states[session]
        self._counts["states read"] += 1
        self._counts["of these after doubt"] += not register.is_certain
        possible = register.possible
        if not register.observed(state):
            self.violate("state lost", f"{session} has {state!r}, and may have {possible}")

    def sessions_seen(self, sessions: Collection[str]) -> None:
        """The list of sessions, once all messages are gone: those with a state, and no others."""
        expected = {name for name, state in self._states.items() if state.value is not None}
        for name in expected.symmetric_difference(sessions):
            what = "is not listed" if name in expected else "is listed without a state"
            self.violate("session forgotten", f"{name} {what}")

    def audit(self) -> Report:
        self._judge(inf)
        self._suspicions.clear()
        return Report(dict(self._counts), self.violations).plus(self.messages.audit())
