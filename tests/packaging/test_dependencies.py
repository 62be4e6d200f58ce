"""What we import is what we ask for: nothing comes along by chance, nothing is asked for in vain."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from tests.packaging.dockerfile import ROOT

PACKAGES = ("broker", "config", "peeklock", "protocol", "storage")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def imported(wanted: set[str]) -> set[str]:
    """Distributions that our packages import, wherever in a file. Where several distributions share the name of a
    module, as those of OpenTelemetry do, these are the wanted ones."""
    names: set[str] = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names.update(alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names.add(node.module)
    modules = {name.partition(".")[0] for name in names}
    distributions = packages_distributions()
    found: set[str] = set()
    for module in modules - set(PACKAGES) - set(sys.stdlib_module_names):
        sharing = set(map(normal, distributions[module]))
        found |= sharing & wanted if len(sharing) > 1 else sharing
    return found


def normal(requirement: str) -> str:
    """The name in a requirement, as the index spells it."""
    return re.split(r"[<>=!~;\[ ]", requirement)[0].lower().replace("_", "-")


def test_dependencies_are_what_the_packages_import():
    """A module that is there only because another needs it would be gone one day."""
    extras = PROJECT["optional-dependencies"]
    wanted = set(map(normal, PROJECT["dependencies"] + extras["postgresql"] + extras["otel"]))
    assert wanted == imported(wanted)


def test_every_dependency_is_pinned_for_ci():
    """The versions that are tested are written down, for development as well."""
    extras = PROJECT["optional-dependencies"]
    wanted = PROJECT["dependencies"] + extras["dev"] + extras["postgresql"] + extras["otel"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {normal(line) for line in lines if "==" in line}
    assert set(map(normal, wanted)) <= pinned
