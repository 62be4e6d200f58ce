"""What was granted and is no more: tokens that run out, keys that are withdrawn, none put at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from config.model.definitions import DEFAULT_LOCK_DURATION_MS, AuthorizationRule, QueueDefinition
from config.model.limits import RELAXED
from config.model.names import DEFAULT_NAMESPACE
from tests.support import amqp_frames
from tests.support.amqp_messages import DATA, encoded
from tests.support.memory_broker import (
    HOUR_MS,
    ROOT_KEY,
    ROOT_NAME,
    MemoryBroker,
    MemoryClient,
    error_of,
)

DECLARED = "queues: {orders: , invoices: }"
UNAUTHORIZED = "amqp:unauthorized-access: "


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(DECLARED, authorization="strict")


def detached(client: MemoryClient) -> list[tuple[int, str]]:
    """Handles and reasons of the links that the broker has ended since."""
    return [(frame[0], error_of(frame)) for frame in client.listen() if frame.name == "detach"]


def names(frames: list[amqp_frames.Frame]) -> list[str]:
    return [frame.name for frame in frames]


def authenticated(broker: MemoryBroker, *paths: str, lasting_ms: int = HOUR_MS) -> MemoryClient:
    client = broker.connect()
    for path in paths:
        assert 202 == client.authenticate(path, ROOT_NAME, ROOT_KEY, lasting_ms)[0]
    return client


# --- tokens that run out -----------------------------------------------------------------------


def test_links_end_when_their_token_runs_out(broker: MemoryBroker):
    """To the millisecond, and all that rest on it."""
    client = authenticated(broker, "orders")
    assert client.attach_sender("orders") is None
    assert client.attach_receiver("orders") is None
    broker.advance(HOUR_MS - 1)
    assert [] == detached(client)
    broker.advance(1)
    ended = detached(client)
    assert 2 == len(ended)
    assert all(why.startswith(UNAUTHORIZED + "ExpiredToken: ") for _, why in ended)


def test_a_renewed_token_keeps_its_links(broker: MemoryBroker):
    """SDKs renew before the time is over; nothing is seen of it."""
    client = authenticated(broker, "orders")
    client.attach_receiver("orders")
    broker.advance(HOUR_MS - 1000)
    assert 202 == client.authenticate("orders", ROOT_NAME, ROOT_KEY)[0]
    broker.advance(HOUR_MS - 1)
    assert [] == detached(client)
    broker.advance(1)
    assert 1 == len(detached(client))


def test_a_link_ends_with_the_last_of_its_grants(broker: MemoryBroker):
    """Of a token for the entity and one for its namespace, the later expiry counts."""
    client = broker.connect()
    client.authenticate("orders", ROOT_NAME, ROOT_KEY, HOUR_MS)
    client.authenticate("", ROOT_NAME, ROOT_KEY, 2 * HOUR_MS)
    client.attach_receiver("orders")
    broker.advance(HOUR_MS)
    assert [] == detached(client)
    broker.advance(HOUR_MS)
    assert 1 == len(detached(client))


def test_links_of_other_tokens_stay(broker: MemoryBroker):
    """Each rests on its own."""
    client = broker.connect()
    client.authenticate("orders", ROOT_NAME, ROOT_KEY, HOUR_MS)
    client.authenticate("invoices", ROOT_NAME, ROOT_KEY, 2 * HOUR_MS)
    client.attach_sender("orders")
    client.attach_sender("invoices")
    broker.advance(HOUR_MS)
    ((_, why),) = detached(client)
    assert "sb://localhost/orders'" in why


def test_requests_are_over_with_the_token_too(broker: MemoryBroker):
    """The links to the node end like any others."""
    client = authenticated(broker, "orders")
    assert 204 == client.manage("orders", "com.microsoft:peek-message", {})[0]
    broker.advance(HOUR_MS)
    assert 2 == len(detached(client))


def test_the_connection_lives_on_and_takes_a_new_token(broker: MemoryBroker):
    """`$cbs` rests on nothing."""
    client = authenticated(broker, "orders")
    client.attach_sender("orders")
    broker.advance(HOUR_MS)
    assert UNAUTHORIZED in str(client.attach_sender("orders"))
    assert 202 == client.authenticate("orders", ROOT_NAME, ROOT_KEY)[0]
    assert client.attach_sender("orders") is None


def test_messages_locked_by_an_ended_link_come_back_when_their_locks_end(broker: MemoryBroker):
    """As with any link that detaches on a live connection."""
    client = authenticated(broker, "orders", lasting_ms=1000)
    client.attach_sender("orders")
    client.say(amqp_frames.transfer(1, encoded(DATA), handle=client.last_handle))
    client.attach_receiver("orders")
    assert "transfer" in names(client.say(amqp_frames.flow(1, handle=client.last_handle)))
    broker.advance(1000)
    other = authenticated(broker, "orders")
    other.attach_receiver("orders")
    assert "transfer" not in names(other.say(amqp_frames.flow(1, handle=other.last_handle)))
    broker.advance(DEFAULT_LOCK_DURATION_MS)
    assert "transfer" in names(other.listen())


def test_nothing_ends_in_development(broker: MemoryBroker):
    """Where links rest on nothing."""
    broker = MemoryBroker(DECLARED)
    client = authenticated(broker, "orders")
    client.attach_sender("orders")
    broker.advance(2 * HOUR_MS)
    assert [] == detached(client)
    assert client.wake_at_ms is None


def test_plain_credentials_do_not_run_out(broker: MemoryBroker):
    """They are the connection's own."""
    client = broker.connect(plain=(ROOT_NAME, ROOT_KEY))
    client.attach_sender("orders")
    broker.advance(1000 * HOUR_MS)
    assert [] == detached(client)


