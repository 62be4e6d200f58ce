"""The claim that every HTTP request needs in strict mode: all cells of the table, on a running
broker."""

from __future__ import annotations

import http.client
import time
from typing import TYPE_CHECKING, Any

import pytest

from protocol.identity import sas
from tests.http.client import entry, queue_entry
from tests.support.server import HOST, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT_NAME, ROOT_KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"

RULES = {
    "send": {"rights": ["Send"], "primary_key": "send-key"},
    "listen": {"rights": ["Listen"], "primary_key": "listen-key"},
    "manage": {"rights": ["Manage"], "primary_key": "manage-key"},
}
CONFIG = {
    "queues": {
        "orders": {"authorization_rules": RULES},
        "orders/eu": None,
        "forwarding": {"authorization_rules": RULES},
        "unneeded": {"authorization_rules": RULES},
        "elsewhere": {
            "authorization_rules": {
                "elsewhere": {"rights": ["Manage"], "primary_key": "elsewhere-key"}
            }
        },
    },
    "topics": {"prices": {"authorization_rules": RULES, "subscriptions": {"all": None}}},
    "authorization_rules": {
        "namespace-listen": {"rights": ["Listen"], "primary_key": "namespace-listen-key"}
    },
    "namespaces": {
        "team-a": {
            "queues": {"of-team-a": None},
            "authorization_rules": {"team-a": {"rights": ["Manage"], "primary_key": "team-a-key"}},
        }
    },
}
SEND = {"send", "manage", ROOT_NAME}
LISTEN = {"listen", "manage", ROOT_NAME, "namespace-listen"}
MANAGE = {"manage", ROOT_NAME}
ROOT = {ROOT_NAME}
KEYS = ["send", "listen", "manage", "namespace-listen", "elsewhere", ROOT_NAME]

LOCKED = "messages/1/00000000-0000-0000-0000-000000000001"
SUBSCRIPTION = "prices/Subscriptions/all"
REQUESTS: dict[str, tuple[str, str, set[str]]] = {
    "namespace": ("GET", "$namespaceinfo", ROOT),
    "queues": ("GET", "$Resources/queues", ROOT),
    "topics": ("GET", "$Resources/Topics", ROOT),
    "create a queue": ("PUT", "new-queue", ROOT),
    "queue": ("GET", "orders", MANAGE),
    "update a queue": ("PUT", "orders", MANAGE),
    "delete a queue": ("DELETE", "no-queue", ROOT),
    "topic": ("GET", "prices", MANAGE),
    "subscriptions": ("GET", "prices/subscriptions", MANAGE),
    "subscription": ("GET", SUBSCRIPTION, MANAGE),
    "create a subscription": ("PUT", "prices/Subscriptions/new", MANAGE),
    "delete a subscription": ("DELETE", "prices/Subscriptions/none", MANAGE),
    "rules": ("GET", f"{SUBSCRIPTION}/rules", MANAGE),
    "rule": ("GET", f"{SUBSCRIPTION}/Rules/$Default", MANAGE),
    "create a rule": ("PUT", f"{SUBSCRIPTION}/Rules/new", MANAGE),
    "delete a rule": ("DELETE", f"{SUBSCRIPTION}/Rules/none", MANAGE),
    "send": ("POST", "orders/messages", SEND),
    "send to a topic": ("POST", "prices/messages", SEND),
    "receive and delete": ("DELETE", "orders/messages/head?timeout=0", LISTEN),
    "peek-lock": ("POST", f"{SUBSCRIPTION}/messages/head?timeout=0", LISTEN),
    "dead letters": ("POST", "orders/$DeadLetterQueue/messages/head?timeout=0", LISTEN),
    "complete": ("DELETE", f"orders/{LOCKED}", LISTEN),
    "abandon": ("PUT", f"orders/{LOCKED}", LISTEN),
    "renew": ("POST", f"orders/{LOCKED}", LISTEN),
}


def described(kind: str, elements: str = "") -> str:
    return entry(f'<{kind} xmlns="{SERVICE_BUS}">{elements}</{kind}>')


