"""`make clients`: every stock client there is, against one running broker and a strict one beside it.

`python -m tests.clients.run [--short] [--only NAME] [--table FILE] [--readme]`. It ends with 1 if a
scenario failed or was not reported, a broker logged an error, a client could not be installed, or
(where `CI=true`) the tools for one are missing.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.clients import strict, table
from tests.clients.program import FAULTS, FOLDER, Outcome, ProgramFailed, Report, all_clients
from tests.support.server import HOST, ROOT, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.clients.program import Client

NAME_WIDTH = 12
PAGE = ROOT / "docs" / "clients.md"
"""Where the tables are published."""
ROUND_TRIP = "properties-round-trip"
READ_TYPES = "read-types"
LOCK_MS = 61_000
"""Longer than the lock of a queue that is made without a lock duration."""
NOT_REPORTED = Outcome("failed", "was not reported")
_BROKEN = re.compile(
    r"^.*(?:\[error|\[critical|Traceback \(most recent call last\)).*$", re.MULTILINE
)


class Matrix:
    """One broker, and the clients that are let loose on it."""

    def __init__(
        self,
        broker: BrokerProcess,
        folder: Path,
        *,
        short: bool,
        verbose: bool,
        strict_broker: BrokerProcess | None = None,
    ) -> None:
        self._broker = broker
        self._run = f"run-{secrets.token_hex(3)}"
        self._verbose = verbose
        self._scenarios = table.scenarios(short=short)
        self._environment = _environment(broker, folder, short=short)
        if strict_broker is not None:
            self._environment.update(strict.environment(strict_broker))
        self._logs_seen = {one: 0 for one in (broker, strict_broker) if one is not None}
        self.reports: dict[str, Report] = {}
        self.types: dict[tuple[str, str], Outcome] = {}

    def run(self, client: Client) -> Report:
        """All scenarios of one client. The broker starts anew, so that its clock is right."""
        self._broker.restart()
        report = self._start(client)
        for name in self._scenarios:
            report.outcomes.setdefault(name, NOT_REPORTED)
        for name in report.outcomes.keys() - set(self._scenarios):
            report.outcomes[name] = Outcome("failed", "is not in SCENARIOS.md")
        report.problem = report.problem or self._broken()
        self.reports[client.name] = report
        return report

    def read_types(self, reader: Client, writer: Client) -> Report:
        """Have one client read what another has written."""
        queue = f"{self._prefix(writer)}-types-{writer.name}"
        # A reader before it may have received once more what it gave back, and closed.
        self._broker.advance_clock(LOCK_MS)
        report = self._start(reader, READ_TYPES, queue, writer.name)
        if READ_TYPES not in report.outcomes:
            report.outcomes[READ_TYPES] = NOT_REPORTED
        report.problem = report.problem or self._broken()
        failed = Outcome("failed", report.problem)
        self.types[reader.name, writer.name] = (
            failed if report.problem else report.outcomes[READ_TYPES]
        )
        return report

    def make_faults(self, client: Client) -> Report:
        """The scenarios in which the broker is told to make faults."""
        report = self._start(client, "faults", prefix=f"{self._prefix(client)}-faults")
        for name in FAULTS:
            report.outcomes.setdefault(name, NOT_REPORTED)
        report.problem = report.problem or self._broken()
        return report

    def wrote_types(self, client: Client) -> bool:
        """Whether there is something for others to read."""
        report = self.reports.get(client.name)
        outcome = report.outcomes.get(ROUND_TRIP) if report else None
        return outcome is not None and outcome.outcome == "passed"

    def _start(self, client: Client, *arguments: str, prefix: str | None = None) -> Report:
        """Starts a program of a client. One that creates entities beside those of another program of the client needs a
        prefix of its own for their names."""
        environment = {
            **self._environment,
            "PEEKLOCK_RUN": prefix or self._prefix(client),
            "PEEKLOCK_STRICT_QUEUE": strict.queue(client),
        }
        return client.start(arguments, environment, self._broker.restart, self._watch)

    def _prefix(self, client: Client) -> str:
        """What the names of this client's entities begin with."""
        return f"{self._run}-{client.name}"

    def _watch(self, name: str, outcome: Outcome) -> None:
        if self._verbose:
            print(f"  {outcome.outcome:8} {name}  {outcome.detail}".rstrip(), flush=True)

    def _broken(self) -> str:
        """What a broker should not have had to say since the last time."""
        problem = ""
        for broker, seen in self._logs_seen.items():
            log = broker.log_text()
            new, self._logs_seen[broker] = log[seen:], len(log)
            if not problem and (found := _BROKEN.search(new)):
                problem = f"the broker logged: {new[found.start() :][:2_000]}"
        return problem


