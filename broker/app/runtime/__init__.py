"""Runs the core: the clock, the turn loop, group commit, and restoring after a failed commit.

Sockets are in `network`.
"""
