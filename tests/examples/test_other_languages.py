"""The recipes for tests in other languages pass, against a broker that runs already.

They need the tools of their language, and packages from its registry. `make clients` runs them all; `make test` runs
those that take a few seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.conftest import UNAVAILABLE
from tests.support.server import ROOT, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

EXAMPLES = ROOT / "examples"
RUNNER = ROOT / "tests" / "examples" / "xunit_runner"
TIMEOUT_S = 110
ALL = "PEEKLOCK_ALL_RECIPES"
"""A variable that says that also slow recipes are run."""


class Recipe(NamedTuple):
    """How the tests of a recipe are run, as its user does it."""

    folder: str
    tool: str
    fetch: Sequence[str]
    """Fetches packages, without running anything."""
    run: Sequence[str]
    definition: str
    fetched: str
    """A file that is newer than the definition if packages need not be fetched."""
    passed: str
    """What is printed when both tests have passed."""
    is_slow: bool = False


RECIPES = [
    Recipe(
        "vitest",
        "npm",
        ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--prefer-offline"],
        ["npm", "test"],
        "package.json",
        "node_modules/.package-lock.json",
        "2 passed",
    ),
    Recipe(
        "go",
        "go",
        ["go", "mod", "download"],
        ["go", "test", "-count=1", "./..."],
        "go.mod",
        "no such file",
        "ok  ",
    ),
    Recipe(
        "junit",
        "mvn",
        ["mvn", "--quiet", "--batch-mode", "test-compile"],
        ["mvn", "--batch-mode", "surefire:test"],
        "pom.xml",
        "no such file",
        "Tests run: 2, Failures: 0, Errors: 0",
        is_slow=True,
    ),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(testing_api=False) as process:
        yield process


def run(
    command: Sequence[str], folder: Path, broker: BrokerProcess
) -> subprocess.CompletedProcess[str]:
    address = f"http://127.0.0.1:{broker.http_port}"
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PEEKLOCK_URL": address, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def fetch(recipe: Recipe, folder: Path, broker: BrokerProcess) -> None:
    """Fetches the packages of a recipe, unless that has been done."""
    marker, definition = folder / recipe.fetched, folder / recipe.definition
    if marker.exists() and marker.stat().st_mtime >= definition.stat().st_mtime:
        return
    done = run(recipe.fetch, folder, broker)
    if done.returncode and ALL in os.environ:
        pytest.fail(done.stdout + done.stderr)
    if done.returncode:
        reason = f"{recipe.tool} could not fetch packages: {done.stderr[-300:]}"
        pytest.skip(UNAVAILABLE + reason)


@pytest.mark.parametrize(
    "recipe",
    [one for one in RECIPES if ALL in os.environ or not one.is_slow],
    ids=lambda one: one.folder,
)
def test_the_tests_of_a_recipe_pass(broker: BrokerProcess, recipe: Recipe) -> None:
    if shutil.which(recipe.tool) is None:
        pytest.skip(UNAVAILABLE + f"{recipe.tool} is not on the PATH")
    folder = EXAMPLES / recipe.folder
    fetch(recipe, folder, broker)
    done = run(recipe.run, folder, broker)
    assert done.returncode == 0, done.stdout + done.stderr
    assert recipe.passed in done.stdout


def test_the_tests_of_the_xunit_recipe_pass(broker: BrokerProcess, tmp_path: Path) -> None:
    """Without xUnit and its runner, for which NuGet would be needed."""
    if shutil.which("dotnet") is None:
        pytest.skip(UNAVAILABLE + "dotnet is not on the PATH")
    for source in [*(EXAMPLES / "xunit").glob("*.cs"), *RUNNER.iterdir()]:
        shutil.copy(source, tmp_path)
    built = run(
        ["dotnet", "build", "--configuration", "Release", "--output", "build"], tmp_path, broker
    )
    assert built.returncode == 0, built.stdout + built.stderr
    done = run(["dotnet", str(tmp_path / "build" / "Runner.dll")], tmp_path, broker)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 2 == done.stdout.count("passed: ")
