"""A running broker on each store, and clients of its control API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.control.client import ControlClient
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "queues": {
        "orders": {"lock_duration": "PT1M", "max_delivery_count": 3},
        "orders/eu": {},
        "retries": {},
        "carts": {"requires_session": True},
        "once": {"requires_duplicate_detection": True},
        "short": {"lock_duration": "PT5S", "dead_lettering_on_message_expiration": True},
    },
    "topics": {
        "events": {
            "subscriptions": {
                "audit": {},
                "red": {"rules": {"red": {"sql_filter": "color = 'red'"}}},
            },
        },
    },
    "namespaces": {"team-b": {"queues": {"orders": {}}}},
}


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tls_folder: Path
) -> Iterator[BrokerProcess]:
    storage = "memory:"
    if request.param == "sqlite":
        storage = f"sqlite:///{tmp_path_factory.mktemp('store') / 'peeklock.db'}"
    with BrokerProcess(
        config=CONFIG,
        storage=storage,
        testing_api=False,
        environment={"PEEKLOCK_TLS_FOLDER": str(tls_folder)},
    ) as running:
        yield running


@pytest.fixture
def admin(broker: BrokerProcess, tls_folder: Path) -> Iterator[ServiceBusAdministrationClient]:
    """The stock administration client."""
    with ServiceBusAdministrationClient.from_connection_string(
        broker.admin_connection_string.replace("127.0.0.1", "localhost"),
        connection_verify=str(tls_folder / "ca.pem"),
    ) as client:
        yield client


@pytest.fixture
def api(broker: BrokerProcess) -> ControlClient:
    """The control API of the default namespace."""
    return ControlClient(broker.http_port)


@pytest.fixture
def sdk(broker: BrokerProcess) -> Iterator[ServiceBusClient]:
    """The stock client."""
    with ServiceBusClient.from_connection_string(broker.connection_string) as client:
        yield client
