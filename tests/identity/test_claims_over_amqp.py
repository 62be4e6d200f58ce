"""The claim that every AMQP operation needs in strict mode: all cells of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from config.model.limits import RELAXED
from protocol.amqp.nodes.management import OPERATIONS
from protocol.codec import Array, ArrayCode, Int, Long, Timestamp
from protocol.identity import sas
from tests.support import amqp_frames
from tests.support.amqp_messages import DATA, encoded
from tests.support.memory_broker import ROOT_KEY, ROOT_NAME, LinkRefused, MemoryBroker, MemoryClient

if TYPE_CHECKING:
    from collections.abc import Callable

DECLARED = """
queues:
  orders:
    authorization_rules: &rules
      send: {rights: [Send], primary_key: send-key}
      listen: {rights: [Listen], primary_key: listen-key}
      manage: {rights: [Manage], primary_key: manage-key}
  orders/eu:
  talks: {requires_session: true, authorization_rules: *rules}
  elsewhere:
    authorization_rules:
      elsewhere: {rights: [Manage], primary_key: elsewhere-key}
topics:
  prices:
    authorization_rules: *rules
    subscriptions: {all: }
authorization_rules:
  everywhere-send: {rights: [Send], primary_key: everywhere-send-key}
"""
SEND = {"send", "manage", "everywhere-send", ROOT_NAME}
LISTEN = {"listen", "manage", ROOT_NAME}
MANAGE = {"manage", ROOT_NAME}
KEYS = ["send", "listen", "manage", "everywhere-send", ROOT_NAME]
SUBSCRIPTION = "prices/Subscriptions/all"
UNAUTHORIZED = "amqp:unauthorized-access"


def _attach_sender(path: str) -> Callable[[MemoryClient], bool]:
    return lambda client: _granted(client.attach_sender(path))


def _attach_receiver(path: str) -> Callable[[MemoryClient], bool]:
    return lambda client: _granted(client.attach_receiver(path))


def _granted(refusal: str | None) -> bool:
    if refusal is None:
        return True
    assert refusal.startswith(f"{UNAUTHORIZED}: Unauthorized access."), refusal
    return False


def _manage(path: str, operation: str, body: dict[str, object]) -> Callable[[MemoryClient], bool]:
    def attempt(client: MemoryClient) -> bool:
        try:
            status, condition = client.manage(path, f"com.microsoft:{operation}", body)
        except LinkRefused as refused:
            return _granted(str(refused))
        assert (401 == status) == (UNAUTHORIZED == condition)
        return 401 != status

    return attempt


TOKENS = Array(ArrayCode.UUID, [uuid4()])
NUMBERS = Array(ArrayCode.LONG, [Long(1)])
SCHEDULED = {"message-id": "m", "message": encoded(DATA)}
REQUESTS: dict[str, tuple[str, dict[str, object], set[str]]] = {
    "renew-lock": ("orders", {"lock-tokens": TOKENS}, LISTEN),
    "update-disposition": (
        "orders",
        {"lock-tokens": TOKENS, "disposition-status": "completed"},
        LISTEN,
    ),
    "peek-message": (
        "orders",
        {"from-sequence-number": Long(0), "message-count": Int(1)},
        LISTEN,
    ),
    "receive-by-sequence-number": ("orders", {"sequence-numbers": NUMBERS}, LISTEN),
    "batch-delete-messages": (
        "orders",
        {"message-count": Int(1), "enqueued-time-utc": Timestamp(0)},
        LISTEN,
    ),
    "schedule-message": ("orders", {"messages": [SCHEDULED]}, SEND),
    "cancel-scheduled-message": ("orders", {"sequence-numbers": NUMBERS}, SEND),
    "renew-session-lock": ("talks", {"session-id": "s"}, LISTEN),
    "set-session-state": ("talks", {"session-id": "s", "session-state": None}, LISTEN),
    "get-session-state": ("talks", {"session-id": "s"}, LISTEN),
    "get-message-sessions": ("talks", {"skip": Int(0), "top": Int(10)}, LISTEN),
    "add-rule": (
        SUBSCRIPTION,
        {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "1=1"}}},
        MANAGE,
    ),
    "remove-rule": (SUBSCRIPTION, {"rule-name": "$Default"}, MANAGE),
    "enumerate-rules": (SUBSCRIPTION, {"skip": Int(0), "top": Int(10)}, LISTEN),
}
ATTEMPTS = {
    "send to a queue": ("orders", _attach_sender("orders"), SEND),
    "send to a topic": ("prices", _attach_sender("prices"), SEND),
    "receive from a queue": ("orders", _attach_receiver("orders"), LISTEN),
    "receive from its dead letters": (
        "orders",
        _attach_receiver("orders/$DeadLetterQueue"),
        LISTEN,
    ),
    "receive from a subscription": (SUBSCRIPTION, _attach_receiver(SUBSCRIPTION), LISTEN),
} | {
    operation: (path, _manage(path, operation, body), claims)
    for operation, (path, body, claims) in REQUESTS.items()
}


def _key(name: str) -> str:
    return ROOT_KEY if name == ROOT_NAME else f"{name}-key"


@pytest.fixture(scope="module")
def broker() -> MemoryBroker:
    return MemoryBroker(DECLARED, authorization="strict")


def test_the_table_is_complete():
    """A new operation needs a row with its claim."""
    assert OPERATIONS.keys() == REQUESTS.keys()


@pytest.mark.parametrize("key_name", KEYS)
@pytest.mark.parametrize("operation", ATTEMPTS)
def test_an_operation_is_for_those_with_its_claim(
    broker: MemoryBroker, operation: str, key_name: str
):
    """Clients without the claim are refused."""
    path, attempt, allowed = ATTEMPTS[operation]
    client = broker.connect()
    assert 202 == client.authenticate(path, key_name, _key(key_name))[0]
    assert (key_name in allowed) == attempt(client)


@pytest.mark.parametrize("operation", ATTEMPTS)
def test_nothing_is_reached_without_a_token(broker: MemoryBroker, operation: str):
    """A connection alone gives no right to anything."""
    _, attempt, _ = ATTEMPTS[operation]
    assert not attempt(broker.connect())


def test_a_transaction_opens_nothing(broker: MemoryBroker):
    """SDKs declare a transaction before they put a token. Operations in it still need their
    claims."""
    client = broker.connect()
    client.declare_transaction()
    for attempt in (_attach_sender("orders"), _attach_receiver("orders")):
        assert not attempt(client)


@pytest.mark.parametrize("operation", ATTEMPTS)
def test_nothing_is_reached_with_the_key_of_another_entity(broker: MemoryBroker, operation: str):
    """With any claim on that entity."""
    _, attempt, _ = ATTEMPTS[operation]
    client = broker.connect()
    assert 202 == client.authenticate("elsewhere", "elsewhere", "elsewhere-key")[0]
    assert not attempt(client)


@pytest.mark.parametrize("operation", ATTEMPTS)
def test_everything_is_reached_without_a_token_in_development(operation: str):
    """Development mode needs no token."""
    _, attempt, _ = ATTEMPTS[operation]
    assert attempt(MemoryBroker(DECLARED).connect())


def test_the_key_of_an_entity_signs_for_nothing_else(broker: MemoryBroker):
    """However the token and its audience are spelled."""
    client = broker.connect()
    for path in ("orders", "", "elsewhere2", "elsewher"):
        status, why = client.authenticate(path, "elsewhere", "elsewhere-key")
        assert (401, "InvalidSignature") == (status, why.partition(":")[0])


def test_a_token_for_the_node_of_an_entity_is_enough_for_requests(broker: MemoryBroker):
    """Some SDKs put one for the entity and one for its `$management`, some only the latter."""
    client = broker.connect()
    client.authenticate("orders/$management", "listen", "listen-key")
    path, body, _ = REQUESTS["peek-message"]
    assert client.manage(path, "com.microsoft:peek-message", body)[0] in {200, 204}
    assert client.attach_receiver("orders") is not None


@pytest.mark.parametrize(
    ("granted", "refused"),
    [
        ([], "orders"),
        (["orders"], "prices"),
        (["prices"], "orders"),
        (["orders", "prices"], None),
    ],
)
def test_sending_on_to_another_entity_asks_for_both(
    broker: MemoryBroker, granted: list[str], refused: str | None
):
    """For the one the messages go through and the one they go to."""
    client = broker.connect()
    for path in granted:
        client.authenticate(path, "send", "send-key")
    answer = client.attach_sender("orders", via="prices")
    if refused is None:
        assert answer is None
    else:
        assert f"sb://localhost/{refused}'" in str(answer)


@pytest.mark.parametrize("key_name", KEYS)
def test_plain_credentials_have_the_claims_of_their_rule(broker: MemoryBroker, key_name: str):
    """Without any token; on every entity that has the rule."""
    for path, attempt, allowed in ATTEMPTS.values():
        client = broker.connect(plain=(key_name, _key(key_name)))
        assert (key_name in allowed) == attempt(client), path


@pytest.mark.parametrize("key_name", ["send", "listen", "manage"])
@pytest.mark.parametrize("plain", [False, True])
def test_a_key_of_a_queue_does_not_reach_another_below_it(key_name: str, plain: bool):
    """By a token for the one, for the other or for all, or by its name and key."""
    broker = MemoryBroker(DECLARED, authorization="strict")
    credentials = (key_name, f"{key_name}-key")
    client = broker.connect(plain=credentials if plain else None)
    if not plain:
        assert 202 == client.authenticate("orders", *credentials)[0]
        assert [401, 401] == [client.authenticate(p, *credentials)[0] for p in ("orders/eu", "")]
    for attach in (client.attach_sender, client.attach_receiver):
        assert not _granted(attach("orders/eu"))
        assert not _granted(attach("orders/eu/$management"))
        assert not _granted(attach("ordersx"))
    allowed = {"send": "attach_sender", "listen": "attach_receiver", "manage": "attach_sender"}
    assert _granted(getattr(client, allowed[key_name])("Orders"))
    assert _granted(client.attach_receiver("orders/$management"))


@pytest.mark.parametrize(
    ("opened", "resource", "expected"),
    [
        ("shop.example", "sb://shop.example/orders", 202),
        ("shop.example:5671", "sb://shop.example/orders", 202),
        ("localhost", "sb://127.0.0.1:5672/orders", 202),
        ("peeklock", "sb://localhost/orders", 202),
        ("", "sb://anything/orders", 202),
        ("shop.example", "sb://other.example/orders", 401),
        ("localhost", "sb://other.example/orders", 401),
        ("localhost", "orders", 401),
        ("shop.example", "orders", 401),
    ],
)
def test_a_token_is_for_the_host_that_the_client_opened(opened: str, resource: str, expected: int):
    """Or for another name of this broker; a bare path is no host."""
    client = MemoryBroker(DECLARED, authorization="strict").connect(opened)
    later_s = client.broker.clock.now_ms() // 1000 + 3600
    token = sas.make(resource, ROOT_NAME, ROOT_KEY, later_s)
    assert expected == client.put_token(f"sb://{opened}/orders", token)[0]


# --- transactions ------------------------------------------------------------------------------------

REJECTED, ACCEPTED = 0x25, 0x24


def test_a_transaction_is_promised_before_a_token_and_begins_with_it(broker: MemoryBroker):
    """The Java SDK declares before it puts its first token, and waits for the answer."""
    client = broker.connect()
    transaction_id = client.declare_transaction()
    assert 202 == client.authenticate("orders", "send", "send-key")[0]
    assert client.attach_sender("orders") is None
    assert ACCEPTED == client.send_in_transaction(transaction_id, encoded(DATA))
    assert ACCEPTED == client.commit(transaction_id)


def test_nothing_is_discharged_without_a_token(broker: MemoryBroker):
    """Neither what was promised nor what another connection has declared."""
    other = broker.connect()
    assert 202 == other.authenticate("orders", "send", "send-key")[0]
    theirs = other.declare_transaction()
    client = broker.connect()
    ours = client.declare_transaction()
    assert REJECTED == client.commit(ours)
    assert REJECTED == client.commit(theirs)
    refusal = client.heard[-1][4].value[0]
    assert UNAUTHORIZED == refusal.value[0]
    assert ACCEPTED == other.commit(theirs)


def test_few_transactions_are_promised_before_a_token():
    """None of them reaches the core, with any frames that follow."""
    broker = MemoryBroker(DECLARED, authorization="strict")
    (namespace,) = broker.namespaces.values()
    client = broker.connect()
    client.declare_transaction()
    outcomes = [client.declare_again() for _ in range(RELAXED.transactions_without_token_max)]
    assert [*[0x33] * (RELAXED.transactions_without_token_max - 1), REJECTED] == outcomes
    client.say(amqp_frames.detach(client.last_handle))
    client.say(amqp_frames.frame("close"))
    assert not namespace._transactions._open


def test_a_token_that_has_run_out_commits_nothing():
    broker = MemoryBroker(DECLARED, authorization="strict")
    client = broker.connect()
    assert 202 == client.authenticate("orders", "send", "send-key", lasting_ms=60_000)[0]
    transaction_id = client.declare_transaction()
    broker.advance(61_000)
    assert REJECTED == client.commit(transaction_id)


def test_a_key_in_sasl_plain_is_enough_for_transactions(broker: MemoryBroker):
    client = broker.connect(plain=(ROOT_NAME, ROOT_KEY))
    assert ACCEPTED == client.commit(client.declare_transaction())
