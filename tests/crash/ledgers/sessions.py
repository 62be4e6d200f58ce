"""Sessions: their messages in order, their state as it was set, and one holder at a time.

Messages are keyed by their session, so that the order checked is each session's own. A kill drops
every hold; the state must outlive it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.crash.ledgers.messages import Ledger
from tests.crash.ledgers.registers import Register
from tests.crash.ledgers.report import Book, Report

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class SessionLedger(Book):
    """Sessions of one entity."""

    kinds = ("state lost", "held twice", "held by nobody", "session forgotten")

    def __init__(self, sessions: Iterable[str]) -> None:
        super().__init__()
        self.messages = Ledger(single_receiver=True)
        self._states: dict[str, Register[bytes | None]] = {
            name: Register(None) for name in sessions
        }
        self._holders: dict[str, int] = {}
        self._asking = 0
        """Links that have no answer yet: each may hold any session already."""
        self._leaving: set[str] = set()
        """Held by a link whose end has no answer yet: the next holder may hear of it first."""
        self._counts: Counter[str] = Counter()

    # ---- holding ------------------------------------------------------------------------------

    def accepting(self) -> None:
        """A session is about to be asked for; followed by `taken` or `not_taken`."""
        self._asking += 1

    def taken(self, session: str, holder: int) -> None:
        """The broker gave the session to this link."""
        self._asking -= 1
        self._counts["sessions accepted"] += 1
        other = self._holders.get(session)
        if other is not None:
            self.violate("held twice", f"{session} by link {other} and by link {holder}")
        self._holders[session] = holder

    def not_taken(self, session: str | None) -> None:
        """The broker answered that somebody else holds it, or that there was none to take."""
        self._asking -= 1
        self._counts["accepts refused"] += 1
        may_be_held = session is None or session in self._holders or session in self._leaving
        if not may_be_held and not self._asking:
            self.violate("held by nobody", f"{session} could not be accepted")

    def giving_back(self, session: str) -> None:
        """The end of the hold is about to be put on the wire."""
        del self._holders[session]
        self._leaving.add(session)

    def given_back(self, session: str) -> None:
        """The broker confirmed the end of the hold."""
        self._leaving.discard(session)

    def all_dropped(self) -> None:
        """The connections are gone, with the broker or without it."""
        self._holders.clear()
        self._leaving.clear()
        self._asking = 0

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
        return Report(dict(self._counts), self.violations).plus(self.messages.audit())
