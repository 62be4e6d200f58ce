"""Transactions, with the library's event loop, which alone has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

from tests.clients.proton.moves import body, connect, expect_nothing, listen, send, take, text
from tests.clients.python.trial import expect

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
        connection = _connect(event.container, self._broker)
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


class Retrier(Mover):
    """Rolls its first transaction back, and completes the message that comes again in a second."""

    def on_transaction_aborted(self, event: Event) -> None:
        self.discharged = "aborted"
        self._commits = True
        event.container.declare_transaction(event.connection, handler=self)


class Stranger(MessagingHandler, TransactionHandler):
    """Declares a transaction on one connection and sends in it on another."""

    def __init__(self, broker: Broker, queue: str) -> None:
        MessagingHandler.__init__(self, prefetch=0)
        self._broker = broker
        self._queue = queue
        self.outcome = ""

    def on_start(self, event: Event) -> None:
        self._connection = _connect(event.container, self._broker)
        self._other = _connect(event.container, self._broker)
        self._sender = event.container.create_sender(self._other, self._queue)
        event.container.declare_transaction(self._connection, handler=self)

    def on_transaction_declared(self, event: Event) -> None:
        self._delivery = event.transaction.send(self._sender, text("not mine"))

    def on_delivery(self, event: Event) -> None:
        if event.delivery == getattr(self, "_delivery", None) and event.delivery.updated:
            condition = event.delivery.remote.condition
            self._end("" if condition is None else condition.name)

    def on_link_error(self, event: Event) -> None:
        self._end(event.link.remote_condition.name)

    def _end(self, outcome: str) -> None:
        self.outcome = outcome or "accepted"
        self._connection.close()
        self._other.close()


def _connect(container: Container, broker: Broker) -> Any:
    return container.connect(
        f"amqp://{broker.host}:{broker.amqp_port}",
        user="RootManageSharedAccessKey",
        password="SAS_KEY_VALUE",
        allow_insecure_mechs=True,
        allowed_mechs="PLAIN",
    )


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
        broker.advance(seconds=61)  # its lock stands until then, though its connection was closed
        receiver = listen(connection, queue)
        assert ["a"] == take(receiver, 1)
        expect_nothing(receiver)


def transaction_rollback_then_settle(broker: Broker) -> str:
    queue = broker.queue()
    with connect(broker) as connection:
        send(connection, queue, "a")
        retrier = Retrier(broker, queue, commits=False)
        Container(retrier).run()
        expect("committed", retrier.discharged, "the second transaction")
        receiver = listen(connection, queue)
        assert ["a moved"] == take(receiver, 1)
        expect_nothing(receiver)
    return "the library gives back what a rolled back transaction held, and receives it again"


def transaction_other_connection(broker: Broker) -> None:
    queue = broker.queue()
    stranger = Stranger(broker, queue)
    Container(stranger).run()
    assert stranger.outcome.startswith("amqp:transaction:"), stranger.outcome
    with connect(broker) as connection:
        expect_nothing(listen(connection, queue))
