"""A collector of OpenTelemetry: takes spans over HTTP, as a real one does, and keeps them."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class CollectedSpan(NamedTuple):
    """A span as it was exported."""

    name: str
    kind: int
    trace_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    trace_state: str
    attributes: dict[str, Any]
    service: str


class OtlpCollector:
    """Listens on a free port."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert "/v1/traces" == self.path
                collector.take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The value of OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, request: Any) -> None:
        """Keeps the spans of a request."""
        found = []
        for resource in request.resource_spans:
            service = _values(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                found += [
                    CollectedSpan(
                        span.name,
                        span.kind,
                        span.trace_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        span.trace_state,
                        _values(span.attributes),
                        service,
                    )
                    for span in scope.spans
                ]
        with self._changed:
            self.spans += found
            self._changed.notify_all()

    def wait(self, is_done: Callable[[list[CollectedSpan]], bool]) -> list[CollectedSpan]:
        """Returns all spans, once a condition holds."""
        with self._changed:
            assert self._changed.wait_for(lambda: is_done(self.spans), timeout=20), self.spans
            return list(self.spans)


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
