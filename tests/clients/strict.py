"""The second broker of the client matrix: strict authorization, and Azure's quotas.

Owns its keys, one for each claim, and the variables that tell programs of it (SCENARIOS.md).
"""

from __future__ import annotations

import base64
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.server import HOST, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.clients.program import Client

CLAIMS = {"send": ["Send"], "listen": ["Listen"], "manage": ["Manage", "Send", "Listen"]}
"""Service Bus gives Manage only together with the other two."""


def queue(client: Client) -> str:
    """The queue that is this client's alone."""
    return f"strict-{client.name}"


@contextmanager
def start(clients: Sequence[Client], folder: Path) -> Iterator[BrokerProcess]:
    """With a queue for each client; its certificate is of the same authority as the other broker's."""
    config = {
        "queues": {queue(client): {} for client in clients},
        "authorization_rules": {
            claim: {
                "rights": rights,
                "primary_key": _key(claim),
                "secondary_key": _key(f"{claim}, secondary"),
            }
            for claim, rights in CLAIMS.items()
        },
    }
    with BrokerProcess(
        config=config,
        arguments=["--authorization", "strict", "--quotas", "strict", "--tier", "Standard"],
        environment={"PEEKLOCK_TLS_FOLDER": str(folder / "tls")},
    ) as broker:
        yield broker


def environment(broker: BrokerProcess) -> dict[str, str]:
    """A connection string for each claim; the port serves administration as well."""
    return {
        f"PEEKLOCK_STRICT_{claim.upper()}_CONNECTION_STRING": (
            f"Endpoint=sb://{HOST}:{broker.amqp_port};SharedAccessKeyName={claim};"
            f"SharedAccessKey={_key(claim)};UseDevelopmentEmulator=true;"
        )
        for claim in CLAIMS
    }


def _key(name: str) -> str:
    """As long as the service's keys are: 32 bytes, in base64."""
    return base64.b64encode(name.encode().ljust(32, b"-")).decode()
