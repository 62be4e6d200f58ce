"""TCP acknowledgements that are sent at once."""

from __future__ import annotations

import socket

from protocol.native.compiled import acknowledge


def test_what_was_read_is_acknowledged_at_once():
    """The kernel says whether it delays acknowledgements."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with client, accepted:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            assert 0 == accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
            acknowledge(accepted.fileno())
            assert 1 == accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


def test_what_is_no_socket_of_tcp_is_left_alone():
    """A simulated connection has no descriptor."""
    acknowledge(-1)
    one, other = socket.socketpair()
    with one, other:
        acknowledge(one.fileno())
