"""Calls of sockets that are made once for each message."""

from __future__ import annotations

import socket

import pytest

from protocol.native.compiled import acknowledge, write


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
    with pytest.raises(TypeError):
        acknowledge("1")  # type: ignore[arg-type]


def test_a_socket_gets_as_much_as_it_takes_and_never_blocks():
    """The rest is left to whoever waits until it takes more."""
    sender, receiver = socket.socketpair()
    with sender, receiver:
        assert 5 == write(sender.fileno(), b"hello")
        assert b"hello" == receiver.recv(100)
        large = bytes(range(256)) * 100_000
        written_bytes = write(sender.fileno(), large)
        assert 0 < written_bytes < len(large)
        assert 0 == write(sender.fileno(), large)
        received = receiver.recv(written_bytes, socket.MSG_WAITALL)
        assert large[:written_bytes] == received


def test_a_socket_that_the_client_has_closed_takes_nothing():
    """Neither an error nor a signal: the stream finds out by itself."""
    sender, receiver = socket.socketpair()
    with sender:
        receiver.close()
        assert 0 == write(sender.fileno(), b"hello")
    assert 0 == write(-1, b"hello")


@pytest.mark.parametrize("arguments", [(), (1,), (1, "text"), ("1", b""), (1, b"", 2)])
def test_anything_but_a_descriptor_and_bytes_is_refused(arguments):
    with pytest.raises(TypeError):
        write(*arguments)
