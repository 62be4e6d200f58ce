"""The Proton engine of one connection: bytes in, calls of a handler, bytes out.

Owns what the broker does on a connection and its links. `ProtonEvents` owns what the client does; `links` and `nodes`
own what a link is for. No input of a client raises. Memory that Proton has freed is never used: a link has a state,
and a delivery is only used through its link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cproton_ffi import lib

from protocol.amqp.engine import deliveries
from protocol.amqp.engine.attach import Attach, FilterValue, write_attach, write_refusal
from protocol.amqp.engine.endpoints import Endpoints
from protocol.amqp.engine.flow_answers import FlowAnswers
from protocol.amqp.engine.interface import (
    PLAIN,
    Delivery,
    EngineHandler,
    EngineLink,
    EngineSession,
    TransferKind,
)
from protocol.amqp.engine.outcomes import (
    ACCEPTED,
    RELEASED,
    Outcome,
    WireError,
    rejected,
    set_condition,
)
from protocol.amqp.engine.proton_connection import create_proton, free_proton
from protocol.amqp.engine.proton_events import (
    ALL_EVENTS,
    EVENTS,
    EVENTS_WITH_FLOWS,
    ProtonEvents,
)
from protocol.amqp.engine.proton_functions import address_of
from protocol.amqp.engine.states import (
    ConnectionEvent,
    ConnectionLifecycle,
    LinkEvent,
    LinkState,
)
from protocol.amqp.frames.frame_scan import FrameScan
from protocol.amqp.frames.incoming_sessions import IncomingSessions
from protocol.amqp.frames.output_frames import (
    last_attach,
    with_client_ids,
    without_bare_settlements,
)
from protocol.amqp.frames.stream_pieces import (
    EndSession,
    FlowEcho,
    InputBytes,
    LostTransactionPart,
    Outcomes,
    ReplacedLink,
    WriteOutput,
)
from protocol.amqp.held_memory import unshared_memory
from protocol.native import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocol.amqp.frames.stream_pieces import InputAction
    from protocol.amqp.held_memory import HeldMemory

__all__ = [
    "ACCEPTED",
    "PLAIN",
    "RELEASED",
    "Attach",
    "Delivery",
    "Engine",
    "EngineHandler",
    "EngineLink",
    "EngineSession",
    "FilterValue",
    "Outcome",
    "TransferKind",
    "WireError",
]


_push = lib.pn_transport_push
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"


class Engine:
    """One connection's Proton engine, without its IO and SASL."""

    def __init__(
        self,
        handler: EngineHandler,
        *,
        container_id: str,
        max_frame_size_bytes: int = 65_536,
        channel_max: int = 8_191,
        idle_timeout_ms: int = 240_000,
        max_message_size_bytes: int = 100 * 1024 * 1024,
        memory: HeldMemory | None = None,
        links_max: int = 10_000,
        lifecycle: ConnectionLifecycle | None = None,
    ) -> None:
        self._lifecycle = lifecycle or ConnectionLifecycle()
        self._output_ended = False
        """Proton has written its close and will write nothing more. Proton decides this, so it is not in the
        table of states."""
        self._object_count = 0
        """How many links and deliveries there were when the socket was lost."""
        self._sessions = IncomingSessions()
        self._scan = FrameScan(max_frame_size_bytes, self._sessions)
        self._output: list[bytes] = []
        self._endpoints = Endpoints()
        self._flows = FlowAnswers(self._sessions, self._endpoints, self._output)
        self._proton = create_proton(
            container_id=container_id,
            max_frame_size_bytes=max_frame_size_bytes,
            channel_max=channel_max,
            idle_timeout_ms=idle_timeout_ms,
        )
        self._transport = self._proton.transport
        self._transport_address = address_of(self._transport)
        self._collector_address = address_of(self._proton.collector)
        self._skipped_input = False
        """The client has sent frames that Proton has not got. Proton must know that the client is not idle."""
        self._dispatch = ProtonEvents(
            self._proton,
            handler,
            self._sessions,
            self._endpoints,
            self._lifecycle,
            container_id=container_id,
            max_message_size_bytes=max_message_size_bytes,
            memory=memory or unshared_memory(),
            links_max=links_max,
        )

    # --- bytes ---------------------------------------------------------------------------------

    def feed(self, data: bytes) -> bool:
        """Takes bytes that follow the SASL layer, from the AMQP header on. Returns False if they cause no output now:
        they were only outcomes, and whoever answers these calls `touch`."""
        lifecycle = self._lifecycle
        only_outcomes = True
        for piece in self._scan.split(data):
            if lifecycle.is_lost or lifecycle.is_failed:
                return True
            if isinstance(piece, InputBytes):
                only_outcomes = False
                self._push(piece.data)
                self._handle_events(batch=piece.batch)
            elif isinstance(piece, Outcomes):
                self._skipped_input = True
                self._report_outcomes(piece)
            else:
                only_outcomes = False
                self._perform(piece)
        return not only_outcomes or bool(self._output)

    def _report_outcomes(self, action: Outcomes) -> None:
        try:
            self._dispatch.report_outcomes(action)
        finally:
            if self._lifecycle.is_lost:
                self._free()

    def _perform(self, action: InputAction) -> None:
        """Performs an action that Proton would not perform, or would perform differently."""
        dispatch = self._dispatch
        if isinstance(action, FlowEcho):
            self._flows.echo(action)
        elif isinstance(action, EndSession):
            session = self._endpoints.session_of(action.session)
            if session is not None:
                self._pump()  # while its links are known
                dispatch.fail_session(session, action.violation)
        elif isinstance(action, ReplacedLink):
            link = self._endpoints.link_of(action.link)
            if link is not None:
                dispatch.detach_replaced_link(link)
                self._pump()  # before the new link's attach
        elif isinstance(action, WriteOutput):
            self._pump()
        elif isinstance(action, LostTransactionPart):
            dispatch.report_lost_part(action.transaction_id)
        else:
            dispatch.close_for_violation(action.violation)

    @property
    def finished(self) -> bool:
        """Whether the socket can be closed once the output is written."""
        lifecycle = self._lifecycle
        return self._output_ended or lifecycle.is_failed or lifecycle.is_lost

    @property
    def incomplete_input(self) -> bytes:
        """The beginning of a frame of which the rest has not arrived."""
        return self._scan.incomplete_input

    def take_output(self) -> bytes:
        """Returns all bytes that are to be written."""
        self._collect_output()
        if self._flows.is_due:
            self._answer_flows()
        if not self._lifecycle.is_lost and self._dispatch.has_ended:
            self._free_ended()
        output = self._output
        if not output:
            data = b""
        else:
            data = output[0] if len(output) == 1 else b"".join(output)
            output.clear()
        sessions = self._sessions
        if sessions.watches_output:
            data = with_client_ids(data, sessions)
        if sessions.settled_later:
            sessions.output_taken()
        return data

    def _answer_flows(self) -> None:
        """Writes the answers to flows, and handles the flows that waited for them."""
        while self._flows.is_due and not self._lifecycle.is_lost:
            self._flows.write(self._pump)
            if self._dispatch.running or not self._flows.resume(self._take_frame):
                break
            self._collect_output()

    def _take_frame(self, frame: bytes) -> bool:
        """Pushes a frame that was deferred. Returns False if the connection was lost meanwhile."""
        self._push(frame)
        self._handle_events()
        return not self._lifecycle.is_lost

    def _collect_output(self) -> None:
        """Moves all output of Proton to the output, and handles the events that this causes."""
        while not self._lifecycle.is_lost:
            if self._dispatch.running:
                self._pump()
                break
            waits = self._endpoints.waiting_for_window
            if not self._pump(EVENTS_WITH_FLOWS if waits else EVENTS):
                break
            self._handle_events(local=True)

    def tick(self, now_ms: int) -> int:
        """Checks both idle timeouts. Returns when to call again, or 0 for never."""
        if self._lifecycle.is_lost:
            return 0
        transport = self._proton.transport
        if self._skipped_input:
            self._skipped_input = False
            self._push(EMPTY_FRAME)
        deadline_ms: int = lib.pn_transport_tick(transport, now_ms)
        remote_idle_timeout_ms: int = lib.pn_transport_get_remote_idle_timeout(transport)
        self._handle_events(local=True)
        if remote_idle_timeout_ms:
            # Proton sends a heartbeat only when it is ticked. At the deadline that it names, a
            # heartbeat could be late by up to the whole idle timeout of the client.
            deadline_ms = min(deadline_ms, now_ms + max(1, remote_idle_timeout_ms // 4))
        return deadline_ms

    def connection_lost(self) -> None:
        """Frees everything, because the socket is gone. The handler is not called any more."""
        if not self._lifecycle.is_lost:
            self._lifecycle.apply(ConnectionEvent.SOCKET_LOST)
            self._output.clear()
            self._flows.clear()
            self._object_count = self._dispatch.free_links()
            if not self._dispatch.running:
                self._free()

    def _handle_events(self, *, batch: bool = False, local: bool = False) -> None:
        try:
            self._dispatch.run(batch=batch, local=local)
        finally:
            if self._lifecycle.is_lost and not self._dispatch.running:
                self._free()

    def _free(self) -> None:
        free_proton(self._proton, self._object_count)
        del self._transport_address
        del self._dispatch  # breaks a reference cycle through the handler

    def _push(self, piece: bytes) -> None:
        """Passes bytes to Proton, until it takes no more."""
        taken = _push(self._transport, piece, len(piece))
        while 0 < taken < len(piece):
            piece = piece[taken:]
            taken = _push(self._transport, piece, len(piece))

    def _pump(self, handled: bytes = ALL_EVENTS) -> bool:
        """Moves the bytes that Proton has written to the output. Removes the first events if nothing is done for them,
        because Proton makes some for every output. Returns whether there is another event."""
        senders = self._endpoints.senders
        written, ended, sent, has_events = compiled.pump(
            self._transport_address, senders, self._collector_address, handled
        )
        if written:
            self._output.append(written)
        for key, first_id, last_id in sent:
            senders[key].record(first_id, last_id)
        if ended and not self._lifecycle.client_may_send:
            self._output_ended = True
        return has_events

    def _free_ended(self) -> None:
        """Frees links and sessions that both sides have ended. Everything else has been written, so Proton now
        writes only dispositions of their deliveries, which are dropped: the client must not get them."""
        written = len(self._output)
        self._dispatch.free_ended()
        self._pump()
        output = b"".join(self._output[written:])
        self._output[written:] = [without_bare_settlements(output)]

    # --- links ---------------------------------------------------------------------------------

    def attach(
        self,
        link: EngineLink,
        *,
        max_message_size_bytes: int = 0,
        properties: Mapping[str, bytes] | None = None,
        filter: bytes | None = None,  # noqa: A002 -- the name it has in AMQP
        credit: int = 0,
        dynamic_address: str | None = None,
    ) -> None:
        """Grants a link. `properties` are encoded values by symbol, `filter` is the encoded map of the filters
        in force, and `credit` is what the client gets if it sends on the link."""
        if link.state is not LinkState.REQUESTED:
            return
        link.apply(LinkEvent.GRANT)
        write_attach(
            link.pointer,
            may_be_second=link.unconfirmed is not None or not link.is_receiver,
            max_message_size_bytes=max_message_size_bytes,
            properties=properties,
            filter_map=filter,
            dynamic_address=dynamic_address,
        )
        self._open_link(link)
        if link.is_receiver:
            lib.pn_link_flow(link.pointer, credit)

    def _open_link(self, link: EngineLink) -> None:
        """Opens a link and reads its handle from the output, because Proton has no function that returns it:
        if everything else has been written before, the output ends with this link's attach."""
        self._pump()
        written = len(self._output)
        lib.pn_link_open(link.pointer)
        self._pump()
        place = last_attach(b"".join(self._output[written:]))
        if place is not None:
            link.channel, link.handle = place

    def refuse(self, link: EngineLink, error: WireError) -> None:
        """Refuses a link: an attach with null source and target, then a detach with the error."""
        if link.state is LinkState.REQUESTED:
            self.detach(link, error)

    def detach(self, link: EngineLink, error: WireError | None, *, closed: bool = True) -> None:
        """Detaches a link. The handler gets nothing more of it, except `on_detach_confirmed`."""
        if link.closed:
            return
        if link.state is LinkState.REQUESTED:
            write_refusal(link.pointer)
            lib.pn_link_open(link.pointer)
        if error is not None:
            condition = lib.pn_link_condition(link.pointer)
            set_condition(condition, error, self._proton.frame_max_bytes)
        if link.sent and not link.is_receiver:
            self._sessions.ended_with_deliveries = True
        link.apply(LinkEvent.DETACH)
        (lib.pn_link_close if closed else lib.pn_link_detach)(link.pointer)

    def close(self, error: WireError | None) -> None:
        """Closes the connection. It is `finished` when the client has answered."""
        if self._lifecycle.is_ending:
            return
        self._lifecycle.apply(ConnectionEvent.CLOSE_SENT)
        self._dispatch.detach_links()
        connection = self._proton.connection
        if error is not None:
            condition = lib.pn_connection_condition(connection)
            set_condition(condition, error, self._proton.frame_max_bytes)
        lib.pn_connection_open(connection)
        lib.pn_connection_close(connection)

    def grant(self, link: EngineLink, credit: int) -> None:
        """Gives a client credit for so many more messages."""
        if link.is_attached:
            lib.pn_link_flow(link.pointer, credit)

    def credit(self, link: EngineLink) -> int:
        """Returns the link credit of the side that sends. It is negative if the client sent too much."""
        return 0 if link.closed else int(lib.pn_link_credit(link.pointer))

    def queued(self, link: EngineLink) -> int:
        """Returns how many deliveries Proton has queued because the session window is full. While there are any,
        the caller must not send. `on_flow` is called when they are sent."""
        if link.closed:
            return 0
        count = link.queued
        if count:
            self._endpoints.waiting_for_window.add(link)
        return count

    def draining(self, link: EngineLink) -> bool:
        """Whether the client drains the link: unused credit is to be returned."""
        return not link.closed and bool(lib.pn_link_get_drain(link.pointer))

    def drained(self, link: EngineLink) -> None:
        """Returns the unused credit of a link to a client that drains it."""
        if self.draining(link):
            self._flows.drained(link)

    # --- deliveries ----------------------------------------------------------------------------

    def send(
        self,
        link: EngineLink,
        tags: list[bytes],
        heads: list[bytes],
        bodies: list[bytes],
        settled: bool,  # noqa: FBT001 -- as in the transfer itself
    ) -> list[Delivery]:
        """Sends messages, each of two parts. Returns the deliveries that the client has to settle: none if
        `settled`, because then they are settled as they are sent. `settled` is the same in all calls with a link."""
        return deliveries.send(
            link, tags, heads, bodies, settled, self._endpoints, self._pump, self._proton
        )

    def settle(
        self, link: EngineLink, settled: Sequence[Delivery], outcome: Outcome | None
    ) -> None:
        """Settles deliveries, sent or received, with or without an outcome. Deliveries in the order in which they
        came are settled as ranges. Deliveries that have been settled before are skipped."""
        deliveries.settle(link, settled, outcome, self._output)

    def update(self, link: EngineLink, updated: Sequence[Delivery], outcome: Outcome) -> None:
        """Sets the state of sent deliveries without settling them."""
        deliveries.update(link, updated, outcome, self._output)

    def settle_refused(
        self, link: EngineLink, refused: Sequence[Delivery], error: WireError
    ) -> None:
        """Settles deliveries as rejected with an error, which every client understands as a failure."""
        outcome = rejected(error, self._proton.frame_max_bytes)
        deliveries.settle(link, refused, outcome, self._output)
