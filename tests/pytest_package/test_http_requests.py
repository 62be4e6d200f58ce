"""Requests to a broker that refuses them, wants a token, or is not there."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from pytest_peeklock import BrokerNotReachable, Peeklock, PeeklockError
from pytest_peeklock.http_requests import sas_token
from tests.support.event_server import event_server
from tests.support.server import BrokerProcess, free_ports

KEY = "SharedAccessKeyName={};SharedAccessKey={};UseDevelopmentEmulator=true;"


def test_a_refusal_has_the_sentence_of_the_broker(peeklock):
    with pytest.raises(PeeklockError, match=r"orderz.*\.$") as caught:
        peeklock.get_entity("orderz")
    error = caught.value
    assert (404, "entity_not_found", "entity") == (error.status, error.code, error.field)


def test_an_expression_that_does_not_parse_names_the_position(peeklock):
    with pytest.raises(PeeklockError, match="line 1, column 8") as caught:
        peeklock.list_messages("orders", filter="color =")
    assert ("invalid_expression", "filter") == (caught.value.code, caught.value.field)


def test_what_is_wrong_in_a_topology_is_listed(peeklock_broker):
    topology = {"queues": {"a": {"lock_duration": "1s"}, "b": {"max_delivery_count": 0}}}
    with pytest.raises(PeeklockError) as caught:
        peeklock_broker.create_namespace(topology=topology)
    assert 2 == len(caught.value.details["mistakes"])


def test_a_broker_that_is_not_there(peeklock_broker):
    (port,) = free_ports(1)
    with pytest.raises(BrokerNotReachable, match=f"localhost:{port} does not answer"):
        Peeklock(f"http://localhost:{port}").list_namespaces()


def test_an_answer_of_something_else():
    """Such as another server on the port."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<h1>Not found</h1>")

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(BrokerNotReachable, match="not the control API of Peeklock"):
            Peeklock(f"http://127.0.0.1:{server.server_port}").list_namespaces()
        thread.join()


@pytest.mark.parametrize("url", ["localhost:5300", "ftp://localhost", "http://"])
def test_an_address_that_is_none(url):
    with pytest.raises(ValueError, match="is not an address"):
        Peeklock(url)


def test_a_connection_string_without_a_key():
    with pytest.raises(ValueError, match="SharedAccessKeyName"):
        sas_token("Endpoint=sb://localhost")


def test_a_client_without_a_namespace_cannot_delete_its_own(peeklock_broker):
    with pytest.raises(ValueError, match="one must be named"):
        peeklock_broker.delete_namespace()


def test_a_strict_broker_wants_the_key():
    """The token is made with the key of the connection string. A namespace has its own."""
    arguments = ["--authorization", "strict", "--control-api", "on"]
    with BrokerProcess(testing_api=False, arguments=arguments) as running:
        url = f"http://127.0.0.1:{running.http_port}"
        endpoint = f"Endpoint=sb://127.0.0.1:{running.http_port};"
        root = Peeklock(
            url,
            connection_string=endpoint + KEY.format("RootManageSharedAccessKey", "SAS_KEY_VALUE"),
        )
        inside = root.new_namespace(topology={"queues": {"orders": {}}})
        root.advance_clock(seconds=10 * 365 * 24 * 3600)  # tokens expire by this clock
        assert [1] == inside.send("orders", "hello")
        with pytest.raises(PeeklockError) as caught:
            Peeklock(url, inside.namespace, root.connection_string[:-40] + "other;").get_entity("a")
        assert 401 == caught.value.status


def test_names_are_encoded(peeklock):
    """A slash in a name does not end a segment of the path."""
    with pytest.raises(PeeklockError, match="a/b"):
        peeklock.get_snapshot("a/b")


def test_the_number_of_dropped_events_is_no_event():
    with event_server(
        b'event: dropped\ndata: {"count": 3}\n\nid: 4\ndata: {"number": 4}\n\n'
    ) as url:
        assert [{"number": 4}] == list(Peeklock(url).stream("GET", "/history/stream"))
