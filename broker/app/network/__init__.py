"""Sockets: listeners, AMQP transports, the HTTP server, and their limits.

Not here: what the bytes mean (`protocol`).
"""
