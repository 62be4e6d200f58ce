"""Carries out what fault rules do to AMQP connections, links and requests.

`protocol/faults` decides which operations are concerned. Nothing acts before the first rule is made. A fault that
changes messages or locks is an ordinary command to the core.
"""
