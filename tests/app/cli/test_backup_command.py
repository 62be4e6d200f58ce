"""`peeklock backup`: what it refuses, with which sentence and exit code. tests/server/test_backup.py has what it copies."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from broker.app.cli import backup_command
from broker.app.cli.command_line import main
from broker.app.exit_codes import ExitCode
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Backup = Callable[..., Any]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    storage = f"sqlite:///{tmp_path_factory.mktemp('store') / 'peeklock.db'}"
    with BrokerProcess(storage=storage, testing_api=False) as running:
        yield running


@pytest.fixture
def backup(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Backup:
    """Runs the command; returns its exit code and what it printed."""
    monkeypatch.setenv("PEEKLOCK_URL", f"http://127.0.0.1:{broker.http_port}")
    monkeypatch.delenv("PEEKLOCK_CONNECTION_STRING", raising=False)

    def run(copy: Path, *arguments: str) -> SimpleNamespace:
        code = main(["backup", str(copy), *arguments])
        printed = capsys.readouterr()
        return SimpleNamespace(code=code, out=printed.out, err=printed.err)

    return run


def url(broker: BrokerProcess) -> tuple[str, str]:
    return "--url", f"http://127.0.0.1:{broker.http_port}"


def test_what_was_copied_is_told(backup: Backup, broker: BrokerProcess, tmp_path: Path):
    copy = tmp_path / "copy.db"
    done = backup(copy)
    size_bytes = copy.stat().st_size
    assert (0, f"{copy}: {size_bytes} bytes\n", "") == (done.code, done.out, done.err)
    answer = json.loads(backup(copy, "--force", "--json").out)
    file = broker.storage.removeprefix("sqlite:///")
    assert {"file": file, "copy": str(copy), "size_bytes": size_bytes} == answer
    assert [copy] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        (".", (), "is a folder; name a file"),
        ("missing/copy.db", (), "there is no folder"),
        ("old.db", (), "exists; name another file, or replace it with --force"),
        ("used.db", ("--force",), "used.db-wal exists: a broker uses"),
        ("crashed.db", (), "crashed.db-commits exists: a broker uses"),
    ],
)
def test_a_target_that_cannot_be_written(
    backup: Backup, tmp_path: Path, name: str, arguments: tuple[str, ...], sentence: str
):
    """What a broker has left beside an older copy would be added to the new one."""
    for existing in ("old.db", "used.db", "used.db-wal", "crashed.db-commits"):
        (tmp_path / existing).write_text(existing)
    done = backup(tmp_path / name, *arguments, "--json")
    assert ExitCode.MISUSED == done.code
    assert sentence in done.err
    assert "wrong_argument" == json.loads(done.out)["error"]["code"]
    assert all(one.read_text() == one.name for one in tmp_path.iterdir())
    assert 4 == len(list(tmp_path.iterdir()))


def test_the_file_of_a_running_broker_is_not_replaced(backup: Backup, broker: BrokerProcess):
    done = backup(broker.storage.removeprefix("sqlite:///"), "--force")
    assert (ExitCode.MISUSED, True) == (done.code, "a broker uses" in done.err)
    assert broker.is_healthy()


def test_memory_has_no_file(backup: Backup, tmp_path: Path):
    with BrokerProcess(testing_api=False) as in_memory:
        done = backup(tmp_path / "copy.db", *url(in_memory))
    assert ExitCode.FAILED == done.code
    assert "in memory only" in done.err
    assert "--storage sqlite:///FILE" in done.err
    assert [] == list(tmp_path.iterdir())


def test_a_broker_that_is_stopped(backup: Backup, tmp_path: Path):
    with BrokerProcess(testing_api=False) as stopped:
        pass
    done = backup(tmp_path / "copy.db", *url(stopped), "--json")
    assert ExitCode.NOT_REACHABLE == done.code
    assert "does not answer" in done.err
    assert "in its file and, after a crash, in the -wal and -commits files" in done.err
    assert "not_reachable" == json.loads(done.out)["error"]["code"]
    assert [] == list(tmp_path.iterdir())


def test_strict_authorization_wants_the_key_of_the_broker(backup: Backup, tmp_path: Path):
    arguments = ["--authorization", "strict", "--control-api", "on"]
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(storage=storage, arguments=arguments, testing_api=False) as strict:
        string = strict.admin_connection_string
        refused = backup(tmp_path / "copy.db", *url(strict))
        assert ExitCode.FAILED == refused.code
        wrong = string.replace("SAS_KEY_VALUE", "other")
        for key, code in ((wrong, ExitCode.FAILED), (string, ExitCode.OK)):
            done = backup(tmp_path / "copy.db", *url(strict), "--connection-string", key)
            assert code == done.code, done.err
            assert (tmp_path / "copy.db").exists() == (code is ExitCode.OK)


def test_nothing_is_left_of_a_copy_that_is_interrupted(
    backup: Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(_: Path, partial: Path) -> None:
        partial.write_bytes(b"some pages")
        partial.with_name(partial.name + "-journal").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(backup_command, "_copy_pages", interrupted)
    done = backup(tmp_path / "copy.db")
    assert (ExitCode.INTERRUPTED, "", "") == (done.code, done.out, done.err)
    assert [] == list(tmp_path.iterdir())


def test_a_copy_is_as_readable_as_the_file(backup: Backup, broker: BrokerProcess, tmp_path: Path):
    file = Path(broker.storage.removeprefix("sqlite:///"))
    for mode in (0o640, 0o600):
        file.chmod(mode)
        assert 0 == backup(tmp_path / "copy.db", "--force").code
        assert mode == (tmp_path / "copy.db").stat().st_mode & 0o777
