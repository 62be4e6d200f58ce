"""The SQLite store: one file for one process. A commit is on the disk when it returns."""
