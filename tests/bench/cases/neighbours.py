"""What others feel while one client has the broker do something that concerns hundreds of thousands of messages.

The operations and the client beside them are those of the long tests (`tests/soak/noisy_neighbour.py`). The figures are
the time that the other client needs to send, receive and complete one message meanwhile, and the time that a client
of an idle broker waits for a send, which shows what the machine adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.cases.single import bare_append
from tests.bench.quiet_disk import QuietDisk
from tests.bench.rows import Row
from tests.bench.systems import SQLITE
from tests.soak.mass_abuses import LARGE_BYTES
from tests.soak.noisy_neighbour import feel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.cases.setting import Setting

LARGE_APPEND = "append of 95 MB with fdatasync"
LARGE_APPENDS = 5
LARGE_MESSAGES = "beside messages of 95 MB"
NEIGHBOURS = {
    "nothing": "beside nothing",
    "deletion": "beside the deletion of 500,000 messages",
    "expiry-600k": "beside the expiry of 600,000 messages",
    "schedules-1m": "beside 1,000,000 schedules that are due",
    "fan-out": "beside 3,000 sends to 2,000 subscriptions",
    "large-messages": LARGE_MESSAGES,
}
"""The abuses, and what they are called in the table."""


def neighbours(setting: Setting) -> Iterator[Row]:
    """Each on a new broker with a file. A large message is one commit, and the next commits wait for the disk: so the
    time to write one is measured as well."""
    disk = QuietDisk(setting.folder)
    disk.wait()
    yield bare_append(setting.folder / "appended", LARGE_APPENDS, LARGE_BYTES, LARGE_APPEND)
    (setting.folder / "appended").unlink()
    for name, case in NEIGHBOURS.items():
        file = setting.folder / f"{name}.db"
        felt = feel(name, f"sqlite:///{file}", disk.wait)
        figures = {
            "disk_p99_ms": disk.last.p99_ms,
            "disk_waited_s": disk.last.waited_s,
            "victim_p50_ms": felt.waits.p50_ms,
            "victim_p99_ms": felt.waits.p99_ms,
            "victim_max_ms": felt.waits.max_ms,
            "control_p50_ms": felt.control.p50_ms,
            "control_p99_ms": felt.control.p99_ms,
            "control_max_ms": felt.control.max_ms,
            "seconds": felt.seconds,
            "resident_mb": felt.megabytes,
        }
        yield Row(case, figures, system=SQLITE)
        for path in setting.folder.glob(f"{name}.db*"):
            path.unlink()
