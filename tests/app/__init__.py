"""The process around the core: logs, commits, turns, listeners."""
