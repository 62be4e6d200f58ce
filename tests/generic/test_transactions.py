"""Transactions through Proton's client: all of it, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container
from proton.utils import BlockingConnection

if TYPE_CHECKING:
    from proton import Event

    from tests.sdk.conftest import Live

TIMEOUT_S = 10


class Transfer(MessagingHandler, TransactionHandler):
    """Takes one message from a queue and sends its reply to another, in one transaction."""

    def __init__(
        self, url: str, source: str, target: str, *, commit: bool, settle_early: bool
    ) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._url = url
        self._source = source
        self._target = target
        self._commit = commit
        self._settle_early = settle_early
        self.outcome = ""

    def on_start(self, event: Event) -> None:
        self._connection = event.container.connect(self._url, allowed_mechs="ANONYMOUS")
        self._receiver = event.container.create_receiver(self._connection, self._source)
        self._sender = event.container.create_sender(self._connection, self._target)
        self._container = event.container
        self._container.declare_transaction(
            self._connection, handler=self, settle_before_discharge=self._settle_early
        )

    def on_transaction_declared(self, event: Event) -> None:
        self._transaction = event.transaction
        self._receiver.flow(1)

    def on_message(self, event: Event) -> None:
        self._transaction.send(self._sender, Message(body=f"re: {event.message.body}"))
        self._transaction.accept(event.delivery)
        if self._commit:
            self._transaction.commit()
        else:
            self._transaction.abort()

    def on_transaction_committed(self, event: Event) -> None:
        del event
        self._end("committed")

    def on_transaction_aborted(self, event: Event) -> None:
        del event
        self._end("aborted")

    def on_transaction_commit_failed(self, event: Event) -> None:
        del event
        self._end("failed")

    def on_transport_error(self, event: Event) -> None:
        self._end(str(event.transport.condition))

    def _end(self, outcome: str) -> None:
        self.outcome = outcome
        self._connection.close()


@pytest.mark.parametrize(
    ("commit", "outcome", "left", "sent"),
    [
        pytest.param(True, "committed", [], ["re: question"], id="commit"),
        pytest.param(False, "aborted", ["question"], [], id="rollback"),
    ],
)
@pytest.mark.parametrize("settle_early", [False, True])
def test_taking_and_sending_in_one_transaction(
    live: Live, commit: bool, outcome: str, left: list[str], sent: list[str], settle_early: bool
) -> None:
    """After a commit both have happened; after a rollback neither has. The client may settle the
    delivery with the discharge, or before it."""
    source, target = live.queue(), live.queue()
    url = f"127.0.0.1:{live.process.amqp_port}"
    connection = BlockingConnection(url, timeout=TIMEOUT_S)
    send(connection, source, "question")
    transfer = Transfer(url, source, target, commit=commit, settle_early=settle_early)
    Container(transfer).run()
    assert outcome == transfer.outcome
    assert left == drain(connection, source)
    assert sent == drain(connection, target)
    connection.close()


def drain(connection: BlockingConnection, queue: str) -> list[str]:
    """Everything in a queue: what comes before a marker sent last."""
    send(connection, queue, "marker")
    receiver = connection.create_receiver(queue)
    found: list[str] = []
    while (body := receiver.receive(timeout=TIMEOUT_S).body) != "marker":
        receiver.accept()
        found.append(body)
    receiver.accept()
    receiver.close()
    return found


def send(connection: BlockingConnection, queue: str, text: str) -> None:
    sender = connection.create_sender(queue)
    sender.send(Message(body=text))
    sender.close()
