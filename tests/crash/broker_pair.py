"""An owner and a standby on one database, as one broker: each kill hits the owner, and the standby takes over.

Both have the same AMQP port, so clients find the new owner at the same address. Administration uses that port, too.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Self

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
        self.amqp_port = self.http_port = owner.amqp_port
        self.connection_string = self.admin_connection_string = owner.connection_string
        self.failing_step = None
        self.ready_after_s = 0.0

    def __enter__(self) -> Self:
        owner, standby = self._brokers
        owner.__enter__()
        standby.launch()
        self._wait_for_standby()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for broker in self._brokers:
            broker.__exit__(kind, error, trace)

    def kill(self) -> None:
        """Kill the owner."""
        self._brokers[0].kill()
        self._owner_ended()

    def terminate(self) -> int:
        """Stop the owner in order. Returns the exit code."""
        owner = self._brokers[0]
        code = owner.terminate()
        self._owner_ended()
        return code

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
        self.launch()
        self._wait_for_standby()

    def _wait_for_standby(self) -> None:
        ends_s = time.monotonic() + STANDBY_TIMEOUT_S
        while time.monotonic() < ends_s:
            try:
                status, body = self._brokers[1].request("GET", "/health")
                if status == 503 and json.loads(body)["reason"] == "standby":
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
        times = sorted(self.takeovers_s)
        if not times:
            return "no take-over"
        middle, late = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
        return f"{len(times)} take-overs: {middle:.2f} s (p50), {late:.2f} s (p99), {times[-1]:.2f} s (slowest)"


def as_broker(pair: BrokerPair) -> Any:
    """The pair in place of a single broker."""
    return pair
