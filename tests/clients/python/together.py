"""Several calls under way at once, for both halves of the SDK."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def together(calls: Sequence[Callable[[], Any]]) -> Any:
    """The results, in order: awaitable where a loop runs, and otherwise of a thread for each call."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with ThreadPoolExecutor(len(calls)) as threads:
            return [one.result() for one in [threads.submit(call) for call in calls]]
    return asyncio.gather(*(call() for call in calls))
