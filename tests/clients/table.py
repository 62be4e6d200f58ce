"""The matrix as Markdown: clients across, scenarios down, and who can read whose types.

Owns the list of scenarios, which is read from SCENARIOS.md so that there is only one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.clients.program import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.clients.program import Outcome, Report

SIGNS = {"passed": "✓", "skipped": "-", "failed": "✗"}
PARTLY = "(✓)"
UNREAD = re.compile(r"unread: ([a-z,-]+)")
BEGIN, END = "<!-- clients -->", "<!-- /clients -->"
_SCENARIO = re.compile(r"^\| `([a-z0-9-]+)`( \*\*short\*\*)? \|", re.MULTILINE)


def scenarios(*, short: bool = False) -> list[str]:
    """Every scenario in its order, or the short list."""
    _, _, text = (FOLDER / "SCENARIOS.md").read_text().partition("## Scenarios")
    return [name for name, is_short in _SCENARIO.findall(text) if is_short or not short]


def markdown(
    reports: Mapping[str, Report],
    types: Mapping[tuple[str, str], Outcome],
    names: Sequence[str],
) -> str:
    """Both tables; `types` has an outcome for each reader and writer."""
    clients = list(reports)
    versions = [
        "<br>".join(_version(*item) for item in reports[one].versions.items()) for one in clients
    ]
    lines = [
        _row("", *clients),
        _row("---", *[":-:"] * len(clients)),
        _row("version", *versions),
    ]
    lines += [_row(name, *(_sign(reports[one], name) for one in clients)) for name in names]
    lines += ["", "✓ passed, - the client has no way to do it, ✗ failed."]
    if types:
        lines += ["", "Types written by one client (down) and read by another (across):", ""]
        lines += [_row("", *clients), _row("---", *[":-:"] * len(clients))]
        lines += [
            _row(writer, *(_type_sign(types, reader, writer) for reader in clients))
            for writer in clients
            if any(written == writer for _, written in types)
        ]
        lines += _partly(types)
    return "\n".join(lines) + "\n"


def insert(path: Path, text: str) -> None:
    """Put the tables between their marks in a document."""
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no {BEGIN} … {END}")
    path.write_text(f"{before}{BEGIN}\n{text}{END}{after}")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _version(library: str, version: str) -> str:
    return f"{library} {version}"


def _sign(report: Report, name: str) -> str:
    outcome = report.outcomes.get(name)
    return SIGNS.get(outcome.outcome, "✗") if outcome else ""


def _type_sign(types: Mapping[tuple[str, str], Outcome], reader: str, writer: str) -> str:
    outcome = types.get((reader, writer))
    if outcome is None:
        return ""
    passed = outcome.outcome == "passed"
    return PARTLY if passed and UNREAD.search(outcome.detail) else SIGNS.get(outcome.outcome, "✗")


def _partly(types: Mapping[tuple[str, str], Outcome]) -> list[str]:
    """What the sign for a message that was read in part stands for, if it occurs."""
    found = (UNREAD.search(outcome.detail) for outcome in types.values())
    names = sorted({name for one in found if one for name in one[1].split(",")})
    rows = ", ".join(f"`{name}`" for name in names)
    return (
        ["", f"{PARTLY} all but {rows}, whose type the reader's library does not know."]
        if names
        else []
    )
