"""Entities that are in a store and not declared: they are logged at start, and deleted if the
setting says so."""

from __future__ import annotations

import http.client

import pytest

from tests.support.server import BrokerProcess

QUEUE = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
)
DECLARED = {
    "queues": {"kept": None},
    "topics": {"t": {"subscriptions": {"s": None}}},
}
EARLIER = {
    "queues": {"kept": None, "old": None},
    "topics": {
        "t": {"subscriptions": {"s": None, "gone": None}},
        "u": {"subscriptions": {"s": {}}},
    },
    "namespaces": {"team-a": {"queues": {"q": None}}},
}


def put_queue(broker: BrokerProcess, name: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=10)
    try:
        connection.request("PUT", f"/{name}?api-version=2021-05", QUEUE)
        answer = connection.getresponse()
        assert 201 == answer.status
        return answer.read().decode()
    finally:
        connection.close()


def exists(broker: BrokerProcess, path: str) -> bool:
    _, content = broker.request("GET", f"/{path}?api-version=2021-05")
    return b"Description" in content


@pytest.fixture
def url(tmp_path):
    """A store that an earlier file has left its entities in."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with BrokerProcess(config=EARLIER, storage=url) as broker:
        put_queue(broker, "made")
        broker.terminate()
        assert "entities.undeclared" not in broker.log_text()
    return url


def test_undeclared_entities_are_kept_and_logged(url):
    """In one line, with the number of them and the first names."""
    with BrokerProcess(config=DECLARED, storage=url) as broker:
        assert all(exists(broker, path) for path in ("old", "u", "made", "t/Subscriptions/gone"))
        (line,) = [one for one in broker.log_text().splitlines() if "entities.undeclared" in one]
    assert "9 entities in the store, 6 of them not declared: kept" in line
    assert "old" in line


def test_undeclared_entities_can_be_dropped(url):
    """They are deleted with their messages. Entities that are created after the start stay until
    the next start."""
    drop = {"PEEKLOCK_UNDECLARED_ENTITIES": "drop"}
    with BrokerProcess(config=DECLARED, storage=url, environment=drop) as broker:
        assert "9 entities in the store, 6 of them not declared: dropped" in broker.log_text()
        assert not any(
            exists(broker, path) for path in ("old", "u", "made", "t/Subscriptions/gone")
        )
        assert all(exists(broker, path) for path in ("kept", "t", "t/Subscriptions/s"))
        put_queue(broker, "later")
        assert exists(broker, "later")
        broker.terminate()
    with BrokerProcess(config=DECLARED, storage=url) as broker:
        assert not exists(broker, "old")
        assert exists(broker, "later")
