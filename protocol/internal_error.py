"""The exception family of the broker's own bugs.

There are two families. `InternalError`, and any exception that is not a `BrokerError`, is a bug of the broker: it is
logged with its traceback, and what depends on it is stopped. `BrokerError` (`broker/core/contract/errors.py`) is a
refusal or a violation by the client: the client is told, one line is logged, and the broker goes on. No `except`
clause catches both.
"""

from __future__ import annotations


class InternalError(Exception):
    """A bug of the broker."""
