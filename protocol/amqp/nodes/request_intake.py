"""Starts the requests of one connection only as fast as their answers are sent.

Bounds the bytes of answers that wait for credit of the client. Further requests wait. Nodes execute requests, and
`request_response.py` sends answers.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.core.contract.errors import QuotaExceeded

if TYPE_CHECKING:
    from protocol.amqp.nodes.request_response import Request, RequestLink

ANSWERS_MAX_BYTES = 4 * 1024 * 1024
"""Answers of one connection that wait or are being made. Beyond this, requests wait."""
HELD_REQUESTS_MAX_BYTES = 16 * 1024 * 1024
"""Requests that wait. The link of a client that sends more without receiving its answers is detached."""


class RequestIntake:
    """Starts requests in their order, as soon as there is room for their answers."""

    def __init__(self) -> None:
        self._answer_bytes = 0
        self._held: deque[Request] = deque()
        self._held_bytes = 0
        self._is_starting = False
        """Waiting requests are being started. A request that is answered at once must not start others inside."""

    def take(self, request: Request) -> None:
        """Starts a request now, or later when there is room for its answer."""
        if not self._held and self._answer_bytes < ANSWERS_MAX_BYTES:
            self._start(request)
            return
        self._held.append(request)
        self._held_bytes += request.size_bytes
        if self._held_bytes > HELD_REQUESTS_MAX_BYTES:
            request.link.end(
                QuotaExceeded("The client sends requests but does not receive their answers.")
            )

    def answered(self, request: Request, size_bytes: int) -> None:
        """Records the size of an answer that waits to be sent."""
        self._answer_bytes += size_bytes - request.answer_bytes
        request.answer_bytes = size_bytes

    def answer_sent(self, request: Request) -> None:
        """Subtracts an answer that was sent or dropped, and starts requests that wait."""
        self._answer_bytes -= request.answer_bytes
        request.answer_bytes = 0
        request.link.return_credit(1)
        self._start_held()

    def forget(self, link: RequestLink) -> None:
        """Drops the waiting requests of a link that is detached."""
        kept = deque(request for request in self._held if request.link is not link)
        self._held = kept
        self._held_bytes = sum(request.size_bytes for request in kept)

    def clear(self) -> None:
        """Drops all waiting requests."""
        self._held.clear()
        self._held_bytes = 0

    def _start_held(self) -> None:
        if self._is_starting:
            return  # a request that is answered at once comes back here
        self._is_starting = True
        try:
            while self._held and self._answer_bytes < ANSWERS_MAX_BYTES:
                request = self._held.popleft()
                self._held_bytes -= request.size_bytes
                if not request.is_ended:
                    self._start(request)
        finally:
            self._is_starting = False

    def _start(self, request: Request) -> None:
        request.answer_bytes = request.link.answer_max_bytes(request)
        self._answer_bytes += request.answer_bytes
        request.link.start(request)
