"""The plugin in test runs of its own: one broker for a run, a namespace for a test, a report when one fails."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.pytest_package.conftest import COMMAND
from tests.support.server import ROOT

pytest_plugins = ["pytester"]

CONFTEST = """
import os, pytest

@pytest.fixture(autouse=True)
def noted(request):
    if "peeklock" in request.fixturenames:
        client = request.getfixturevalue("peeklock")
        with open({seen!r}, "a") as file:
            file.write(f"{{client.url}} {{client.namespace}} {{os.getpid()}}\\n")
"""


@pytest.fixture
def project(pytester, monkeypatch):
    """A project that names the broker of this source tree."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PEEKLOCK_URL", raising=False)
    pytester.makefile(".ini", pytest=f"[pytest]\npeeklock_command = {COMMAND}\n")
    pytester.makeconftest(CONFTEST.format(seen=str(pytester.path / "seen")))
    return pytester


def seen(project) -> list[list[str]]:
    """The address, namespace and process of each test that had a namespace."""
    return [line.split() for line in (project.path / "seen").read_text().splitlines()]


def is_answered(url: str) -> bool:
    from pytest_peeklock.broker_command import is_healthy

    return is_healthy(url)


def test_each_test_has_a_namespace_of_its_own(project):
    project.makepyfile(
        """
        import pytest

        @pytest.fixture
        def peeklock_topology():
            return {"queues": {"orders": {}}}

        @pytest.mark.parametrize("number", range(3))
        def test_one(peeklock, number):
            assert [1] == peeklock.send("orders", "hello")
        """
    )
    project.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)
    found = seen(project)
    assert 1 == len({url for url, _, _ in found})
    assert 3 == len({namespace for _, namespace, _ in found})
    assert re.fullmatch(r"test-one-0-[0-9a-f]{8}", found[0][1])
    assert not is_answered(found[0][0]), "the broker still runs"


def test_processes_of_xdist_share_one_broker(project):
    project.makepyfile(
        """
        import pytest

        @pytest.mark.peeklock(topology={"queues": {"orders": {}}})
        @pytest.mark.parametrize("number", range(4))
        def test_one(peeklock, number):
            assert [1] == peeklock.send("orders", "hello")
        """
    )
    project.runpytest_subprocess("-n", "2").assert_outcomes(passed=4)
    found = seen(project)
    assert 1 == len({url for url, _, _ in found})
    assert 2 == len({process for _, _, process in found})
    assert not is_answered(found[0][0]), "the broker still runs"


def test_nothing_is_started_if_no_test_asks_for_it(project):
    project.makefile(".ini", pytest="[pytest]\npeeklock_command = /no/such/command\n")
    project.makepyfile("def test_one(): pass")
    project.runpytest_subprocess().assert_outcomes(passed=1)
    project.runpytest_subprocess("-n", "2").assert_outcomes(passed=1)


