"""Brokers are found on the PATH, in an environment, by a command, or as a container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_peeklock import BrokerNotStarted, Peeklock
from pytest_peeklock.broker_command import ContainerImage, LocalCommand, local_command
from pytest_peeklock.shared_broker import SharedBroker
from tests.pytest_package.conftest import COMMAND
from tests.support.server import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DOCKER = """\
#!/bin/sh
# Stands in for docker: runs the broker of this source tree as its "container", and writes down how it was called.
echo "$@" >> "{folder}/calls"
case "$1" in
run)
    while [ "$1" != serve ]; do shift; done
    PYTHONPATH={root} {python} -m peeklock "$@" --amqp-port 0 --http-port 0 > "{folder}/log" 2>&1 &
    echo $! > "{folder}/pid"
    echo container-7 ;;
port)
    until grep -q '"ready"' "{folder}/log"; do sleep 0.01; done
    sed -n 's/.*"http": "\\([^"]*\\)".*/\\1/p' "{folder}/log" ;;
rm)
    kill "$(cat "{folder}/pid")" ;;
esac
"""


def executable(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o755)
    return path


def test_the_command_on_the_path_comes_before_the_one_beside_python(tmp_path, monkeypatch):
    first = executable(tmp_path / "a" / "peeklock", "#!/bin/sh\n")
    beside = executable(tmp_path / "b" / "peeklock", "#!/bin/sh\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "b" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "a"))
    assert [str(first)] == local_command(None, None, ()).words
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert [str(beside)] == local_command(None, None, ()).words


def test_the_command_of_an_environment(tmp_path):
    command = executable(tmp_path / "venv" / "bin" / "peeklock", "#!/bin/sh\n")
    assert [str(command)] == local_command(None, tmp_path / "venv", ()).words
    with pytest.raises(BrokerNotStarted, match="no command `peeklock` in"):
        local_command(None, tmp_path / "other", ())


def test_no_broker_is_found(tmp_path, monkeypatch):
    """The sentence says what to do."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerNotStarted, match=r"neither on the PATH nor in .*peeklock_venv"):
        local_command(None, None, ())


def test_a_command_that_does_not_exist(tmp_path):
    with pytest.raises(BrokerNotStarted, match="could not be started"):
        LocalCommand(["/no/such/command"]).start(tmp_path / "log")


def test_a_broker_that_does_not_start_shows_its_log(tmp_path):
    command = local_command(COMMAND, None, ["--tier", "gold"])
    with pytest.raises(BrokerNotStarted, match=r"did not become ready.*\n.*mistake") as caught:
        command.start(tmp_path / "log")
    assert "gold" in str(caught.value)


def test_a_broker_is_started_once_and_stopped(tmp_path, monkeypatch):
    """With further options. A second process of the run finds it in the folder that they share."""
    monkeypatch.chdir(ROOT)
    first = SharedBroker(tmp_path / "run")
    first.folder.mkdir()
    address = first.address(lambda: local_command(COMMAND, None, ["--create-on-first-use"]))
    try:

        def never() -> LocalCommand:
            raise AssertionError("started twice")

        assert address == SharedBroker(tmp_path / "run").address(never)
        Peeklock(address.url, connection_string=address.connection_string).list_namespaces()
    finally:
        first.stop()
    assert address.process_id is not None
    with pytest.raises(ProcessLookupError):
        os.kill(address.process_id, 0)
    assert not (tmp_path / "run").exists()


def test_the_process_that_started_the_broker_need_not_stop_it(tmp_path, monkeypatch):
    """As when a process of pytest-xdist has crashed: the port shows when the broker has stopped."""
    monkeypatch.chdir(ROOT)
    starting, stopping = SharedBroker(tmp_path / "run"), SharedBroker(tmp_path / "run")
    starting.folder.mkdir()
    starting.address(lambda: local_command(COMMAND, None, ()))
    process = starting._process
    assert process is not None
    stopping.stop()
    assert 0 == process.wait(30)


def test_every_process_of_a_run_is_told_why_there_is_no_broker(tmp_path):
    first = SharedBroker(tmp_path / "run")
    first.folder.mkdir()
    for shared in (first, SharedBroker(tmp_path / "run")):
        with pytest.raises(BrokerNotStarted, match="no command `peeklock`"):
            shared.address(lambda: local_command(None, tmp_path, ()))
    first.stop()


def test_a_container(tmp_path, monkeypatch):
    """What docker is asked for. There is no docker here, so a script does what it would do."""
    folder = tmp_path / "bin"
    script = DOCKER.format(folder=folder, root=ROOT, python=sys.executable)
    executable(folder / "docker", script)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    shared = SharedBroker(tmp_path / "run")
    shared.folder.mkdir()
    address = shared.address(lambda: ContainerImage("peeklock:1", ["--quotas", "strict"]))
    broker = Peeklock(address.url, connection_string=address.connection_string)
    assert broker.send("queue.1", "hello")
    shared.stop()
    run, port, remove = (folder / "calls").read_text().splitlines()
    assert run.startswith("run --detach --rm --publish 127.0.0.1::5300 peeklock:1 serve ")
    assert run.endswith("--storage memory: --log-format json --quotas strict")
    assert ("port container-7 5300", "rm --force container-7") == (port, remove)
    with pytest.raises(ProcessLookupError):
        wait_until_gone(int((folder / "pid").read_text()))


def wait_until_gone(process_id: int) -> None:
    """Raises `ProcessLookupError` when the process has ended."""
    subprocess.run(["timeout", "20", "tail", f"--pid={process_id}", "-f", "/dev/null"], check=False)
    os.kill(process_id, signal.SIGKILL)


def test_no_program_for_containers(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerNotStarted, match="Neither `docker` nor `podman`"):
        ContainerImage("peeklock:1").start(tmp_path / "log")


def test_an_image_that_cannot_be_run(tmp_path, monkeypatch):
    executable(tmp_path / "docker", "#!/bin/sh\necho no such image >&2; exit 125\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerNotStarted, match="no such image"):
        ContainerImage("peeklock:1").start(tmp_path / "log")
