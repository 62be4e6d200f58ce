"""Values that no record can hold or no reader can read: they concern the client that sends them, and nobody else."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from protocol.amqp.nodes.management import OPERATIONS
from protocol.codec import Char, Described, Long, Symbol, Timestamp, ULong, compound_of, encode
from tests.support.amqp_frames import (
    attach_receiver,
    attach_sender,
    disposition,
    flow,
    rejected,
    transfer,
)
from tests.support.frame_client import FrameClient
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = {
    "queues": {
        "q": {},
        "s": {"requires_session": True},
        "d": {"requires_duplicate_detection": True},
        "p": {"requires_duplicate_detection": True, "enable_partitioning": True},
        "f": {"forward_to": "d"},
    },
    "topics": {
        "t": {"subscriptions": {"sub": {}}},
        "a": {
            "subscriptions": {
                "sub": {"rules": {"r": {"sql_filter": "1=1", "action": "SET y = sys.TimeToLive"}}}
            }
        },
    },
}
DATA = b"\x00\x53\x75\xa0\x02hi"
NOT_UTF8 = b"\xa1\x02\xff\xfe"
SURROGATE = Char("\ud800")
HUGE = ULong(2**64 - 1)
ACCEPTED, REJECTED = 0x24, 0x25


def sections(
    *, header: object = None, annotations: dict[str, Any] | None = None, **properties: object
) -> bytes:
    """Returns a message. A value that is bytes is encoded already."""
    names = ["message_id", *[""] * 9, "group_id"]
    fields = [properties.get(name) for name in names]
    encoded = [field if isinstance(field, bytes) else encode(field) for field in fields]
    start = b"" if header is None else b"\x00\x53\x70" + encode(header)
    if annotations:
        named = {Symbol(f"x-opt-{name}"): value for name, value in annotations.items()}
        start += b"\x00\x53\x72" + encode(named)
    return start + b"\x00\x53\x73" + compound_of(0xC0, len(encoded), b"".join(encoded)) + DATA


def soon() -> Timestamp:
    return Timestamp(int(time.time() * 1000) + 200)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker that has to survive everything in this file, with a store that refuses what it cannot hold."""
    folder: Path = tmp_path_factory.mktemp("store")
    with BrokerProcess(config=CONFIG, storage=f"sqlite:///{folder}/broker.db") as process:
        yield process


@pytest.fixture(autouse=True)
def _another_client_is_served(broker: BrokerProcess) -> Iterator[None]:
    """On the connection that it had before: the broker has not started again."""
    with FrameClient.opened(broker.amqp_port) as client:
        client.write(attach_sender(address="q"))
        client.skip_to("flow")
        yield
        client.write(transfer(0, DATA))
        assert ACCEPTED == client.expect("disposition")[4].descriptor
    assert "starting_again" not in broker.log_text()


def outcome_of(broker: BrokerProcess, address: str, payload: bytes) -> Any:
    """Returns the outcome of a message that is sent."""
    with FrameClient.opened(broker.amqp_port) as client:
        client.write(attach_sender(address=address))
        client.skip_to("flow")
        client.write(transfer(0, payload))
        return client.expect("disposition")[4]


@pytest.mark.parametrize(
    ("address", "properties"),
    [
        ("q", {"message_id": NOT_UTF8}),
        ("s", {"group_id": NOT_UTF8}),
        ("s", {"group_id": SURROGATE}),
        ("d", {"message_id": SURROGATE}),
        ("f", {"message_id": NOT_UTF8}),
        ("t", {"message_id": "x", "group_id": NOT_UTF8}),
        ("d", {"message_id": b"\x56\x02"}),
    ],
)
@pytest.mark.parametrize("scheduled", [False, True])
def test_an_id_that_cannot_be_read_is_refused(broker, address, properties, scheduled):
    """When it is sent: when the message is due or forwarded, it would fail the turn of everybody."""
    annotations = {"scheduled-enqueue-time": soon()} if scheduled else None
    outcome = outcome_of(broker, address, sections(annotations=annotations, **properties))
    assert REJECTED == outcome.descriptor
    assert "amqp:decode-error" == outcome.value[0].value[0]
    if scheduled:
        time.sleep(0.4)


