"""Which namespace a client means: by host name, else by whose key it shows."""

from __future__ import annotations

import pytest

from config.model.names import DEFAULT_NAMESPACE
from protocol.codec import Described, ULong
from tests.support.amqp_messages import encoded
from tests.support.memory_broker import ROOT_KEY, ROOT_NAME, MemoryBroker, MemoryClient

DECLARED = """
queues: {of-default: , everywhere: }
authorization_rules:
  default-key: {rights: [Manage], primary_key: default}
namespaces:
  team-a:
    queues: {of-team-a: , everywhere: }
    authorization_rules:
      team-a-key: {rights: [Manage], primary_key: a}
      same-name: {rights: [Manage], primary_key: same-a}
      same-key: {rights: [Manage], primary_key: same}
  team-b.example.com:
    queues:
      everywhere:
      of-team-b:
        authorization_rules:
          entity-key: {rights: [Send], primary_key: entity}
    authorization_rules:
      team-b-key: {rights: [Manage], primary_key: b}
      same-name: {rights: [Manage], primary_key: same-b}
      same-key: {rights: [Manage], primary_key: same}
"""
DEFAULT, TEAM_A, TEAM_B = DEFAULT_NAMESPACE, "team-a", "team-b.example.com"
ONLY_THERE = {DEFAULT: "of-default", TEAM_A: "of-team-a", TEAM_B: "of-team-b"}
ACCEPTED = 0x24
MODES = pytest.mark.parametrize("authorization", ["development", "strict"])

BY_HOST = [
    ("localhost", DEFAULT),
    ("127.0.0.1", DEFAULT),
    ("", DEFAULT),
    ("[::1]:5672", DEFAULT),
    ("unknown.example.com", DEFAULT),
    (f"{DEFAULT}.servicebus.windows.net", DEFAULT),
    ("team-a", TEAM_A),
    ("team-a:5672", TEAM_A),
    ("TEAM-A.localhost", TEAM_A),
    ("team-a.servicebus.windows.net", TEAM_A),
    ("team-b.example.com", TEAM_B),
    ("Team-B.example.com:5672", TEAM_B),
    ("team-b.elsewhere.com", DEFAULT),
]
BY_KEY = [
    (ROOT_NAME, ROOT_KEY, DEFAULT),
    ("default-key", "default", DEFAULT),
    ("team-a-key", "a", TEAM_A),
    ("TEAM-A-KEY", "a", TEAM_A),
    ("team-b-key", "b", TEAM_B),
    ("same-name", "same-a", TEAM_A),
    ("same-name", "same-b", TEAM_B),
    ("entity-key", "entity", TEAM_B),
]


def namespace(client: MemoryClient) -> str:
    """Returns the namespace of a client, by the entities that it can use."""
    (found,) = [name for name, path in ONLY_THERE.items() if client.attach_sender(path) is None]
    return found


def authenticate(client: MemoryClient, key_name: str, key: str) -> None:
    """Put a token for every entity, as a client does that uses them all."""
    statuses = [client.authenticate(path, key_name, key)[0] for path in ONLY_THERE.values()]
    assert 202 in statuses


@pytest.fixture
def broker(authorization: str) -> MemoryBroker:
    return MemoryBroker(DECLARED, authorization=authorization)


@MODES
@pytest.mark.parametrize(("hostname", "expected"), BY_HOST)
def test_a_host_name_selects_a_namespace(broker: MemoryBroker, hostname: str, expected: str):
    """By its first label or by all of it; the first namespace answers on any other."""
    client = broker.connect(hostname)
    authenticate(client, ROOT_NAME, ROOT_KEY)
    assert expected == namespace(client)


@MODES
@pytest.mark.parametrize(("key_name", "key", "expected"), BY_KEY)
def test_a_key_selects_a_namespace(broker: MemoryBroker, key_name: str, key: str, expected: str):
    """Where the host name selects none."""
    client = broker.connect()
    authenticate(client, key_name, key)
    assert expected == namespace(client)


@MODES
@pytest.mark.parametrize(("key_name", "key", "expected"), BY_KEY)
def test_plain_credentials_select_a_namespace(
    broker: MemoryBroker, key_name: str, key: str, expected: str
):
    """As tokens do."""
    assert expected == namespace(broker.connect(plain=(key_name, key)))


