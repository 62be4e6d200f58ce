"""The runner of the client matrix, tried on small programs instead of clients."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests import check
from tests.clients import program, run, strict, table
from tests.clients.program import Client, Outcome, Report
from tests.clients.run import Matrix

if TYPE_CHECKING:
    from tests.support.server import BrokerProcess


class QuietBroker:
    """As much of a broker as the runner touches."""

    amqp_port, http_port = 1, 2
    connection_string = "Endpoint=sb://127.0.0.1:1;UseDevelopmentEmulator=true;"
    admin_connection_string = "Endpoint=sb://127.0.0.1:2;UseDevelopmentEmulator=true;"

    def __init__(self) -> None:
        self.log = ""
        self.restarts = 0

    def log_text(self) -> str:
        return self.log

    def restart(self) -> None:
        self.restarts += 1


def client(folder: Path, text: str, **settings: Any) -> Client:
    """A client whose program is this."""
    (folder / "program.py").write_text(text)
    command = [sys.executable, "program.py"]
    return Client(folder=folder, name="fake", needs=[], install=["true"], run=command, **settings)


def started(one: Client, *arguments: str, **environment: str) -> Report:
    return one.start(arguments, environment, lambda: None, lambda *_: None)


def report(scenario: str, outcome: str = "passed") -> str:
    line = json.dumps({"scenario": scenario, "outcome": outcome, "detail": "why"})
    return f"print({line!r})\n"


def matrix(broker: QuietBroker, *, short: bool = True) -> Matrix:
    return Matrix(cast("BrokerProcess", broker), Path("/nowhere"), short=short, verbose=False)


def every(outcome: str = "passed") -> str:
    return "".join(report(name, outcome) for name in table.scenarios(short=True))


def test_a_program_reports_line_by_line(tmp_path):
    """Objects are reports, all else is output."""
    versions = """print('{"versions": {"library": "1.2"}}')\n"""
    one = client(tmp_path, f"{versions}print('chatter')\n{report('peek', 'skipped')}")
    found = started(one)
    assert {"library": "1.2"} == found.versions
    assert {"peek": Outcome("skipped", "why")} == found.outcomes
    assert "chatter" == found.output
    assert found.is_good


def test_a_program_may_have_the_broker_restarted(tmp_path):
    """It is told when that is done."""
    ask = """print('{"control": "restart"}', flush=True)\nprint('heard', input())\n"""
    done = []
    found = client(tmp_path, ask).start([], {}, lambda: done.append("restart"), lambda *_: None)
    assert ["restart"] == done
    assert "heard restarted" == found.output


def test_a_program_gets_its_arguments_and_its_environment(tmp_path):
    """Variables of the runner can be used in those of the client."""
    text = "import os, sys\nprint(sys.argv[1:], os.environ['OWN'])"
    one = client(tmp_path, text, environment={"OWN": "${PEEKLOCK_CA_FILE}!"})
    assert "['read-types'] ca.pem!" == started(one, "read-types", PEEKLOCK_CA_FILE="ca.pem").output


def test_a_program_that_crashes_or_hangs_has_failed(tmp_path):
    """Whatever it has reported."""
    crashed = started(client(tmp_path, f"{report('peek')}raise SystemExit(3)"))
    assert "the program ended with 3" == crashed.problem
    hung = started(client(tmp_path, "import time\ntime.sleep(60)", limit_s=0.2))
    assert "was not done after 0.2 s" == hung.problem
    assert not hung.is_good


def test_installing_is_left_out_while_nothing_has_changed(tmp_path):
    """As `make` would do it."""
    lock, installed = tmp_path / "lock", tmp_path / "installed"
    lock.write_text("")
    one = client(tmp_path, "", installed="installed", lock="lock")
    touching = Client(**{**one.__dict__, "install": ["cp", "lock", "installed"]})
    touching.make_ready()
    failing = Client(**{**one.__dict__, "install": ["false"]})
    failing.make_ready()
    installed.unlink()
    with pytest.raises(program.ProgramFailed, match="false ended with 1"):
        failing.make_ready()


def test_a_program_with_faults_creates_entities_of_its_own(tmp_path):
    """It counts the names of its entities from the first one again, as the program without faults did."""
    text = "import os, sys\nopen(f'prefix{len(sys.argv)}', 'w').write(os.environ['PEEKLOCK_RUN'])"
    one, runner = client(tmp_path, text), matrix(QuietBroker())
    runner.run(one)
    runner.make_faults(one)
    assert (tmp_path / "prefix1").read_text() != (tmp_path / "prefix2").read_text()


def test_every_scenario_must_be_reported_and_known(tmp_path):
    """A forgotten one is a failure, and so is one nobody has heard of."""
    forgotten, *others = table.scenarios(short=True)
    text = "".join(report(name) for name in others) + report("unheard-of")
    found = matrix(QuietBroker()).run(client(tmp_path, text))
    assert Outcome("failed", "was not reported") == found.outcomes[forgotten]
    assert Outcome("failed", "is not in SCENARIOS.md") == found.outcomes["unheard-of"]
    assert (len(others), 2) == (found.count("passed"), found.count("failed"))


def test_an_error_in_the_brokers_log_is_a_failure(tmp_path):
    """Even if the client noticed nothing; but only of the client during which it came."""
    broker = QuietBroker()
    trials = matrix(broker)
    broker.log = "2026-01-01T00:00:00Z [error    ] turn.failed\n"
    assert "the broker logged: 2026" in trials.run(client(tmp_path, every())).problem
    assert trials.run(client(tmp_path, every())).is_good


def test_a_client_without_its_tools_is_a_failure_in_ci(monkeypatch, tmp_path, capsys):
    """On a developer's machine it is only said."""
    lacking = Client(tmp_path, "lacking", ["no-such-program"], ["true"], ["true"])
    monkeypatch.setattr(run, "all_clients", lambda _: [lacking])
    assert 0 == run.main(["--short"], {})
    assert 1 == run.main(["--short"], {"CI": "true"})
    assert "lacking      missing: no-such-program not found" in capsys.readouterr().out


