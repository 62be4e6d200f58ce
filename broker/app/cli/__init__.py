"""The command line of `peeklock`: arguments and commands. `broker/app/server.py` runs the broker for `serve`."""
