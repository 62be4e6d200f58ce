"""`peeklock export`: what a broker has, as a file that gives another broker the same."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from broker.app.cli.command_line import main
from protocol.identity import sas
from tests.http.client import entry, queue_entry, request
from tests.support.server import HOST, ROOT, BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = ROOT / "docker" / "entities.yaml"
ROOT_NAME, ROOT_KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"


def connection_string(broker: BrokerProcess, name: str = ROOT_NAME, key: str = ROOT_KEY) -> str:
    return (
        f"Endpoint=sb://{HOST}:{broker.http_port};SharedAccessKeyName={name};SharedAccessKey={key}"
    )


def export(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str]:
    """The document that was printed, and the warnings."""
    assert 0 == main(["export", *arguments])
    printed = capsys.readouterr()
    return yaml.safe_load(printed.out), printed.err


def topology(broker: BrokerProcess, form: str = "yaml", **headers: str) -> tuple[int, Any]:
    """What a broker answers about itself."""
    connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=20)
    try:
        connection.request("GET", f"/$peeklock/topology?form={form}", headers=headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def add_entities(broker: BrokerProcess) -> None:
    """Through the administration API, as an application would."""

    def put(path: str, body: str) -> None:
        assert 201 == request(broker.http_port, "PUT", f"/{path}", body).status

    namespace = 'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"'
    instance = 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
    put("made", queue_entry("<LockDuration>PT42S</LockDuration><ForwardTo>orders</ForwardTo>"))
    put("made-topic", entry(f"<TopicDescription {namespace}></TopicDescription>"))
    put(
        "made-topic/Subscriptions/sub",
        entry(f"<SubscriptionDescription {namespace}></SubscriptionDescription>"),
    )
    typed = (
        '<Filter i:type="CorrelationFilter"><Properties><KeyValueOfstringanyType><Key>when</Key>'
        '<Value i:type="d6p1:dateTime" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">'
        "2026-01-02T03:04:05Z</Value></KeyValueOfstringanyType></Properties></Filter>"
    )
    put(
        "made-topic/Subscriptions/sub/Rules/by-time",
        entry(f"<RuleDescription {namespace} {instance}>{typed}</RuleDescription>"),
    )


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_a_broker_served_from_an_export_has_the_same_entities(tmp_path, capsys, store):
    """All namespaces, with rules and keys, those of the file and those made since."""
    url = store if store == "memory:" else f"sqlite:///{tmp_path / 'store.db'}"
    path = tmp_path / "exported.yaml"
    with BrokerProcess(config=SAMPLE, storage=url) as broker:
        add_entities(broker)
        first, warnings = export(capsys, connection_string(broker))
        assert 0 == main(["export", connection_string(broker), "--output", str(path)])
    assert "" == warnings
    assert "PT42S" == first["queues"]["made"]["lock_duration"]
    assert {"team-a", "team-b"} == set(first["namespaces"])
    assert ["operator"] == list(first["authorization_rules"])
    assert 0 == main(["check", str(path)])
    capsys.readouterr()
    with BrokerProcess(config=path) as broker:
        assert first == export(capsys, connection_string(broker))[0]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_store_is_exported_without_a_broker(request, tmp_path, capsys, kind):
    """Everything in the store is exported. Keys of whole namespaces are not in it."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if kind == "postgresql":
        url = request.getfixturevalue("postgres_server").url()
        assert 1 == main(["export", url])
        assert "there is no store at postgresql://***@" in capsys.readouterr().err
    with BrokerProcess(config=SAMPLE, storage=url) as broker:
        add_entities(broker)
        live, _ = export(capsys, connection_string(broker))
        broker.terminate()
        stored, _ = export(capsys, url)
    del live["authorization_rules"]
    assert live == stored


def test_an_empty_store_is_an_empty_file(capsys):
    """Which begins a broker with nothing in it, rather than with what the emulator has."""
    assert {"queues": {}} == export(capsys, "memory:")[0]


def test_the_emulators_form_is_served_the_same(tmp_path, capsys):
    """What the form cannot express is printed as a warning."""
    path = tmp_path / "Config.json"
    with BrokerProcess(config=SAMPLE) as broker:
        assert 0 == main(
            ["export", connection_string(broker), "--form", "emulator", "--output", str(path)]
        )
        before = topology(broker)[1]["document"]
    warnings = capsys.readouterr().err.splitlines()
    assert "warning: orders: its authorization rules are left out" in warnings
    with BrokerProcess(config=path) as broker:
        after = topology(broker)[1]["document"]
    del before["authorization_rules"], before["queues"]["orders"]["authorization_rules"]
    assert before["queues"] == after["queues"]
    assert before["namespaces"] == after["namespaces"]
    assert before["topics"].keys() == after["topics"].keys()


