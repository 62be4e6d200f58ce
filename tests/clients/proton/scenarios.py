"""A generic AMQP 1.0 library against a running broker: what the protocol alone can do.

Without arguments every scenario runs; `read-types QUEUE WRITER` reads what another client wrote.
"""

from __future__ import annotations

import functools
import sys

from tests.clients.proton import (
    claims,
    connecting,
    receiving,
    sending,
    sessions,
    topics,
    transactions,
    type_exchange,
)
from tests.clients.python.trial import Broker, run_all, run_one, say_versions

NO_ADMINISTRATION = "the library speaks AMQP only"
UNABLE = {
    "connect-tls-emulator-flag": "the library knows no such flag",
    "connect-websocket": "the library has no WebSocket",
    "send-batch": "the library cannot set a message format",
    "full-batch": "the library cannot set a message format",
    "concurrent-management": "the library's blocking client waits for every answer",
    "auto-renew-lock": "the library knows no locks",
    "auto-renew-ten": "the library knows no locks",
    "rule-value-precision": NO_ADMINISTRATION,
    "forwarding-round-trip": NO_ADMINISTRATION,
    "admin-queue-crud": NO_ADMINISTRATION,
    "admin-topic-crud": NO_ADMINISTRATION,
    "admin-subscription-crud": NO_ADMINISTRATION,
    "admin-rule-crud": NO_ADMINISTRATION,
    "admin-runtime-properties": NO_ADMINISTRATION,
}
MODULES = (claims, connecting, receiving, sending, sessions, topics, transactions, type_exchange)


def main() -> None:
    broker = Broker.from_environment()
    say_versions("python-qpid-proton")
    if sys.argv[1:2] == ["read-types"]:
        run_one(
            "read-types", functools.partial(type_exchange.read_types, queue=sys.argv[2]), broker
        )
        return
    known = {
        name.replace("_", "-"): function
        for module in MODULES
        for name, function in vars(module).items()
        if callable(function)
    }
    run_all(known, UNABLE, broker)


if __name__ == "__main__":
    main()
