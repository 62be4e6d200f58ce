"""An environment with the packages that the broker needs, and no others.

The developers' environment has more, and some are imported if they are there: structlog imports `rich`, which takes
4 MB. So the broker is measured in an environment as `pip install peeklock` makes it. It consists of links to the packages of
the environment that runs the measurement, because compiling the AMQP engine again would take minutes.
"""

from __future__ import annotations

import atexit
import sys
import tempfile
import venv
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BROKER = "peeklock"
EXTRAS = ("postgresql",)
"""Measured, too. What it adds is imported with the first PostgreSQL store."""


@cache
def plain_python() -> str:
    """The interpreter of the environment. It is removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="peeklock-plain-")
    atexit.register(folder.cleanup)
    return str(make_plain_environment(Path(folder.name)))


def make_plain_environment(folder: Path) -> Path:
    """Returns the interpreter of a new environment in this folder."""
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    for name in needed_distributions():
        installed = distribution(name)
        tops = {file.parts[0] for file in installed.files or () if file.parts[0] != ".."}
        for top in sorted(tops - {"__pycache__"}):
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(installed.locate_file(top))).resolve())
    return folder / "bin" / "python"


def needed_distributions() -> set[str]:
    """The names of the distributions that the broker needs, and of those that these need. The broker itself is in the
    folder in which it is started."""
    needed: set[str] = set()
    waiting: list[tuple[str, tuple[str, ...]]] = [(BROKER, EXTRAS)]
    while waiting:
        needing, extras = waiting.pop()
        for text in distribution(needing).requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            wanted = marker is None or any(
                marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
            name = canonicalize_name(requirement.name)
            if wanted and name not in needed:
                needed.add(name)
                waiting.append((name, tuple(requirement.extras)))
    return needed
