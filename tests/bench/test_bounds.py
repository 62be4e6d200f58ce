"""Bounds and the table at the end: a figure that misses its bound fails the run and is marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench import pages
from tests.bench.bounds import CPU, P50, RATE, THROUGH_256, check
from tests.bench.cases.ready import READY_EMPTY
from tests.bench.cases.sdk import THROUGH_SDK, THROUGH_SDK_APPENDS
from tests.bench.cases.single import BARE_APPEND, ONE_IN_FLIGHT, median_of
from tests.bench.rows import Row
from tests.bench.summary import table
from tests.bench.systems import ARTEMIS, DISK, MEMORY, RABBITMQ, SQLITE

if TYPE_CHECKING:
    from pathlib import Path


def through(system: str, rate: float, cpu_us: float = 1.0) -> Row:
    return Row(THROUGH_256, {RATE: rate, CPU: cpu_us}, system=system)


def test_a_figure_within_its_bound_is_clean():
    """Exactly the bound is within."""
    row = Row(READY_EMPTY, {"start_s": 0.3}, system=MEMORY)
    assert [] == check([row])
    assert row.is_clean


def test_a_figure_beyond_its_bound_fails_the_row():
    """The row says which figure, and what it should be."""
    row = Row(READY_EMPTY, {"start_s": 0.31}, system=MEMORY)
    assert [row] == check([row])
    assert not row.is_clean
    assert "start_s is 0.31 and not 0.30" in row.problem


@pytest.mark.parametrize(("append_us", "is_clean"), [(100.0, True), (90.0, False)])
def test_a_send_is_compared_with_the_append_of_the_same_run(append_us: float, *, is_clean: bool):
    """The bound of one figure is a multiple of another."""
    send = Row(ONE_IN_FLIGHT, {P50: 219.0}, system=SQLITE)
    check([Row(BARE_APPEND, {P50: append_us}, system=DISK), send])
    assert is_clean == send.is_clean


@pytest.mark.parametrize(("took_us", "is_clean"), [(1250.0, True), (1260.0, False)])
def test_two_commits_through_an_sdk_may_take_two_and_a_half_appends(
    took_us: float, *, is_clean: bool
):
    """The appends are those of a broker that only appends, beside the same client."""
    row = Row(THROUGH_SDK, {P50: took_us}, system=SQLITE)
    memory = Row(THROUGH_SDK, {P50: 1000.0}, system=MEMORY)
    check([memory, Row(THROUGH_SDK_APPENDS, {P50: 1200.0}, system=DISK), row])
    assert is_clean == row.is_clean


def test_a_comparison_without_its_peer_says_nothing():
    """Without RabbitMQ and Artemis in the run, no rate is too low."""
    row = through(SQLITE, 1.0)
    check([row])
    assert row.is_clean


@pytest.mark.parametrize(("peer", "needed"), [(ARTEMIS, 40_000), (RABBITMQ, 100_000)])
def test_a_rate_is_compared_with_those_of_peers(peer: str, needed: float):
    """At least Artemis's, and two and a half times RabbitMQ's."""
    enough, too_low = through(SQLITE, needed), through(SQLITE, needed - 1)
    check([enough, through(peer, 40_000)])
    check([too_low, through(peer, 40_000)])
    assert (True, False) == (enough.is_clean, too_low.is_clean)


def test_the_median_of_rounds_keeps_the_problem_of_one():
    """One round may be slow, but no round may lose a message."""
    rows = [through(SQLITE, rate) for rate in (1.0, 3.0, 200.0)]
    rows[0].is_clean, rows[0].problem = False, "1 lost"
    row = median_of("through", rows)
    assert (3.0, False, "1 lost") == (row.figures[RATE], row.is_clean, row.problem)


def test_the_table_has_a_line_for_each_case_and_a_column_for_each_broker():
    """A cell that misses a bound is marked; rounds are left out."""
    rows = [
        through(MEMORY, 70_000, 9.5),
        through(SQLITE, 50_000, 12.0),
        Row(f"{THROUGH_256}, round 1", {RATE: 1.0}, system=SQLITE),
    ]
    check(rows)
    heading, rule, line = table(rows, markdown=True).splitlines()
    assert "|  | Peeklock, memory | Peeklock, SQLite | bound |" == heading
    assert "| --- | --- | --- | --- |" == rule
    expected = (
        "| through 256 B | 70,000 /s, 9.5 µs **missed** | 50,000 /s, 12.0 µs | memory ≤ 9 µs,"
    )
    assert line.startswith(expected)


def test_the_pages_of_the_documentation_get_the_tables(tmp_path: Path):
    """The README has a part of the rows and no bounds; the rest of a page stays as it is."""
    (tmp_path / "docs").mkdir()
    names = ("README.md", "docs/performance.md")
    for name in names:
        (tmp_path / name).write_text(f"before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n")
    rows = [through(SQLITE, 50_000, 12.0), Row("beside nothing", {}, system=SQLITE)]
    pages.write(rows, tmp_path)
    readme, performance = [(tmp_path / name).read_text().splitlines() for name in names]
    assert ["before", "after"] == [readme[0], readme[-1]]
    assert "| through 256 B | 50,000 /s, 12.0 µs |" == readme[4]
    assert (7, 8) == (len(readme), len(performance))
    assert performance[2].endswith("| bound |")


@pytest.mark.parametrize("name", ["README.md", "docs/performance.md"])
def test_the_pages_have_a_place_for_their_table(name: str):
    """What is there now is replaced as a whole."""
    assert "new" in pages.in_page((pages.ROOT / name).read_text(), "new")
