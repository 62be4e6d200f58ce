"""Takes the requests of one connection only as fast as their answers leave.

Owns how many bytes of answers may wait for a client that does not take them, and the requests that are
held back meanwhile. What a request does is its node's; sending answers is `request_response.py`'s.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.core.contract.errors import QuotaExceeded

if TYPE_CHECKING:
    from protocol.amqp.nodes.request_response import Request, RequestLink

ANSWERS_MAX_BYTES = 4 * 1024 * 1024
"""Of one connection, written or being worked on. Beyond it requests wait."""
HELD_REQUESTS_MAX_BYTES = 16 * 1024 * 1024
"""Of requests that wait. A client that sends more without taking its answers loses the link."""


class RequestIntake:
    """Starts requests in the order they came, when there is room for their answers."""

    def __init__(self) -> None:
        self._answer_bytes = 0
        self._held: deque[Request] = deque()
        self._held_bytes = 0
        self._is_starting = False

    def take(self, request: Request) -> None:
        """Start a request now, or when there is room for its answer."""
        if not self._held and self._answer_bytes < ANSWERS_MAX_BYTES:
            self._start(request)
            return
        self._held.append(request)
        self._held_bytes += request.size_bytes
        if self._held_bytes > HELD_REQUESTS_MAX_BYTES:
            request.link.end(QuotaExceeded("Requests are sent, but their answers are not taken."))

    def answered(self, request: Request, size_bytes: int) -> None:
        """The answer has this size and waits to be sent."""
        self._answer_bytes += size_bytes - request.answer_bytes
        request.answer_bytes = size_bytes

    def left(self, request: Request) -> None:
        """The answer was sent, or its link is gone."""
        self._answer_bytes -= request.answer_bytes
        request.answer_bytes = 0
        request.link.return_credit(1)
        self._start_held()

    def forget(self, link: RequestLink) -> None:
        """A link is gone: drop its waiting requests."""
        kept = deque(request for request in self._held if request.link is not link)
        self._held = kept
        self._held_bytes = sum(request.size_bytes for request in kept)

    def clear(self) -> None:
        """All links are gone."""
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
                self._start(request)
        finally:
            self._is_starting = False

    def _start(self, request: Request) -> None:
        request.answer_bytes = request.link.answer_max_bytes(request)
        self._answer_bytes += request.answer_bytes
        request.link.start(request)
