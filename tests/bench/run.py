"""`make bench`: measure the broker, print a line for each measurement and a table at the end.

`python -m tests.bench.run [--quick] [--cases TEXT] [--storage NAME] [--peers] [--markdown]`. The exit code is 1 if
a message was lost, doubled, damaged or moved, or a figure misses its bound (`bounds.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import bounds, observe, pages, peers, summary
from tests.bench.cases import CASES, DEFAULT, LARGE, MORE, TEN_MILLION, Case
from tests.bench.cases.ready import IDLE, READY_EMPTY
from tests.bench.cases.setting import Setting
from tests.bench.rows import Row
from tests.bench.systems import ARTEMIS, RABBITMQ, STORAGES
from tests.support.server import BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

QUICK_DIVISOR = 4
CASE_WIDTH = 62


def _number(figures: dict[str, float], name: str, digits: int) -> str:
    return f"{figures[name]:,.{digits}f}" if name in figures else ""


def _client(figures: dict[str, float]) -> str:
    roles = ("send", "receive")
    used = [_number(figures, f"{role}_client_cpu_us", 1) for role in roles]
    return " + ".join(filter(None, used))


def _latency(figures: dict[str, float], prefix: str) -> str:
    names = [f"{prefix}_p{share}_us" for share in (50, 95, 99)]
    return " / ".join(f"{figures[name] / 1e3:.2f}" for name in names if name in figures)


def _victim(figures: dict[str, float]) -> str:
    if "victim_p50_ms" not in figures:
        return ""
    return " / ".join(f"{figures[f'victim_{name}_ms']:.1f}" for name in ("p50", "p99", "max"))


def _control(figures: dict[str, float]) -> str:
    """What the client of an idle broker waited meanwhile, and how slow a sync of the disk was before."""
    if "control_p99_ms" not in figures:
        return ""
    return f"{figures['control_p99_ms']:.1f}, {figures['disk_p99_ms']:.1f}"


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
    ("victim p50/99/max ms", 24, _victim),
    ("control, disk p99 ms", 22, _control),
)
"""Heading, width, and how the figures of a row become text."""


def heading() -> str:
    return f"{'case':{CASE_WIDTH}}" + "".join(f"{title:>{width}}" for title, width, _ in COLUMNS)


def line(row: Row) -> str:
    text = f"{row.system + ': ' + row.case:{CASE_WIDTH}}"
    text += "".join(f"{show(row.figures):>{width}}" for _, width, show in COLUMNS)
    return text.rstrip() if row.is_clean else f"{text.rstrip()}\n  FAILED: {row.problem}"


def rows_of(name: str, rows: Iterator[Row], system: str) -> Iterator[Row]:
    """The rows of a case; a broker that does not even start is one of them."""
    try:
        for row in rows:
            row.system = row.system or system
            yield row
    except BrokerFailed as failure:
        yield Row(name, {}, is_clean=False, problem=str(failure), system=system)


def measure_peeklock(
    cases: Sequence[Case], storages: Sequence[str], setting: Setting
) -> Iterator[Row]:
    """Each case with an empty store of its own."""
    for case in cases:
        for storage in storages:
            if storage not in case.storages:
                continue
            prefix = "peeklock-bench-"
            with tempfile.TemporaryDirectory(dir=setting.folder, prefix=prefix) as name:
                one = Setting(storage, Path(name), setting.divisor)
                yield from rows_of(case.name, case.run(one), storage)


def measure_beside_peers(
    cases: Sequence[Case],
    storages: Sequence[str],
    addresses: Mapping[str, str | None],
    setting: Setting,
) -> Iterator[Row]:
    """Cases that need only a queue: each is run with one broker after the other, because machines change their speed.
    A peer that is not there has no rows. `addresses` has those of the peers that run already."""
    with ExitStack() as stack:
        targets = []
        for system, address in addresses.items():
            try:
                peer = stack.enter_context(peers.running(system, address))
            except peers.PeerMissing as missing:
                print(f"{system} is left out: {missing}", flush=True)
                continue
            targets.append(peer.target)
            yield from peer_start(peer)
        for case in cases:
            yield from measure_peeklock([case], storages, setting)
            assert case.on_target is not None
            for target in targets:
                yield from rows_of(case.name, case.on_target(setting, target), target.system)


def peer_start(peer: peers.Peer) -> Iterator[Row]:
    """How long a peer took to be ready, and its memory."""
    system, process_id = peer.target.system, peer.target.process_id
    if peer.ready_after_s is not None:
        yield Row(READY_EMPTY, {"start_s": peer.ready_after_s}, system=system)
    if process_id is not None:
        yield Row(IDLE, {"resident_mb": observe.resident_megabytes(process_id)}, system=system)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the messages")
    parser.add_argument("--cases", default="", help="only cases whose name has this in it")
    parser.add_argument("--storage", choices=STORAGES, help="only this storage")
    parser.add_argument("--peers", action="store_true", help="also RabbitMQ and Artemis")
    parser.add_argument("--rabbitmq", metavar="HOST:PORT", help="a RabbitMQ that runs already")
    parser.add_argument("--artemis", metavar="HOST:PORT", help="an Artemis that runs already")
    parser.add_argument("--markdown", action="store_true", help="the table at the end in Markdown")
    parser.add_argument("--readme", action="store_true", help="write the tables of the pages")
    parser.add_argument("--ten-million", action="store_true", help="also 10,000,000 waiting")
    parser.add_argument("--more", action="store_true", help="also topics, rules, 10 connections")
    parser.add_argument("--large", action="store_true", help="also work beside a million messages")
    parser.add_argument("--folder", type=Path, help="where database files go")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    options = parser.parse_args(arguments)

    machine = observe.machine()
    print(
        f"{machine['cores']} cores, {machine['processor']}, Python {machine['python']} "
        f"({machine['python_build']}), SQLite {machine['sqlite']}, load {machine['load_average']:.2f}\n"
    )
    print(heading())
    wanted = {MORE: options.more, LARGE: options.large, TEN_MILLION: options.ten_million}
    cases = [
        case
        for case in CASES
        if options.cases in case.name and (case.group == DEFAULT or wanted[case.group])
    ]
    storages = STORAGES if options.storage is None else (options.storage,)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="peeklock-bench-") as name:
        setting = Setting("", Path(name), QUICK_DIVISOR if options.quick else 1)
        given = {RABBITMQ: options.rabbitmq, ARTEMIS: options.artemis}
        addresses = {name: one for name, one in given.items() if one or options.peers}
        measured = chain(
            measure_beside_peers(
                [case for case in cases if case.on_target is not None], storages, addresses, setting
            ),
            measure_peeklock([case for case in cases if case.on_target is None], storages, setting),
        )
        for row in measured:
            rows.append(row)
            print(line(row), flush=True)
    bounds.check(rows)
    out = options.out or Path(tempfile.gettempdir()) / "peeklock-bench.json"
    result = {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine,
        "quick": options.quick,
        "rows": [asdict(row) for row in rows],
    }
    out.write_text(json.dumps(result, indent=2))
    print(f"\n{summary.table(rows, markdown=options.markdown)}\n")
    if options.readme:
        pages.write(rows)
    failed = [row for row in rows if not row.is_clean]
    for row in failed:
        print(f"{summary.FAILED} {row.system}: {row.case}: {row.problem}")
    print(f"{len(rows)} rows, {len(failed)} failed; written to {out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
