"""The report of a namespace after stock clients did what a report should find."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityNotFoundError

from config.model.report_kinds import DEFAULT_FAIL_ON, REPORT_KINDS
from tests.control.client import ControlClient
from tests.http.client import request
from tests.support.amqp_frames import HEADER, attach_sender, begin_frame, open_frame, raw_frame
from tests.support.frame_client import FrameClient, connect
from tests.support.server import HOST, BrokerProcess, root_token

TOPOLOGY = {
    "queues": {"orders": {"lock_duration": "PT5S", "max_delivery_count": 10}, "short": {}},
    "topics": {
        "events": {"subscriptions": {"red": {"rules": {"red": {"sql_filter": "color = 'red'"}}}}}
    },
}


class OwnNamespace:
    """A namespace of its own, and clients of it."""

    def __init__(self, broker: BrokerProcess, created) -> None:
        self.name = created["name"]
        self.api = ControlClient(broker.http_port, self.name)
        self.sdk = ServiceBusClient.from_connection_string(created["connection_string"])

    def send(self, entity: str, *ids: str, **options) -> None:
        with self.sdk.get_queue_sender(entity) as sender:
            for one in ids:
                sender.send_messages(ServiceBusMessage("x", message_id=one, **options))

    def findings(self, kind: str, **query):
        report = self.api.get("/report", **query)
        return [one for one in report["findings"] if one["kind"] == kind]


@pytest.fixture
def tested(broker, api):
    created = api.post("/namespaces", topology=TOPOLOGY)
    made = OwnNamespace(broker, created)
    with made.sdk:
        yield made
    api.request("DELETE", f"/namespaces/{made.name}")


def test_a_namespace_in_which_nothing_happened_has_no_findings(tested):
    report = tested.api.get("/report")
    assert (True, [], "creation") == (
        report["is_passed"],
        report["findings"],
        report["since_event"],
    )
    assert [one.name for one in REPORT_KINDS] == [one["kind"] for one in report["kinds"]]
    assert list(DEFAULT_FAIL_ON) == report["fail_on"]
    assert report["since"] <= report["time"]


def test_messages_that_were_never_received(tested):
    tested.send("orders", "a", "b")
    (finding,) = tested.findings("never_received")
    assert ("orders", 2, ["a", "b"], True) == (
        finding["entity"],
        finding["count"],
        finding["message_ids"],
        finding["is_exact"],
    )
    assert "2 messages of 'orders' were never received." == finding["sentence"]
    assert not tested.api.get("/report")["is_passed"]
    assert tested.api.get("/report", fail_on="refused,dead_letters")["is_passed"]
    with tested.sdk.get_queue_receiver("orders") as receiver:
        for message in receiver.receive_messages(2, max_wait_time=10):
            receiver.complete_message(message)
    assert tested.api.get("/report", fail_on="all")["is_passed"]


def test_messages_that_were_received_and_not_settled(tested):
    tested.send("orders", "a", "b", "c")
    with tested.sdk.get_queue_receiver("orders") as receiver:
        first, second = receiver.receive_messages(2, max_wait_time=10)
        receiver.defer_message(second)
        (finding,) = tested.findings("never_settled")
        assert (2, ["a", "b"]) == (finding["count"], finding["message_ids"])
        assert {"locked": 1, "deferred": 1, "returned": 0} == finding["details"]
        assert ["c"] == tested.findings("never_received")[0]["message_ids"]
        receiver.abandon_message(first)
    (finding,) = tested.findings("never_settled")
    assert {"locked": 0, "deferred": 1, "returned": 1} == finding["details"]


def test_locks_that_were_lost(tested):
    tested.send("orders", "a")
    with tested.sdk.get_queue_receiver("orders") as receiver:
        assert 1 == len(receiver.receive_messages(1, max_wait_time=10))
        tested.api.post("/locks/expire", entity="orders")
    (finding,) = tested.findings("lost_locks")
    assert ("orders", 1) == (finding["entity"], finding["count"])


def test_messages_that_expired(tested, api):
    tested.api.post("/messages", entity="short", messages=[{"body": "x", "time_to_live_s": 1}])
    api.post(f"/namespaces/{tested.name}/clock/advance", seconds=2)
    tested.api.post("/wait", conditions=[{"entity": "short", "equals": 0}])
    (finding,) = tested.findings("expired")
    assert ("short", 1) == (finding["entity"], finding["count"])


def test_dead_letters_have_reasons(tested):
    """Those that are there now, and those that were there."""
    tested.send("orders", "a", "b", "c")
    with tested.sdk.get_queue_receiver("orders") as receiver:
        for message, reason in zip(
            receiver.receive_messages(3, max_wait_time=10), ("Bad", "Bad", "Worse"), strict=True
        ):
            receiver.dead_letter_message(message, reason=reason)
    expected = [("Bad", 2, ["a", "b"]), ("Worse", 1, ["c"])]
    for kind in ("dead_letters", "dead_lettered"):
        found = [
            (one["details"]["reason"], one["count"], one["message_ids"])
            for one in tested.findings(kind)
        ]
        assert expected == found, kind
    tested.api.post("/resubmit", entity="orders")
    assert [] == tested.findings("dead_letters")
    assert 2 == len(tested.findings("dead_lettered"))


def test_topic_sends_that_matched_nothing(tested):
    with tested.sdk.get_topic_sender("events") as sender:
        for one, color in (("a", "blue"), ("b", "red"), ("c", "green")):
            message = ServiceBusMessage(
                "x", message_id=one, application_properties={"color": color}
            )
            sender.send_messages(message)
    (finding,) = tested.findings("unmatched")
    assert ("events", 2, ["a", "c"]) == (
        finding["entity"],
        finding["count"],
        finding["message_ids"],
    )


def test_refused_operations(tested):
    for _ in range(2):
        with pytest.raises(MessagingEntityNotFoundError):
            tested.send("nowhere", "a")
    (finding,) = tested.findings("refused")
    assert ("nowhere", 2) == (finding["entity"], finding["count"])
    assert {"operation": "attach sender", "condition": "amqp:not-found"} == finding["details"]
    assert tested.api.get("/report")["is_passed"]
    assert not tested.api.get("/report", fail_on="refused")["is_passed"]


def test_refused_requests_of_http_clients(broker, api):
    api.request("DELETE", "/report")
    answer = request(broker.http_port, "POST", "/nowhere/messages", b"x")
    assert 400 <= answer.status
    (finding,) = [
        one for one in api.get("/report")["findings"] if one["entity"] == "nowhere/messages"
    ]
    assert ("refused", "POST") == (finding["kind"], finding["details"]["operation"])


def test_links_that_were_closed_with_errors(broker, api):
    api.request("DELETE", "/report")
    with FrameClient(connect(broker.amqp_port)) as client:
        client.write(HEADER, open_frame(hostname=HOST), begin_frame())
        client.write(attach_sender(address="orders"))
        client.skip_to("flow")
        client.write(raw_frame(b"\x00\x53\x14\xc0\x50\x01\x43"))
        client.skip_to("close")
    (finding,) = [one for one in api.get("/report")["findings"] if one["kind"] == "links_closed"]
    assert ("amqp:decode-error", "connection ended") == (
        finding["details"]["condition"],
        finding["details"]["operation"],
    )


def test_what_azure_would_have_refused(tested):
    """Premium is the default tier. The sender has its own limit, so this message is hand-made."""
    tested.api.post(
        "/messages", entity="orders", messages=[{"message_id": "large", "body": "x" * 1_060_000}]
    )
    with tested.sdk.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage("") for _ in range(4_501)])
    found = {one["details"]["quota"]: one for one in tested.findings("over_quota")}
    assert {"message_max_bytes", "batch_max_messages"} == set(found)
    large = found["message_max_bytes"]
    assert (["large"], 1, 1024 * 1024) == (
        large["message_ids"],
        large["count"],
        large["details"]["limit"],
    )
    assert 4_501 == found["batch_max_messages"]["details"]["largest"]


def test_entities_that_azure_would_have_refused(broker, api):
    name = api.post(
        "/namespaces",
        topology={"queues": {"q": {"max_message_size_in_kilobytes": 4}}},
    )["name"]
    (finding,) = ControlClient(broker.http_port, name).get("/report")["findings"]
    assert ("over_quota", "q") == (finding["kind"], finding["entity"])
    assert "MaxMessageSizeInKilobytes" in finding["sentence"]
    api.request("DELETE", f"/namespaces/{name}")


def test_a_report_begins_anew_with_a_reset_or_a_request(tested):
    def spoil() -> None:
        with tested.sdk.get_topic_sender("events") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(MessagingEntityNotFoundError):
            tested.send("nowhere", "a")
        tested.send("orders", "a")
        with tested.sdk.get_queue_receiver("orders") as receiver:
            assert 1 == len(receiver.receive_messages(1, max_wait_time=10))
            tested.api.post("/locks/expire", entity="orders")
        tested.api.post("/messages/dead-letter", entity="orders", filter="1=1")
        tested.api.post("/purge", entity="orders", sub_queue="dead_letter")
        kinds = {one["kind"] for one in tested.api.get("/report")["findings"]}
        assert {"unmatched", "refused", "lost_locks", "dead_lettered"} == kinds

    spoil()
    tested.api.request("DELETE", "/report")
    report = tested.api.get("/report")
    assert ([], "request") == (report["findings"], report["since_event"])
    spoil()
    tested.api.post("/reset")
    report = tested.api.get("/report")
    assert ([], "reset") == (report["findings"], report["since_event"])


def test_junit_has_a_test_case_for_each_kind(tested):
    tested.send("orders", "a")
    answer = tested.api.request("GET", "/report", query={"format": "junit"})
    (suite,) = ET.fromstring(answer.content)
    assert f"peeklock.{tested.name}" == suite.get("name")
    assert [one.expectation for one in REPORT_KINDS] == [case.get("name") for case in suite]
    assert ["every message was received"] == [case.get("name") for case in suite if len(case)]


@pytest.mark.parametrize(
    ("query", "field"),
    [({"fail_on": "everything"}, "fail_on"), ({"format": "html"}, "format"), ({"x": "1"}, "x")],
)
def test_wrong_queries_are_refused(api, query, field):
    answer = api.refused("GET", "/report", **query)
    assert (400, field) == (answer.status, answer.error["field"])


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["memory", "sqlite"])
def test_a_broker_that_stops_writes_its_report(tmp_path, storage):
    """With the namespaces that were deleted before."""
    files = tmp_path / "report.json", tmp_path / "report.xml"
    url = "memory:" if storage == "memory" else f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(
        config=TOPOLOGY, storage=url, arguments=["--report", ",".join(map(str, files))]
    ) as broker:
        api = ControlClient(broker.http_port)
        created = api.post("/namespaces", name="first-test", topology=TOPOLOGY)
        with ServiceBusClient.from_connection_string(created["connection_string"]) as sdk:
            with sdk.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("x", message_id="left"))
        api.request("DELETE", "/namespaces/first-test")
        with ServiceBusClient.from_connection_string(broker.connection_string) as sdk:
            with sdk.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("x", message_id="locked"))
            with sdk.get_queue_receiver("orders") as receiver:
                assert 1 == len(receiver.receive_messages(1, max_wait_time=10))
                assert 0 == broker.terminate()
        written = json.loads(files[0].read_text())
        assert not written["is_passed"]
        assert [("first-test", "never_received", ["left"]), ("sbemulatorns", "never_settled", ["locked"])] == [
            (one["namespace"], finding["kind"], finding["message_ids"])
            for one in written["namespaces"]
            for finding in one["findings"]
        ]  # fmt: skip
        first, second = ET.parse(files[1]).getroot()
        assert ("1", "1") == (first.get("failures"), second.get("failures"))
        assert "report.written" in broker.log_text()


def test_a_report_that_cannot_be_written_is_told(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    with BrokerProcess(arguments=["--report", str(folder / "report.xml")]) as broker:
        folder.rmdir()
        assert 0 == broker.terminate()
        assert "report.failed" in broker.log_text()


def test_strict_authorization_asks_for_manage():
    with BrokerProcess(
        config=TOPOLOGY,
        testing_api=False,
        arguments=["--authorization", "strict", "--control-api", "true"],
    ) as broker:
        for method in ("GET", "DELETE"):
            answer = ControlClient(broker.http_port).refused(method, "/report")
            assert (401, "unauthorized") == (answer.status, answer.error["code"])
        report = ControlClient(broker.http_port, token=root_token()).get("/report")
        assert "start" == report["since_event"]
