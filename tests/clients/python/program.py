"""Which scenario is which function, and which the SDK has no way to do."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

from tests.clients.python.trial import Broker, run_all, run_one, say_versions

if TYPE_CHECKING:
    from collections.abc import Callable

MODULES = (
    "administration",
    "claims",
    "connecting",
    "endings",
    "features",
    "locks",
    "receiving",
    "refusals",
    "sending",
    "sessions",
    "settling",
    "topics",
    "types",
)
NO_TRANSACTIONS = "the SDK has no transactions"
UNABLE = {
    "connect-tls-emulator-flag": "with the emulator flag the SDK always connects in plain text",
    "purge-empty": "the SDK deletes no messages",
    "processor": "the SDK has no message pump",
    "rule-management": "the SDK manages rules with its administration client only",
    "transaction-commit": NO_TRANSACTIONS,
    "transaction-rollback": NO_TRANSACTIONS,
    "transaction-rollback-then-settle": NO_TRANSACTIONS,
    "transaction-other-connection": NO_TRANSACTIONS,
}


def main(client: str, finish: Callable[[Any], Any]) -> None:
    """Run what the runner asks for; `finish` makes an outcome of what a scenario returns."""
    found = {
        name.replace("_", "-"): function
        for module in MODULES
        for name, function in vars(
            importlib.import_module(f"tests.clients.python.scenarios.{module}")
        ).items()
        if callable(function)
    }

    def run(function: Callable[..., Any], *more: str) -> Callable[[Broker], str | None]:
        return lambda broker: finish(function(broker, *more))

    broker = Broker.from_environment()
    say_versions("azure-servicebus")
    if sys.argv[1:2] == ["read-types"]:
        run_one("read-types", run(found["read-types"], sys.argv[2]), broker)
        return
    found["properties-round-trip"] = functools.partial(
        found["properties-round-trip"], client=client
    )
    run_all({name: run(function) for name, function in found.items()}, UNABLE, broker)
