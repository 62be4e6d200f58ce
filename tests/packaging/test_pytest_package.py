"""The wheel of `pytest-peeklock`, installed beside the wheel of the broker, as users do it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

from broker import __version__
from tests.packaging.conftest import build, run, site_packages
from tests.packaging.dockerfile import ROOT
from tests.packaging.markdown import pages

FOLDER = ROOT / "pytest-peeklock"
PROJECT = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
SAMPLE = """
import pytest
import pytest_peeklock
from azure.servicebus import ServiceBusClient, ServiceBusMessage

@pytest.fixture
def peeklock_topology():
    return {"queues": {"orders": {}}}

@pytest.mark.parametrize("number", range(2))
def test_an_order(peeklock, number):
    with ServiceBusClient.from_connection_string(peeklock.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("one"))
    (message,) = peeklock.wait_for("orders")
    assert message["body"] == "one"
    print(pytest_peeklock.__file__)
"""


@pytest.fixture(scope="module")
def package_wheel(tmp_path_factory):
    copy = tmp_path_factory.mktemp("package") / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(FOLDER, copy, ignore=ignored)
    return build(copy)


def test_the_wheel_holds_the_package_and_says_that_it_is_typed(package_wheel):
    with zipfile.ZipFile(package_wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {f"pytest_peeklock/{path.name}" for path in FOLDER.glob("src/*/*.py")}
    assert expected | {"pytest_peeklock/py.typed"} == names


def test_a_test_runs_where_both_wheels_are_installed(make_environment, package_wheel, tmp_path):
    """In an environment that is not activated: the command is found beside its Python."""
    environment = make_environment()
    python = str(environment / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(package_wheel))
    (tmp_path / "test_orders.py").write_text(SAMPLE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("PEEKLOCK")
    }
    done = subprocess.run(
        [python, "-m", "pytest", "-rP", "-n", "2"],
        cwd=tmp_path,
        env=variables | {"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert 2 == done.stdout.count(str(site_packages(environment) / "pytest_peeklock"))


def test_it_is_written_for_the_oldest_python_that_it_names():
    oldest = tuple(int(one) for one in PROJECT["requires-python"].removeprefix(">=").split("."))
    for path in FOLDER.glob("src/*/*.py"):
        ast.parse(path.read_text(), feature_version=(oldest[0], oldest[1]))


def test_it_has_the_version_of_the_broker_and_needs_only_pytest():
    assert __version__ == PROJECT["version"]
    assert ["pytest>=7"] == PROJECT["dependencies"]


def blocks_with_tests():
    """Python blocks on the pages that are test files."""
    return [
        (page, block)
        for page in pages()
        for block in page.blocks("python")
        if re.search(r"^(?:async )?def test_", block, re.MULTILINE)
    ]


@pytest.mark.parametrize(
    ("page", "block"), blocks_with_tests(), ids=lambda one: getattr(one, "name", "")
)
def test_the_tests_on_the_pages_pass(page, block, tmp_path):
    """As they are printed, with the broker of this source tree."""
    (tmp_path / "test_block.py").write_text(block)
    command = f"peeklock_command = {sys.executable} -m peeklock"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nasyncio_mode = auto\n{command}\n")
    variables = {"PYTHONPATH": str(ROOT)}
    printed = run(*[sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, env=os.environ | variables)
    assert re.search(r"^\d+ passed", printed, re.MULTILINE), printed
