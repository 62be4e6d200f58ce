"""Every property and type the SDK can express, there and back, and what other clients wrote."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.clients.python.scenarios.moves import connect, receive
from tests.clients.python.trial import APART, expect, named_rows, type_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from azure.servicebus import ServiceBusReceivedMessage

    from tests.clients.python.trial import Broker

PROPERTIES = {
    "message-id": "message_id",
    "correlation-id": "correlation_id",
    "subject": "subject",
    "content-type": "content_type",
    "to": "to",
    "reply-to": "reply_to",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "partition-key": "partition_key",
}
"""Texts, by their rows and by their names in the SDK."""

WRITTEN: dict[str, Callable[[str], Any]] = {
    "string": str,
    "boolean": "true".__eq__,
    "int": int,
    "double": float,
    "timestamp": datetime.fromisoformat,
    "uuid": uuid.UUID,
    "null": lambda _: None,
}
"""How the SDK is given a value of each AMQP type it can send; it sends no others."""

READ: dict[str, Callable[[str], Any]] = {
    **WRITTEN,
    "string": str.encode,
    "symbol": str.encode,
    "char": lambda text: text,
    "binary": bytes.fromhex,
    "float": float,
    **dict.fromkeys(("byte", "ubyte", "short", "ushort", "uint", "long", "ulong"), int),
    "timestamp": lambda text: int(datetime.fromisoformat(text).timestamp() * 1000),
}
"""How the SDK shows a value of each type: text as bytes, times in milliseconds."""


UNKNOWN_TYPE = "'NoneType' object is not callable"
"""The SDK's words for an AMQP type it has never heard of."""


async def properties_round_trip(broker: Broker, client: str) -> str:
    rows = type_rows()
    own: dict[str | bytes, Any] = {
        name: WRITTEN[row["type"]](row["value"])
        for name, row in rows.items()
        if row["section"] == "application-properties" and row["type"] in WRITTEN
    }
    written = sorted([*PROPERTIES, "time-to-live", "body", *map(str, own)])
    queue = f"{broker.run}-types-{client}"
    broker.put(queue, "QueueDescription", "<MaxDeliveryCount>100</MaxDeliveryCount>")
    texts: dict[str, Any] = {argument: rows[name]["value"] for name, argument in PROPERTIES.items()}
    message = ServiceBusMessage(
        bytes.fromhex(rows["body"]["value"]),
        application_properties={**own, "written": ",".join(written)},
        time_to_live=timedelta(hours=1),
        **texts,
    )
    async with connect(broker) as connection:
        async with connection.get_queue_sender(queue) as sender:
            await sender.send_messages(message)
    return await read_types(broker, queue)


async def read_types(broker: Broker, queue: str) -> str:
    message = await _take_and_return(broker, queue)
    found: dict[Any, Any] = dict(message.application_properties or {})
    here, apart = named_rows(found.pop(b"written").decode())
    undecoded = _compare(message, found, here)
    remarks = [f"shown undecoded: {', '.join(undecoded)}"] if undecoded else []
    if apart:
        try:
            message = await _take_and_return(broker, queue + APART)
        except ServiceBusError as error:
            if UNKNOWN_TYPE not in str(error):
                raise
            remarks.append(f"unread: {','.join(row['name'] for row in apart)}")
        else:
            _compare(message, dict(message.application_properties or {}), apart)
    return "; ".join(remarks)


async def _take_and_return(broker: Broker, queue: str) -> ServiceBusReceivedMessage:
    async with connect(broker) as client, client.get_queue_receiver(queue) as receiver:
        (message,) = await receive(receiver, 1)
        await receiver.abandon_message(message)
    return message


def _compare(
    message: ServiceBusReceivedMessage, found: dict[Any, Any], rows: list[dict[str, str]]
) -> list[str]:
    """Make sure that these rows are there, and no property besides; those the SDK leaves encoded."""
    differences, undecoded = [], []
    for row in rows:
        name = row["name"]
        if row["section"] == "application-properties":
            value = found.pop(name.encode(), "is absent")
            if row["type"] not in READ:
                undecoded.append(name)
                continue
            expected = READ[row["type"]](row["value"])
        else:
            value, expected = _system_property(message, row)
        if value != expected:
            differences.append(f"{name}: expected {expected!r}, found {value!r}")
    assert not differences, "\n".join(differences)
    expect({}, found, "properties nobody wrote")
    return undecoded


def _system_property(message: ServiceBusReceivedMessage, row: dict[str, str]) -> tuple[Any, Any]:
    if row["name"] == "body":
        return b"".join(message.body), bytes.fromhex(row["value"])
    if row["name"] == "time-to-live":
        return message.time_to_live, timedelta(hours=1)
    return getattr(message, PROPERTIES[row["name"]]), row["value"]
