"""Stores: they write records, and a restarted broker reads them again.

`contract.py` declares the interface; `memory.py`, `sqlite/` and `postgres/` implement it. A store writes each batch of
records completely or not at all. It knows records and bytes, but no queues, locks or AMQP.
"""
