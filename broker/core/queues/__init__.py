"""One queue: the order of its messages, locks, sessions, receivers, deadlines, duplicates.

Everything here concerns a single queue or sub-queue, or what all queues of a namespace share (`namespace_context`).
Not here: entities and their names (`entities`), and work between several queues (`operations`).
"""
