"""The process: connects the core, the protocols and the storage.

`server.py` starts and stops everything. `runtime/` runs commands and commits records, `network/` reads and
writes sockets, `security/` checks tokens and provides certificates, `observe/` writes logs and metrics,
`cli/` is the command line. The core decides what an operation does; nothing in this package does.
"""
