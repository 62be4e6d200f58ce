"""The table at the end of a run: a line for each measurement, a column for each broker.

As plain text, or in Markdown for the documentation. A cell that misses a bound, or whose messages were not all right,
is marked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.bounds import BOUNDS
from tests.bench.systems import ARTEMIS, DISK, RABBITMQ, SQLITE, TITLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.bench.rows import Row

FAILED = "MISSED"
PEERS = {RABBITMQ, ARTEMIS}


def cell(row: Row) -> str:
    """The figures of a row that matter, with their units."""
    figures = row.figures
    parts = []
    if "victim_p50_ms" in figures:
        values = (figures[f"victim_{name}_ms"] for name in ("p50", "p99", "max"))
        parts.append(" / ".join(f"{value:.1f}" for value in values) + " ms")
        if "control_p99_ms" in figures:
            parts.append(f"control {figures['control_p99_ms']:.1f} ms")
    elif "start_s" in figures:
        parts.append(f"{figures['start_s']:.2f} s")
        if "start_cpu_s" in figures:
            parts.append(f"{figures['start_cpu_s']:.2f} s of CPU")
    elif "cpu_ratio" in figures:
        parts.append(f"{figures['cpu_ratio']:.2f} x")
    elif "messages_per_s" in figures and not _is_latency(row):
        parts.append(f"{figures['messages_per_s']:,.0f} /s")
    elif "ack_p50_us" in figures:
        parts.append(f"{figures['ack_p50_us'] / 1e3:.2f} / {figures['ack_p99_us'] / 1e3:.2f} ms")
    elif "resident_mb" in figures:
        parts.append(f"{figures['resident_mb']:.0f} MB")
    if "broker_cpu_us" in figures:
        used_us = figures["broker_cpu_us"]
        parts.append(f"{used_us:.1f} µs" if used_us < 100 else f"{used_us:.0f} µs")
    text = ", ".join(parts)
    return text if row.is_clean else f"{text} {FAILED}"


def _is_latency(row: Row) -> bool:
    """Whether the rate was given, or follows from the latency, so that it says nothing."""
    return "in flight" in row.case or "a second" in row.case


def is_shown(row: Row) -> bool:
    """Rounds, and what only prepares a measurement, are left out."""
    return ", round " not in row.case and not row.case.endswith((" sent", " received", "emptied"))


def bounds_of(case: str) -> str:
    """The bounds of a line in words."""
    texts = dict.fromkeys(
        bound.text if _is_alone(bound.case) else f"{bound.system} {bound.text}"
        for bound in BOUNDS
        if bound.case == case
    )
    return ", ".join(texts)


def _is_alone(case: str) -> bool:
    return len({bound.system for bound in BOUNDS if bound.case == case}) == 1


def table(rows: Sequence[Row], *, markdown: bool, with_bounds: bool = True) -> str:
    """The whole table. A measurement of the disk stands in the column of the storage that uses it."""
    shown = [row for row in rows if is_shown(row)]
    systems = [name for name in TITLES if name != DISK and any(row.system == name for row in shown)]
    by_case: dict[str, dict[str, Row]] = {}
    # Peers last: the order of the lines is that of Peeklock's cases.
    for row in sorted(shown, key=lambda row: row.system in PEERS):
        by_case.setdefault(row.case, {})[SQLITE if row.system == DISK else row.system] = row
    lines = [["", *(TITLES[name] for name in systems), "bound"]]
    for case, found in by_case.items():
        cells = [cell(found[name]) if name in found else "" for name in systems]
        lines.append([case, *cells, bounds_of(case)])
    if not with_bounds:
        lines = [line[:-1] for line in lines]
    return _as_markdown(lines) if markdown else _as_text(lines)


def _as_markdown(lines: list[list[str]]) -> str:
    heading, *rest = lines
    rule = ["---"] * len(heading)
    marked = [[one.replace(FAILED, "**missed**") for one in line] for line in rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heading, rule, *marked])


def _as_text(lines: Iterable[list[str]]) -> str:
    lines = list(lines)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