@pytest.mark.parametrize(
    "payload",
    [
        sections(message_id="a", annotations={"scheduled-enqueue-time": HUGE}),
        sections(message_id="b", annotations={"scheduled-enqueue-time": Timestamp(2**63 - 1)}),
        sections(
            message_id="c",
            header=[None, None, HUGE],
            annotations={"scheduled-enqueue-time": Timestamp(4_000_000_000_000)},
        ),
        sections(message_id="d", header=[None, None, HUGE]),
        sections(message_id="e", annotations={"partition-key": SURROGATE}),
    ],
    ids=["schedule", "longest schedule", "scheduled time to live", "time to live", "key"],
)
@pytest.mark.parametrize("address", ["q", "d", "p", "t", "a"])
def test_what_no_store_can_hold_is_limited(broker, address, payload):
    """The longest time, the last moment, or a text with a replacement."""
    assert ACCEPTED == outcome_of(broker, address, payload).descriptor


def test_an_outcome_with_half_a_character_dead_letters(broker):
    """In its description, and in the keys and texts of its info."""
    assert ACCEPTED == outcome_of(broker, "q", DATA).descriptor
    with FrameClient.opened(broker.amqp_port) as client:
        client.write(attach_receiver(address="q"), flow(1))
        delivery_id = client.expect("transfer")[1]
        info: dict[Any, object] = {Symbol("DeadLetterReason"): SURROGATE, SURROGATE: SURROGATE}
        state = rejected("com.microsoft:dead-letter", SURROGATE, info)
        client.write(disposition(delivery_id, state=state, settled=False))
        assert REJECTED == client.expect("disposition")[4].descriptor


def test_a_session_may_be_asked_for_by_half_a_character(broker):
    """And its state be set. The timeout is longer than any clock."""
    filters: dict[Any, object] = {Symbol("com.microsoft:session-filter"): SURROGATE}
    timeout: dict[Any, object] = {Symbol("com.microsoft:timeout"): HUGE}
    with FrameClient.opened(broker.amqp_port) as client:
        client.write(attach_receiver(address="s", filters=filters, properties=timeout))
        assert "\ufffd" in str(client.expect("attach")[5])
        body = {"session-id": SURROGATE, "session-state": b"state"}
        assert 200 == Manager(client, "s").status_of("set-session-state", body)


class Manager:
    """A pair of links to the `$management` of an entity."""

    def __init__(self, client: FrameClient, entity: str) -> None:
        self._client = client
        address = f"{entity}/$management"
        client.write(attach_sender("requests", 10, address))
        client.write(attach_receiver("answers", 11, address), flow(1_000, handle=11))
        client.expect("flow", where=lambda frame: frame[4] is not None)
        self._numbers = count()

    def status_of(self, operation: str, body: object) -> int:
        """Returns the status with which a request is answered."""
        number = next(self._numbers)
        properties = Described(ULong(0x73), [f"request-{number}"])
        named = Described(ULong(0x74), {"operation": f"com.microsoft:{operation}"})
        value = Described(ULong(0x77), body)
        payload = encode(properties) + encode(named) + encode(value)
        self._client.write(transfer(number, payload, handle=10))
        answer = self._client.expect("transfer").payload
        at = answer.index(b"statusCode") + len(b"statusCode")
        assert answer[at] in (0x54, 0x71), answer
        return int.from_bytes(answer[at + 1 : at + (2 if answer[at] == 0x54 else 5)])


HOSTILE: list[object] = [SURROGATE, HUGE, Long(-(2**63)), "\x00", [SURROGATE], {SURROGATE: HUGE}]
ARGUMENTS = {
    "lock-tokens": [b"\x00" * 16],
    "disposition-status": "suspended",
    "deadletter-reason": "reason",
    "deadletter-description": "text",
    "properties-to-modify": {"a": 1},
    "session-id": "a",
    "session-state": b"state",
    "from-sequence-number": Long(1),
    "message-count": 1,
    "sequence-numbers": [Long(1)],
    "receiver-settle-mode": 0,
    "messages": [{"message": sections(message_id="x")}],
    "skip": 0,
    "top": 10,
    "last-updated-time": Timestamp(0),
    "last-session-id": "a",
    "enqueued-time-utc": Timestamp(0),
    "rule-name": "rule",
    "rule-description": {"sql-filter": {"expression": "1=1"}},
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("entity", ["q", "s", "t/Subscriptions/sub"])
def test_every_argument_of_a_request_is_checked(broker, operation, entity):
    """Whatever it is, the request is answered."""
    with FrameClient.opened(broker.amqp_port) as client:
        manager = Manager(client, entity)
        for name in ARGUMENTS:
            for value in HOSTILE:
                for given in (value, [value], {"expression": value}):
                    status = manager.status_of(operation, {**ARGUMENTS, name: given})
                    assert 200 <= status < 500, (operation, name, given)