BODIES = {
    "create a queue": queue_entry(),
    "update a queue": queue_entry(),
    "create a subscription": described("SubscriptionDescription"),
    "create a rule": described("RuleDescription"),
    "send": "hello",
    "send to a topic": "hello",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(config=CONFIG, environment={"PEEKLOCK_AUTHORIZATION": "strict"}) as broker:
        yield broker


def token(key_name: str, resource: str, key: str | None = None) -> str:
    if key is None:
        key = ROOT_KEY if key_name == ROOT_NAME else f"{key_name}-key"
    return sas.make(resource, key_name, key, int(time.time()) + 3600)


def ask(
    broker: BrokerProcess, method: str, path: str, body: str | None = None, **headers: str | bytes
) -> tuple[int, str]:
    """Status and text of the answer."""
    connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=20)
    try:
        connection.request(method, f"/{path}", body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def attempt(broker: BrokerProcess, request: str, **headers: str) -> bool:
    """Whether a request of the table is let through."""
    method, path, _ = REQUESTS[request]
    if request == "update a queue":
        headers["If-Match"] = "*"
    status, text = ask(broker, method, path, BODIES.get(request), **headers)
    assert status < 500, text
    assert (401 == status) == ("<Code>401</Code>" in text)
    return 401 != status


@pytest.mark.parametrize("key_name", KEYS)
@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_request_is_for_those_with_its_claim(
    broker: BrokerProcess, request_name: str, key_name: str
):
    """Clients without the claim are refused. The token is for the whole namespace, as
    administration clients sign it."""
    allowed = REQUESTS[request_name][2]
    given = token(key_name, f"http://{HOST}:{broker.http_port}")
    assert (key_name in allowed) == attempt(broker, request_name, Authorization=given)


READ = "<Detail>Manage,EntityRead claims required for this operation."
FAILED = "SubCode=40100. Unauthorized. Authorization failed for specified action: Manage,Entity"
ACCESS = "401 SubCode=40100: Unauthorized : Unauthorized access for "
REFUSALS = {
    "namespace": READ,
    "queues": READ,
    "topics": READ,
    "queue": READ,
    "topic": READ,
    "create a queue": f"{FAILED}Write.",
    "update a queue": f"{FAILED}Write.",
    "delete a queue": f"{FAILED}Delete.",
    "subscription": f"{ACCESS}'GetSubscription' operation",
    "subscriptions": f"{ACCESS}'EnumerateSubscriptions' operation",
    "create a subscription": f"{ACCESS}'CreateOrUpdateSubscription' operation",
    "delete a subscription": f"{ACCESS}'DeleteSubscription' operation",
    "rule": f"{ACCESS}'GetRule' operation",
    "rules": f"{ACCESS}'EnumerateRules' operation",
    "create a rule": f"{ACCESS}'CreateOrUpdateRule' operation",
    "delete a rule": f"{ACCESS}'DeleteRule' operation",
}


@pytest.mark.parametrize("request_name", REFUSALS)
def test_a_client_without_manage_gets_the_sentence_of_the_service(
    broker: BrokerProcess, request_name: str
):
    """Tests of the Go SDK look for these sentences."""
    method, path, _ = REQUESTS[request_name]
    given = token("namespace-listen", f"http://{HOST}:{broker.http_port}")
    status, text = ask(broker, method, path, BODIES.get(request_name), Authorization=given)
    assert 401 == status
    assert REFUSALS[request_name] in text


@pytest.mark.parametrize("path", ["", "not-there", "not/there"])
def test_who_may_not_manage_sees_that_there_is_no_such_entity(broker: BrokerProcess, path: str):
    """As in the service: Go's client finds nothing, and no error. A token there must be."""
    given = token("namespace-listen", f"http://{HOST}:{broker.http_port}")
    status, text = ask(broker, "GET", path, Authorization=given)
    assert (200, True) == (status, "Publicly Listed Services" in text)
    assert 401 == ask(broker, "GET", path)[0]


@pytest.mark.parametrize("request_name", REQUESTS)
def test_nothing_is_answered_without_a_token(broker: BrokerProcess, request_name: str):
    """Nor with one that is wrong, expired or for something else."""
    assert not attempt(broker, request_name)
    wrong = {
        "key": token(ROOT_NAME, "http://h", "wrong"),
        "time": sas.make("http://h", ROOT_NAME, ROOT_KEY, int(time.time()) - 1),
        "path": token(ROOT_NAME, "http://h/something/else"),
        "form": "Bearer rubbish",
        "nothing": "",
    }
    for given in wrong.values():
        assert not attempt(broker, request_name, Authorization=given)


@pytest.mark.parametrize(
    "header",
    [
        b"Bearer \xff",
        b"Bearer \xff.\xff.\xff",
        b"\xff",
        b"SharedAccessSignature sr=\xff&sig=AAAA&se=9999999999&skn=\xff",
        b"SharedAccessSignature sr=%ff&sig=\xff&se=\xff&skn=RootManageSharedAccessKey",
    ],
)
@pytest.mark.parametrize("path", ["orders", "metrics", "$peeklock/clock"])
def test_a_token_that_is_not_utf_8_is_refused(broker: BrokerProcess, path: str, header: bytes):
    assert 401 == ask(broker, "GET", path, Authorization=header)[0]


def test_the_manage_key_of_a_queue_deletes_it_and_creates_none(broker: BrokerProcess):
    """The rule is deleted with the queue that declares it."""
    base = f"http://{HOST}:{broker.http_port}"
    for key_name, status in (("listen", 401), ("elsewhere", 401), ("manage", 200)):
        header = token(key_name, base)
        assert status == ask(broker, "DELETE", "unneeded", Authorization=header)[0]
    header = token("manage", base)
    assert 401 == ask(broker, "PUT", "unneeded", queue_entry(), Authorization=header)[0]


def test_a_token_for_exactly_the_url_is_good(broker: BrokerProcess):
    """In lower case and with the query in it, as JavaScript and Go sign."""
    url = f"https://{HOST}:{broker.http_port}/orders?api-version=2021-05".lower()
    status, _ = ask(broker, "GET", "Orders?api-version=2021-05", Authorization=token("manage", url))
    assert 200 == status


def test_health_asks_for_no_token(broker: BrokerProcess):
    """A program that watches the process needs no key."""
    assert 200 == ask(broker, "GET", "health")[0]


@pytest.mark.parametrize("path", ["metrics", "$peeklock/clock"])
@pytest.mark.parametrize("key_name", [None, *KEYS, "team-a"])
def test_metrics_and_the_clock_are_for_the_key_to_the_whole_broker(
    broker: BrokerProcess, path: str, key_name: str | None
):
    """There are two namespaces: each sees, and moves, what is the other's."""
    headers = {}
    if key_name is not None:
        headers["Authorization"] = token(key_name, f"sb://{HOST}:{broker.http_port}/")
    assert (200 if key_name == ROOT_NAME else 401) == ask(broker, "GET", path, **headers)[0]


def test_metrics_of_one_namespace_ask_for_listen():
    """A scraper need not hold a key that can do more."""
    rules = {
        "watch": {"rights": ["Listen"], "primary_key": "watch-key"},
        "write": {"rights": ["Send"], "primary_key": "write-key"},
    }
    config = {"queues": {"orders": None}, "authorization_rules": rules}
    with BrokerProcess(config=config, environment={"PEEKLOCK_AUTHORIZATION": "strict"}) as broker:
        statuses = [
            ask(broker, "GET", "metrics", Authorization=token(name, f"sb://{HOST}/"))[0]
            for name in rules
        ]
        assert [200, 401] == statuses


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "orders/eu"),
        ("PUT", "orders/new"),
        ("DELETE", "orders/eu"),
        ("POST", "orders/eu/messages"),
        ("DELETE", "orders/eu/messages/head?timeout=0"),
        ("PUT", "orders-new"),
    ],
)
@pytest.mark.parametrize("resource", ["orders", "orders/eu", ""])
def test_a_key_of_an_entity_does_not_reach_another_below_it(
    broker: BrokerProcess, method: str, path: str, resource: str
):
    """For a token with any audience: the rule belongs to `orders`, and `orders/eu` is another
    queue."""
    header = token("manage", f"sb://{HOST}/{resource}")
    assert 401 == ask(broker, method, path, queue_entry(), Authorization=header)[0]


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (f"sb://{HOST}/orders", 200),
        (f"https://{HOST}:1234/", 200),
        ("sb://localhost/orders", 200),
        (f"{HOST}/orders", 200),
        ("sb://other.servicebus.windows.net/orders", 401),
        ("orders", 401),
        ("", 401),
        ("/orders", 401),
    ],
)
def test_a_token_is_for_a_host(broker: BrokerProcess, resource: str, expected: int):
    """By any of the broker's names; a bare path is no host, and not the whole namespace."""
    assert expected == ask(broker, "GET", "orders", Authorization=token(ROOT_NAME, resource))[0]


