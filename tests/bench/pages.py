"""The tables of `make bench` in the documentation. `make bench ARGS="--peers --readme"` writes them.

docs/performance.md has the whole table, the README the measurements that most readers compare.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.cases.ready import IDLE, READY_EMPTY, memory_with, ready_with
from tests.bench.cases.sdk import THROUGH_SDK
from tests.bench.cases.single import ONE_IN_FLIGHT, STEADY
from tests.bench.cases.throughput import KINDS, case_name
from tests.bench.summary import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.rows import Row

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- bench -->", "<!-- /bench -->"
README_CASES = (
    *(case_name(kind, 256) for kind in KINDS),
    ONE_IN_FLIGHT,
    STEADY,
    THROUGH_SDK,
    READY_EMPTY,
    ready_with(1_000_000),
    IDLE,
    memory_with(100_000),
)


def in_page(text: str, content: str) -> str:
    """The page with this content between its two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{content}\n{END}{after}"


def write(rows: Sequence[Row], root: Path = ROOT) -> None:
    """Write the tables into both pages."""
    in_readme = [row for row in rows if row.case in README_CASES]
    for path, content in (
        (root / "README.md", table(in_readme, markdown=True, with_bounds=False)),
        (root / "docs" / "performance.md", table(rows, markdown=True)),
    ):
        path.write_text(in_page(path.read_text(), content))
