"""A broker in memory, and clients that send hand-written frames to it.

Connections, access and namespaces are the real ones. There are no sockets and no store, and the
clock moves only when a test moves it. The broker has answered when a call of a client returns.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from broker.app.runtime.clock import Clock
from broker.app.security.access import Access
from broker.core.contract.commands import CreateEntity, DeleteEntity, Tick, UpdateEntity
from broker.core.contract.effects import PayloadsNeeded, Reply
from broker.core.contract.turn import Turn
from broker.core.messages.identifiers import MessageIds, lock_tokens
from broker.core.namespace import Namespace
from config.files.document import parse_yaml
from config.files.mistakes import ConfigReport
from config.files.yaml_reader import read_yaml_form
from config.model.limits import RELAXED
from config.settings.setting_sources import SETTINGS
from config.settings.settings import Settings
from protocol.amqp.connection import Connection
from protocol.amqp.connection_services import ConnectionServices
from protocol.amqp.held_memory import MemoryBudgets
from protocol.codec import Described, Symbol, ULong, encode
from protocol.codec.message_reader import Reader
from protocol.faults.fault_registry import FaultRegistry
from protocol.identity import sas
from tests.support import amqp_frames
from tests.support.frame_client import ConnectionEnded, FrameClient
from tests.support.message_sections import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    VALUE,
    section,
    sections_of,
)
from tests.support.protocol_sources import system_sources

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Effect
    from config.model.definitions import EntityDefinition
    from config.model.limits import Limits
    from tests.support.amqp_frames import Frame

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
ROOT_NAME, ROOT_KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"


class StoppedClock(Clock):
    """A clock that moves only when a test moves it. Real time does not move either."""

    def __init__(self) -> None:
        super().__init__()
        self.at_ms = NOW_MS

    def now_ms(self) -> int:
        return self.at_ms

    def real_ms(self) -> int:  # type: ignore[override]
        return self.at_ms

    def advance_ms(self, amount_ms: int) -> int:
        self.at_ms += amount_ms
        return self.at_ms


def settings_of(given: dict[str, Any]) -> Settings:
    """Settings from their values, or from texts as a config file has them."""
    return Settings(
        **{
            one.field: one.type.parse(given[one.field])
            if isinstance(given[one.field], str)
            else given[one.field]
            for one in SETTINGS
            if one.field in given
        }
    )


class MemoryBroker:
    """One or more namespaces, declared in YAML. Commands run only when `run` is called."""

    def __init__(
        self,
        declared: str = "",
        *,
        clock: Clock | None = None,
        limits: Limits = RELAXED,
        **settings: Any,
    ) -> None:
        report = ConfigReport()
        topology = read_yaml_form(
            parse_yaml(declared, "declared"), limits, report, lambda _rule, _limits: None
        )
        report.raise_if_wrong()
        self.clock = clock or StoppedClock()
        self.limits = limits
        self.namespaces: dict[str, Namespace] = {}
        checked = settings_of(settings)
        self.access = Access(checked, topology, self.namespaces, self.clock)
        self.memory = MemoryBudgets(limits)
        self.delayed: list[tuple[float, Callable[[], None]]] = []
        """Calls that fault rules have delayed, and by how many seconds."""
        self.faults = FaultRegistry(self._call_later)
        self.clients: list[MemoryClient] = []
        self.commands: Counter[type[Command]] = Counter()
        """How many commands of each kind have come."""
        self._inbox: list[tuple[Namespace, Command]] = []
        ids = MessageIds()
        for name, entities in topology.namespaces.items():
            self.namespaces[name] = Namespace(
                name,
                reader=Reader(),
                new_lock_tokens=lock_tokens(os.urandom),
                limits=limits,
                ids=ids,
                payload_budget_bytes=None,
                create_on_first_use=checked.create_on_first_use,
            )
            self.namespaces[name].declare(entities, self.clock.now_ms(), Turn())

    def connect(
        self,
        hostname: str = "localhost",
        plain: tuple[str, str] | None = None,
        product: str | None = None,
    ) -> MemoryClient:
        client = MemoryClient(self, hostname, plain, product)
        self.clients.append(client)
        return client

    def enter(self, name: str) -> Any:
        """Returns the function that submits commands to a namespace. They run in the next `run`."""

        def take(command: Command) -> None:
            self.commands[type(command)] += 1
            self._inbox.append((self.namespaces[name], command))

        return take

    def _call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.delayed.append((seconds, call))

    def pass_delays(self) -> None:
        """Do what fault rules have delayed."""
        delayed, self.delayed = self.delayed, []
        for _, call in delayed:
            call()
        self.run()

    def has_entity(self, name: str, path: str) -> bool:
        return self.namespaces[name].has_entity(path)

    def run(self) -> None:
        """Run turns until no command is left, and pass their effects to their peers."""
        while self._inbox:
            inbox, self._inbox = self._inbox, []
            turn = Turn()
            for namespace, command in inbox:
                namespace.apply(command, self.clock.now_ms(), turn)
                namespace.dispatch(self.clock.now_ms(), turn)
            for effect in turn.effects:
                assert not isinstance(effect, PayloadsNeeded), "bodies stay in memory here"
                effect.to.receive(effect)

    def advance(self, amount_ms: int) -> None:
        """Move the clock as the testing API does, and call the connections whose time has come."""
        now_ms = self.clock.advance_ms(amount_ms)
        for client in self.clients:
            if client.wake_at_ms is not None and client.wake_at_ms <= now_ms:
                client.wake_at_ms = None
                client.connection.check_authorization()
        for namespace in self.namespaces.values():
            self._inbox.append((namespace, Tick()))
        self.run()

    def administer(self, namespace: str, build: Any) -> None:
        """Run a request of the administration API, and what the server does after it."""
        asker = _Asker()
        self.enter(namespace)(build(asker, asker))
        self.run()
        assert asker.reply is not None
        assert asker.reply.error is None, asker.reply.error
        if self.access.rules_changed():
            for client in self.clients:
                client.connection.check_authorization()
            self.run()

    def create(self, path: str, definition: EntityDefinition, namespace: str) -> None:
        self.administer(namespace, lambda peer, mark: CreateEntity(peer, mark, path, definition))

    def update(self, path: str, definition: EntityDefinition, namespace: str) -> None:
        self.administer(namespace, lambda peer, mark: UpdateEntity(peer, mark, path, definition))

    def delete(self, path: str, namespace: str) -> None:
        self.administer(namespace, lambda peer, mark: DeleteEntity(peer, mark, path))


class _Asker:
    """The peer of one request."""

    def __init__(self) -> None:
        self.reply: Reply | None = None

    def receive(self, effect: Effect) -> None:
        assert isinstance(effect, Reply)
        self.reply = effect


class LinkRefused(Exception):
    """The links of a request were refused."""


class MemoryStream:
    """The stream between a client and its connection in the broker. Written bytes are processed at
    once."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def sendall(self, data: bytes, /) -> None:
        self.connection.receive_data(data)

    def recv(self, _size: int, /) -> bytes:
        return self.connection.take_output()

    def close(self) -> None:
        self.connection.lost()


