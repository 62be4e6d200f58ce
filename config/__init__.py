"""Settings, limits and entities, read from files, environment variables and flags.

Imports no other package of the broker. Checks everything, reports all mistakes at once, and returns frozen, valid
data.
"""
