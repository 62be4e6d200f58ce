"""The tables of connection and link states: what they allow, and that nothing else changes a state."""

from __future__ import annotations

import pytest

from protocol.amqp.engine.states import (
    CONNECTION_TRANSITIONS,
    LINK_TRANSITIONS,
    ConnectionEvent,
    ConnectionLifecycle,
    ConnectionState,
    IllegalTransition,
    LinkEvent,
    LinkState,
    next_link_state,
)
from protocol.internal_error import InternalError


@pytest.mark.parametrize("event", ConnectionEvent)
@pytest.mark.parametrize("state", ConnectionState)
def test_a_connection_follows_its_table_and_nothing_else(event, state):
    """An event that the table does not allow raises and leaves the state as it was."""
    lifecycle = ConnectionLifecycle(state)
    expected = CONNECTION_TRANSITIONS[event].get(state)

    if expected is None:
        with pytest.raises(IllegalTransition):
            lifecycle.apply(event)
        expected = state
    else:
        lifecycle.apply(event)

    assert expected is lifecycle.state


@pytest.mark.parametrize("event", LinkEvent)
@pytest.mark.parametrize("state", LinkState)
def test_a_link_follows_its_table_and_nothing_else(event, state):
    expected = LINK_TRANSITIONS[event].get(state)

    if expected is None:
        with pytest.raises(IllegalTransition):
            next_link_state(event, state)
    else:
        assert expected is next_link_state(event, state)


def test_a_client_that_closes_is_not_expected_to_send_more():
    lifecycle = ConnectionLifecycle()
    for event in (ConnectionEvent.OPEN_RECEIVED, ConnectionEvent.CLOSE_RECEIVED):
        lifecycle.apply(event)

    assert (False, True) == (lifecycle.client_may_send, lifecycle.is_ending)


def test_a_connection_that_failed_stays_failed():
    """Nothing that the client sends afterwards is read. Only the loss of the socket changes the
    state."""
    lifecycle = ConnectionLifecycle(ConnectionState.SASL)
    lifecycle.apply(ConnectionEvent.FAIL)
    lifecycle.apply(ConnectionEvent.CLOSE_RECEIVED)

    assert lifecycle.is_failed
    lifecycle.apply(ConnectionEvent.SOCKET_LOST)
    with pytest.raises(InternalError):
        lifecycle.apply(ConnectionEvent.OPEN_RECEIVED)
    assert ConnectionState.LOST is lifecycle.state