@pytest.mark.parametrize(
    "host",
    [
        "localhost/orders?",
        "localhost/orders#",
        "localhost:1/orders?",
        "localhost\\orders",
        "a@localhost",
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "elsewhere"),
        ("GET", "orders"),
        ("PUT", "new-queue"),
        ("POST", "elsewhere/messages"),
        ("GET", "metrics"),
        ("GET", "$peeklock/clock"),
    ],
)
def test_the_host_header_does_not_replace_the_audience(
    broker: BrokerProcess, host: str, method: str, path: str
):
    """The token is for `orders`. A URL made of such a Host and any path would have the path `orders`."""
    header = token(ROOT_NAME, "sb://localhost/orders")
    status, _ = ask(broker, method, path, queue_entry(), Authorization=header, Host=host)
    assert 401 == status


@pytest.mark.parametrize("path", ["orders%3Fx", "orders%252Feu", "orders%25"])
def test_the_path_is_decoded_once(broker: BrokerProcess, path: str):
    """The token is for `orders`, and these are other names."""
    header = token(ROOT_NAME, f"sb://{HOST}/orders")
    assert 401 == ask(broker, "POST", f"{path}/messages", "x", Authorization=header)[0]


def test_a_key_of_an_entity_does_not_read_metrics():
    """Not by a path in the Host header either."""
    config = {"queues": {"orders": {"authorization_rules": {"listen": RULES["listen"]}}}}
    with BrokerProcess(config=config, environment={"PEEKLOCK_AUTHORIZATION": "strict"}) as broker:
        for host in ("localhost", "localhost/orders?"):
            header = token("listen", "sb://localhost/orders")
            assert 401 == ask(broker, "GET", "metrics", Authorization=header, Host=host)[0]


