"""How long clients wait after the end of an owner: a stock client sends all the time, and notes its first answer.

The client has no retries of its own and connects again at once, so a time is that of the take-over, of connecting and
of one send. A send that began before the end of the owner does not count.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from azure.servicebus import ServiceBusClient, ServiceBusMessage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

QUEUE = "first-answers"
QUEUES: dict[str, Any] = {QUEUE: {"default_message_time_to_live": "PT5S"}}
PAUSE_S = 0.02
RETRY_S = 0.01
ANSWER_TIMEOUT_S = 60.0


class FirstAnswers:
    """The client. `with` starts and ends it."""

    def __init__(self, connection_string: str) -> None:
        self._connection_string = connection_string
        self._thread = threading.Thread(target=self._run)
        self._enough = threading.Event()
        self._changed = threading.Condition()
        self._times_s: list[float] | None = None
        """Where the next time belongs; None if no answer is waited for."""
        self._ended_s = 0.0

    def __enter__(self) -> Self:
        logging.getLogger("azure").setLevel(logging.CRITICAL)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._enough.set()
        self._thread.join()

    def owner_ends(self, times_s: list[float]) -> None:
        """The owner ends now. The time of the first answer is added to `times_s`."""
        with self._changed:
            self._times_s, self._ended_s = times_s, time.monotonic()

    def wait(self) -> None:
        """Waits for the first answer."""
        with self._changed:
            is_answered = self._changed.wait_for(lambda: self._times_s is None, ANSWER_TIMEOUT_S)
        assert is_answered, "no client gets an answer"

    def _run(self) -> None:
        while not self._enough.is_set():
            try:
                with (
                    ServiceBusClient.from_connection_string(
                        self._connection_string, retry_total=0
                    ) as client,
                    client.get_queue_sender(QUEUE) as sender,
                ):
                    while not self._enough.wait(PAUSE_S):
                        begin_s = time.monotonic()
                        sender.send_messages(ServiceBusMessage("?"), timeout=ANSWER_TIMEOUT_S)
                        self._answered(begin_s)
            except Exception:  # noqa: BLE001 - whatever the SDK raises: no answer came
                self._enough.wait(RETRY_S)

    def _answered(self, begin_s: float) -> None:
        with self._changed:
            if self._times_s is not None and begin_s > self._ended_s:
                self._times_s.append(time.monotonic() - self._ended_s)
                self._times_s = None
                self._changed.notify_all()


def percentiles(times_s: Sequence[float]) -> str:
    """Describes times."""
    if not times_s:
        return "none"
    ordered = sorted(times_s)
    middle, late = (ordered[len(ordered) * share // 100] for share in (50, 99))
    return (
        f"{len(ordered)}: {middle:.2f} s (p50), {late:.2f} s (p99), {ordered[-1]:.2f} s (slowest)"
    )