def test_the_entities_are_in_a_file(project):
    """In either form of the config file; a marker comes first."""
    config = {
        "UserConfig": {
            "Namespaces": [{"Name": "x", "Queues": [{"Name": "invoices"}]}],
            "Logging": {"Type": "File"},
        }
    }
    (project.path / "Config.json").write_text(json.dumps(config))
    (project.path / "pytest.ini").write_text(
        f"[pytest]\npeeklock_command = {COMMAND}\npeeklock_topology = Config.json\n"
    )
    project.makepyfile(
        """
        import pytest

        def paths(peeklock):
            return [one["path"] for one in peeklock.list_entities()["entities"]]

        def test_file(peeklock):
            assert ["invoices"] == paths(peeklock)

        @pytest.mark.peeklock({"queues": {"orders": {}}})
        def test_marker(peeklock):
            assert ["orders"] == paths(peeklock)
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)


def test_a_failing_test_shows_what_is_left_in_its_namespace(project):
    """Also over pytest-xdist. A test that passes shows nothing."""
    project.makepyfile(
        """
        import pytest

        @pytest.fixture
        def peeklock_topology():
            return {"queues": {"orders": {}}, "topics": {"events": {"subscriptions": {"s": {}}}}}

        def test_fails(peeklock):
            peeklock.send("orders", {"body": "a", "message_id": "order-7"})
            peeklock.send("orders", {"body": "a", "message_id": "red\\x1b[31m"})
            peeklock.send("events", {"body": "b", "message_id": "event-8"})
            peeklock.dead_letter_messages("orders", state="active", reason="Bad")
            assert False

        def test_passes(peeklock):
            peeklock.send("orders", "a")
        """
    )
    for arguments in ([], ["-n", "2"]):
        done = project.runpytest_subprocess(*arguments)
        done.assert_outcomes(passed=1, failed=1)
        done.stdout.re_match_lines(
            [
                r"-+ peeklock: namespace test-fails-[0-9a-f]{8} -+",
                r"\d\d:\d\d:\d\d\.\d+ orders #1 sent message_id=order-7\b.*",
                r".* orders #2 sent message_id='red\\x1b\[31m'.*",
                r".* events #1 matched message_id=event-8 .* to events/Subscriptions/s #1",
                r".* orders #1 dead_lettered message_id=order-7 reason=Bad to orders/dead_letter #1",
                r"left in events/Subscriptions/s: #1 active message_id=event-8 .*",
                r"left in orders/dead_letter: #\d active message_id=order-7 .*Bad",
            ]
        )
        done.stdout.no_re_match_line(r"-+ peeklock: namespace test-passes")


def test_a_test_that_stops_the_namespace_has_no_error(project):
    project.makepyfile(
        """
        def test_one(peeklock):
            peeklock.delete_namespace()

        def test_two(peeklock):
            peeklock.delete_namespace()
            assert False
        """
    )
    done = project.runpytest_subprocess()
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["It cannot be shown: *"])


def test_a_broker_that_runs_already(project, peeklock_broker, monkeypatch):
    """By option or by variable. It is not stopped."""
    project.makepyfile("def test_one(peeklock): peeklock.reset_namespace()")
    project.runpytest_subprocess("--peeklock-url", peeklock_broker.url).assert_outcomes(passed=1)
    monkeypatch.setenv("PEEKLOCK_URL", peeklock_broker.url)
    project.runpytest_subprocess().assert_outcomes(passed=1)
    assert {peeklock_broker.url} == {url for url, _, _ in seen(project)}
    assert peeklock_broker.list_namespaces()


def test_no_broker_is_one_sentence(project):
    (project.path / "pytest.ini").write_text("[pytest]\npeeklock_venv = nowhere\n")
    project.makepyfile("def test_one(peeklock): pass")
    done = project.runpytest_subprocess()
    done.assert_outcomes(errors=1)
    assert 1 == done.stdout.lines.count(
        f"There is no command `peeklock` in {project.path}/nowhere/bin."
    )
    done.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize("name", ["timeout", "parallel"])
def test_an_option_that_is_no_number_is_one_sentence(project, name):
    project.makepyfile("def test_one(peeklock): pass")
    done = project.runpytest_subprocess(f"--peeklock-{name}=many")
    printed = "\n".join([*done.errlines, *done.outlines])
    assert f"--peeklock-{name} must be a number, not 'many'" in printed
    assert "Traceback" not in printed


def test_a_marker_goes_before_a_fixture(project):
    project.makepyfile(
        """
        import pytest

        @pytest.fixture
        def peeklock_topology():
            return {"queues": {"of-the-file": {}}}

        @pytest.mark.peeklock(topology={"queues": {"of-the-test": {}}})
        def test_marked(peeklock):
            assert 0 == peeklock.counts("of-the-test")["active"]

        def test_other(peeklock):
            assert 0 == peeklock.counts("of-the-file")["active"]
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)


def test_a_broker_that_has_ended_shows_its_log(project):
    project.makepyfile(
        """
        import json, os, pathlib, signal, time

        def test_kills_the_broker(pytestconfig, peeklock):
            (shared,) = [one for one in pytestconfig.stash._storage.values() if hasattr(one, "log_path")]
            os.kill(shared._process.pid, signal.SIGKILL)
            shared._process.wait()

        def test_one(peeklock): pass
        """
    )
    done = project.runpytest_subprocess()
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["*does not answer*Its log ends with:", '*"event": "ready"*'])
    done.stdout.no_fnmatch_line("*Traceback*")


