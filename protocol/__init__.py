"""The edges of the broker: bytes in, commands to the core; effects from the core, bytes out.

Owns how clients are spoken to (`amqp`, `http`), not what their requests mean: the core decides.
Nothing here knows a store, and nothing in the core knows a protocol.
"""
