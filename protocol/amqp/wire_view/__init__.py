"""The frames of a connection for people to read: found in the bytes of a socket, decoded, without secrets.

For the control API only: nothing here changes a connection, and it is loaded when frames are first viewed. No bytes
that a client sends make it raise an exception.
"""
