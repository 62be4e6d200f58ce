"""The SQLite store: one file, one process, nothing accepted before it is on disk."""
