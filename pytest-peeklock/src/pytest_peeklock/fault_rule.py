"""A fault rule that a test has made, and how often it has acted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_peeklock.errors import PeeklockError

if TYPE_CHECKING:
    from pytest_peeklock.answers import Fault
    from pytest_peeklock.control_api import ControlApi

NOT_FOUND = 404


class FaultRule:
    """What `with peeklock.fault(…) as fault` gives. It counts while it exists, and keeps its last counts."""

    def __init__(self, client: ControlApi, made: Fault) -> None:
        self._client = client
        self._last = made
        self._is_removed = False

    @property
    def name(self) -> str:
        """Returns the name of the rule."""
        return self._last["name"]

    @property
    def hits(self) -> int:
        """Returns how many operations have failed by it."""
        return self._counted()["hits"]

    @property
    def matched(self) -> int:
        """Returns how many operations have fitted it, whether they failed or not."""
        return self._counted()["matched"]

    def remove(self) -> None:
        """Removes the rule before its block ends."""
        if self._is_removed:
            return
        self._is_removed = True
        try:
            self._last = self._client.remove_fault(self.name)
        except PeeklockError as error:  # a reset of the namespace removes it, too
            if error.status != NOT_FOUND:
                raise

    def _counted(self) -> Fault:
        if not self._is_removed:
            self._last = self._client.get_fault(self.name)
        return self._last

    def __repr__(self) -> str:
        return f"<FaultRule {self.name}: {self._last['hits']} hits of {self._last['matched']}>"
