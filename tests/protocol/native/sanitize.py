"""`make sanitize`: run the tests of the engine and the codec, and a fuzz run, over compiled modules that check their memory.

`python -m tests.protocol.native.sanitize [--seconds N]`. Compiles the modules with the address and the undefined-behaviour
sanitizer of gcc in a copy of the source tree, and runs everything there. Ends with 1 if anything fails; the output then
says which line of C did what.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COPIED = (
    "broker",
    "config",
    "peeklock",
    "protocol",
    "storage",
    "tests",
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
)
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
NOT_RUN = ["-k", "not left_of_links_that_came_and_went and not memory_behind"]
"""They measure memory, of which a sanitizer takes more."""
UNLIMITED = ["--megabytes", "10000", "--victim-p99-ms", "60000"]
SUITES = (
    "tests/protocol/native",
    "tests/protocol/codec",
    "tests/protocol/amqp",
    "tests/storage/native",
)


def library(name: str) -> str:
    """Returns the path of a library of gcc, which must be loaded before Python."""
    command = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30, help="how long to fuzz")
    parser.add_argument("--suites", nargs="*", default=SUITES, help="which tests to run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so", "node_modules", "target")
                shutil.copytree(source, copy / name, ignore=ignored)
            else:
                shutil.copy(source, copy / name)
        compiling = os.environ | {"CFLAGS": FLAGS, "LDFLAGS": FLAGS}
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(command, check=True, cwd=copy, env=compiling)
        running = os.environ | {
            "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
            # Python itself does not free everything at its end. The long runs watch the memory of the broker.
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            # So that the sanitizer knows where every object of Python ends.
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": str(copy),
        }
        commands = (
            ["-m", "pytest", "-q", "--capture=sys", *NOT_RUN, *options.suites],
            ["-m", "tests.fuzz.run", "--seconds", str(options.seconds), *UNLIMITED],
        )
        results = [
            subprocess.run(
                [sys.executable, *command], check=False, cwd=copy, env=running
            ).returncode
            for command in commands
        ]
    return int(any(results))


if __name__ == "__main__":
    sys.exit(main())
