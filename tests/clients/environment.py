"""`python3 environment.py FOLDER`: the virtual environment of a client written in Python.

Made from FOLDER/requirements.txt in FOLDER/.venv; the file `.venv/.installed` says that it is done.
Needs nothing but Python itself, since it runs before anything is installed.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path


def main(folder: Path) -> None:
    """Make it, or bring it up to date."""
    environment = folder / ".venv"
    python, wanted = environment / "bin" / "python", folder / "requirements.txt"
    if not python.exists():
        venv.create(environment, with_pip=True)
    subprocess.run(
        [python, "-P", "-m", "pip", "install", "--quiet", "--requirement", wanted], check=True
    )
    (environment / ".installed").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
