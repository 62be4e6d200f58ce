"""Reports as JSON and as JUnit XML, and the files that a broker writes when it stops."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from broker import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_reports(files: Iterable[Path], reports: Sequence[dict[str, Any]]) -> None:
    """Writes all reports of a broker to each file, in the form that its suffix names."""
    for path in files:
        text = junit(reports) if path.suffix.lower() == ".xml" else _json(reports)
        path.write_text(text, encoding="utf-8", errors="replace")  # ids may have lone surrogates


def _json(reports: Sequence[dict[str, Any]]) -> str:
    document = {
        "version": __version__,
        "is_passed": all(one["is_passed"] for one in reports),
        "namespaces": list(reports),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def junit(reports: Sequence[dict[str, Any]]) -> str:
    """Returns reports as JUnit XML: a suite for each namespace, a test case for each kind of findings."""
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            '<testsuites name="peeklock">',
            *(line for one in reports for line in _suite(one)),
            "</testsuites>\n",
        ]
    )


def _suite(report: dict[str, Any]) -> Iterator[str]:
    name = _attribute(f"peeklock.{report['namespace']}")
    failures = sum(not kind["is_passed"] for kind in report["kinds"])
    timestamp = report["time"].removesuffix("Z")
    yield (
        f'  <testsuite name={name} tests="{len(report["kinds"])}" failures="{failures}" errors="0" '
        f'skipped="0" time="0" timestamp="{timestamp}">'
    )
    for kind in report["kinds"]:
        yield from _case(name, kind, [f for f in report["findings"] if f["kind"] == kind["kind"]])
    yield "  </testsuite>"


def _case(suite: str, kind: dict[str, Any], findings: list[dict[str, Any]]) -> Iterator[str]:
    start = f'    <testcase classname={suite} name={_attribute(kind["expectation"])} time="0"'
    if not findings:
        yield f"{start}/>"
        return
    yield f"{start}>"
    text = _text("\n".join(map(_line, findings)))
    if kind["is_failure"]:
        message = _attribute(f"{kind['count']} {kind['kind']}: {findings[0]['sentence']}")
        yield f"      <failure message={message} type={_attribute(kind['kind'])}>{text}</failure>"
    else:
        yield f"      <system-out>{text}</system-out>"
    yield "    </testcase>"


def _line(finding: dict[str, Any]) -> str:
    ids = [str(one) for one in finding["message_ids"] if one is not None]
    if not ids:
        return str(finding["sentence"])
    more = "" if finding["count"] <= len(ids) else ", …"
    return f"{finding['sentence']} Message ids: {', '.join(ids)}{more}"


def _text(text: str) -> str:
    return escape(_NOT_IN_XML.sub("�", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_IN_XML.sub("�", text))
