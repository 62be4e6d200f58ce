"""Every product module has tests: a module named for it, or a line in `tests/module_map.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "protocol", "storage", "config", "pytest-peeklock")


def listed() -> dict[str, list[str]]:
    """Returns the tests that the map names, by the path of the product module."""
    tables = tomllib.loads((ROOT / "tests" / "module_map.toml").read_text())
    return {
        f"{package}/{path}": tests
        for package, modules in tables.items()
        for path, tests in modules.items()
    }


def modules() -> set[str]:
    """Returns the paths of all product modules. A package's own file holds its docstring only."""
    return {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }


def names_of_tests() -> set[str]:
    """Returns the names of all test modules. Stock clients install their packages below `tests/clients`, and those
    contain test modules of other projects."""
    return {
        path.name
        for path in (ROOT / "tests").rglob("test_*.py")
        if "site-packages" not in path.parts and "node_modules" not in path.parts
    }


def test_every_module_has_tests():
    """A new module needs `test_<module>.py`, or a line that says which tests cover it."""
    names = names_of_tests()
    named = {path for path in modules() if f"test_{Path(path).name}" in names}
    assert [] == sorted(modules() - named - listed().keys())


def test_the_map_names_only_modules_and_tests_that_exist():
    """A line that outlived its module or its tests would hide that something is not tested."""
    assert [] == sorted(listed().keys() - modules())
    tests = {test for tests in listed().values() for test in tests}
    assert [] == sorted(test for test in tests if not (ROOT / test).is_file())
    assert [] == sorted(path for path, tests in listed().items() if not tests)


def test_a_module_with_tests_of_its_name_is_not_listed():
    """One place says where the tests of a module are."""
    names = names_of_tests()
    assert [] == sorted(path for path in listed() if f"test_{Path(path).name}" in names)
