"""What the operator decides: settings, limits and entities, from files, environment and flags.

Nothing here knows the broker. Everything that comes in from outside is checked here, all mistakes
at once, and leaves as frozen data that the rest may trust.
"""
