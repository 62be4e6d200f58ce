"""The states of a connection and of a link, and every transition between them.

An event that a table does not allow raises `IllegalTransition` and changes nothing: it is a bug of the broker.
What a client may do wrong is checked before an event is applied, and is answered with an error.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from protocol.internal_error import InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping


class IllegalTransition(InternalError):
    """The table of a state machine has no entry for an event in the present state."""


# --- connections -------------------------------------------------------------------------------


class ConnectionState(Enum):
    """How far a connection has got."""

    SASL = "sasl"
    """The client has not finished the SASL layer."""
    AWAITING_OPEN = "awaiting open"
    OPEN = "open"
    CLOSE_SENT = "close sent"
    """The broker has closed the connection, and the client has not answered."""
    CLOSED = "closed"
    """The client has closed the connection, or has answered the broker's close."""
    FAILED = "failed"
    """SASL failed, the client broke the protocol, or the broker does not wait for the client's close. Nothing
    that the client sends is read any more. The socket is closed once the output is written."""
    FAILED_AND_CLOSED = "failed and closed"
    """As FAILED, and the client has closed the connection as well: it sends nothing more."""
    LOST = "lost"
    """The socket is gone."""


class ConnectionEvent(Enum):
    """What changes the state of a connection."""

    SASL_DONE = "sasl done"
    OPEN_RECEIVED = "open received"
    CLOSE_SENT = "close sent"
    CLOSE_RECEIVED = "close received"
    FAIL = "fail"
    SOCKET_LOST = "socket lost"


CONNECTION_TRANSITIONS: Mapping[ConnectionEvent, Mapping[ConnectionState, ConnectionState]] = {
    ConnectionEvent.SASL_DONE: {
        ConnectionState.SASL: ConnectionState.AWAITING_OPEN,
        # The broker stops while a client authenticates: open and close follow the SASL layer.
        ConnectionState.CLOSE_SENT: ConnectionState.CLOSE_SENT,
    },
    ConnectionEvent.OPEN_RECEIVED: {
        ConnectionState.AWAITING_OPEN: ConnectionState.OPEN,
    },
    ConnectionEvent.CLOSE_SENT: {
        ConnectionState.SASL: ConnectionState.CLOSE_SENT,
        ConnectionState.AWAITING_OPEN: ConnectionState.CLOSE_SENT,
        ConnectionState.OPEN: ConnectionState.CLOSE_SENT,
    },
    ConnectionEvent.CLOSE_RECEIVED: {
        ConnectionState.AWAITING_OPEN: ConnectionState.CLOSED,
        ConnectionState.OPEN: ConnectionState.CLOSED,
        ConnectionState.CLOSE_SENT: ConnectionState.CLOSED,
        ConnectionState.FAILED: ConnectionState.FAILED_AND_CLOSED,
        # A client may send close twice before Proton stops reading.
        ConnectionState.CLOSED: ConnectionState.CLOSED,
        ConnectionState.FAILED_AND_CLOSED: ConnectionState.FAILED_AND_CLOSED,
    },
    ConnectionEvent.FAIL: {
        ConnectionState.SASL: ConnectionState.FAILED,
        ConnectionState.AWAITING_OPEN: ConnectionState.FAILED,
        ConnectionState.OPEN: ConnectionState.FAILED,
        ConnectionState.CLOSE_SENT: ConnectionState.FAILED,
        ConnectionState.CLOSED: ConnectionState.FAILED_AND_CLOSED,
    },
    ConnectionEvent.SOCKET_LOST: {
        state: ConnectionState.LOST
        for state in ConnectionState
        if state is not ConnectionState.LOST
    },
}

_BEFORE_OPEN = frozenset({ConnectionState.SASL, ConnectionState.AWAITING_OPEN})
_USABLE = _BEFORE_OPEN | {ConnectionState.OPEN}
_FAILED = frozenset({ConnectionState.FAILED, ConnectionState.FAILED_AND_CLOSED})
_CLOSED_BY_CLIENT = frozenset(
    {ConnectionState.CLOSED, ConnectionState.FAILED_AND_CLOSED, ConnectionState.LOST}
)


class ConnectionLifecycle:
    """The state of one connection. The connection and its engine share it."""

    __slots__ = ("is_failed", "is_lost", "state")

    def __init__(self, state: ConnectionState = ConnectionState.AWAITING_OPEN) -> None:
        self._enter(state)

    def _enter(self, state: ConnectionState) -> None:
        # Attributes and no properties, because both are looked at some ten times for each message.
        self.state = state
        self.is_failed = state in _FAILED
        """Whether nothing that the client sends is read any more."""
        self.is_lost = state is ConnectionState.LOST
        """Whether the socket is gone."""

    def apply(self, event: ConnectionEvent) -> None:
        """Changes the state. Raises `IllegalTransition` if the table does not allow the event."""
        after = CONNECTION_TRANSITIONS[event].get(self.state)
        if after is None:
            raise IllegalTransition(f"connection: {event.value} while {self.state.value}")
        self._enter(after)

    @property
    def is_past_open(self) -> bool:
        """Whether the client has opened the connection, or will not any more."""
        return self.state not in _BEFORE_OPEN

    @property
    def is_ending(self) -> bool:
        """Whether either side has closed the connection, or it failed: no link is of use any more."""
        return self.state not in _USABLE

    @property
    def client_may_send(self) -> bool:
        """Whether more bytes of the client may be on their way."""
        return self.state not in _CLOSED_BY_CLIENT


# --- links -------------------------------------------------------------------------------------


class LinkState(Enum):
    """How far a link has got."""

    REQUESTED = "requested"
    """The client has sent attach. The broker has neither granted nor refused it."""
    ATTACHED = "attached"
    DETACHING = "detaching"
    """The broker refused or detached the link, or the connection ends. Proton still has the link."""
    DETACHED = "detached"
    """The client has detached too, or the session or the connection is gone. Proton's link is freed."""


class LinkEvent(Enum):
    """What changes the state of a link."""

    GRANT = "grant"
    DETACH = "detach"
    FREE = "free"


LINK_TRANSITIONS: Mapping[LinkEvent, Mapping[LinkState, LinkState]] = {
    LinkEvent.GRANT: {
        LinkState.REQUESTED: LinkState.ATTACHED,
    },
    LinkEvent.DETACH: {
        LinkState.REQUESTED: LinkState.DETACHING,
        LinkState.ATTACHED: LinkState.DETACHING,
    },
    LinkEvent.FREE: {
        LinkState.REQUESTED: LinkState.DETACHED,
        LinkState.ATTACHED: LinkState.DETACHED,
        LinkState.DETACHING: LinkState.DETACHED,
    },
}


def next_link_state(event: LinkEvent, state: LinkState) -> LinkState:
    """Returns the state after an event. Raises `IllegalTransition` if the table does not allow it."""
    after = LINK_TRANSITIONS[event].get(state)
    if after is None:
        raise IllegalTransition(f"link: {event.value} while {state.value}")
    return after
