"""How large a batch or message of the stock SDK may be."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError

from config.model.limits import MEBIBYTE, Tier, strict
from tests.sdk.conftest import Live
from tests.support.amqp_messages import sdk_encoded
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

QUOTAS = {"PEEKLOCK_QUOTAS": "strict", "PEEKLOCK_TIER": "premium"}


def test_a_batch_is_as_large_as_the_broker_takes_one() -> None:
    """Not as large as a message may be: the link says both."""
    with BrokerProcess(environment=QUOTAS) as process:
        live = Live(process)
        queue = live.queue(MaxMessageSizeInKilobytes=10 * 1024)
        with live.client() as client, client.get_queue_sender(queue) as sender:
            batch = sender.create_message_batch()
            assert strict(Tier.PREMIUM).batch_max_bytes == batch.max_size_in_bytes
            sender.send_messages(ServiceBusMessage(b"x" * 5 * MEBIBYTE))


@pytest.fixture(scope="module", params=["standard", "premium"])
def strict_broker(request: pytest.FixtureRequest) -> Iterator[tuple[Live, int]]:
    """A broker that keeps to a tier's quotas, and the largest transfer it takes."""
    quotas = {"PEEKLOCK_QUOTAS": "strict", "PEEKLOCK_TIER": request.param}
    with BrokerProcess(environment=quotas) as process:
        yield Live(process), strict(Tier(request.param.capitalize())).batch_max_bytes


def test_a_batch_that_the_sdk_fills_to_the_brim_is_taken(
    strict_broker: tuple[Live, int],
) -> None:
    """The ids that messages without one are given count for nothing."""
    live, limit_bytes = strict_broker
    queue = live.queue()
    with live.client() as client, client.get_queue_sender(queue) as sender:
        batch = sender.create_message_batch()
        count = 0
        for size in (1000, 1):
            with contextlib.suppress(MessageSizeExceededError):
                while True:
                    batch.add_message(_message(size))
                    count += 1
        assert limit_bytes - 70 < batch.size_in_bytes <= limit_bytes
        sender.send_messages(batch)
        assert count == live.count(queue)


def _batch_of(size_bytes: int) -> ServiceBusMessageBatch:
    """A batch whose messages take exactly so many bytes, as the SDK counts them."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=size_bytes)
    for _ in range(1000):
        batch.add_message(_message(1))
    left_bytes = size_bytes - batch.size_in_bytes
    overhead_bytes = len(sdk_encoded(_message(1000))) - 1000 + len(b"\x00\x53\x75\xb0size")
    batch.add_message(_message(left_bytes - overhead_bytes))
    assert size_bytes == batch.size_in_bytes
    return batch


def _message(body_bytes: int) -> ServiceBusMessage:
    """A message without an id."""
    return ServiceBusMessage(b"x" * body_bytes, message_id=None)


def test_a_batch_may_be_as_large_as_the_limit_and_no_larger(
    strict_broker: tuple[Live, int],
) -> None:
    """To the byte, of what was sent."""
    live, limit_bytes = strict_broker
    queue = live.queue()
    with live.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(_batch_of(limit_bytes))
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(_batch_of(limit_bytes + 1))
        assert 1001 == live.count(queue)


def test_a_message_may_be_as_large_as_the_limit_and_no_larger(
    strict_broker: tuple[Live, int],
) -> None:
    """The same of one message without an id."""
    live, limit_bytes = strict_broker
    queue = live.queue()
    body_bytes = limit_bytes - (len(sdk_encoded(_message(1000))) - 1000)
    with live.client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(_message(body_bytes))
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(_message(body_bytes + 1))
        assert 1 == live.count(queue)
