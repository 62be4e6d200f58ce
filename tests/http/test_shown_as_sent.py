"""Addresses, durations, times and keys are returned as a client sent them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from broker.core.contract.commands import AttachSender, GetEntity
from config.model.authorization_keys import KEY_LENGTH
from config.model.definitions import AuthorizationRule, QueueDefinition
from config.model.limits import Tier, relaxed, strict
from tests.http.client import entry, queue_entry, request
from tests.http.harness import HttpHarness

if TYPE_CHECKING:
    from collections.abc import Iterator

UPDATE = {"If-Match": "*"}
NEVER = "0001-01-01T00:00:00Z"
KINDS = {"q": "Queue", "t": "Topic", "t/Subscriptions/s": "Subscription"}


class Client:
    """Requests to one harness."""

    def __init__(self, harness: HttpHarness) -> None:
        self.harness = harness

    def put(self, path: str, elements: str = "", status: int = 201, **headers: str) -> str:
        """Create or update an entity; the answer."""
        kind = KINDS.get(path, "Queue")
        body = entry(f"<{kind}Description>{elements}</{kind}Description>")
        answer = request(self.harness.port, "PUT", f"/{path}", body, headers)
        assert status == answer.status, answer.text
        return answer.text

    def get(self, path: str, **headers: str) -> str:
        """The description of an entity."""
        return request(self.harness.port, "GET", f"/{path}", headers=headers).text


def value(text: str, element: str) -> str | None:
    found = re.search(f"<{element}>([^<]*)</{element}>", text)
    return found and found[1]


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    limits = getattr(request, "param", relaxed(Tier.PREMIUM))
    with HttpHarness(limits=limits) as harness:
        yield Client(harness)


# --- addresses ---------------------------------------------------------------------------------


@pytest.mark.parametrize("element", ["ForwardTo", "ForwardDeadLetteredMessagesTo"])
@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("Target", "sb://here:5300/Target"),
        ("sb://here:5300/target", "sb://here:5300/target"),
        ("https://here:5300/target", "https://here:5300/target"),
        ("http://here:5300/target", "http://here:5300/target"),
        ("SB://HERE:5300/TARGET", "sb://here:5300/TARGET"),
    ],
)
def test_forwarding_is_shown_with_the_scheme_it_was_sent_with(client, element, sent, shown):
    """A bare name as an address; scheme and host in lower case, the path as it was sent."""
    client.put("target")
    client.put("t")
    for path in ("q", "t/Subscriptions/s"):
        answer = client.put(path, f"<{element}>{sent}</{element}>", Host="here:5300")
        assert shown == value(answer, element)
        assert shown == value(client.get(path, Host="here:5300"), element)


# --- durations and times -----------------------------------------------------------------------

DURATIONS = {
    "LockDuration": "PT10.1234567S",
    "DefaultMessageTimeToLive": "P1DT1.0000001S",
    "DuplicateDetectionHistoryTimeWindow": "PT1M0.5S",
    "AutoDeleteOnIdle": "PT5M0.1234S",
}


@pytest.mark.parametrize("path", KINDS)
def test_durations_keep_all_that_a_time_span_holds(client, path):
    """Down to 100 ns, created and updated; and an update without them sets them back."""
    client.put("q2")
    client.put("t", status=201)
    elements = "".join(f"<{name}>{text}</{name}>" for name, text in DURATIONS.items())
    headers = UPDATE if path == "t" else {}
    client.put(path, elements, 200 if path == "t" else 201, **headers)
    shown = client.get(path)
    there = [name for name in DURATIONS if value(shown, name) is not None]
    assert len(there) >= 2
    assert {name: DURATIONS[name] for name in there} == {name: value(shown, name) for name in there}
    client.put(path, "", 200, **UPDATE)
    assert not re.search(r"S?\.\d+S<", client.get(path).replace("5.4775807S", ""))


def test_precision_outlives_a_restart():
    """The store keeps it, in the text that it keeps of a definition."""
    from broker.core.entities.stored_definitions import definition_from_json, definition_to_json

    definition = QueueDefinition(
        lock_duration_ms=10_123,
        finer_ticks=(("lock_duration_ms", 4567),),
        forward_to_scheme="https",
        authorization_rules=(AuthorizationRule("r", "k", created_time="2024-01-01T00:00:00Z"),),
    )
    assert definition == definition_from_json(definition_to_json(definition))


def test_an_entity_never_used_was_never_accessed(client):
    """A subscription shows when it was created, as in the service. Creating a subscription counts
    as a use of its topic."""
    client.put("q")
    client.put("t")
    assert NEVER == value(client.get("q"), "AccessedAt") == value(client.get("t"), "AccessedAt")
    client.put("t/Subscriptions/s")
    shown = client.get("t/Subscriptions/s")
    assert value(shown, "CreatedAt") == value(shown, "AccessedAt")
    assert NEVER != value(client.get("t"), "AccessedAt")

    class Peer:
        def receive(self, _effect: object) -> None: ...

    client.harness.run(_submit(client.harness, AttachSender(Peer(), "q")))
    client.harness.ask(lambda peer, mark: GetEntity(peer, mark, "q"))
    assert NEVER != value(client.get("q"), "AccessedAt")


async def _submit(harness: HttpHarness, command: AttachSender) -> None:
    harness.submit(command)


# --- keys --------------------------------------------------------------------------------------


def rule(inside: str) -> str:
    return (
        "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights>"
        f"<KeyName>k</KeyName><PrimaryKey>{'p' * 44}</PrimaryKey>{inside}</AuthorizationRule>"
        "</AuthorizationRules>"
    )


@pytest.mark.parametrize("path", ["q", "t"])
def test_a_rule_without_a_second_key_gets_one(client, path):
    """Of the length that .NET takes, the same each time, and it opens the door."""
    client.put(path, rule(""))
    secondary = value(client.get(path), "SecondaryKey")
    assert secondary is not None
    assert KEY_LENGTH == len(secondary)
    client.put(path, rule("<SecondaryKey></SecondaryKey>"), 200, **UPDATE)
    assert secondary == value(client.get(path), "SecondaryKey")
    view = client.harness.ask(lambda peer, mark: GetEntity(peer, mark, path))
    assert secondary == view.definition.authorization_rules[0].secondary_key


def test_no_empty_element_is_written(client):
    """A rule of an older store may have no second key: .NET fails on an empty one."""
    from broker.core.contract.commands import CreateEntity

    definition = QueueDefinition(authorization_rules=(AuthorizationRule("k", "p" * 44),))
    client.harness.ask(lambda peer, mark: CreateEntity(peer, mark, "old", definition))
    shown = client.get("old")
    assert "<KeyName>k</KeyName>" in shown
    assert "SecondaryKey" not in shown


def test_rules_show_times_only_if_they_have_them(client):
    """As they were sent, to 100 ns; Go compares what it sent with what it gets."""
    client.put("q", rule(""))
    assert "CreatedTime" not in client.get("q")
    times = (
        "<CreatedTime>2024-01-02T03:04:05.1234567Z</CreatedTime>"
        "<ModifiedTime>2024-01-02T03:04:06Z</ModifiedTime>"
    )
    client.put("q", rule(times), 200, **UPDATE)
    shown = client.get("q")
    assert ("2024-01-02T03:04:05.1234567Z", "2024-01-02T03:04:06Z") == (
        value(shown, "CreatedTime"),
        value(shown, "ModifiedTime"),
    )
    client.put("q", rule("<CreatedTime>yesterday</CreatedTime>"), 400, **UPDATE)


# --- sizes -------------------------------------------------------------------------------------

PARTITIONED = "<EnablePartitioning>true</EnablePartitioning>"


@pytest.mark.parametrize(
    ("client", "factor"),
    [
        (relaxed(Tier.STANDARD), 16),
        (strict(Tier.STANDARD), 16),
        (strict(Tier.BASIC), 16),
        (relaxed(Tier.PREMIUM), 1),
        (strict(Tier.PREMIUM), 1),
    ],
    indirect=["client"],
)
def test_a_partitioned_entity_shows_the_size_of_all_partitions(client, factor):
    """Sixteen in Standard; what is shown can be sent back, and stays."""
    client.put("plain", "<MaxSizeInMegabytes>2048</MaxSizeInMegabytes>")
    assert "2048" == value(client.get("plain"), "MaxSizeInMegabytes")
    client.put("default", PARTITIONED)
    assert str(1024 * factor) == value(client.get("default"), "MaxSizeInMegabytes")
    size = "<MaxSizeInMegabytes>2048</MaxSizeInMegabytes>"
    shown = value(client.put("q", PARTITIONED + size), "MaxSizeInMegabytes")
    assert str(2048 * factor) == shown
    sent = f"<MaxSizeInMegabytes>{shown}</MaxSizeInMegabytes>"
    answer = client.put("q", PARTITIONED + sent, 200, **UPDATE)
    assert shown == value(answer, "MaxSizeInMegabytes")


@pytest.mark.parametrize("client", [strict(Tier.PREMIUM)], indirect=True)
@pytest.mark.parametrize("kilobytes", [1, 1023, 102_401])
def test_premium_takes_messages_from_1024_kilobytes(client, kilobytes):
    """The JavaScript SDK's tests look for the sentence."""
    element = "<MaxMessageSizeInKilobytes>{}</MaxMessageSizeInKilobytes>"
    refused = client.put("q", element.format(kilobytes), 400)
    assert "The value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400." in refused
    client.put("q", element.format(1024))
    client.put("q2", element.format(102_400))


def test_a_lock_that_is_too_long_is_refused_in_the_services_words(client):
    """And the value and its bounds are named."""
    refused = client.put("q", "<LockDuration>P25D</LockDuration>", 400)
    assert "SubCode=40000. The supplied lock time exceeds the allowed maximum of '5' minutes." in (
        refused
    )
    assert "LockDuration" in refused
    assert "exceeds" not in client.put("q", "<LockDuration>PT1S</LockDuration>", 400)
    assert request(client.harness.port, "PUT", "/q", queue_entry()).status == 201
