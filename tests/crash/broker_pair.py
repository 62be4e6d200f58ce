"""An owner and a standby on one database, as one broker: each kill hits the owner, and the standby takes over.

Both have the same AMQP port, so clients find the new owner at the same address. Administration uses that port, too. A
client measures how long it waits for its first answer (`first_answers.py`).
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Self

from tests.crash.first_answers import FirstAnswers, percentiles
from tests.support.server import POLL_INTERVAL_S

if TYPE_CHECKING:
    from types import TracebackType

    from tests.crash.broker_runs import CrashableBroker

STANDBY_TIMEOUT_S = 60.0


class BrokerPair:
    """Two brokers. The one that serves is the first of the list."""

    def __init__(self, owner: CrashableBroker, standby: CrashableBroker) -> None:
        self._brokers = [owner, standby]
        self.takeovers_s: list[float] = []
        """From the end of an owner to the first 200 of /health of the next."""
        self.answers_after_kills_s: list[float] = []
        """From the kill of an owner with a standby beside it to the first send that is answered."""
        self.answers_after_stops_s: list[float] = []
        """The same for owners that are told to stop."""
        self._answers_after_starts_s: list[float] = []
        """The same if no standby was waiting: a process has to start."""
        self._has_standby = False
        self._first_answers = FirstAnswers(owner.connection_string)
        self.amqp_port = self.http_port = owner.amqp_port
        self.connection_string = self.admin_connection_string = owner.connection_string
        self.failing_step = None
        self.ready_after_s = 0.0

    def __enter__(self) -> Self:
        owner, standby = self._brokers
        owner.__enter__()
        standby.launch()
        self._wait_for_standby()
        self._first_answers.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._first_answers.__exit__(kind, error, trace)
        for broker in self._brokers:
            broker.__exit__(kind, error, trace)

    def kill(self) -> None:
        """Kill the owner."""
        self._owner_ends(self.answers_after_kills_s)
        self._brokers[0].kill()
        self._owner_ended()

    def terminate(self) -> int:
        """Stop the owner in order. Returns the exit code."""
        owner = self._brokers[0]
        self._owner_ends(self.answers_after_stops_s)
        code = owner.terminate()
        self._owner_ended()
        return code

    def _owner_ends(self, times_s: list[float]) -> None:
        self._first_answers.owner_ends(
            times_s if self._has_standby else self._answers_after_starts_s
        )
        self._has_standby = False

    def _owner_ended(self) -> None:
        self._brokers.reverse()
        self._brokers[0]._launched_s = time.monotonic()

    def launch(self) -> None:
        """Start the one that was killed last, while the other takes over."""
        if not self._brokers[1].is_running:
            self._brokers[1].launch()

    def start(self) -> None:
        """Wait until the standby serves, and start the other one again as its standby."""
        if not self._brokers[0].is_running:
            self._brokers.reverse()
        self._brokers[0].wait_until_healthy()
        self.ready_after_s = self._brokers[0].ready_after_s
        self.takeovers_s.append(self.ready_after_s)
        self._first_answers.wait()
        self.launch()
        self._wait_for_standby()

    def _wait_for_standby(self) -> None:
        ends_s = time.monotonic() + STANDBY_TIMEOUT_S
        while time.monotonic() < ends_s:
            try:
                status, body = self._brokers[1].request("GET", "/health")
                if status == 503 and json.loads(body)["reason"] == "standby":
                    self._has_standby = True
                    return
            except OSError:
                pass
            time.sleep(POLL_INTERVAL_S)
        raise AssertionError("the second broker is no standby")

    @property
    def is_running(self) -> bool:
        return self._brokers[0].is_running

    def is_healthy(self) -> bool:
        return self._brokers[0].is_healthy()

    def request(self, method: str, path: str) -> tuple[int, bytes]:
        """Ask the owner."""
        return self._brokers[0].request(method, path)

    def close(self) -> None:
        for broker in self._brokers:
            broker.close()

    def log_text(self) -> str:
        return "".join(broker.log_text() for broker in self._brokers)

    def __str__(self) -> str:
        return (
            f"take-overs, until /health answers 200: {percentiles(self.takeovers_s)}\n"
            f"kills, until a client's send is answered: {percentiles(self.answers_after_kills_s)}\n"
            f"stops, until a client's send is answered: {percentiles(self.answers_after_stops_s)}"
        )


def as_broker(pair: BrokerPair) -> Any:
    """The pair in place of a single broker."""
    return pair
