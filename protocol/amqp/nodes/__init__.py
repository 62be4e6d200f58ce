"""What a client can attach to beside messages: `$cbs`, `$management`, the transaction coordinator.

Also the factory that chooses the right kind of link for every attach.
"""
