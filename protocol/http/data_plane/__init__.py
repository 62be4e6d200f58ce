"""Sending and receiving messages by HTTP requests, as in the REST API of Service Bus."""
