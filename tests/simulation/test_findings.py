"""A run that fails prints the broken promise before the events."""

from __future__ import annotations

import re
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

from tests.crash.ledgers.promises import PROMISES
from tests.crash.ledgers.report import Book
from tests.simulation.findings import Finding, failure, sentences
from tests.simulation.run import run_many
from tests.simulation.simulation_run import World

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = 2
"""The mistake shows in nearly every run."""
TESTS = Path(__file__).parents[1]
VIOLATED = re.compile(r"""violate\(\s*"([^"]+)\"""")


@pytest.fixture
def world() -> Iterator[World]:
    """One that is not run."""
    world = World(0)
    yield world
    world.loop.close()


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


def test_an_exception_is_reported_by_its_last_line() -> None:
    trace = "Traceback (most recent call last):\n  somewhere\nKeyError: 5\n"
    finding = failure("there is none", "turn.failed", trace)
    assert finding.sentence == "promised: there is none; found: turn.failed: KeyError: 5"
    assert finding.details == trace


@pytest.mark.parametrize(
    ("event", "faults", "count"),
    [
        ("turn.failed", ["fail commit", "crash"], 1),
        ("commit.failed", [], 1),
        ("commit.failed", ["lose room"], 1),
        ("commit.failed", ["crash", "fail commit"], 0),
        ("something.new", ["fail commit"], 1),
    ],
)
def test_an_error_in_the_log_needs_a_fault_that_explains_it(
    world: World, event: str, faults: list[str], count: int
) -> None:
    world.faults += faults
    with pytest.raises(structlog.DropEvent):
        world.note_log_line(None, "error", {"event": event})
    assert len(world.findings) == count


@pytest.mark.parametrize(("faults", "count"), [([], 1), (["crash"], 1), (["stop in order"], 0)])
def test_a_connection_that_the_broker_ends_needs_a_fault_that_explains_it(
    world: World, faults: list[str], count: int
) -> None:
    world.faults += faults
    world.network.listen(lambda _: None, copy_context())
    world.network.dial()
    (connection,) = world.network.open
    connection.wire.close()
    assert len(world.findings) == count
