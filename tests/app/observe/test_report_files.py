"""Reports in files: JSON, and JUnit XML that any reader of test results takes."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

from broker.app.observe.report_files import junit, write_reports


def report(namespace: str = "ns", **finding: Any) -> dict[str, Any]:
    given = {
        "kind": "never_received",
        "entity": "orders",
        "sentence": "2 messages of 'orders' were never received.",
        "count": 2,
        "message_ids": ["a", None],
        "is_exact": True,
        "details": {},
    } | finding
    kinds = [
        {"kind": "never_received", "expectation": "every message was received", "is_failure": True},
        {"kind": "refused", "expectation": "no operation was refused", "is_failure": False},
    ]
    for kind in kinds:
        count = 2 if kind["kind"] == given["kind"] else 0
        passed = not count or not kind["is_failure"]
        kind |= {"count": count, "findings": count and 1, "is_passed": passed}
    return {
        "namespace": namespace,
        "time": "2026-02-03T04:05:06.789Z",
        "is_passed": all(kind["is_passed"] for kind in kinds),
        "kinds": kinds,
        "findings": [given],
    }


def test_a_failure_names_the_first_finding_and_lists_all():
    (suite,) = ET.fromstring(junit([report()]))
    assert ("peeklock.ns", "2", "1") == (
        suite.get("name"),
        suite.get("tests"),
        suite.get("failures"),
    )
    first, second = suite
    (failure,) = first
    assert "every message was received" == first.get("name")
    assert "2 never_received: 2 messages of 'orders' were never received." == failure.get("message")
    assert "2 messages of 'orders' were never received. Message ids: a, …" == failure.text
    assert [] == list(second)


def test_what_is_no_failure_is_output():
    (suite,) = ET.fromstring(junit([report(kind="refused", message_ids=[])]))
    assert "0" == suite.get("failures")
    (output,) = suite[1]
    assert ("system-out", "2 messages of 'orders' were never received.") == (
        output.tag,
        output.text,
    )


def test_any_text_is_valid_xml():
    """Message ids and reasons are texts of clients."""
    odd = "<&\"'\x00\x0b\ud800\uffff]]>\n\U0001f600"
    (suite,) = ET.fromstring(junit([report(odd, sentence=odd, message_ids=[odd])]))
    assert "\U0001f600" in str(suite[0][0].text)


def test_each_file_has_the_form_of_its_suffix(tmp_path):
    files = [tmp_path / "report.json", tmp_path / "report.XML"]
    write_reports(files, [report(), report("other", kind="refused")])
    written = json.loads(files[0].read_text())
    assert (False, ["ns", "other"]) == (
        written["is_passed"],
        [one["namespace"] for one in written["namespaces"]],
    )
    assert 2 == len(ET.parse(files[1]).getroot())


def test_half_a_surrogate_pair_is_replaced(tmp_path):
    """AMQP has no such text, but JSON has."""
    files = [tmp_path / "report.xml", tmp_path / "report.json"]
    write_reports(files, [report(message_ids=["\ud800"], sentence="\ud800 is lost")])
    assert (
        "? is lost"
        in json.loads(files[1].read_text("utf-8"))["namespaces"][0]["findings"][0].values()
    )
