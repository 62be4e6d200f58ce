"""The C module of the stores: what must not wait for the interpreter lock.

It has one type, a thread that writes and syncs. What is written, and when, is decided in Python.
"""
