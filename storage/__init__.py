"""Remembering: where records go and where a restarted broker finds them again.

`contract.py` says what every store promises; `memory.py` and `store.py` keep the promise. A store
is handed facts in batches, writes each batch whole or not at all, and decides nothing. It knows
records and bytes, not queues, locks or AMQP.
"""
