"""Batches of the stock SDK on entities that take larger messages than batches."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage

from config.limits import MEBIBYTE, Tier, strict
from tests.sdk.conftest import Live
from tests.support.server import BrokerProcess

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