def test_no_token_in_development_is_the_first_namespace():
    """Or the one that the host name selects."""
    broker = MemoryBroker(DECLARED)
    assert DEFAULT == namespace(broker.connect())
    assert TEAM_A == namespace(broker.connect("team-a.localhost"))


@MODES
@pytest.mark.parametrize(
    ("hostname", "key_name", "key"),
    [
        ("team-a.localhost", "team-b-key", "b"),
        ("team-a.localhost", "default-key", "default"),
        ("team-a.localhost", "same-name", "same-b"),
        (f"{DEFAULT}.localhost", "team-a-key", "a"),
    ],
)
def test_a_key_of_another_namespace_opens_nothing(
    broker: MemoryBroker, hostname: str, key_name: str, key: str
):
    """The host name has the last word."""
    client = broker.connect(hostname)
    status, why = client.authenticate("everywhere", key_name, key)
    assert (401, "InvalidSignature") == (status, why.partition(":")[0])
    refused = broker.connect(hostname, plain=(key_name, key))
    assert "close" in [frame.name for frame in refused.greeting]


@MODES
@pytest.mark.parametrize("hostname", ["team-a.localhost", "team-b.example.com"])
def test_a_key_that_two_namespaces_know_is_good_in_either(broker: MemoryBroker, hostname: str):
    """Where the host name says which."""
    client = broker.connect(hostname)
    assert 202 == client.authenticate("everywhere", "same-key", "same")[0]
    plain = broker.connect(hostname, plain=("same-key", "same"))
    assert plain.attach_sender("everywhere") is None


@MODES
def test_a_key_that_two_namespaces_know_selects_neither(broker: MemoryBroker):
    """And the refusal says what to do."""
    client = broker.connect()
    status, why = client.authenticate("everywhere", "same-key", "same")
    assert (401, True) == (status, "key of the namespaces team-a, team-b.example.com" in why)
    refused = broker.connect(plain=("same-key", "same"))
    assert "close" in [frame.name for frame in refused.greeting]


@MODES
def test_a_connection_stays_in_its_namespace(broker: MemoryBroker):
    """A later key can select no other, neither after a key nor after the first link."""
    client = broker.connect()
    assert 202 == client.authenticate("everywhere", "team-a-key", "a")[0]
    status, why = client.authenticate("everywhere", "team-b-key", "b")
    assert 401 == status
    assert (
        "key of the namespace 'team-b.example.com', and the connection is in the namespace 'team-a'"
        in why
    )
    client = broker.connect()
    assert 202 == client.authenticate("everywhere", ROOT_NAME, ROOT_KEY)[0]
    assert client.attach_sender("everywhere") is None
    assert 401 == client.authenticate("everywhere", "team-a-key", "a")[0]


def test_a_link_without_a_token_is_in_the_first_namespace():
    """A later key of another namespace is refused with the reason, and the link stays."""
    broker = MemoryBroker(DECLARED)
    client = broker.connect()
    assert client.attach_sender("of-default") is None
    status, why = client.authenticate("everywhere", "team-a-key", "a")
    assert (401, True) == (status, f"is in the namespace '{DEFAULT}'" in why)
    assert client.attach_sender("of-default") is None


@MODES
@pytest.mark.parametrize(("key_name", "key", "expected"), BY_KEY)
def test_a_transaction_begins_where_a_later_key_leads(
    broker: MemoryBroker, key_name: str, key: str, expected: str
):
    """SDKs declare one before they put the token that selects the namespace."""
    client = broker.connect()
    transaction_id = client.declare_transaction()
    authenticate(client, key_name, key)
    assert client.attach_sender(ONLY_THERE[expected]) is None
    assert ACCEPTED == client.send_in_transaction(
        transaction_id, encoded(Described(ULong(0x75), b"x"))
    )
    assert ACCEPTED == client.commit(transaction_id)
    counts = {view.path: view.active_count for view in broker.namespaces[expected].views()}
    assert 1 == counts[ONLY_THERE[expected]]


@MODES
def test_namespaces_do_not_see_each_other(broker: MemoryBroker):
    """Entities of the same name are not the same."""
    for key_name, key in (("team-a-key", "a"), ("team-b-key", "b")):
        client = broker.connect(plain=(key_name, key))
        assert client.attach_sender("everywhere") is None
    views = {name: [view.path for view in one.views()] for name, one in broker.namespaces.items()}
    assert ["everywhere", "of-team-a"] == sorted(views[TEAM_A])
    assert ["everywhere", "of-team-b"] == sorted(views[TEAM_B])
