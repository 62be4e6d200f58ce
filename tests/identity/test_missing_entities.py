"""The errors for an entity that does not exist, from `$cbs` and at attach."""

from __future__ import annotations

import base64
import json

import pytest

from config.model.definitions import QueueDefinition
from protocol.amqp.nodes.cbs import JAVA_SDK, PYTHON_SDK
from tests.support.memory_broker import ROOT_KEY, ROOT_NAME, MemoryBroker, MemoryClient

DECLARED = """
queues:
  orders:
  folder/below:
topics:
  prices:
    subscriptions: {all: }
  lonely:
"""


@pytest.fixture(params=["development", "strict"])
def broker(request: pytest.FixtureRequest) -> MemoryBroker:
    return MemoryBroker(DECLARED, authorization=request.param)


def put(client: MemoryClient, path: str) -> tuple[int, str]:
    return client.authenticate(path, ROOT_NAME, ROOT_KEY)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "$management",
        "orders",
        "ORDERS",
        "orders/$management",
        "orders/$DeadLetterQueue",
        "orders/$Transfer/$DeadLetterQueue",
        "orders/$DeadLetterQueue/$management",
        "folder",
        "folder/below",
        "prices",
        "prices/Subscriptions",
        "prices/Subscriptions/all",
        "prices/subscriptions/all/$management",
        "prices/Subscriptions/all/$DeadLetterQueue",
        "lonely/Subscriptions",
    ],
)
def test_a_token_for_what_is_there_is_taken(broker: MemoryBroker, path: str):
    """For entities, their sub-queues and nodes, the paths above them, and the namespace."""
    assert (202, "Accepted") == put(broker.connect(), path)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("Nowhere", "Nowhere"),
        ("nowhere/$management", "nowhere"),
        ("nowhere/$DeadLetterQueue", "nowhere/$DeadLetterQueue"),
        ("order", "order"),
        ("orders/below", "orders/below"),
        ("folder/elsewhere", "folder/elsewhere"),
        ("prices/Subscriptions/none", "prices/Subscriptions/none"),
        ("nowhere/Subscriptions/all", "nowhere/Subscriptions/all"),
    ],
)
def test_a_token_for_what_is_not_there_is_answered_with_404(
    broker: MemoryBroker, path: str, named: str
):
    """The Go SDK gets its not-found error from this answer only. JavaScript and Java recognise
    theirs by the sentence."""
    status, text = put(broker.connect("some.host:5672"), path)
    assert 404 == status
    assert text.startswith(
        f"The messaging entity 'sb://some.host:5672/{named}' could not be found. TrackingId:"
    )


def test_a_wrong_key_is_reported_before_a_missing_entity(broker: MemoryBroker):
    """A client without a valid key must not learn which entities exist."""
    status, text = broker.connect().authenticate("nowhere", ROOT_NAME, "wrong")
    assert (401, "InvalidSignature") == (status, text.partition(":")[0])


@pytest.mark.parametrize("claim", ["Send", "Listen"])
def test_a_missing_claim_is_reported_before_a_missing_entity(claim: str):
    """A key that can only send, or only receive, gets the error at attach: the missing claim, or
    the missing entity. Go's live tests receive with a Send key."""
    rules = f"authorization_rules:\n  one: {{rights: [{claim}], primary_key: one-key}}\n"
    client = MemoryBroker(DECLARED + rules, authorization="strict").connect()
    assert 202 == client.authenticate("nowhere", "one", "one-key")[0]
    refusals = {
        "Send": client.attach_sender("nowhere"),
        "Listen": client.attach_receiver("nowhere"),
    }
    assert (refusals.pop(claim) or "").startswith("amqp:not-found: The messaging entity")
    ((lacking, refusal),) = refusals.items()
    assert (refusal or "").startswith(
        f"amqp:unauthorized-access: Unauthorized access. '{lacking}' claim(s) are required"
    )


@pytest.mark.parametrize(
    "path", ["prices/Subscriptions/none", "nowhere/$DeadLetterQueue", "nowhere/Subscriptions/all"]
)
def test_a_listen_key_gets_404_for_missing_subscriptions_and_sub_queues(path: str):
    """Messages cannot be sent there, so the key has every claim that a link could need."""
    rules = "authorization_rules:\n  one: {rights: [Listen], primary_key: one-key}\n"
    client = MemoryBroker(DECLARED + rules, authorization="strict").connect()
    assert 404 == client.authenticate(path, "one", "one-key")[0]


def test_the_token_counts_for_an_entity_that_is_created_later(broker: MemoryBroker):
    """The same client may create it, and need not put the token again."""
    client = broker.connect()
    assert 404 == put(client, "later")[0]
    refusal = client.attach_sender("later")
    assert refusal is not None
    assert refusal.startswith(
        "amqp:not-found: The messaging entity 'sb://localhost/later' could not be found."
    )
    broker.create("later", QueueDefinition(), broker.access.identity.default_namespace)
    assert client.attach_sender("later") is None
    assert 202 == put(client, "later")[0]


def test_an_entity_that_was_deleted_is_missing(broker: MemoryBroker):
    """And so is the path above it, once nothing is left below."""
    client = broker.connect()
    broker.delete("folder/below", broker.access.identity.default_namespace)
    assert [404, 404] == [put(client, path)[0] for path in ("folder/below", "folder")]


def test_what_would_be_created_on_first_use_is_not_missing():
    """The attach creates it."""
    broker = MemoryBroker(DECLARED, create_on_first_use=True)
    client = broker.connect()
    assert 202 == put(client, "nowhere")[0]
    assert client.attach_sender("nowhere") is None


def test_the_python_sdk_gets_the_error_at_attach(broker: MemoryBroker):
    """From 404 it would make an authentication error and try again; its own live tests, which use
    bearer tokens, expect just that."""
    client = broker.connect(product=PYTHON_SDK)
    assert 202 == put(client, "nowhere")[0]
    refusal = client.attach_receiver("nowhere")
    assert refusal is not None
    assert "The messaging entity 'sb://localhost/nowhere' could not be found." in refusal
    if not broker.access.identity.strict:
        assert 404 == client.put_token("sb://localhost/nowhere", _bearer_token())[0]


def test_the_java_sdk_gets_the_error_at_attach(broker: MemoryBroker):
    """After 404 it would wait for ever in its next management operation on that entity."""
    client = broker.connect(product=JAVA_SDK)
    assert 202 == put(client, "nowhere")[0]
    refusal = client.attach_receiver("nowhere")
    assert refusal is not None
    assert "The messaging entity 'sb://localhost/nowhere' could not be found." in refusal


def _bearer_token() -> str:
    parts = ({"alg": "none"}, {"exp": 1 << 40})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts)
    return ".".join([*encoded, ""])


@pytest.mark.parametrize("operation", ["peek-message", "schedule-message", "enumerate-rules"])
def test_a_request_for_a_missing_entity_is_answered_with_404(broker: MemoryBroker, operation: str):
    """Also if the client attached to the node with a token for the namespace."""
    client = broker.connect()
    assert 202 == put(client, "")[0]
    body: dict[str, object] = {"messages": []} if operation.startswith("schedule") else {}
    assert (404, "amqp:not-found") == client.manage("nowhere", f"com.microsoft:{operation}", body)
