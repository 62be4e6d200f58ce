"""The scenarios through the SDK's asynchronous client, as they are written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.clients.python.program import main

if TYPE_CHECKING:
    from collections.abc import Coroutine

LIMIT_S = 60
"""Less than any scenario's own limit: a cancelled one shows where it waited."""


def finish(scenario: Coroutine[Any, Any, str | None]) -> str | None:
    return asyncio.run(asyncio.wait_for(scenario, LIMIT_S))


if __name__ == "__main__":
    main("python-aio", finish)
