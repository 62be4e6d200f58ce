"""The pytest plugin: a broker for a run, a namespace for each test, and what happened in it when a test fails.

Fixtures are `peeklock`, `peeklock_broker` and `peeklock_topology`. Nothing is started unless a test asks for it.
"""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_peeklock import failure_report
from pytest_peeklock.broker_command import ContainerImage, local_command, tail
from pytest_peeklock.client import Peeklock
from pytest_peeklock.errors import BrokerNotReachable, BrokerNotStarted, PeeklockError
from pytest_peeklock.shared_broker import SharedBroker

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Iterator

    from pytest_peeklock.broker_command import LocalCommand

URL_VARIABLE = "PEEKLOCK_URL"
FOLDER_INPUT = "peeklock_folder"
NAME_MAX_CHARACTERS = 60

_shared_key: pytest.StashKey[SharedBroker] = pytest.StashKey()
_clients_key: pytest.StashKey[list[Peeklock]] = pytest.StashKey()

OPTIONS = {
    "url": f"address of a broker that runs, such as http://localhost:5300; none is started [{URL_VARIABLE}]",
    "command": "command that starts a broker (default: `peeklock` on the PATH or beside this Python)",
    "venv": "virtual environment in which the broker is installed",
    "image": "container image of the broker, for docker or podman",
    "parallel": "run tests at the same time in so many forked processes, which share the broker",
    "timeout": "seconds that a wait takes at most, unless it names a time itself (10); more for slow machines",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options, each also for the configuration file."""
    group = parser.getgroup("peeklock", "a Peeklock broker for tests")
    for name, explanation in OPTIONS.items():
        group.addoption(f"--peeklock-{name}", metavar=name.upper(), help=explanation)
        parser.addini(f"peeklock_{name}", explanation)
    parser.addini("peeklock_arguments", "further options of `peeklock serve`", type="args")
    parser.addini("peeklock_topology", "file with the entities of each test's namespace")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Starts the broker while the SDK is imported and tests are collected, if they run in forked processes."""
    known = early_config.known_args_namespace
    if known.help or known.version or _forked_processes(early_config, known) <= 1:
        return
    if _url(early_config, known) is None:
        shared = early_config.stash[_shared_key] = SharedBroker()
        early_config.add_cleanup(shared.stop)  # also if there is a mistake in the configuration
        shared.begin(lambda: _command(early_config, known))


def pytest_configure(config: pytest.Config) -> None:
    """Joins the broker of the run, if this is a process of pytest-xdist."""
    config.addinivalue_line(
        "markers",
        "peeklock(topology): the entities of the namespaces of these tests, as in a config file of the broker",
    )
    folder = getattr(config, "workerinput", {}).get(FOLDER_INPUT)
    if _shared_key not in config.stash:
        config.stash[_shared_key] = SharedBroker(Path(folder) if folder else None)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a process of pytest-xdist where it finds the broker of the run."""
    node.workerinput[FOLDER_INPUT] = str(node.config.stash[_shared_key].folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stops the broker at the end of the run."""
    if not hasattr(config, "workerinput") and (shared := config.stash.get(_shared_key, None)):
        shared.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs the tests in forked processes, if the user wants it."""
    config = session.config
    processes = _forked_processes(config)
    if processes <= 1 or session.testsfailed:
        return None
    from pytest_peeklock.parallel_tests import run_forked

    shared = config.stash[_shared_key]
    shared.folder.exists()  # created here, so that the processes share it
    shared.wait_until_begun()
    run_forked(session, processes)
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Adds what happened in the namespaces of a test that fails."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if report.failed and report.when != "teardown":  # then the namespace is deleted
        for client in item.stash.get(_clients_key, []):
            report.sections.append(failure_report.section(client))


@pytest.fixture(scope="session")
def peeklock_broker(pytestconfig: pytest.Config) -> Peeklock:
    """The broker of this run, with its default namespace. Processes of pytest-xdist share it."""
    if url := _url(pytestconfig):
        client = Peeklock(url)
    else:
        shared = pytestconfig.stash[_shared_key]
        try:
            address = shared.address(lambda: _command(pytestconfig))
        except BrokerNotStarted as error:
            reason = str(error)
        else:
            reason = ""
        if reason:  # not in the handler of the error, so that it is shown once
            pytest.fail(reason, pytrace=False)
        client = Peeklock(address.url, connection_string=address.connection_string)
    if timeout_s := _number(pytestconfig, "timeout"):
        client.wait_timeout_s = timeout_s
    return client


@pytest.fixture
def peeklock_topology(request: pytest.FixtureRequest) -> dict[str, Any] | str | None:
    """The entities of the namespace of a test without a marker: those of the file `peeklock_topology`. Override it
    in a conftest.py to return them as a config file of the broker has them."""
    if file := request.config.getini("peeklock_topology"):
        return (request.config.rootpath / str(file)).read_text(encoding="utf-8")
    return None


@pytest.fixture
def peeklock(
    request: pytest.FixtureRequest,
    peeklock_broker: Peeklock,
    peeklock_topology: dict[str, Any] | str | None,
) -> Iterator[Peeklock]:
    """A namespace for this test alone, with its own connection string, entities and clock."""
    marker = request.node.get_closest_marker("peeklock")
    # A marker is nearer to the test than a fixture, which is often for a whole file.
    topology = peeklock_topology if marker is None else marker.kwargs.get("topology", *marker.args)
    name = _namespace_name(request.node.name)
    reason, client = "", peeklock_broker
    try:
        client = peeklock_broker.new_namespace(name, topology=topology)
    except BrokerNotReachable as error:
        reason = f"{error}{_last_words(request.config)}"
    if reason:
        pytest.fail(reason, pytrace=False)
    request.node.stash.setdefault(_clients_key, []).append(client)
    yield client
    with suppress(BrokerNotReachable, PeeklockError):  # the test may have deleted it
        client.delete_namespace()


def _last_words(config: pytest.Config) -> str:
    """Returns the end of the log of a broker that this run has started, and that has ended."""
    log_path = config.stash[_shared_key].log_path
    return f" Its log ends with:\n{tail(log_path)}" if log_path.exists() else ""


def _number(
    config: pytest.Config, name: str, known: argparse.Namespace | None = None
) -> float | None:
    text = _option(config, name, known)
    try:
        return None if text is None else float(text)
    except ValueError:
        raise pytest.UsageError(f"--peeklock-{name} must be a number, not {text!r}") from None


def _option(
    config: pytest.Config, name: str, known: argparse.Namespace | None = None
) -> str | None:
    given = getattr(known or config.option, f"peeklock_{name}") or config.getini(f"peeklock_{name}")
    return str(given) if given else None


def _url(config: pytest.Config, known: argparse.Namespace | None = None) -> str | None:
    return _option(config, "url", known) or os.environ.get(URL_VARIABLE)


def _forked_processes(config: pytest.Config, known: argparse.Namespace | None = None) -> int:
    """Returns in how many processes tests run. 0: they run here, or pytest-xdist runs them."""
    options = known or config.option
    is_distributed = getattr(options, "dist", "no") != "no" or getattr(options, "numprocesses", 0)
    if is_distributed or hasattr(config, "workerinput") or options.collectonly:
        return 0
    return int(_number(config, "parallel", known) or 0)


def _command(
    config: pytest.Config, known: argparse.Namespace | None = None
) -> LocalCommand | ContainerImage:
    arguments: list[str] = config.getini("peeklock_arguments")
    if image := _option(config, "image", known):
        return ContainerImage(image, arguments)
    folder = _option(config, "venv", known)
    environment = config.rootpath / folder if folder else None
    return local_command(_option(config, "command", known), environment, arguments)


def _namespace_name(test: str) -> str:
    """Returns a unique name that leads from the broker's log and metrics to the test."""
    readable = re.sub(r"[^a-z0-9]+", "-", test.lower())[:NAME_MAX_CHARACTERS].strip("-")
    return f"{readable or 'test'}-{uuid.uuid4().hex[:8]}"