# --- tokens given up ---------------------------------------------------------------------------


def test_deleting_a_token_ends_its_links(broker: MemoryBroker):
    """Because the client withdrew the claims itself."""
    client = authenticated(broker, "orders")
    client.attach_sender("orders")
    before = len(client.heard)
    assert 202 == client.delete_token("sb://localhost/orders")
    assert 1 == sum(frame.name == "detach" for frame in client.heard[before:])


def test_a_lesser_token_takes_the_place_of_the_greater():
    """Links that need what is gone end; others stay."""
    rules = "{listen: {rights: [Listen], primary_key: k}}"
    broker = MemoryBroker(
        f"queues: {{orders: {{authorization_rules: {rules}}}}}", authorization="strict"
    )
    client = authenticated(broker, "orders")
    client.attach_sender("orders")
    sending = client.last_handle
    client.attach_receiver("orders")
    before = len(client.heard)
    client.authenticate("orders", "listen", "k")
    ended = [frame[0] for frame in client.heard[before:] if frame.name == "detach"]
    assert [sending] == ended


# --- keys that are withdrawn -------------------------------------------------------------------

SHOP = AuthorizationRule("shop", "first", "second", frozenset({"Send"}))


@pytest.fixture
def shop(broker: MemoryBroker) -> MemoryClient:
    """A client that sends with the first key of a rule."""
    broker.create("shop", QueueDefinition(authorization_rules=(SHOP,)), DEFAULT_NAMESPACE)
    client = broker.connect()
    assert 202 == client.authenticate("shop", "shop", "first")[0]
    assert client.attach_sender("shop") is None
    return client


def change(broker: MemoryBroker, *rules: AuthorizationRule) -> None:
    broker.update("shop", QueueDefinition(authorization_rules=rules), DEFAULT_NAMESPACE)


def test_a_rule_is_live_as_soon_as_it_exists(broker: MemoryBroker):
    """And not a moment before."""
    client = broker.connect()
    broker.create("shop", QueueDefinition(), DEFAULT_NAMESPACE)
    assert 401 == client.authenticate("shop", "shop", "first")[0]
    change(broker, SHOP)
    assert 202 == client.authenticate("shop", "shop", "first")[0]
    assert client.attach_sender("shop") is None


@pytest.mark.parametrize(
    "rules",
    [
        (),
        (replace(SHOP, primary_key="other"),),
        (replace(SHOP, rights=frozenset({"Listen"})),),
        (replace(SHOP, name="renamed"),),
    ],
    ids=["removed", "key changed", "right taken away", "renamed"],
)
def test_what_a_rule_loses_is_lost_at_once(broker: MemoryBroker, shop: MemoryClient, rules):
    """For links, for new links and for new tokens."""
    change(broker, *rules)
    ((_, why),) = detached(shop)
    assert why.startswith(UNAUTHORIZED + "InvalidSignature: The key that signed")
    assert UNAUTHORIZED in str(shop.attach_sender("shop"))


@pytest.mark.parametrize(
    "rules",
    [
        (replace(SHOP, secondary_key="other"),),
        (replace(SHOP, rights=frozenset({"Send", "Listen"})),),
        (replace(SHOP, primary_key="other", secondary_key="first"),),
        (SHOP, AuthorizationRule("one more", "key")),
    ],
    ids=["other key changed", "right added", "key moved", "rule added"],
)
def test_what_a_rule_keeps_is_kept(broker: MemoryBroker, shop: MemoryClient, rules):
    """One key can be changed while the other is in use."""
    change(broker, *rules)
    assert [] == detached(shop)