def test_without_a_source_the_broker_here_is_asked(capsys, monkeypatch):
    """By the settings that it runs with."""
    with BrokerProcess() as broker:
        monkeypatch.setenv("PEEKLOCK_HTTP_PORT", str(broker.http_port))
        document, _ = export(capsys)
    assert ["queue.1"] == list(document["queues"])


def test_forwarding_to_a_missing_entity_is_reported(capsys):
    """A broker lives with it, a file would be refused."""
    with BrokerProcess(config={"queues": {"a": {"forward_to": "b"}, "b": None}}) as broker:
        assert 200 == request(broker.http_port, "DELETE", "/b").status
        _, warnings = export(capsys, connection_string(broker))
    assert "warning: a: forwards to 'b', which does not exist\n" == warnings


def test_names_that_no_file_may_have_are_reported(capsys):
    """A queue that is created on first use may have a name that administration would refuse."""
    with BrokerProcess(environment={"PEEKLOCK_CREATE_ON_FIRST_USE": "true"}) as broker:
        with ServiceBusClient.from_connection_string(broker.connection_string) as client:
            with client.get_queue_sender("a, b") as sender:
                sender.send_messages(ServiceBusMessage("x"))
        _, warnings = export(capsys, connection_string(broker))
    assert "warning: a, b: ',' is not allowed\n" == warnings


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=b", "does not answer"),
        ("Endpoint=sb://127.0.0.1:1", "a connection string has"),
        ("Endpoint=sb://a..b;SharedAccessKeyName=a;SharedAccessKey=b", "a connection string has"),
        ("sqlite:////nonexistent/store.db", "there is no store at"),
        ("mysql://host", "is not understood"),
    ],
)
def test_what_cannot_be_exported_is_reported(capsys, source, why):
    """In one sentence, with an exit code."""
    assert 1 == main(["export", source])
    printed = capsys.readouterr()
    assert ("", True) == (printed.out, why in printed.err)


def test_an_authority_that_is_not_there_is_named(capsys):
    """TLS itself would say only that something was not found."""
    assert 1 == main(["export", "--authority", "/nowhere/ca.pem"])
    assert "--authority: there is no file /nowhere/ca.pem" in capsys.readouterr().err


def test_a_store_in_use_is_not_exported(tmp_path, capsys):
    """The broker that has it can be asked instead."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with BrokerProcess(storage=url):
        assert 1 == main(["export", url])
    assert "store.db" in capsys.readouterr().err


# --- who may ask -------------------------------------------------------------------------------

STRICT = {"PEEKLOCK_AUTHORIZATION": "strict"}


def token(name: str, key: str, resource: str = "sb://localhost") -> str:
    return sas.make(resource, name, key, int(time.time()) + 60)


def test_only_the_key_to_everything_sees_everything(capsys):
    """The answer holds keys of all namespaces."""
    keys = {"operator": {"rights": ["Manage"], "primary_key": "operator-key"}}
    with BrokerProcess(config={"authorization_rules": keys}, environment=STRICT) as broker:
        assert 200 == topology(broker, Authorization=token(ROOT_NAME, ROOT_KEY))[0]
        for refused in (
            {},
            {"Authorization": token(ROOT_NAME, "wrong")},
            {"Authorization": token("operator", "operator-key")},
            {"Authorization": token(ROOT_NAME, ROOT_KEY, "sb://localhost/orders")},
        ):
            status, content = topology(broker, **refused)
            assert 401 == status
            assert "TrackingId:" in content["error"]
        assert 1 == main(["export", connection_string(broker, "operator", "operator-key")])
    assert "key of the whole broker" in capsys.readouterr().err


def test_a_form_there_is_not_is_refused():
    """With the ones there are."""
    with BrokerProcess() as broker:
        status, content = topology(broker, "toml")
    assert (400, True) == (status, "yaml, emulator" in content["error"])


def test_a_broker_is_asked_over_tls(tmp_path: Path, capsys):
    """Where the way to it is not one's own."""
    folder = tmp_path / "tls"
    with BrokerProcess(environment={"PEEKLOCK_TLS_FOLDER": str(folder)}) as broker:
        authority = str(folder / "ca.pem")
        document, _ = export(capsys, connection_string(broker), "--authority", authority)
    assert ["queue.1"] == list(document["queues"])


def test_an_output_below_an_unknown_home_folder(capsys):
    assert 1 == main(["export", "--output", "~no-such-user/x", "--authority", "~no-such-user/y"])
    assert "begins with the home folder of an unknown user" in capsys.readouterr().err
