"""AMQP 1.0 values and message sections: bytes to Python and to `Message`, and back.

Pure functions without connection state, used by AMQP and HTTP.
Not here: frames and links (`protocol/amqp`).
"""
