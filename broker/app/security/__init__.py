"""Keys and certificates of this broker: who may do what, and TLS.

The checks themselves are in `protocol/identity`.
"""
