"""What the broker can be configured to have: entity definitions, limits, names, durations.

Plain values and their checks. Not here: how they are written in files (`files`).
"""