def test_async_tests_use_the_same_fixture(project):
    project.makepyfile(
        """
        import asyncio, pytest

        @pytest.mark.asyncio
        @pytest.mark.peeklock(topology={"queues": {"orders": {}}})
        async def test_one(peeklock):
            waiting = asyncio.ensure_future(peeklock.aio.wait_for("orders"))
            await asyncio.sleep(0)
            peeklock.send("orders", "hello")
            (message,) = await waiting
            assert "hello" == message["body"]
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)


PARALLEL = """
import os, pytest

@pytest.mark.peeklock(topology={"queues": {"orders": {}}})
@pytest.mark.parametrize("number", range(6))
def test_one(peeklock, number):
    print(f"printed by {number}")
    peeklock.send("orders", "hello")
    if number == 4:
        os._exit(9)
    assert number != 3
"""


def test_forked_processes_share_one_broker(project):
    """Each test is reported once: one that fails with what it printed alone, and one whose process ended."""
    project.makepyfile(PARALLEL)
    done = project.runpytest_subprocess("--peeklock-parallel", "6")
    done.assert_outcomes(passed=4, failed=2)
    found = seen(project)
    assert 1 == len({url for url, _, _ in found})
    assert 6 == len({process for _, _, process in found})
    assert not is_answered(found[0][0]), "the broker still runs"
    done.stdout.re_match_lines(["printed by 3", ".*peeklock: namespace test-one-3-.*"])
    done.stdout.no_fnmatch_line("printed by [0124]")
    done.stdout.fnmatch_lines(["The process that ran this test ended before it, with status *"])


def test_forked_processes_run_several_tests_each(project):
    project.makepyfile(PARALLEL.replace("if number == 4", "if False"))
    done = project.runpytest_subprocess("--peeklock-parallel", "2", "-v")
    done.assert_outcomes(passed=5, failed=1)
    assert 2 == len({process for _, _, process in seen(project)})
    done = project.runpytest_subprocess("--peeklock-parallel", "2", "-x")
    assert 1 == done.parseoutcomes()["failed"]


@pytest.fixture
def noted_start(project):
    """The file in which the broker of the project writes its process id when it starts."""
    noted = project.path / "process"
    command = project.path / "broker"
    command.write_text(f'#!/bin/sh\necho $$ > {noted}\nexec {COMMAND} "$@"\n')
    command.chmod(0o755)
    project.makefile(".ini", pytest=f"[pytest]\npeeklock_command = {command}\n")
    return noted


def test_forked_processes_have_a_broker_that_starts_while_tests_are_collected(project, noted_start):
    project.makepyfile(
        f"""
        import pathlib, time

        ends_s = time.monotonic() + 30
        while not pathlib.Path({str(noted_start)!r}).exists():
            assert time.monotonic() < ends_s, "the broker does not start before the tests"
            time.sleep(0.01)

        def test_one(peeklock): pass

        def test_two(peeklock): pass
        """
    )
    project.runpytest_subprocess("--peeklock-parallel", "2").assert_outcomes(passed=2)
    assert 1 == len({url for url, _, _ in seen(project)})
    assert not is_alive(noted_start)


def test_a_run_that_cannot_begin_leaves_no_broker(project, noted_start):
    project.makeconftest("import time; time.sleep(0.2); 1 / 0")
    assert 4 == project.runpytest_subprocess("--peeklock-parallel", "2").ret
    assert not is_alive(noted_start)


@pytest.mark.parametrize("option", ["--collect-only", "--help", "--version"])
def test_a_run_without_tests_starts_no_broker(project, noted_start, option):
    project.makepyfile("def test_one(peeklock): pass")
    assert 0 == project.runpytest_subprocess("--peeklock-parallel", "2", option).ret
    assert not noted_start.exists()


def test_forked_tests_that_need_no_broker_pass_without_one(project):
    project.makefile(".ini", pytest="[pytest]\npeeklock_command = /no/such/command\n")
    project.makepyfile("def test_one(): pass\ndef test_two(peeklock): pass")
    done = project.runpytest_subprocess("--peeklock-parallel", "2")
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["*/no/such/command serve * could not be started*"])


def is_alive(noted) -> bool:
    """Whether the process runs whose id is in a file."""
    try:
        os.kill(int(noted.read_text()), 0)
    except ProcessLookupError:
        return False
    return True
