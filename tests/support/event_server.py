"""An HTTP server that answers one request with the events that a test names."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def event_server(events: bytes) -> Iterator[str]:
    """Yields the address of the server."""

    class Stream(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(events)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    with HTTPServer(("127.0.0.1", 0), Stream) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        thread.join()
