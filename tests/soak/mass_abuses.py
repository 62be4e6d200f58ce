"""Operations on hundreds of thousands of messages at once, and on very large messages.

`make bench` measures the delays of another client beside them; the bounds of `abuses.py` are for smaller ones.
"""

from __future__ import annotations

import http.client
import re
import time
from typing import TYPE_CHECKING, Any

from tests.bench.payload import message_annotations
from tests.soak.abuses import (
    ABUSE_MAX_S,
    ANSWER_TIMEOUT_S,
    SMALL_MESSAGE,
    Abuse,
    connect,
    expire,
    filled,
    no_entities,
    prepare_nothing,
    queue,
)
from tests.support import amqp_frames
from tests.support.message_sections import DATA, section
from tests.support.server import HOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.server import BrokerProcess

EXPIRING = 600_000
SCHEDULED = 1_000_000
DUE_AFTER_MS = 3_600_000
LARGE_BYTES = 95_000_000
LARGE_MESSAGES = 3


def _schedule(count: int) -> Callable[[BrokerProcess], None]:
    """So many messages that are due at the same time, an hour from now."""

    def prepare(broker: BrokerProcess) -> None:
        due_ms = int(time.time() * 1e3) + DUE_AFTER_MS
        filled(count, message_annotations(due_ms) + SMALL_MESSAGE)(broker)

    return prepare


def _all_due(broker: BrokerProcess, prepared: Any) -> None:
    del prepared
    broker.request("POST", "/$peeklock/clock", {"advance_ms": DUE_AFTER_MS + 1_000}, timeout_s=60)
    deadline_s = time.monotonic() + ABUSE_MAX_S
    while time.monotonic() < deadline_s and _scheduled_messages(broker):
        time.sleep(0.2)


def _scheduled_messages(broker: BrokerProcess) -> int:
    connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/abused?api-version=2021-05")
        found = re.search(rb"ScheduledMessageCount[^>]*>(\d+)<", connection.getresponse().read())
    finally:
        connection.close()
    assert found is not None
    return int(found[1])


def _large_messages(broker: BrokerProcess, prepared: Any) -> None:
    """Sends large messages, one after the other, and receives each."""
    del prepared
    client = connect(broker)
    client.write(amqp_frames.attach_sender(address="abused"))
    client.count("flow", 1, time.monotonic() + ANSWER_TIMEOUT_S)
    message = section(DATA, bytes(LARGE_BYTES))
    for number in range(LARGE_MESSAGES):
        for part in amqp_frames.transfers(number, message):
            client.write(part)
        client.wait_until_settled(number, time.monotonic() + ANSWER_TIMEOUT_S)
    client.close()
    _receive_large(broker)


def _receive_large(broker: BrokerProcess) -> None:
    client = connect(broker)
    client.write(
        amqp_frames.attach_receiver(address="abused"),
        amqp_frames.flow(LARGE_MESSAGES, incoming_window=1 << 30),
    )
    seen_bytes = 0
    while seen_bytes < LARGE_MESSAGES * LARGE_BYTES and (part := client.stream.recv(1 << 20)):
        seen_bytes += len(part)
    assert seen_bytes >= LARGE_MESSAGES * LARGE_BYTES, "the receiver was stopped"
    client.close()


MASS_ABUSES: dict[str, Abuse] = {
    "expiry-600k": Abuse(
        queue(DefaultMessageTimeToLive="PT10M", DeadLetteringOnMessageExpiration=True),
        no_entities,
        filled(EXPIRING),
        expire,
    ),
    "schedules-1m": Abuse(
        queue(MaxSizeInMegabytes=5120), no_entities, _schedule(SCHEDULED), _all_due
    ),
    "large-messages": Abuse(
        queue(MaxMessageSizeInKilobytes=102_400), no_entities, prepare_nothing, _large_messages
    ),
}
