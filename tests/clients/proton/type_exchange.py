"""Every AMQP type there is, there and back, and what other clients wrote."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any

from proton import (
    Delivery,
    Described,
    Message,
    byte,
    char,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

from tests.clients.proton.moves import connect, listen, receive, send, settle, text
from tests.clients.python.trial import APART, expect, named_rows, type_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from proton.utils import BlockingConnection

    from tests.clients.python.trial import Broker

FIELDS = {
    "message-id": "id",
    "correlation-id": "correlation_id",
    "subject": "subject",
    "content-type": "content_type",
    "to": "address",
    "reply-to": "reply_to",
    "session-id": "group_id",
    "reply-to-session-id": "reply_to_group_id",
}
PARTITION_KEY = symbol("x-opt-partition-key")


def _ticks(text: str) -> int:
    """Hundreds of nanoseconds since year one, as .NET counts them."""
    return int(datetime.fromisoformat(text).timestamp() * 1000) * 10_000 + 621_355_968_000_000_000


VALUES: dict[str, Callable[[str], Any]] = {
    "string": str,
    "symbol": symbol,
    "boolean": "true".__eq__,
    "byte": lambda text: byte(int(text)),
    "ubyte": lambda text: ubyte(int(text)),
    "short": lambda text: short(int(text)),
    "ushort": lambda text: ushort(int(text)),
    "int": lambda text: int32(int(text)),
    "uint": lambda text: uint(int(text)),
    "long": int,
    "ulong": lambda text: ulong(int(text)),
    "float": lambda text: float32(float(text)),
    "double": float,
    "char": char,
    "timestamp": lambda text: timestamp(int(datetime.fromisoformat(text).timestamp() * 1000)),
    "uuid": uuid.UUID,
    "binary": bytes.fromhex,
    "null": lambda _: None,
    "com.microsoft:timespan": lambda _: Described(symbol("com.microsoft:timespan"), 37_235_000_000),
    "com.microsoft:datetime-offset": lambda text: Described(
        symbol("com.microsoft:datetime-offset"), _ticks(text)
    ),
    "com.microsoft:uri": lambda text: Described(symbol("com.microsoft:uri"), text),
}


def properties_round_trip(broker: Broker) -> None:
    rows = type_rows()
    own = {
        name: VALUES[row["type"]](row["value"])
        for name, row in rows.items()
        if row["section"] == "application-properties"
    }
    apart = {name: own.pop(name) for name, row in rows.items() if "apart" in row}
    message: Any = Message(
        body=bytes.fromhex(rows["body"]["value"]),
        inferred=True,
        ttl=3600,
        annotations={PARTITION_KEY: rows["partition-key"]["value"]},
        properties={**own, "written": ",".join(sorted(rows))},
        **{field: rows[name]["value"] for name, field in FIELDS.items()},
    )
    queue = f"{broker.run}-types-proton"
    with connect(broker) as connection:
        for name, one in ((queue, message), (queue + APART, text("apart", properties=apart))):
            broker.put(name, "QueueDescription", "<MaxDeliveryCount>100</MaxDeliveryCount>")
            send(connection, name, one)
    read_types(broker, queue)


def read_types(broker: Broker, queue: str) -> None:
    with connect(broker) as connection:
        message = _take_and_return(connection, queue)
        found = dict(message.properties)
        here, apart = named_rows(found.pop("written"))
        _compare(message, found, here)
        if apart:
            message = _take_and_return(connection, queue + APART)
            _compare(message, dict(message.properties), apart)


def _take_and_return(connection: BlockingConnection, queue: str) -> Any:
    receiver = listen(connection, queue)
    ((message, delivery),) = receive(receiver, 1)
    settle(receiver, delivery, Delivery.MODIFIED)
    return message


def _compare(message: Any, found: dict[str, Any], rows: list[dict[str, str]]) -> None:
    """Make sure that these rows are there, and no property besides."""
    differences = []
    for row in rows:
        name = row["name"]
        if row["section"] == "application-properties":
            expected, value = VALUES[row["type"]](row["value"]), found.pop(name, "is absent")
            value = bytes(value) if isinstance(value, memoryview) else value
        else:
            expected, value = _field(message, row)
        if expected != value or type(expected) is not type(value):
            differences.append(f"{name}: expected {expected!r}, found {value!r}")
    assert not differences, "\n".join(differences)
    expect({}, found, "properties nobody wrote")


def _field(message: Any, row: dict[str, str]) -> tuple[Any, Any]:
    match row["name"]:
        case "body":
            return bytes.fromhex(row["value"]), bytes(message.body)
        case "time-to-live":
            return 3600.0, float(message.ttl)
        case "partition-key":
            return row["value"], message.annotations[PARTITION_KEY]
        case name:
            return row["value"], str(getattr(message, FIELDS[name]))