# --- forwarding --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("element", "header"),
    [
        ("ForwardTo", "ServiceBusSupplementaryAuthorization"),
        ("ForwardDeadLetteredMessagesTo", "ServiceBusDlqSupplementaryAuthorization"),
    ],
)
def test_forwarding_asks_for_the_claim_to_send_there(
    broker: BrokerProcess, element: str, header: str
):
    """Managing one entity is no way to reach another; SDKs add a token for it."""
    body = queue_entry(f"<{element}>elsewhere</{element}>")
    base = f"http://{HOST}:{broker.http_port}"
    headers: dict[str, Any] = {"If-Match": "*", "Authorization": token("manage", base)}
    assert 401 == ask(broker, "PUT", "forwarding", body, **headers)[0]
    headers[header] = token("elsewhere", f"{base}/elsewhere")
    assert 200 == ask(broker, "PUT", "forwarding", body, **headers)[0]
    del headers[header]  # what is there already needs no second leave
    assert 200 == ask(broker, "PUT", "forwarding", body, **headers)[0]
    assert 200 == ask(broker, "PUT", "forwarding", queue_entry(), **headers)[0]


# --- rules, live -------------------------------------------------------------------------------

RULE = (
    '<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">'
    "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
    "<Rights><AccessRights>Send</AccessRights></Rights>"
    "<KeyName>live</KeyName><PrimaryKey>{key}</PrimaryKey></AuthorizationRule>"
    "</AuthorizationRules>"
)


def test_rules_set_by_administration_count_at_once(broker: BrokerProcess):
    """Added, changed and removed."""
    root = token(ROOT_NAME, f"http://{HOST}")

    def put(elements: str, **headers: str) -> int:
        return ask(broker, "PUT", "live", queue_entry(elements), Authorization=root, **headers)[0]

    def send(key: str) -> int:
        given = token("live", f"http://{HOST}/live", key)
        return ask(broker, "POST", "live/messages", "hello", Authorization=given)[0]

    assert 201 == put("")
    assert 401 == send("first")
    assert 200 == put(RULE.format(key="first"), **{"If-Match": "*"})
    assert 201 == send("first")
    assert 200 == put(RULE.format(key="second"), **{"If-Match": "*"})
    assert (401, 201) == (send("first"), send("second"))
    assert 200 == put("<AuthorizationRules></AuthorizationRules>", **{"If-Match": "*"})
    assert 401 == send("second")


# --- namespaces --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "key_name", "expected"),
    [
        ("localhost", ROOT_NAME, ("sbemulatorns", False)),
        ("localhost", "team-a", ("team-a", True)),
        ("team-a.localhost:5300", ROOT_NAME, ("team-a", True)),
        ("team-a.localhost", "team-a", ("team-a", True)),
        ("sbemulatorns.localhost", "team-a", None),
    ],
)
def test_host_or_key_select_the_namespace(broker: BrokerProcess, host, key_name, expected):
    """For administration and for messages."""
    headers = {"Host": host, "Authorization": token(key_name, f"https://{host}")}
    status, text = ask(broker, "GET", "$namespaceinfo", **headers)
    if expected is None:
        assert 401 == status
        return
    name, found = expected
    assert f"<Name>{name}</Name>" in text
    assert found == ("<QueueDescription" in ask(broker, "GET", "of-team-a", **headers)[1])
    sent = ask(broker, "POST", "of-team-a/messages", "hello", **headers)[0]
    assert (201 if found else 410) == sent
