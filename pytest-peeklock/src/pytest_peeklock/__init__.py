"""Tests of code that uses Azure Service Bus, against a Peeklock broker: a client of its control API, and fixtures.

The fixtures are in `plugin.py`, which pytest loads by itself. The package imports nothing of the broker: it starts
its command or its container, and sends requests over HTTP.
"""

from pytest_peeklock.client import Peeklock
from pytest_peeklock.conditions import condition, empty, settled, unlocked
from pytest_peeklock.errors import (
    BrokerNotReachable,
    BrokerNotStarted,
    PeeklockError,
    WaitTimedOut,
)
from pytest_peeklock.fault_rule import FaultRule

__all__ = [
    "BrokerNotReachable",
    "BrokerNotStarted",
    "FaultRule",
    "Peeklock",
    "PeeklockError",
    "WaitTimedOut",
    "condition",
    "empty",
    "settled",
    "unlocked",
]
