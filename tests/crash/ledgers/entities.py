"""Entities over HTTP: created, changed or deleted as confirmed, completely, and empty when new.

An entity is one value with everything below it, so a partial change is a value that no client has
set. Its messages belong to one creation: messages of an earlier entity must not appear.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from tests.crash.ledgers.registers import Register
from tests.crash.ledgers.report import Book, Report

if TYPE_CHECKING:
    from collections.abc import Iterable

Tree = TypeVar("Tree")


@dataclass(slots=True)
class Content:
    """What was put into one place while its entity exists."""

    accepted: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    takes_in_doubt: int = 0
    """Receives without an answer: each may have taken one message with it."""


class EntityLedger(Book, Generic[Tree]):
    """Entities by name; None is one that does not exist."""

    kinds = (
        "gone",
        "back",
        "half",
        "change refused",
        "message of an earlier run",
        "message lost",
        "message back",
    )

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self._entities: dict[str, Register[Tree | None]] = {name: Register(None) for name in names}
        self._contents: defaultdict[str, Content] = defaultdict(Content)
        self._counts: Counter[str] = Counter()

    # ---- the entities -------------------------------------------------------------------------

    def value(self, name: str) -> Tree | None:
        """What it must be now."""
        return self._entities[name].value

    def changing(self, name: str, value: Tree | None) -> None:
        """A change is about to be asked for."""
        self._counts["changes"] += 1
        self._entities[name].setting(value)

    def changed(self, name: str) -> None:
        self._counts["confirmed"] += 1
        self._entities[name].confirmed()

    def change_refused(self, name: str, answer: str) -> None:
        """No change is asked for that could be refused."""
        self._entities[name].refused()
        self.violate("change refused", f"{name}: {answer}")

    def seen(self, name: str, value: Tree | None) -> None:
        """A client has read the whole entity."""
        register = self._entities[name]
        possible = register.possible
        self._counts["looks"] += 1
        self._counts["of these after doubt"] += not register.is_certain
        if not register.observed(value):
            kind = "gone" if value is None else "back" if possible == [None] else "half"
            self.violate(kind, f"{name} is {value}, and may be {possible}")

    def wrongly_listed(self, name: str) -> None:
        """The list of entities has it, or lacks it, and a look at it says otherwise."""
        self.violate("half", f"the list contradicts {name}")

    # ---- what is in them ----------------------------------------------------------------------

    # A place names the creation of its entity too: a new one of the same name is another place.

    def putting(self, places: Iterable[str], text: str) -> None:
        """A message is about to be sent to all these places."""
        for place in places:
            self._contents[place].doubtful.add(text)

    def put(self, places: Iterable[str], text: str) -> None:
        self._counts["messages sent"] += 1
        for place in places:
            self._contents[place].doubtful.discard(text)
            self._contents[place].accepted.add(text)

    def taking(self, place: str) -> None:
        """A message is about to be received in receive-and-delete."""
        self._contents[place].takes_in_doubt += 1

    def took(self, place: str, text: str | None) -> None:
        """The answer to `taking`; None where there was nothing to take."""
        content = self._contents[place]
        content.takes_in_doubt -= 1
        if text is None:
            missing = len(content.accepted)
            if missing > content.takes_in_doubt:
                some = ", ".join(sorted(content.accepted)[:5])
                self.violate("message lost", f"{missing} of {place}: {some}")
            content.accepted.clear()
            content.takes_in_doubt = 0
            return
        self._counts["messages received"] += 1
        if text in content.accepted or text in content.doubtful:
            content.accepted.discard(text)
            content.doubtful.discard(text)
        else:
            kind = "message back" if text in content.taken else "message of an earlier run"
            self.violate(kind, f"{text} in {place}")
        content.taken.add(text)

    def audit(self) -> Report:
        return Report(dict(self._counts), self.violations)
