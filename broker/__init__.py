"""Peeklock: a broker that stands in for Azure Service Bus.

`core` decides: a pure machine that is given commands and the time, and answers with records to
remember and effects to tell. `app` is the process around it: listeners, turns, commits, logs. The
edges are packages beside this one: `protocol` turns bytes into commands and effects into bytes,
`storage` remembers records, `config` says what the operator decided. Only `app` knows them all.
"""

__version__ = "0.1.0"
