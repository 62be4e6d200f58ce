"""Links that carry messages: senders, receivers and browsers of an entity.

They turn transfers, credit and outcomes into commands, and effects into deliveries.
Not here: links to `$cbs`, `$management` and the transaction coordinator (`nodes`).
"""
