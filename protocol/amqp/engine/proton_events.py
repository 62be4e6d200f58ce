"""Handles the events that Proton makes of a client's bytes, and calls the handler for them.

Owns the sessions and links of a connection from begin and attach to end and detach, and closes the connection for a
violation of the protocol. `Engine` owns what the broker does on a link. Every Proton object that a client causes is
freed when both sides have ended it. The handler is not called after the socket is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cproton_ffi import lib

from protocol.amqp.engine.attach import decoded_map, read_attach, write_refusal
from protocol.amqp.engine.incoming_transfers import (
    WRONG_WAY,
    IncomingTransfers,
    memory_violation,
)
from protocol.amqp.engine.interface import EngineLink, EngineSession
from protocol.amqp.engine.outcomes import (
    PLAIN_OUTCOMES,
    WireError,
    read_state,
    set_condition,
    set_info,
    text,
)
from protocol.amqp.engine.states import ConnectionEvent, LinkEvent, LinkState
from protocol.amqp.frames.incoming_sessions import ProtocolViolation
from protocol.amqp.held_memory import SESSION_BYTES, link_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.amqp.engine.attach import Attach
    from protocol.amqp.engine.endpoints import Endpoints
    from protocol.amqp.engine.interface import EngineHandler
    from protocol.amqp.engine.proton_connection import Proton
    from protocol.amqp.engine.states import ConnectionLifecycle
    from protocol.amqp.frames.incoming_sessions import IncomingSessions
    from protocol.amqp.frames.sent_deliveries import OutcomeGroup
    from protocol.amqp.frames.stream_pieces import Outcomes
    from protocol.amqp.held_memory import HeldMemory

_OPENED_TWICE = ProtocolViolation("amqp:not-allowed", "The connection has been opened before.")
IDLE_TIMEOUT_MIN_MS = 500
"""The shortest idle timeout of a client. An empty frame is sent at a quarter of it, and many clients with shorter ones would
use the whole processor. Microsoft's AMQP library takes 5 s or more; Proton's clients with a heartbeat of 1 s announce 500 ms."""
_NOT_OPEN = ProtocolViolation("amqp:not-allowed", "A session was begun before the open.")
_TOO_MANY_LINKS = ProtocolViolation(
    "amqp:resource-limit-exceeded",
    "Too many links are attached, or refused and not yet detached by the client.",
)
_UNREADABLE = ProtocolViolation("amqp:decode-error", "A frame could not be decoded.")

_peek_event = lib.pn_collector_peek
_pop_event = lib.pn_collector_pop
_event_type = lib.pn_event_type


class ProtonEvents:
    """Handles the events of one connection."""

    def __init__(
        self,
        proton: Proton,
        handler: EngineHandler,
        sessions: IncomingSessions,
        endpoints: Endpoints,
        lifecycle: ConnectionLifecycle,
        *,
        container_id: str,
        max_message_size_bytes: int,
        memory: HeldMemory,
        links_max: int,
    ) -> None:
        self._lifecycle = lifecycle
        self.running = False
        """Events are being handled. Not a state of the connection: a handler may call the engine, which must
        not handle events a second time."""
        self._is_azure_sdk = False
        """The client named its product, as Azure's own SDKs do. Known from its open on."""
        self._proton = proton
        self._handler = handler
        self._error_info = {"container-id": container_id}
        # Proton closes a connection that it finds broken by itself, and puts this into the close.
        set_info(lib.pn_transport_condition(proton.transport), self._error_info)
        self._incoming = sessions
        self._memory = memory
        self._links_max = links_max
        self._arrivals = IncomingTransfers(
            proton.collector, handler, sessions, max_message_size_bytes, memory
        )
        self._endpoints = endpoints
        self._links = endpoints.links
        self._sessions = endpoints.sessions
        self._dead_links: list[Any] = []
        self._dead_sessions: list[Any] = []

    def run(self, *, batch: bool = False, local: bool = False) -> None:
        """Handles all events. `batch`: the transfers are batches of messages. `local`: the events were caused by
        the broker's own output."""
        if self.running:
            return
        self.running = True
        try:
            self._run(batch=batch, local=local)
        finally:
            self.running = False

    def _run(self, *, batch: bool, local: bool) -> None:
        collector = self._proton.collector
        arrivals = self._arrivals
        lifecycle = self._lifecycle
        while not lifecycle.is_lost and (event := _peek_event(collector)):
            event_type = _event_type(event)
            if event_type == lib.PN_DELIVERY:
                link = self._links.get(lib.pn_event_link(event))
                if link is None or lifecycle.is_failed:
                    _pop_event(collector)
                else:
                    violation: ProtocolViolation | None = WRONG_WAY
                    if link.is_receiver:
                        violation = arrivals.take_transfers(link, batch=batch)
                    else:
                        _pop_event(collector)
                    if violation is not None:
                        self.close_for_violation(violation)
            elif event_type == lib.PN_LINK_FLOW:
                pointer = lib.pn_event_link(event)
                _pop_event(collector)
                self._flowed(pointer, local=local)
            elif event_type in self._ACTIONS:
                context_of, act = self._ACTIONS[event_type]
                context = context_of(event)
                # Before the action, so that an exception in the handler does not repeat the event.
                _pop_event(collector)
                act(self, context)
            else:
                _pop_event(collector)

    def report_outcomes(self, action: Outcomes) -> None:
        """Calls the handler for the outcomes that a client sent."""
        self.running = True
        try:
            for deliveries, numbers, code, settled in _joined(action.groups):
                if self._lifecycle.is_lost or self._lifecycle.is_failed:
                    break
                outcome = PLAIN_OUTCOMES[code] if code else read_state(action.state)
                link = self._endpoints.link_with(deliveries)
                self._arrivals.report_outcomes(link, numbers, outcome, settled)
        finally:
            self.running = False

    def detach_links(self) -> None:
        """Marks all links as detaching, because the connection ends."""
        for link in self._links.values():
            if not link.closed:
                link.apply(LinkEvent.DETACH)

    def free_links(self) -> int:
        """Forgets all links, because the socket is gone. The handler is not called for them. Returns how many sessions,
        links and deliveries there were."""
        object_count = len(self._endpoints.sessions) + len(self._dead_links)
        for link in self._links.values():
            object_count += 1 + len(link.received_deliveries) + len(link.unconfirmed or ())
            link.free()
        self._endpoints.clear()
        return object_count

    @property
    def has_ended(self) -> bool:
        """Whether there are links or sessions that both sides have ended and that are not freed yet."""
        return bool(self._dead_links or self._dead_sessions)

    def free_ended(self) -> None:
        """Frees links and sessions that both sides have ended, after the answer was written. Proton then writes
        dispositions that settle the open deliveries of a link; the caller must drop these."""
        for pointer in self._dead_links:
            lib.pn_link_free(pointer)
        for pointer in self._dead_sessions:
            lib.pn_session_free(pointer)
        self._dead_links.clear()
        self._dead_sessions.clear()

    def _flowed(self, pointer: Any, *, local: bool) -> None:
        link = self._links.get(pointer)
        if link is None or link.is_receiver or not link.is_attached:
            return
        if local:
            # Proton reports a flow whenever it has written a transfer. Only a link that waits needs it.
            waiting = self._endpoints.waiting_for_window
            if link not in waiting or link.queued:
                return
            waiting.remove(link)
        self._handler.on_flow(link)

    # --- connection and sessions -----------------------------------------------------------------

    def _opened(self, connection: Any) -> None:
        if self._lifecycle.is_ending:
            return
        if self._lifecycle.is_past_open:
            self.close_for_violation(_OPENED_TWICE)
            return
        self._lifecycle.apply(ConnectionEvent.OPEN_RECEIVED)
        properties = decoded_map(lib.pn_connection_remote_properties(connection))
        self._is_azure_sdk = "product" in properties
        idle_timeout_ms = lib.pn_transport_get_remote_idle_timeout(self._proton.transport)
        if 0 < idle_timeout_ms < IDLE_TIMEOUT_MIN_MS:
            sentence = f"An idle timeout of {idle_timeout_ms} ms is too short. The shortest is {IDLE_TIMEOUT_MIN_MS} ms."
            self.close_for_violation(ProtocolViolation("amqp:not-allowed", sentence))
            return
        lib.pn_connection_open(connection)
        self._handler.on_open(
            text(lib.pn_connection_remote_hostname(connection)) or "",
            text(lib.pn_connection_remote_container(connection)) or "",
            properties,
        )

    def _closed(self, connection: Any) -> None:
        was_ending = self._lifecycle.is_ending
        self._lifecycle.apply(ConnectionEvent.CLOSE_RECEIVED)
        if not was_ending:
            self.detach_links()
            self._handler.on_close()
        lib.pn_connection_close(connection)

    def _session_begun(self, pointer: Any) -> None:
        self._endpoints.add_session(EngineSession(pointer, self._incoming.begun.popleft()))
        if not self._lifecycle.is_past_open:
            self.close_for_violation(_NOT_OPEN)
            return
        lib.pn_session_open(pointer)
        if not (self._lifecycle.is_ending or self._memory.hold(SESSION_BYTES)):
            self.close_for_violation(memory_violation(self._memory))

    def _session_ended(self, pointer: Any) -> None:
        self._drop_links(self._sessions[pointer])
        self._endpoints.remove_session(pointer)
        self._memory.release(SESSION_BYTES)
        lib.pn_session_close(pointer)
        self._dead_sessions.append(pointer)

    def fail_session(self, session: EngineSession, violation: ProtocolViolation) -> None:
        """Ends a session because the client violated the protocol in it. The connection continues."""
        if self._lifecycle.is_ending:
            return
        error = WireError(*violation, self._error_info)
        condition = lib.pn_session_condition(session.pointer)
        set_condition(condition, error, self._proton.frame_max_bytes)
        lib.pn_session_close(session.pointer)
        self._drop_links(session)
        self._handler.on_session_error(*violation)

    def _drop_links(self, session: EngineSession) -> None:
        """Removes the links of a session that has ended."""
        links = [link for link in session.links if not link.closed]
        ended_by_us = [
            link for link in session.links if link.closed and not self._lifecycle.is_ending
        ]
        for link in list(session.links):
            self._endpoints.remove_link(link)
            self._release(link)
        if links:
            self._handler.on_session_end(links)
        for link in ended_by_us:
            self._handler.on_detach_confirmed(link)

    # --- links -----------------------------------------------------------------------------------

    def _link_attached(self, pointer: Any) -> None:
        session = self._sessions[lib.pn_link_session(pointer)]
        attach = read_attach(pointer)
        link = EngineLink(pointer, session, attach, self._incoming.attached.popleft())
        self._endpoints.add_link(link)
        if self._settles_second(attach):
            link.unconfirmed = {}
        if self._lifecycle.is_ending:
            link.apply(LinkEvent.DETACH)
            return
        if len(self._links) > self._links_max:
            self.close_for_violation(_TOO_MANY_LINKS)
            return
        link.held_bytes = link_bytes(link.incoming.attach_bytes)
        if self._memory.hold(link.held_bytes):
            self._handler.on_attach(link, attach)
        else:
            self.close_for_violation(memory_violation(self._memory))

    def _release(self, link: EngineLink) -> None:
        """Frees a link and the delivery that was not complete on it."""
        self._arrivals.forget(link)
        link.free()
        self._memory.release(link.held_bytes)
        link.held_bytes = 0

    def _settles_second(self, attach: Attach) -> bool:
        """Whether the broker settles the deliveries of this link only after the client has (mode `second`).

        The service settles at once and answers with mode `first`. Azure's Python SDKs ask for `second` but wait
        for the broker to settle, so they get the service's answer. go-amqp fails if `second` is not granted.
        """
        asked = attach.is_receiver and attach.rcv_settle_mode == lib.PN_RCV_SECOND
        return asked and not self._is_azure_sdk and not attach.target_is_coordinator

    def _link_closed(self, pointer: Any) -> None:
        self._remote_link_ended(pointer, closed=True)

    def _link_detached(self, pointer: Any) -> None:
        self._remote_link_ended(pointer, closed=False)

    def _remote_link_ended(self, pointer: Any, *, closed: bool) -> None:
        link = self._links[pointer]
        self._endpoints.remove_link(link)
        ended_by_us, is_requested = link.closed, link.state is LinkState.REQUESTED
        self._release(link)
        if not ended_by_us:
            if is_requested:
                write_refusal(pointer)
                lib.pn_link_open(pointer)
            self._handler.on_detach(link, closed)
            (lib.pn_link_close if closed else lib.pn_link_detach)(pointer)
        elif not self._lifecycle.is_ending:
            self._handler.on_detach_confirmed(link)
        self._dead_links.append(pointer)

    def detach_replaced_link(self, link: EngineLink) -> None:
        """Detaches a link whose name the client has attached again (AMQP 1.0 §2.6.1, link stealing). A detach in
        the name of the client follows in the input that Proton gets."""
        if link.closed:
            return
        if link.sent and not link.is_receiver:
            self._incoming.ended_with_deliveries = True
        self._handler.on_detach(link, True)
        if link.state is LinkState.REQUESTED:
            write_refusal(link.pointer)
            lib.pn_link_open(link.pointer)
        error = WireError(
            "amqp:link:stolen", f"Another link is named {link.name!r}.", self._error_info
        )
        condition = lib.pn_link_condition(link.pointer)
        set_condition(condition, error, self._proton.frame_max_bytes)
        link.apply(LinkEvent.DETACH)
        lib.pn_link_close(link.pointer)

    # --- transactions ------------------------------------------------------------------------------

    def report_lost_part(self, transaction_id: bytes) -> None:
        """Reports that a message or an outcome of a transaction cannot be processed."""
        if not self._lifecycle.is_ending:
            self._handler.on_transaction_part_lost(transaction_id)

    # --- violations of the protocol -------------------------------------------------------------------------

    def _transport_failed(self, transport: Any) -> None:
        condition = lib.pn_transport_condition(transport)
        name = text(lib.pn_condition_get_name(condition)) or "amqp:internal-error"
        description = text(lib.pn_condition_get_description(condition)) or ""
        self._fail(ProtocolViolation(name, description))

    def _tail_closed(self, _: Any) -> None:
        """Proton reads no more bytes. It reports the reason, except for a performative that it does not know."""
        if self._lifecycle.client_may_send:
            self.close_for_violation(_UNREADABLE)

    def close_for_violation(self, violation: ProtocolViolation) -> None:
        """Closes the connection for a violation that Proton did not find itself."""
        if not self._lifecycle.is_failed:
            connection = self._proton.connection
            error = WireError(*violation, self._error_info)
            condition = lib.pn_connection_condition(connection)
            set_condition(condition, error, self._proton.frame_max_bytes)
            lib.pn_connection_open(connection)
            lib.pn_connection_close(connection)
            self._fail(violation)

    def _fail(self, violation: ProtocolViolation) -> None:
        if not self._lifecycle.is_failed:
            self._lifecycle.apply(ConnectionEvent.FAIL)
            self.detach_links()
            self._handler.on_transport_error(*violation)

    _ACTIONS: ClassVar[
        dict[int, tuple[Callable[[Any], Any], Callable[[ProtonEvents, Any], None]]]
    ] = {
        lib.PN_CONNECTION_REMOTE_OPEN: (lib.pn_event_connection, _opened),
        lib.PN_CONNECTION_REMOTE_CLOSE: (lib.pn_event_connection, _closed),
        lib.PN_SESSION_REMOTE_OPEN: (lib.pn_event_session, _session_begun),
        lib.PN_SESSION_REMOTE_CLOSE: (lib.pn_event_session, _session_ended),
        lib.PN_LINK_REMOTE_OPEN: (lib.pn_event_link, _link_attached),
        lib.PN_LINK_REMOTE_CLOSE: (lib.pn_event_link, _link_closed),
        lib.PN_LINK_REMOTE_DETACH: (lib.pn_event_link, _link_detached),
        lib.PN_TRANSPORT_ERROR: (lib.pn_event_transport, _transport_failed),
        lib.PN_TRANSPORT_TAIL_CLOSED: (lib.pn_event_transport, _tail_closed),
    }


EVENTS = bytes((lib.PN_DELIVERY, *ProtonEvents._ACTIONS))  # noqa: SLF001 -- the table of this module
"""The types of events for which something is done."""
EVENTS_WITH_FLOWS = bytes((lib.PN_LINK_FLOW, *EVENTS))
"""The same if a link waits for the session window."""
ALL_EVENTS = bytes(range(256))


def _joined(groups: list[OutcomeGroup]) -> list[OutcomeGroup]:
    """Returns the groups of outcomes with equal neighbours joined: each disposition made one of its own."""
    if len(groups) < 2:
        return groups
    joined = groups[:1]
    for group in groups[1:]:
        deliveries, numbers, code, settled = joined[-1]
        if group[0] is deliveries and group[2:] == (code, settled):
            numbers += group[1]
        else:
            joined.append(group)
    return joined
