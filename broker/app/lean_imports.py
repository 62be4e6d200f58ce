"""Imports of libraries that load, or do, far more than is asked of them.

A broker that is to be ready in a fraction of a second cannot afford what it never uses: together
these save about a quarter of the time from start to ready.
"""

from __future__ import annotations

import ssl
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_rich() -> Iterator[None]:
    """Structlog loads rich for coloured tracebacks wherever it happens to be installed."""
    absent = "rich" not in sys.modules
    if absent:
        sys.modules["rich"] = None  # type: ignore[assignment]  # Python's way to say: not there
    try:
        yield
    finally:
        if absent:
            del sys.modules["rich"]


@contextmanager
def without_trusted_certificates() -> Iterator[None]:
    """Aiohttp reads all the system's certificates when it is imported, for its client; this is a
    server, and makes its own contexts."""
    create_default_context = ssl.create_default_context
    ssl.create_default_context = lambda *_, **__: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        yield
    finally:
        ssl.create_default_context = create_default_context
