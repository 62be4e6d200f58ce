"""The administration API of Service Bus: Atom entries for entities and rules.

Not here: sending and receiving over HTTP (`data_plane`), and Peeklock's own API (`control`).
"""