class MemoryClient(FrameClient):
    """A connection that has sent open and begin, and no token."""

    def __init__(
        self,
        broker: MemoryBroker,
        hostname: str,
        plain: tuple[str, str] | None = None,
        product: str | None = None,
    ) -> None:
        self.broker = broker
        self.hostname = hostname
        self.wake_at_ms: int | None = None
        self.heard: list[Frame] = []
        self.is_dropped = False
        """The broker has closed the socket without a close."""
        self.connection = Connection(
            ConnectionServices(
                enter=broker.enter,
                touch=lambda: None,
                wake_at=self._wake_at,
                identity=broker.access.identity,
                has_entity=broker.has_entity,
                now_ms=broker.access.now_ms,
                limits=broker.limits,
                container_id="broker",
                idle_timeout_ms=240_000,
                sources=system_sources(),
                memory=broker.memory,
                faults=broker.faults,
                drop=self._drop,
            )
        )
        super().__init__(MemoryStream(self.connection))
        self._handles = itertools.count()
        self.last_handle = 0
        self._coordinator = 0
        self._deliveries = itertools.count()
        self._nodes: dict[str, int] = {}
        properties: dict[Any, object] | None = None
        if product is not None:
            properties = {Symbol("product"): product}
        opening = amqp_frames.open_frame(hostname=hostname, properties=properties)
        start = amqp_frames.HEADER + opening + amqp_frames.begin_frame()
        if plain is not None:
            response = b"\0" + "\0".join(plain).encode()
            init = encode(Described(ULong(0x41), [Symbol("PLAIN"), response]))
            start = amqp_frames.SASL_HEADER + amqp_frames.raw_frame(init, kind=1) + start
        self.greeting = self.say(start)

    def _wake_at(self, at_ms: int) -> None:
        self.wake_at_ms = at_ms

    def _drop(self) -> None:
        """As the transport does: what was written before reaches the client."""
        self.listen()
        self.is_dropped = True
        self.connection.lost()

    def say(self, *data: bytes) -> list[Frame]:
        """Write bytes, each piece as one read of the broker, and return the frames of the
        answer."""
        for piece in data:
            self.write(piece)
        self.broker.run()
        return self.listen()

    def say_and_read_all(self, *data: bytes) -> list[Frame]:
        """Write bytes, and read until no more frames arrive. Reading may start requests that
        waited."""
        heard = self.say(*data)
        while more := self.say():
            heard += more
        return heard

    def listen(self) -> list[Frame]:
        """Return the frames that have arrived since the last call."""
        answer: list[Frame] = []
        with suppress(ConnectionEnded):  # there is nothing to read
            answer = [amqp_frames.frames(data)[0] for data in self.receive()]
        self.heard += answer
        return answer

    # --- links -----------------------------------------------------------------------------------

    def attach(self, build: Any, address: str, **options: Any) -> str | None:
        """Attach a link. Returns None if it is granted, or the error if it is refused."""
        self.last_handle = handle = next(self._handles)
        answer = self.say(build(f"link-{handle}", handle, address, **options))
        return next((error_of(frame) for frame in answer if frame.name == "detach"), None)

    def attach_sender(self, address: str, via: str | None = None) -> str | None:
        properties = None
        if via is not None:
            properties = {Symbol("com.microsoft:transfer-destination-address"): via}
        return self.attach(amqp_frames.attach_sender, address, properties=properties)

    def attach_receiver(self, address: str) -> str | None:
        return self.attach(amqp_frames.attach_receiver, address)

    # --- transactions ----------------------------------------------------------------------------

    def declare_transaction(self) -> bytes:
        """Declare a transaction on a new coordinator link. Returns its id."""
        assert self.attach(_attach_coordinator, "") is None
        self._coordinator = self.last_handle
        outcome = self._transact(amqp_frames.described(0x31))
        assert outcome.descriptor == 0x33, outcome
        (transaction_id,) = outcome.value
        assert isinstance(transaction_id, bytes)
        return transaction_id

    def declare_again(self) -> int:
        """Declare another transaction on the same link. Returns the code of the outcome."""
        return int(self._transact(amqp_frames.described(0x31)).descriptor)

    def send_in_transaction(self, transaction_id: bytes, message: bytes) -> int:
        """Send on the last attached link. Returns the code of the outcome."""
        state = amqp_frames.described(0x34, transaction_id)
        outcome = self._transfer(self.last_handle, message, state)
        assert outcome.descriptor == 0x34, outcome
        return int(outcome.value[1].descriptor)

    def commit(self, transaction_id: bytes) -> int:
        """Commit the transaction. Returns the code of the outcome."""
        return int(self._transact(amqp_frames.described(0x32, transaction_id, False)).descriptor)

    def _transact(self, request: Described) -> Any:
        return self._transfer(self._coordinator, section(VALUE, request))

    def _transfer(self, handle: int, payload: bytes, state: object = None) -> Any:
        sent = amqp_frames.transfer(next(self._deliveries), payload, handle=handle, state=state)
        (answer,) = [frame for frame in self.say(sent) if frame.name == "disposition"]
        return answer[4]

    # --- requests --------------------------------------------------------------------------------

    def ask(self, node: str, properties: dict[str, object], body: object) -> dict[str, Any]:
        """Send a request to a node. Returns the application properties of the answer. Raises
        `LinkRefused` if the links to the node are refused."""
        handle = self.reach(node)
        message = (
            section(PROPERTIES, ["id"])
            + section(APPLICATION_PROPERTIES, properties)
            + section(VALUE, body)
        )
        sent = amqp_frames.transfer(self.next_delivery(), message, handle=handle)
        (answer,) = [frame for frame in self.say(sent) if frame.name == "transfer"]
        return self.application_properties(answer)

    def reach(self, node: str, credit: int = 1000) -> int:
        """Attach a pair of links to a node. Returns the handle of the request link."""
        if node not in self._nodes:
            if refusal := self.attach_receiver(node):
                raise LinkRefused(refusal)
            self.say(amqp_frames.flow(credit, handle=self.last_handle))
            assert self.attach_sender(node) is None
            self._nodes[node] = self.last_handle
        return self._nodes[node]

    def next_delivery(self) -> int:
        """Returns a delivery id that was not used before."""
        return next(self._deliveries)

    @staticmethod
    def application_properties(answer: Frame) -> dict[str, Any]:
        """Returns the application properties of the message in a transfer."""
        properties = sections_of(answer.payload)[APPLICATION_PROPERTIES]
        return {str(name): value for name, value in properties.items()}

    def put_token(self, audience: str, token: str) -> tuple[int, str]:
        """Put a token. Returns the status and the description of the answer."""
        properties: dict[str, object] = {"operation": "put-token", "type": "jwt", "name": audience}
        answer = self.ask("$cbs", properties, token)
        return answer["status-code"], answer["status-description"]

    def delete_token(self, audience: str) -> int:
        answer = self.ask("$cbs", {"operation": "delete-token", "name": audience}, "")
        return int(answer["status-code"])

    def authenticate(
        self, path: str, key_name: str, key: str, lasting_ms: int = HOUR_MS
    ) -> tuple[int, str]:
        """Put a token for an entity, as an SDK does."""
        audience = f"sb://{self.hostname}/{path}"
        expires_at_s = (self.broker.clock.now_ms() + lasting_ms) // 1000
        return self.put_token(audience, sas.make(audience, key_name, key, expires_at_s))

    def manage(self, path: str, operation: str, body: dict[str, object]) -> tuple[int, str | None]:
        """Send a request to an entity's `$management`. Returns the status and the error
        condition."""
        answer = self.ask(f"{path}/$management", {"operation": operation}, body)
        return answer["statusCode"], answer.get("errorCondition")


def _attach_coordinator(name: str, handle: int, _address: str) -> bytes:
    return amqp_frames.attach_coordinator(handle, name)


def error_of(frame: Frame) -> str:
    """Returns the condition and the text of a detach or close."""
    error = frame[2] if frame.name == "detach" else frame[0]
    condition, description, info = error.value
    assert info, "one SDK hangs without an info map"
    return f"{condition}: {description}"
