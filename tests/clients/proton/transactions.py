"""Transactions, with the library's event loop, which alone has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

from tests.clients.proton.moves import body, connect, expect_nothing, listen, send, take, text

if TYPE_CHECKING:
    from proton import Event

    from tests.clients.python.trial import Broker


class Mover(MessagingHandler, TransactionHandler):
    """Receives a message and sends another, both in one transaction."""

    def __init__(self, broker: Broker, queue: str, *, commits: bool) -> None:
        MessagingHandler.__init__(self, prefetch=0, auto_accept=False)
        self._broker = broker
        self._queue = queue
        self._commits = commits
        self.discharged = ""

    def on_start(self, event: Event) -> None:
        connection = event.container.connect(
            f"amqp://{self._broker.host}:{self._broker.amqp_port}",
            user="RootManageSharedAccessKey",
            password="SAS_KEY_VALUE",
            allow_insecure_mechs=True,
            allowed_mechs="PLAIN",
        )
        self._sender = event.container.create_sender(connection, self._queue)
        self._receiver = event.container.create_receiver(connection, self._queue)
        event.container.declare_transaction(connection, handler=self)

    def on_transaction_declared(self, event: Event) -> None:
        self._transaction = event.transaction
        self._receiver.flow(1)

    def on_message(self, event: Event) -> None:
        self._transaction.accept(event.delivery)
        self._transaction.send(self._sender, text(f"{body(event.message)} moved"))
        if self._commits:
            self._transaction.commit()
        else:
            self._transaction.abort()

    def on_transaction_committed(self, event: Event) -> None:
        self._end(event, "committed")

    def on_transaction_aborted(self, event: Event) -> None:
        self._end(event, "aborted")

    def _end(self, event: Event, what: str) -> None:
        self.discharged = what
        event.connection.close()


def _discharge(broker: Broker, queue: str, *, commits: bool) -> str:
    mover = Mover(broker, queue, commits=commits)
    Container(mover).run()
    return mover.discharged


def transaction_commit(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        send(connection, queue, "a")
        assert "committed" == _discharge(broker, queue, commits=True)
        receiver = listen(connection, queue)
        assert ["a moved"] == take(receiver, 1)
        expect_nothing(receiver)


def transaction_rollback(broker: Broker) -> None:
    queue = broker.queue()
    with connect(broker) as connection:
        send(connection, queue, "a")
        assert "aborted" == _discharge(broker, queue, commits=False)
        receiver = listen(connection, queue)
        assert ["a"] == take(receiver, 1)
        expect_nothing(receiver)
