"""Requests for the health are recognised by their bytes; every other request is left to the application."""

from __future__ import annotations

import pytest

from protocol.http.health import is_health_request, may_be_health_request, response

REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost:5300\r\nAccept: */*\r\n\r\n"


def test_a_request_for_the_health_is_recognised():
    """Only when all of it is there."""
    assert is_health_request(REQUEST)
    assert is_health_request(b"GET /health HTTP/1.0\r\n\r\n")
    for end in range(len(REQUEST)):
        assert not is_health_request(REQUEST[:end])
        assert may_be_health_request(REQUEST[:end])


@pytest.mark.parametrize(
    "data",
    [
        b"GET /health?api-version=2021-05 HTTP/1.1\r\n\r\n",  # an entity of that name
        b"GET /healthy HTTP/1.1\r\n\r\n",
        b"HEAD /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.12\r\n\r\n",
        b"GET /health HTTP/1.1\r\nContent-Length: 2\r\n\r\n",
        b"GET /health HTTP/1.1\r\ncontent-length : 2\r\n\r\n",
        b"GET /health HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /health HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
        REQUEST + REQUEST,
    ],
)
def test_other_requests_are_for_the_application(data: bytes):
    """Whatever needs more than the fixed answer."""
    assert not is_health_request(data)


def test_the_answer_is_whole_and_ends_the_connection():
    """A client must not wait for more."""
    head, _, body = response(None).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Connection: close" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert response(("standby", "Another owns it.")).startswith(b"HTTP/1.1 503 ")
