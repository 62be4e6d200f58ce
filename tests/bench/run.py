"""`make bench`: measure the broker and say on what machine, as a table and as JSON.

`python -m tests.bench.run [--quick] [--cases TEXT] [--storage NAME] [--large] [--out FILE]`. It ends
with 1 if any message was lost, doubled, damaged or moved, or a large queue was slow.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import observe
from tests.bench.cases import CASES
from tests.bench.cases.setting import Case, Setting
from tests.bench.rows import Row
from tests.support.server import BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUICK_DIVISOR = 4
CASE_WIDTH = 52
STORAGES = ("memory", "sqlite")


def _number(figures: dict[str, float], name: str, digits: int) -> str:
    return f"{figures[name]:,.{digits}f}" if name in figures else ""


def _client(figures: dict[str, float]) -> str:
    roles = ("send", "receive")
    used = [_number(figures, f"{role}_client_cpu_us", 1) for role in roles]
    return " + ".join(filter(None, used))


def _latency(figures: dict[str, float], prefix: str) -> str:
    names = [f"{prefix}_p{share}_us" for share in (50, 95, 99)]
    if names[0] not in figures:
        return ""
    return " / ".join(f"{figures[name] / 1e3:.2f}" for name in names)


COLUMNS = (
    ("msgs/s", 9, lambda figures: _number(figures, "messages_per_s", 0)),
    ("broker us", 11, lambda figures: _number(figures, "broker_cpu_us", 1)),
    ("per copy", 10, lambda figures: _number(figures, "broker_cpu_us_per_copy", 1)),
    ("client us", 16, _client),
    ("ack p50/95/99 ms", 26, lambda figures: _latency(figures, "ack")),
    ("end to end ms", 30, lambda figures: _latency(figures, "end_to_end")),
    ("start s", 9, lambda figures: _number(figures, "start_s", 2)),
    ("RSS MB", 8, lambda figures: _number(figures, "resident_mb", 0)),
    ("file MB", 9, lambda figures: _number(figures, "file_mb", 0)),
    ("bodies", 9, lambda figures: _number(figures, "bodies", 0)),
    ("first ms", 9, lambda figures: _number(figures, "first_ms", 2)),
    ("last ms", 9, lambda figures: _number(figures, "last_ms", 2)),
    ("speed x", 9, lambda figures: _number(figures, "speed_ratio", 2)),
    ("CPU x", 7, lambda figures: _number(figures, "cpu_ratio", 2)),
)
"""Heading, width, and how the figures of a row become text."""


def heading() -> str:
    return f"{'case':{CASE_WIDTH}}" + "".join(f"{title:>{width}}" for title, width, _ in COLUMNS)


def line(row: Row) -> str:
    text = f"{row.case:{CASE_WIDTH}}"
    text += "".join(f"{show(row.figures):>{width}}" for _, width, show in COLUMNS)
    return text.rstrip() if row.is_clean else f"{text.rstrip()}\n  FAILED: {row.problem}"


def rows_of(case: Case, setting: Setting) -> Iterator[Row]:
    """The case's rows; a broker that does not even start is one of them."""
    name = f"{setting.storage}: {case.name}"
    try:
        yield from case.run(setting, name)
    except BrokerFailed as failure:
        yield Row(name, {}, is_clean=False, problem=str(failure))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the messages")
    parser.add_argument("--cases", default="", help="only cases whose name has this in it")
    parser.add_argument("--storage", choices=STORAGES, help="only this storage")
    parser.add_argument("--large", action="store_true", help="also a million messages waiting")
    parser.add_argument("--folder", type=Path, help="where database files go")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    options = parser.parse_args(arguments)

    machine = observe.machine()
    print(
        f"{machine['cores']} cores, {machine['processor']}, Python {machine['python']}, "
        f"SQLite {machine['sqlite']}, load {machine['load_average']:.2f}\n"
    )
    print(heading())
    rows: list[Row] = []
    divisor = QUICK_DIVISOR if options.quick else 1
    for storage in STORAGES if options.storage is None else (options.storage,):
        for case in CASES:
            if storage not in case.storages or options.cases not in case.name:
                continue
            if case.is_large and not options.large:
                continue
            with tempfile.TemporaryDirectory(dir=options.folder, prefix="peeklock-bench-") as name:
                setting = Setting(storage, Path(name), divisor)
                for row in rows_of(case, setting):
                    rows.append(row)
                    print(line(row), flush=True)
    out = options.out or Path(tempfile.gettempdir()) / "peeklock-bench.json"
    result = {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine,
        "quick": options.quick,
        "rows": [asdict(row) for row in rows],
    }
    out.write_text(json.dumps(result, indent=2))
    failed = [row for row in rows if not row.is_clean]
    print(f"\n{len(rows)} rows, {len(failed)} failed; written to {out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
