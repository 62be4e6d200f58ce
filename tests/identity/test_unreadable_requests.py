"""Requests to `$cbs` and `$management` that are too large or cannot be decoded.

SDKs wait for an answer: JavaScript and .NET do not look at the outcome of a request. So it is answered
if its id can be read, and the link ends if not.
"""

from __future__ import annotations

import pytest

from protocol.amqp.nodes.link_factory import (
    CBS_REQUEST_MAX_BYTES,
    COORDINATOR_REQUEST_MAX_BYTES,
    MANAGEMENT_REQUEST_MAX_BYTES,
)
from protocol.codec import Described, ULong, encode
from tests.support import amqp_frames
from tests.support.memory_broker import MemoryBroker, MemoryClient, error_of

DECLARED = "queues: {orders: }"
NODES = ["$cbs", "orders/$management"]
LIMITS = {"$cbs": CBS_REQUEST_MAX_BYTES, "orders/$management": MANAGEMENT_REQUEST_MAX_BYTES}
REJECTED = 0x25
STATUS = {"$cbs": "status-code", "orders/$management": "statusCode"}


@pytest.fixture
def client() -> MemoryClient:
    return MemoryBroker(DECLARED).connect()


def section(code: int, value: object) -> bytes:
    return encode(Described(ULong(code), value))


def in_frames(
    client: MemoryClient, node: str, message: bytes, piece_bytes: int
) -> list[amqp_frames.Frame]:
    """Send a request in several transfers; what is answered."""
    handle = client.reach(node)
    number = client.next_delivery()
    frames = [
        amqp_frames.transfer(
            number,
            message[start : start + piece_bytes],
            handle=handle,
            more=start + piece_bytes < len(message),
        )
        for start in range(0, len(message), piece_bytes)
    ]
    return client.say(*frames)


@pytest.mark.parametrize("node", NODES)
def test_the_limit_of_a_request_is_announced(client: MemoryClient, node: str):
    handle = client.reach(node)
    attach = next(f for f in client.heard if f.name == "attach" and f[1] == handle)
    assert LIMITS[node] == attach[10]


def test_the_coordinator_has_a_limit(client: MemoryClient):
    """Proton does not announce it, but it is kept."""
    client.declare_transaction()
    body = section(0x77, "x" * COORDINATOR_REQUEST_MAX_BYTES)
    large = amqp_frames.transfer(client.next_delivery(), body, handle=client.last_handle)
    (answer,) = [frame for frame in client.say(large) if frame.name == "disposition"]
    assert REJECTED == answer[4].descriptor


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("piece_bytes", [10_000, 65_000])
def test_a_request_over_the_limit_is_answered_by_its_id(
    client: MemoryClient, node: str, piece_bytes: int
):
    """However it is cut into frames; and the link serves the next one."""
    head = section(0x73, ["the-id"]) + section(0x74, {"operation": "put-token", "name": "x"})
    message = head + section(0x77, "x" * LIMITS[node])
    (answer,) = [f for f in in_frames(client, node, message, piece_bytes) if f.name == "transfer"]
    properties = client.application_properties(answer)
    assert 403 == properties[STATUS[node]]
    assert b"the-id" in answer.payload
    text = str(properties)
    assert f"exceeds the limit ({LIMITS[node]} bytes) currently allowed on the link" in text
    assert STATUS[node] in client.ask(node, {"operation": "nothing"}, {})


@pytest.mark.parametrize("node", NODES)
def test_a_request_over_the_limit_without_an_id_ends_the_link(client: MemoryClient, node: str):
    message = section(0x77, "x" * LIMITS[node])
    answer = in_frames(client, node, message, 65_000)
    (detach,) = [frame for frame in answer if frame.name == "detach"]
    assert error_of(detach).startswith("amqp:link:message-size-exceeded: ")
    (outcome,) = [frame[4] for frame in answer if frame.name == "disposition"]
    assert REJECTED == outcome.descriptor


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("garbage", [b"\x00", b"\x00\x53\x77\xb1\xff\xff\xff\xff", b"\x40"])
def test_a_request_that_cannot_be_decoded_is_answered_if_it_has_an_id(
    client: MemoryClient, node: str, garbage: bytes
):
    message = section(0x73, ["the-id"]) + garbage
    (answer,) = [f for f in in_frames(client, node, message, 9) if f.name == "transfer"]
    assert 400 == client.application_properties(answer)[STATUS[node]]
    assert b"the-id" in answer.payload


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("message", [b"\x00", b"nothing of AMQP", b"\x00\x53\x77\xb1\xff\xff\xff"])
def test_a_request_that_cannot_be_decoded_at_all_ends_the_link(
    client: MemoryClient, node: str, message: bytes
):
    answer = in_frames(client, node, message, 100)
    (detach,) = [frame for frame in answer if frame.name == "detach"]
    assert error_of(detach).startswith("amqp:decode-error: ")
    assert client.connection.finished is False
