"""The frames of a connection as people read them: cut from the bytes of a socket, decoded, without secrets.

For the control API only: nothing here takes part in a connection, and it is loaded when somebody looks. No bytes of a
client raise anything.
"""
