"""Answers flows that Proton does not answer, and keeps flows that must wait for such an answer.

A drain is answered even if no credit is left, and before any later flow of the same link. A flow
with `echo` is answered with a flow. The link's handler decides whether a link is drained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cproton_ffi import lib

from protocol.amqp.frames.delivery_ids import SERIAL_MASK
from protocol.amqp.frames.output_frames import LinkFlow, with_link_flow

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.amqp.engine.endpoints import Endpoints
    from protocol.amqp.engine.interface import EngineLink, EngineSession
    from protocol.amqp.frames.incoming_sessions import IncomingSessions
    from protocol.amqp.frames.stream_pieces import FlowEcho


class FlowAnswers:
    """The flow answers that one connection still has to write."""

    def __init__(
        self, sessions: IncomingSessions, endpoints: Endpoints, output: list[bytes]
    ) -> None:
        self._sessions = sessions
        self._endpoints = endpoints
        self._output = output
        """The list to which Proton's output is appended."""
        self._drains: list[EngineLink] = []
        """Links whose drain is to be answered."""
        self._drained: list[EngineLink] = []
        """Links whose drain is answered with the next output."""
        self._echoes: list[FlowEcho] = []

    @property
    def is_due(self) -> bool:
        """Whether there is an answer to write."""
        return bool(self._drains or self._drained or self._echoes)

    def clear(self) -> None:
        """The connection is gone."""
        self._drains.clear()
        self._drained.clear()
        self._echoes.clear()

    def echo(self, wanted: FlowEcho) -> None:
        """Answer a flow."""
        self._echoes.append(wanted)

    def drained(self, link: EngineLink) -> None:
        """Returns the unused credit of a link, after the deliveries that Proton has queued."""
        if not lib.pn_link_queued(link.pointer) and self._give_back(link):
            self._drained.append(link)
        elif link not in self._drains:
            self._drains.append(link)

    @staticmethod
    def _give_back(link: EngineLink) -> bool:
        """Has Proton return the credit with its next output. Returns False if there is none.

        Credit is negative if the client took some back while messages were on their way. Proton would give back that
        many, too: it would count deliveries backwards, and the client would get too many messages later. If deliveries
        are queued, Proton would forget to write the flow when they are sent."""
        has_credit: bool = lib.pn_link_credit(link.pointer) > 0
        if has_credit:
            link.drained += lib.pn_link_drained(link.pointer)
        return has_credit

    def write(self, pump: Callable[[], object]) -> None:
        """Writes all answers. `pump` moves the bytes that Proton has written to the output."""
        drains = self._drains.copy()
        self._drains.clear()
        for link in drains:
            if link.closed:
                continue
            if link.queued:
                self._drains.append(link)  # deliveries that were sent before must be written before
                continue
            if self._give_back(link):
                pump()
            else:
                state = LinkFlow(link.handle, _delivery_count(link), 0, drain=True)
                self._write_flow(pump, link.session, link.channel, state)
            self._drained.append(link)
        echoes = self._echoes.copy()
        self._echoes.clear()
        for incoming, incoming_link in echoes:
            if incoming.discards or self._sessions.by_channel.get(incoming.channel) is not incoming:
                continue
            session = self._endpoints.session_of(incoming)
            echoed = None if incoming_link is None else self._endpoints.link_of(incoming_link)
            if echoed is not None and echoed.is_attached:
                self._write_flow(pump, echoed.session, echoed.channel, _state_of(echoed))
            elif session is not None:
                self._write_flow(pump, session)

    def resume(self, push: Callable[[bytes], bool]) -> bool:
        """Process the flows that came after drains which are answered now; false if there are none.
        `push` gives a frame to Proton, and returns false if the connection ended with it."""
        answered = self._drained.copy()
        self._drained.clear()
        resumed = False
        for link in answered:
            if link.closed:
                continue
            incoming = link.incoming
            incoming.drain_waits = False
            while incoming.deferred_flows and not incoming.drain_waits:
                flow, incoming.drain_waits = incoming.deferred_flows.pop(0)
                resumed = True
                if not push(flow):
                    return False
        return resumed

    def _write_flow(
        self,
        pump: Callable[[], object],
        session: EngineSession,
        channel: int = 0,
        state: LinkFlow | None = None,
    ) -> None:
        """Writes a flow. Setting a session's capacity makes Proton write one, to which the link's fields are added."""
        capacity = lib.pn_session_get_incoming_capacity(session.pointer)
        written = len(self._output)
        lib.pn_session_set_incoming_capacity(session.pointer, capacity)
        pump()
        if state is not None:
            output = b"".join(self._output[written:])
            self._output[written:] = [with_link_flow(output, channel, state)]


def _state_of(link: EngineLink) -> LinkFlow:
    """The state of a link's credit that a flow reports."""
    credit = lib.pn_link_credit(link.pointer)
    queued = lib.pn_link_queued(link.pointer)
    if link.is_receiver:
        link.drained += lib.pn_link_drained(link.pointer)  # credit that the client returned
        count = link.incoming.initial_delivery_count + link.received + link.drained
        return LinkFlow(link.handle, count & SERIAL_MASK, max(0, credit - queued))
    return LinkFlow(link.handle, _delivery_count(link), max(0, credit + queued))


def _delivery_count(link: EngineLink) -> int:
    """The delivery count of a link on which the broker sends. Deliveries that Proton has queued are not sent yet."""
    queued: int = lib.pn_link_queued(link.pointer)
    return (link.sent - queued + link.drained) & SERIAL_MASK
