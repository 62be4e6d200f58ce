"""Authorization and TLS of this broker: its keys and certificates.

`protocol/identity` verifies tokens.
"""