def _environment(broker: BrokerProcess, folder: Path, *, short: bool) -> dict[str, str]:
    flag = "UseDevelopmentEmulator=true;"
    tls = broker.connection_string.replace(flag, "").replace(HOST, "localhost")
    environment = {
        "PEEKLOCK_HOST": HOST,
        "PEEKLOCK_AMQP_PORT": str(broker.amqp_port),
        "PEEKLOCK_HTTP_PORT": str(broker.http_port),
        "PEEKLOCK_CONNECTION_STRING": broker.connection_string,
        "PEEKLOCK_ADMIN_CONNECTION_STRING": broker.admin_connection_string,
        "PEEKLOCK_TLS_CONNECTION_STRING": tls,
        "PEEKLOCK_CA_FILE": str(folder / "tls" / "ca.pem"),
        "PEEKLOCK_TYPES_FILE": str(FOLDER / "types.json"),
    }
    if short:
        environment["PEEKLOCK_SHORT"] = "1"
    return environment


@contextmanager
def _broker() -> Iterator[tuple[BrokerProcess, Path]]:
    """On a file, so that a restart in the middle loses nothing."""
    with tempfile.TemporaryDirectory(prefix="peeklock-clients-") as name:
        folder = Path(name)
        with BrokerProcess(
            storage=f"sqlite:///{folder / 'peeklock.db'}",
            environment={"PEEKLOCK_TLS_FOLDER": str(folder / "tls")},
        ) as broker:
            yield broker, folder


def _ready(
    clients: Sequence[Client],
) -> tuple[list[Client], dict[str, str], dict[str, str]]:
    """Those that can be run; why others are missing here; why others could not be made ready."""
    ready, missing, broken = [], {}, {}
    for client in clients:
        lacking = client.missing()
        if lacking:
            missing[client.name] = f"missing: {', '.join(lacking)} not found"
            continue
        try:
            client.make_ready()
        except ProgramFailed as error:
            broken[client.name] = f"not installed: {error}"
        else:
            ready.append(client)
    return ready, missing, broken


def _line(name: str, report: Report, seconds: float) -> str:
    counts = ", ".join(f"{report.count(one)} {one}" for one in ("passed", "failed", "skipped"))
    versions = ", ".join(f"{library} {version}" for library, version in report.versions.items())
    text = f"{name:{NAME_WIDTH}} {counts}  {seconds:.0f} s  {versions}"
    failures = [
        f"  {scenario}: {outcome.detail}"
        for scenario, outcome in report.outcomes.items()
        if outcome.outcome not in ("passed", "skipped") and outcome is not NOT_REPORTED
    ]
    silent = [one for one, outcome in report.outcomes.items() if outcome is NOT_REPORTED]
    if silent:
        failures.append(f"  {len(silent)} were not reported, the first of them {silent[0]}")
    if report.problem:
        failures.append(f"  {report.problem}")
    if failures and report.output:
        failures.append(f"--- what {name} wrote\n{report.output}\n---")
    return "\n".join([text.rstrip(), *failures])


def _run_all(clients: Sequence[Client], options: argparse.Namespace) -> bool:
    """Run them, print a line for each, write the tables; whether all went well."""
    good = True
    with _broker() as (broker, folder), ExitStack() as stack:
        strict_broker = None
        if not options.short:
            strict_broker = stack.enter_context(strict.start(clients, folder))
        matrix = Matrix(
            broker,
            folder,
            short=options.short,
            verbose=options.verbose,
            strict_broker=strict_broker,
        )
        for client in clients:
            began = time.monotonic()
            report = matrix.run(client)
            good &= report.is_good
            print(_line(client.name, report, time.monotonic() - began), flush=True)
            if client.faults and not options.short:
                began = time.monotonic()
                report = matrix.make_faults(client)
                good &= report.is_good
                line = _line(f"{client.name} with faults", report, time.monotonic() - began)
                print(line, flush=True)
            # At once: what it wrote has a time to live, and the next client moves the clock.
            readers = [one for one in clients if one is not client and matrix.wrote_types(client)]
            for reader in readers:
                began = time.monotonic()
                report = matrix.read_types(reader, client)
                good &= report.is_good
                if options.verbose or not report.is_good:
                    name = f"{reader.name} reading {client.name}"
                    print(_line(name, report, time.monotonic() - began), flush=True)
    text = table.markdown(matrix.reports, matrix.types, table.scenarios(short=options.short))
    if options.table:
        options.table.write_text(text)
    if options.readme:
        table.insert(PAGE, text)
    return good


def main(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    parser = argparse.ArgumentParser(prog="tests.clients.run", description=__doc__)
    parser.add_argument("--short", action="store_true", help="only a few scenarios of each")
    parser.add_argument("--only", action="append", default=[], help="only this client; repeatable")
    parser.add_argument("--table", type=Path, help="where the tables go, as Markdown")
    parser.add_argument(
        "--readme", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}"
    )
    parser.add_argument("--verbose", action="store_true", help="name every scenario")
    options = parser.parse_args(arguments)
    if options.readme and (options.short or options.only):
        parser.error(f"{PAGE.relative_to(ROOT)} shows every client and every scenario")
    try:
        clients, missing, broken = _ready(all_clients(options.only))
    except ProgramFailed as error:
        parser.error(str(error))
    good = not clients or _run_all(clients, options)
    for name, reason in {**missing, **broken}.items():
        print(f"{name:{NAME_WIDTH}} {reason}")
    required = environment.get("CI") == "true"
    good &= not broken and not (missing and required)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
