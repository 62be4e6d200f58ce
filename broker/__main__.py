"""Runs the command line with `python -m broker`. `peeklock/__main__.py` calls `main` as well."""

from __future__ import annotations

import gc
import sys

# While the process starts it creates no garbage; the server enables collection when it is ready.
gc.disable()

from broker.app.cli.command_line import main as main  # noqa: E402, PLC0414 -- after gc.disable; re-exported

if __name__ == "__main__":
    sys.exit(main())
