"""Peeklock: a broker that takes the place of Azure Service Bus in development and tests.

`core` is a pure state machine: it takes commands and the time, and returns records for the store and effects for
clients. `app` is the process: listeners, turns, commits, logs. Beside this package, `protocol` translates bytes
into commands and effects into bytes, `storage` stores records, and `config` has definitions and settings. Only
`app` imports all of them.
"""

__version__ = "0.2.0"
