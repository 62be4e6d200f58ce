"""Fault rules: which operations of clients fail, and how.

A rule is made with the control API, belongs to a namespace and is in memory only. This package decides whether a rule
acts on an operation. The protocols ask it once for each operation, and carry out what it decides.
"""
