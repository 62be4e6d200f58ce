"""A connection that has ended leaves no objects in memory."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from tests.support.memory_broker import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _without_search_for_circles() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_without_search_for_circles")
def test_a_lost_connection_is_freed_at_once() -> None:
    """Also after it has sent, received, made requests and put a token. The garbage collector runs
    rarely, and thousands of clients may connect in between."""
    broker = MemoryBroker("queues: {orders: {}}")
    client = broker.connect()
    client.put_token("amqp://localhost/orders", "SharedAccessSignature sr=x&sig=x&se=1&skn=x")
    assert client.attach_sender("orders") is None
    assert client.attach_receiver("orders") is None
    client.manage("orders", "com.microsoft:peek-message", {})
    connection = weakref.ref(client.connection)
    engine = weakref.ref(client.connection._engine)
    client.connection.lost()
    broker.run()
    del client.connection, client.stream
    assert connection() is None
    assert engine() is None