def test_the_rules_of_a_deleted_entity_are_gone(broker: MemoryBroker, shop: MemoryClient):
    """Also for one that is made anew under its name."""
    broker.delete("shop", DEFAULT_NAMESPACE)
    assert 401 == shop.authenticate("shop", "shop", "first")[0]
    broker.create("shop", QueueDefinition(), DEFAULT_NAMESPACE)
    assert 401 == shop.authenticate("shop", "shop", "first")[0]
    assert UNAUTHORIZED in str(shop.attach_sender("shop"))


def test_a_deleted_namespace_does_not_hide_a_lost_key():
    """The rules of the namespace change together with the key, and less is left of them."""
    broker = MemoryBroker("namespaces: {mine: , other: }", authorization="strict")
    broker.create("shop", QueueDefinition(authorization_rules=(SHOP,)), "mine")
    broker.create("shop", QueueDefinition(authorization_rules=(SHOP,)), "other")
    client = broker.connect(hostname="mine.localhost")
    assert 202 == client.authenticate("shop", "shop", "first")[0]
    assert client.attach_sender("shop") is None
    del broker.namespaces["other"]
    broker.update("shop", QueueDefinition(), "mine")
    assert 1 == len(detached(client))


def test_plain_credentials_end_with_their_rule(broker: MemoryBroker):
    """As tokens do."""
    broker.create("shop", QueueDefinition(authorization_rules=(SHOP,)), DEFAULT_NAMESPACE)
    client = broker.connect(plain=("shop", "second"))
    assert client.attach_sender("shop") is None
    change(broker)
    assert 1 == len(detached(client))


# --- no token at all ---------------------------------------------------------------------------


def test_a_client_that_puts_no_token_is_closed(broker: MemoryBroker):
    """After the time it is given, and not before."""
    client = broker.connect()
    broker.advance(RELAXED.authorization_timeout_ms - 1)
    assert not client.connection.finished
    broker.advance(1)
    (close,) = [frame for frame in client.listen() if frame.name == "close"]
    assert error_of(close).startswith(UNAUTHORIZED + "No token was put within 60 seconds")
    assert client.connection.finished


def test_a_client_whose_token_is_refused_is_closed(broker: MemoryBroker):
    """Trying is not enough."""
    client = broker.connect()
    assert 401 == client.authenticate("orders", ROOT_NAME, "wrong")[0]
    broker.advance(RELAXED.authorization_timeout_ms)
    assert client.connection.finished


@pytest.mark.parametrize("plain", [None, (ROOT_NAME, ROOT_KEY)])
def test_an_authenticated_client_is_not_closed_by_the_authorization_timeout(
    broker: MemoryBroker, plain
):
    """By a token or by its credentials."""
    client = broker.connect(plain=plain)
    if plain is None:
        client.authenticate("orders", ROOT_NAME, ROOT_KEY)
    broker.advance(RELAXED.authorization_timeout_ms)
    assert not client.connection.finished


def test_development_asks_for_no_token(broker: MemoryBroker):
    """However long it takes."""
    broker = MemoryBroker(DECLARED)
    client = broker.connect()
    broker.advance(1000 * HOUR_MS)
    assert client.attach_sender("orders") is None


# --- what development keeps --------------------------------------------------------------------


def test_a_wrong_key_is_refused_in_development_too():
    """So that a mistake in a connection string is found before production."""
    client = MemoryBroker(DECLARED).connect()
    status, why = client.authenticate("orders", ROOT_NAME, "wrong")
    assert (401, True) == (status, why.startswith("InvalidSignature: "))
    assert "TrackingId:" in why
    assert 202 == client.authenticate("orders", ROOT_NAME, ROOT_KEY)[0]


@pytest.mark.parametrize("authorization", ["development", "strict"])
def test_wrong_plain_credentials_are_refused(authorization: str):
    """By the SASL outcome, before anything else is heard."""
    broker = MemoryBroker(DECLARED, authorization=authorization)
    client = broker.connect(plain=(ROOT_NAME, "wrong"))
    assert ["sasl-mechanisms", "sasl-outcome"] == [frame.name for frame in client.greeting]
    assert 1 == client.greeting[-1][0]
    assert client.connection.finished


# --- nothing is left behind --------------------------------------------------------------------


@pytest.mark.parametrize("ending", [amqp_frames.detach, lambda _: amqp_frames.frame("end")])
def test_refused_and_ended_links_are_forgotten(broker: MemoryBroker, ending):
    """A client may try as often as it likes on one connection."""
    client = authenticated(broker, "orders")
    assert 404 == client.authenticate("missing", ROOT_NAME, ROOT_KEY)[0]
    before = client.connection.link_count
    assert client.attach_sender("missing") is not None  # there is no such entity
    assert client.attach_sender("invoices") is not None  # not granted
    client.attach_receiver("orders")
    client.delete_token("sb://localhost/orders")
    handle = client.last_handle
    client.say(*(ending(one) for one in range(handle - 2, handle + 1)))
    assert client.connection.link_count <= before
