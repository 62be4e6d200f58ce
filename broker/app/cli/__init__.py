"""The subcommands of `peeklock`, except `serve` (`broker/app/server.py`)."""
