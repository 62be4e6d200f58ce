"""What the operating system says about this process, under the names that Prometheus gives it.

Dashboards made for any service look for `process_*`. Where there is no `/proc`, only what the
standard library knows is told.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING

from broker.app.exposition import Family

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC = Path("/proc/self")
_STARTED_AT_S = time.time()
"""Near enough to the start of the process; the testing clock does not move it."""


def process_families() -> Iterator[Family]:
    """Time, memory and descriptors of this process."""
    times = os.times()
    yield _one(
        "process_cpu_seconds_total",
        "counter",
        "Processor time used, in user and system mode.",
        times.user + times.system,
    )
    yield _one("process_start_time_seconds", "gauge", "When the process started.", _STARTED_AT_S)
    yield _one(
        "process_max_fds",
        "gauge",
        "How many file descriptors may be open.",
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    try:
        pages = (_PROC / "statm").read_text().split()
        descriptors = len(os.listdir(_PROC / "fd"))  # noqa: PTH208 -- names, not paths: far cheaper
    except OSError:
        return
    page_bytes = resource.getpagesize()
    yield _one(
        "process_virtual_memory_bytes", "gauge", "Virtual memory.", int(pages[0]) * page_bytes
    )
    yield _one(
        "process_resident_memory_bytes", "gauge", "Resident memory.", int(pages[1]) * page_bytes
    )
    yield _one("process_open_fds", "gauge", "File descriptors that are open.", descriptors)


def _one(name: str, kind: str, text: str, value: float) -> Family:
    family = Family(name, kind, text)
    family.add(value)
    return family