def test_a_client_that_cannot_be_installed_is_a_failure(monkeypatch, tmp_path, capsys):
    """Anywhere: its tools are there."""
    monkeypatch.setattr(run, "all_clients", lambda _: [Client(tmp_path, "x", [], ["false"], [])])
    assert 1 == run.main([], {})
    assert "not installed: false ended with 1" in capsys.readouterr().out


def test_tables_are_put_between_their_marks(tmp_path):
    """All else in the document stays."""
    path = tmp_path / "README.md"
    path.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    reports = {"one": Report({"library": "1"}, {"peek": Outcome("passed", "")})}
    table.insert(path, table.markdown(reports, {}, ["peek"]))
    text = path.read_text()
    assert text.startswith(f"before\n{table.BEGIN}\n|  | one |\n")
    assert "| peek | ✓ |" in text
    assert "old" not in text
    assert text.endswith(f"{table.END}\nafter\n")


def test_a_reader_without_a_type_differs_from_one_that_read_all():
    """The legend names the rows that were not read."""
    reports = {name: Report() for name in ("reader", "writer")}
    partly = Outcome("passed", "shown undecoded: a-uri; unread: a-char")
    text = table.markdown(
        reports, {("reader", "writer"): partly, ("writer", "reader"): Outcome("passed", "7 ms")}, []
    )
    assert "| reader |  | ✓ |\n| writer | (✓) |  |\n" in text
    assert text.endswith("(✓) all but `a-char`, whose type the reader's library does not know.\n")


def test_the_short_list_is_part_of_the_list():
    """And no scenario is listed twice."""
    names = table.scenarios()
    assert len(names) == len(set(names))
    assert 0 < len(table.scenarios(short=True)) < len(names)
    assert set(table.scenarios(short=True)) < set(names)


def test_dotnet_comes_first():
    """And the others by their names."""
    names = [one.name for one in program.all_clients([])]
    assert "dotnet" == names[0]
    assert sorted(names[1:]) == names[1:]


def test_ci_lets_no_client_be_left_out():
    """The step of the clients has no option that would allow it."""
    assert ["-m", "tests.clients.run", "--short"] == check.CLIENTS[1:]


def test_a_strict_broker_has_a_key_for_each_claim(tmp_path):
    """Whose length is that of the service's keys."""
    one = client(tmp_path, "")
    with strict.start([one], tmp_path) as broker:
        variables = strict.environment(broker)
    assert {
        "PEEKLOCK_STRICT_SEND_CONNECTION_STRING",
        "PEEKLOCK_STRICT_LISTEN_CONNECTION_STRING",
        "PEEKLOCK_STRICT_MANAGE_CONNECTION_STRING",
    } == variables.keys()
    assert {44} == {
        len(text.partition("SharedAccessKey=")[2].partition(";")[0]) for text in variables.values()
    }
