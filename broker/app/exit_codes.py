"""The exit codes of the process, for every command. docs/operations.md explains them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process returns to its caller."""

    OK = 0
    FAILED = 1
    """The broker could not start or had to stop, or a command could not do its work."""
    MISUSED = 2
    """An option or a config file is wrong; nothing was started. The argparse module uses it, too."""
    NOT_SO = 3
    """What a command asked a running broker for is not there, or was not there in time."""
    NOT_REACHABLE = 4
    """No broker answers."""
    INTERRUPTED = 130
    """Ctrl+C has ended a command, as shells count it: 128 and the number of the signal."""
