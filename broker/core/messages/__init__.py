"""Help for messages in memory and in the store: rows, paging of bodies, ids.

The class `Message` is in `contract`, because the protocols create and read messages, too.
Not here: the place of a message in a queue (`queues`).
"""
