"""A run that fails says which promise was broken before it shows what happened."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.ledgers.promises import PROMISES
from tests.crash.ledgers.report import Book
from tests.simulation.findings import Finding, failure, sentences
from tests.simulation.run import run_many

if TYPE_CHECKING:
    import pytest

SEEDS = 3
"""The mistake shows in nearly every run."""
TESTS = Path(__file__).parents[1]
VIOLATED = re.compile(r"""violate\(\s*"([^"]+)\"""")


def test_every_kind_of_contradiction_names_its_promise() -> None:
    folders = (TESTS / "crash", TESTS / "simulation")
    sources = [path.read_text() for folder in folders for path in folder.rglob("*.py")]
    kinds = {kind for source in sources for kind in VIOLATED.findall(source)}
    assert {"lost", "locked twice", "not as it was made"} <= kinds
    books = [Book]
    for book in books:
        books += book.__subclasses__()
        kinds |= set(book.kinds)
    assert set() == kinds - set(PROMISES)


def test_a_failed_run_prints_the_broken_promise_before_its_events(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, *_ = failed = run_many(0, SEEDS, 1, "keep-locks")
    printed = capsys.readouterr().out
    parts = (
        f"seed {seed} FAILED",
        "  promised: ",
        "; found: ",
        "events before the first of it was found:",
        " to broker ",
        "BROKEN PROMISE ",
        "repeated here: the same run",
        f"again: python -m tests.simulation.run --seeds 1 --seed {seed} --verbose",
        f"failed seeds: {', '.join(map(str, failed))}",
    )
    places = [printed.index(part) for part in parts]
    assert places == sorted(places)


def test_one_sentence_stands_for_all_findings_of_a_promise() -> None:
    findings = [Finding("it is so", "it is not"), Finding("it is so", "never"), Finding("a", "b")]
    assert list(sentences(findings)) == [
        "promised: it is so; found: it is not (and 1 more)",
        "promised: a; found: b",
    ]


def test_an_exception_is_told_by_its_last_line() -> None:
    trace = "Traceback (most recent call last):\n  somewhere\nKeyError: 5\n"
    finding = failure("there is none", "turn.failed", trace)
    assert finding.sentence == "promised: there is none; found: turn.failed: KeyError: 5"
    assert finding.details == trace
