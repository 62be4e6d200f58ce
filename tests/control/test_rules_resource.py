"""The rules of a subscription, and which of them match a message."""

from __future__ import annotations

import pytest

from tests.control.client import ControlClient
from tests.support.server import BrokerProcess

SUBSCRIPTION = "events/subscriptions/all"
RULES = {
    "red": {"sql_filter": "color = 'red'"},
    "urgent": {"correlation_filter": {"label": "urgent", "properties": {"level": 3}}},
    "marked": {
        "sql_filter": "color IS NOT NULL",
        "action": "SET mark = color; REMOVE color; SET sys.Label = 'marked'",
    },
    "none": {"false_filter": None},
    "broken": {"sql_filter": "amount / zero > 1"},
}


@pytest.fixture(scope="module")
def api():
    config = {
        "queues": {"orders": {}},
        "topics": {"events": {"subscriptions": {"all": {"rules": RULES}}}},
    }
    with BrokerProcess(config=config, testing_api=False) as running:
        yield ControlClient(running.http_port)


def matching(answer) -> set[str]:
    return {one["name"] for one in answer["rules"] if one["matches"]}


def test_rules_are_listed_in_the_names_of_the_config_file(api):
    listed = api.get("/rules", entity=SUBSCRIPTION)["rules"]
    assert RULES == {one["name"]: one["definition"] for one in listed}


@pytest.mark.parametrize(
    ("message", "expected", "copies"),
    [
        ({"application_properties": {"color": "red"}}, {"red", "marked"}, 2),
        ({"application_properties": {"color": "blue"}}, {"marked"}, 1),
        ({"subject": "urgent", "application_properties": {"level": 3}}, {"urgent"}, 1),
        ({"subject": "urgent", "application_properties": {"level": 4}}, set(), 0),
        ({}, set(), 0),
    ],
)
def test_a_try_out_says_which_rules_match(api, message, expected, copies):
    answer = api.post("/rules/try", entity=SUBSCRIPTION, message=message)
    assert (expected, copies) == (matching(answer), answer["copies"])


def test_a_try_out_shows_what_an_action_makes_of_the_message(api):
    message = {"application_properties": {"color": "red"}, "subject": "before"}
    answer = api.post("/rules/try", entity=SUBSCRIPTION, message=message)
    assert {"color": "red"} == answer["message"]["application_properties"]
    (result,) = [one["result"] for one in answer["rules"] if one["name"] == "marked"]
    assert {"mark": "red", "RuleName": "marked"} == result["application_properties"]
    assert "marked" == result["subject"]


def test_a_try_out_does_what_a_send_does(api):
    """The same message, sent: as many copies, with the same properties."""
    message = {"application_properties": {"color": "red"}}
    tried = api.post("/rules/try", entity=SUBSCRIPTION, message=message)
    api.post("/messages", entity="events", messages=[message])
    got = api.get("/messages", entity=SUBSCRIPTION)["messages"]
    assert tried["copies"] == len(got)
    made = [one["result"]["application_properties"] for one in tried["rules"] if one["result"]]
    assert made[0] in [one["application_properties"] for one in got]
    api.post("/purge", entity=SUBSCRIPTION)


def test_a_message_in_the_broker_can_be_tried(api):
    sent = api.post(
        "/messages", entity="orders", messages=[{"application_properties": {"color": "red"}}]
    )
    stored = {"entity": "orders", "sequence_number": sent["sequence_numbers"][0]}
    assert {"red", "marked"} == matching(api.post("/rules/try", entity=SUBSCRIPTION, stored=stored))


def test_a_draft_is_tried_beside_the_rules(api):
    draft = {"sql_filter": "size > 10", "action": "SET big = TRUE"}
    message = {"application_properties": {"size": 11}}
    answer = api.post("/rules/try", entity=SUBSCRIPTION, message=message, draft=draft)
    (tried,) = [one for one in answer["rules"] if one["is_draft"]]
    assert (True, True) == (tried["matches"], tried["result"]["application_properties"]["big"])
    assert 0 == answer["copies"]


def test_a_filter_that_cannot_be_evaluated_says_why(api):
    message = {"application_properties": {"amount": 1, "zero": 0}}
    answer = api.post("/rules/try", entity=SUBSCRIPTION, message=message)
    (broken,) = [one for one in answer["rules"] if one["name"] == "broken"]
    assert (False, True) == (broken["matches"], bool(broken["error"]))


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"entity": SUBSCRIPTION}, 400, "message"),
        ({"entity": "orders", "message": {}}, 400, "entity"),
        ({"entity": "nobody", "message": {}}, 404, "entity"),
        (
            {"entity": SUBSCRIPTION, "stored": {"entity": "orders", "sequence_number": 999}},
            404,
            None,
        ),
        ({"entity": SUBSCRIPTION, "message": {}, "draft": {"sql_filter": "color ="}}, 400, "draft"),
        ({"entity": SUBSCRIPTION, "message": {}, "draft": {"action": "SET"}}, 400, "draft"),
    ],
)
def test_a_wrong_try_out_is_refused(api, body, status, field):
    answer = api.refused("POST", "/rules/try", body)
    assert (status, field) == (answer.status, answer.error["field"])
