"""The command line: what it hands on, what it prints, what it exits with."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import broker.__main__
import peeklock.__main__
from broker import __version__
from broker.app.cli.command_line import main
from broker.app.exit_codes import ExitCode
from config.settings.settings import Settings


@pytest.fixture
def served(monkeypatch):
    """Collects what the server would be started with."""
    calls: list[tuple[Settings, object]] = []

    def run(settings, topology):
        calls.append((settings, topology))
        return 7

    server = ModuleType("broker.app.server")
    server.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "broker.app.server", server)
    monkeypatch.setattr("broker.app.observe.logs.configure", lambda _settings: None)
    for name in ("PEEKLOCK_CONFIG", "PEEKLOCK_AMQP_PORT"):
        monkeypatch.delenv(name, raising=False)
    return calls


def test_serve_starts_the_server_and_exits_with_its_code(served):
    """Settings and topology go to the server; the server says how it ended."""
    code = main(["serve", "--amqp-port", "0", "--storage", "memory:", "--testing-api"])
    assert 7 == code
    ((settings, topology),) = served
    assert Settings(amqp_port=0, storage="memory:", testing_api=True) == settings
    assert ["sbemulatorns"] == list(topology.namespaces)


def test_a_switch_can_be_turned_off_by_flag(served, monkeypatch):
    """A flag beats the environment, also when it says no."""
    monkeypatch.setenv("PEEKLOCK_TESTING_API", "true")
    main(["serve", "--testing-api", "false"])
    assert not served[0][0].testing_api


def test_wrong_configuration_exits_with_2_and_starts_nothing(served, tmp_path, capsys):
    """Every mistake on standard error, in one go."""
    path = tmp_path / "entities.yaml"
    path.write_text("queues: {a: {lock_duration: 1s}, b: {max_delivery_count: 0}}")
    assert 2 == main(["serve", "--config", str(path), "--tier", "gold"])
    assert [] == served
    printed = capsys.readouterr()
    first, *rest = printed.err.splitlines()
    assert "peeklock: 3 mistakes, nothing was started" == first
    assert 3 == len(rest)
    assert "" == printed.out


@pytest.mark.parametrize(
    "arguments", [[], ["serv"], ["serve", "--amqp"], ["serve", "x"], ["check"]]
)
def test_wrong_usage_exits_with_2(arguments, capsys):
    """An option cannot be shortened: what works today would mean another tomorrow."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert 2 == caught.value.code
    assert "usage: peeklock" in capsys.readouterr().err


def test_check_says_what_is_in_a_file(tmp_path, capsys):
    """A file that is right is counted, and what is doubtful is named."""
    path = tmp_path / "Config.json"
    path.write_text(
        '{"UserConfig": {"Namespaces": [{"Name": "a", "Queues": [{"Name": "q"}], "Tpics": []}]}}'
    )
    assert 0 == main(["check", str(path)])
    printed = capsys.readouterr()
    assert f"{path}: 1 namespace, 1 queue, 0 topics, 0 subscriptions\n" == printed.out
    assert "warning: " in printed.err
    assert "did you mean 'Topics'?" in printed.err


def test_check_reads_the_sql_of_rules(tmp_path, capsys):
    """With the same reader that the topic will use."""
    path = tmp_path / "entities.yaml"
    rules = "{good: {sql_filter: a = 1}, bad: {sql_filter: a = = 1}, worse: {action: SETT a = 1}}"
    path.write_text(f"topics: {{t: {{subscriptions: {{s: {{rules: {rules}}}}}}}}}")
    assert 2 == main(["check", str(path)])
    _, *found = capsys.readouterr().err.splitlines()
    where = f"{path}:1: topics.t.subscriptions.s.rules"
    assert [f"{where}.bad", f"{where}.worse"] == [
        one[: one.index(": ", len(where))] for one in found
    ]


def test_the_version_is_printed(capsys):
    """And nothing else is done."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert 0 == caught.value.code
    assert f"peeklock {__version__}\n" == capsys.readouterr().out


def test_help_names_every_variable_and_default(capsys, monkeypatch):
    """Also where a default has a character that argparse takes for its own."""
    monkeypatch.setenv("XDG_DATA_HOME", "/home/100%me")
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = capsys.readouterr().out
    assert "PEEKLOCK_HOLD_LOCKS_AFTER_CONNECTION_LOSS" in text
    assert "(sqlite:////home/100%25me/peeklock/peeklock.db)" in text
    assert "(PT4M)" in text
    assert "(32MiB)" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["serve", "--amqp-prot", "1"],
            "there is no option --amqp-prot; did you mean '--amqp-port'?",
        ),
        (["serve", "--xyz=1"], "there is no option --xyz; `peeklock serve --help` lists them"),
        (["wait", "q", "--count"], "there is no option --count; `peeklock wait --help` lists them"),
        (["check", "a.json", "b.json"], "'b.json' is one argument too many"),
        (["tls", "--amqp-port", "1"], "--amqp-port is an option of `peeklock serve` alone"),
    ],
)
def test_an_unknown_argument_is_reported_with_a_suggestion(arguments, sentence, capsys):
    """Exit code 2, as for all wrong usage."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert 2 == caught.value.code
    assert sentence in capsys.readouterr().err


def test_a_strict_check_fails_on_what_is_only_doubtful(tmp_path, capsys):
    """For CI: what `serve` starts with all the same is refused, with every warning shown."""
    path = tmp_path / "Config.json"
    path.write_text(
        '{"UserConfig": {"Namespaces": [{"Name": "a", "Queues": [{"Name": "q"}], "Tpics": []}]}}'
    )
    assert 2 == main(["check", "--strict", str(path)])
    printed = capsys.readouterr()
    assert "" == printed.out
    warning, last = printed.err.splitlines()
    assert warning.startswith("warning: ")
    assert "Tpics" in warning
    assert "peeklock: 1 warning; --strict allows no warnings" == last
    path.write_text('{"UserConfig": {"Namespaces": [{"Name": "a", "Queues": [{"Name": "q"}]}]}}')
    assert 0 == main(["check", "--strict", str(path)])


def test_a_mistake_hides_no_warning(tmp_path, capsys):
    path = tmp_path / "Config.json"
    path.write_text(
        '{"UserConfig": {"Namespaces": [{"Name": "a", "Queues": [{"Name": "q,"}], "Tpics": []}]}}'
    )
    assert 2 == main(["check", str(path)])
    warning, count, mistake = capsys.readouterr().err.splitlines()
    assert "Tpics" in warning
    assert "peeklock: 1 mistake, nothing was started" == count
    assert "',' is not allowed" in mistake


def test_an_interrupt_before_anything_handles_it_is_one_line(monkeypatch, capsys):
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(peeklock.__main__, "isolate_imports", lambda: None)
    monkeypatch.setattr(broker.__main__, "main", interrupted)
    assert ExitCode.INTERRUPTED == peeklock.__main__.main()
    assert "peeklock: interrupted\n" == capsys.readouterr().err
