"""Sockets: listeners, AMQP transports, the HTTP server, and their limits.

The protocols themselves are in `protocol/`.
"""
