"""A broker of this source tree for the tests of the pytest package, whatever `peeklock` is on the PATH."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_peeklock import Peeklock
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = f"{sys.executable} -m peeklock"
TOPOLOGY = {
    "queues": {
        "orders": {"lock_duration": "PT30S", "max_delivery_count": 2},
        "carts": {"requires_session": True},
    },
    "topics": {"events": {"subscriptions": {"audit": {}}}},
}


@pytest.fixture(scope="module")
def broker_process() -> Iterator[BrokerProcess]:
    with BrokerProcess(testing_api=False) as running:
        yield running


@pytest.fixture(scope="module")
def peeklock_broker(broker_process: BrokerProcess) -> Peeklock:
    return Peeklock(f"http://127.0.0.1:{broker_process.http_port}")


@pytest.fixture
def peeklock_topology() -> dict[str, object]:
    return TOPOLOGY
