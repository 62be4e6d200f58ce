"""Starts the broker's command line: the entry point of `peeklock` and of `python -m peeklock`.

Before it imports anything else, it makes sure that this process imports the broker's own packages and
the installed dependencies, and nothing of the same name from the user's surroundings:

- `broker`, `config`, `protocol` and `storage` are found in one folder only, by a finder that is asked
  before all others. Installed distributions with these names are not looked at.
- The current folder and the folders in PYTHONPATH are not searched, as with `python -I`. A project may
  have a `config.py`, a `structlog.py` or a `logging.py` there. Starting Python again with `-I` would
  do this too, but costs as much time as a start of Python.
- Modules that were imported from there already, by a `sitecustomize` for instance, are imported again
  from the right place.

So this module imports only what every Python process has loaded before it reads PYTHONPATH.
"""

import os
import site
import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False  # as in typing, which is not loaded yet
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PACKAGES = frozenset({"broker", "config", "protocol", "storage"})

INTERRUPTED = 130
"""As in broker/app/exit_codes.py, which may not be imported yet."""

_THIS_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PARENT_FOLDER = os.path.dirname(_THIS_FOLDER)
_STANDARD_LIBRARY = os.path.dirname(os.__file__)


def main() -> int:
    """Run the command line; returns the exit code."""
    try:
        isolate_imports()

        from broker.__main__ import main as run

        return run()
    except KeyboardInterrupt:  # before the broker or the command handles it
        sys.stderr.write("peeklock: interrupted\n")
        return INTERRUPTED


def isolate_imports() -> None:
    """Make this process import our packages and the installed dependencies only.

    For the process of the command alone: it changes what the whole process can import.
    """
    if any(isinstance(finder, PackageFinder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, PackageFinder(packages_folder()))
    before = set(sys.path)
    sys.path[:] = trusted_path()
    _forget_modules(before.difference(sys.path))


def packages_folder() -> str:
    """Returns the folder that holds the four packages: in an installation `_packages`, in the source
    tree the folder above this one."""
    installed = os.path.join(_THIS_FOLDER, "_packages")
    return installed if os.path.isdir(installed) else _PARENT_FOLDER


class PackageFinder:
    """Finds the four packages and their modules in one folder; knows no other name."""

    def __init__(self, folder: str) -> None:
        self._path = [folder]

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Called by Python's import for every name, with the `path` of the package it is in."""
        package, is_inside, _ = name.partition(".")
        if package not in PACKAGES:
            return None
        return PathFinder.find_spec(name, path if is_inside else self._path, target)


def trusted_path() -> list[str]:
    """Returns `sys.path` without its first entry, which is the current folder or that of the script,
    and without PYTHONPATH.

    Folders of the installation stay, even if PYTHONPATH names them. If this package was itself found
    through PYTHONPATH (after `pip install --target`, for instance), our dependencies may be there too:
    then its folders stay, behind all others.
    """
    path = list(sys.path)
    if not sys.flags.safe_path and (path[0] != _PARENT_FOLDER or _PARENT_FOLDER in path[1:]):
        del path[0]
    variable = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    given = {_absolute(entry) for entry in variable.split(os.pathsep)} if variable else set()
    installed = {
        _STANDARD_LIBRARY,
        os.path.join(_STANDARD_LIBRARY, "lib-dynload"),
        *map(_absolute, site.getsitepackages()),
        *([_absolute(site.USER_SITE)] if site.USER_SITE else []),
    }
    given -= installed
    foreign = [entry for entry in path if _absolute(entry) in given - {_PARENT_FOLDER}]
    trusted = [entry for entry in path if entry not in foreign]
    return trusted + foreign if _PARENT_FOLDER in given else trusted


def _absolute(entry: str) -> str:
    try:
        return os.path.abspath(entry)
    except OSError:  # the current folder has been deleted
        return entry


def _forget_modules(folders: set[str]) -> None:
    """Forget modules with the names of our packages, and all modules found in these folders."""
    for name in list(sys.modules):
        package = name.partition(".")[0]
        if package in PACKAGES or (
            package != "__main__" and not folders.isdisjoint(_locations(sys.modules.get(package)))
        ):
            del sys.modules[name]


def _locations(module: "ModuleType | None") -> "Iterable[str]":
    """Returns the folders in which a top-level module was found."""
    found = getattr(module, "__path__", None) or [getattr(module, "__file__", None)]
    return [os.path.dirname(one) for one in found if isinstance(one, str)]


if __name__ == "__main__":
    sys.exit(main())
