"""Entity definitions, limits, names, durations and storage URLs: plain values and their checks.

`files` reads and writes config files.
"""
