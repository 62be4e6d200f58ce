"""What keeps the core running: the clock, the turn loop, group commit, restart after a failed commit.

Not here: sockets (`network`).
"""
