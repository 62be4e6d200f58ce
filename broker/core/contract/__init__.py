"""What crosses the boundary of the core.

Commands go in. Records (for the store) and effects (for clients) come out, gathered in a turn. Also here: the
message itself, the changes kept beside its body, the errors that a client can get, and what is counted.
Not here: what a command does (`operations`), and how messages are kept (`queues`).
"""
