"""Peeklock's own API under `/$peeklock`: the clock for tests, and the export of all entities."""
