"""Sockets: listeners, AMQP transports, the HTTP server, their limits, and the frames that viewers see.

The protocols themselves are in `protocol/`.
"""
