"""What the machine says about a process: processor time, memory, ports; and what machine it is.

Reads /proc and nothing else, so it runs where Linux runs. Figures are of the whole process, all
threads included.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import Any

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MEGABYTE = 1 << 20
LISTEN = "0A"
"""The state of a socket in /proc/net/tcp."""
OPTIMISED, NOT_OPTIMISED = "optimised build", "build without optimisation"
OPTIMISED_BUILDS = ("--enable-optimizations", "--with-wheel-pkg-dir=/usr/share/python-wheels/")
"""Options of CPython's `configure`, one of which an optimised build has. The second is Debian's and Ubuntu's: they build
the interpreter with a profile and record the options of another build, that of the shared library."""


def cpu_s(process_id: int) -> float:
    """Processor time used so far, user and system."""
    stat = Path(f"/proc/{process_id}/stat").read_text()
    # The name, field two, is in parentheses and may hold anything; count from behind it.
    fields = stat.rpartition(")")[2].split()
    user_ticks, system_ticks = int(fields[11]), int(fields[12])
    return (user_ticks + system_ticks) / TICKS_PER_S


def resident_megabytes(process_id: int) -> float:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / MEGABYTE
    return 0.0


def listening_process(port: int) -> int | None:
    """The process on this machine that listens on a TCP port, if it can be seen."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == LISTEN:
                sockets.add(f"socket:[{fields[9]}]")
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            if any(str(entry.readlink()) in sockets for entry in folder.iterdir()):
                return int(folder.parent.name)
    return None


def python_build(options: str | None = None) -> str:
    """Says whether this Python was compiled with a profile. Without, it is about a fifth slower."""
    given = sysconfig.get_config_var("CONFIG_ARGS") if options is None else options
    return OPTIMISED if any(one in (given or "") for one in OPTIMISED_BUILDS) else NOT_OPTIMISED


def machine() -> dict[str, Any]:
    """Enough to know whether two results may be compared."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cores": os.cpu_count(),
        "processor": model,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_build": python_build(),
        "sqlite": sqlite3.sqlite_version,
        "load_average": os.getloadavg()[0],
    }
