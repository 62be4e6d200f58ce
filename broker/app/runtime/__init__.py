"""Runs the core: the clock, the turn loop, group commit, restoring after a failed commit, ownership and standby.

Also keeps the history of messages, which the core records in its turns.

Sockets are in `network`.
"""
