"""Commands of a held namespace: who gets an answer when they do not run."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from broker.app.runtime.awaited_request import AwaitedRequest
from broker.app.runtime.held_commands import HeldNamespaces
from broker.core.contract.commands import AttachSender, Detach, Peek, Send
from broker.core.contract.errors import ServerBusy
from broker.core.contract.message import Message

if TYPE_CHECKING:
    from broker.core.contract.commands import Command
    from broker.core.contract.errors import BrokerError


class Named:
    """A namespace that gets no commands."""

    def __init__(self, name: str) -> None:
        self.name = name


ONE: Any = Named("one")
REPLACEMENT: Any = Named("one")


class HttpRequest:
    """The peer of an HTTP request that has a link."""

    def __init__(self) -> None:
        self.errors: list[BrokerError] = []

    def receive(self, effect: object) -> None:
        raise AssertionError(effect)

    def refuse(self, error: BrokerError) -> None:
        self.errors.append(error)


class AmqpLink:
    """A link of an AMQP client. It has a `refuse` of another kind, as `SendingLink` has."""

    connection = object()

    def receive(self, effect: object) -> None:
        raise AssertionError(effect)

    def refuse(self, delivery: object, error: BrokerError) -> None:
        raise AssertionError((delivery, error))


class Held:
    """The held namespaces of a turn loop, and what they return to it."""

    def __init__(self) -> None:
        self.inbox: deque[tuple[Any, Command]] = deque()
        self.unfinished: dict[Any, deque[tuple[Any, Command]]] = {}
        self.submitted: list[tuple[Any, Command]] = []
        self.namespaces = HeldNamespaces(
            self.inbox, self.unfinished, lambda *submitted: self.submitted.append(submitted)
        )


async def _commands() -> tuple[HttpRequest, AwaitedRequest, list[Command]]:
    http, asker = HttpRequest(), AwaitedRequest(asyncio.get_running_loop().create_future())
    return (
        http,
        asker,
        [
            AttachSender(AmqpLink(), "q"),
            AttachSender(http, "q"),
            Peek(asker, asker, "q", 0, 1),
            Detach([http]),
        ],
    )


async def test_a_replaced_namespace_refuses_the_links_of_http_requests():
    """No connection ends with them, so they would wait for ever. Requests without a link run in the replacement."""
    http, asker, commands = await _commands()
    held = Held()
    held.namespaces.hold(ONE)
    assert all(held.namespaces.takes(ONE, command) for command in commands)
    held.namespaces.move(ONE, REPLACEMENT, "It was restored.")
    assert ["It was restored."] == [str(error) for error in http.errors]
    assert [ServerBusy] == [type(error) for error in http.errors]
    assert [(REPLACEMENT, commands[2])] == held.submitted
    assert not asker.answer.done()
    assert ONE not in held.namespaces


async def test_a_deleted_namespace_refuses_http_requests():
    """With and without a link."""
    http, asker, commands = await _commands()
    held = Held()
    held.namespaces.hold(ONE)
    assert all(held.namespaces.takes(ONE, command) for command in commands)
    held.namespaces.drop(ONE, "It was deleted.")
    assert ["It was deleted."] == [str(error) for error in http.errors]
    with pytest.raises(ServerBusy, match=r"It was deleted\."):
        await asker.answer
    assert [] == held.submitted


@pytest.mark.parametrize("is_deleted", [False, True], ids=["replaced", "deleted"])
async def test_unfinished_commands_of_http_requests_are_refused(is_deleted):
    """They were taken when the namespace was held."""
    http = HttpRequest()
    held = Held()
    held.unfinished[http] = deque([(ONE, Send(http, [Message(b"")], [http]))])
    held.namespaces.hold(ONE)
    assert {} == held.unfinished
    if is_deleted:
        held.namespaces.drop(ONE, "It was deleted.")
    else:
        held.namespaces.move(ONE, REPLACEMENT, "It was restored.")
    assert [ServerBusy] == [type(error) for error in http.errors]


async def test_a_namespace_is_held_once_at_a_time():
    """A second operation would drop the commands that wait for the end of the first."""
    _, _, commands = await _commands()
    held = Held()
    held.namespaces.hold(ONE)
    assert held.namespaces.takes(ONE, commands[0])
    with pytest.raises(RuntimeError, match="held already"):
        held.namespaces.hold(ONE)
    held.namespaces.release(ONE)
    assert [(ONE, commands[0])] == list(held.inbox)
