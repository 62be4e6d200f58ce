"""A broker that serves and one that waits for it, on one schema of a real PostgreSQL server."""

from __future__ import annotations

import json
import signal
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.server import POLL_INTERVAL_S, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.postgres_server import PostgresServer

CONFIG = {"queues": {"orders": {"lock_duration": "PT1M"}, "bulk": {}}}
LEASE_S = 2.0
WAITS_S = 20.0


def wait_until(is_true: Callable[[], bool], seconds: float = WAITS_S) -> float:
    """Waits for something. Returns how long it took."""
    begin_s = time.monotonic()
    while not is_true():
        assert time.monotonic() - begin_s < seconds, "it did not happen in time"
        time.sleep(POLL_INTERVAL_S)
    return time.monotonic() - begin_s


class Broker(BrokerProcess):
    """A broker with a short lease."""

    def __init__(
        self, storage: str, *arguments: str, host: str = "127.0.0.1", amqp_port: int | None = None
    ) -> None:
        super().__init__(
            config=CONFIG,
            storage=storage,
            arguments=["--ownership-lease", f"{LEASE_S:.0f}s", *arguments],
            host=host,
            amqp_port=amqp_port,
        )

    @property
    def why_not_serving(self) -> str:
        """The reason in the answer to /health."""
        status, body = self.request("GET", "/health")
        assert 503 == status
        return str(json.loads(body)["reason"])

    def message_count(self, queue: str) -> int:
        """How many messages wait in a queue."""
        labels = f'{{entity="{queue}",namespace="sbemulatorns",state="active"}}'
        return int(self.metric(f"peeklock_messages{labels}"))

    def metric(self, name: str) -> float:
        text = self.request("GET", "/metrics")[1].decode()
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(line.rpartition(" ")[2])

    @contextmanager
    def launched(self) -> Iterator[Broker]:
        """Runs it without waiting until it is healthy."""
        self.launch()
        try:
            yield self
        except BaseException:
            print(self.log_tail())
            raise
        finally:
            if self.is_running:
                self.send_signal(
                    signal.SIGCONT
                )  # a stopped process can be killed, too; its parent would wait
            self.close()
            self._folder.cleanup()

    def wait_until_standby(self) -> None:
        self.wait_for_log("] standby [")


@pytest.fixture
def storage(postgres_server: PostgresServer) -> str:
    """The URL of an empty schema."""
    return postgres_server.url()


@pytest.fixture
def pair(storage: str) -> Iterator[tuple[Broker, Broker]]:
    """An owner and a standby."""
    with ExitStack() as stack:
        owner, standby = Broker(storage), Broker(storage)
        stack.enter_context(owner.launched())
        owner.wait_until_healthy()
        stack.enter_context(standby.launched())
        standby.wait_until_standby()
        yield owner, standby
