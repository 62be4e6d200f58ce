"""The via entity of an AMQP session that has a transaction coordinator.

The first entity that is used in such a session carries out the transactions, and messages to other entities go via
it. Messages cannot be received via another entity, so the service refuses such links. The .NET and Java SDKs, in
their cross-entity mode, then begin a new session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import NotAllowed

if TYPE_CHECKING:
    from protocol.amqp.engine.interface import EngineSession

_BELOW_ENTITY = ("/subscriptions/", "/$deadletterqueue", "/$transfer/")


def record_via_entity(session: EngineSession, path: str) -> None:
    """Makes an entity the via entity of a session, if it is the first to which a link was granted."""
    if session.via is None:
        session.via = _queue_or_topic(path)


def check_receiving(session: EngineSession, path: str) -> None:
    """Raises `NotAllowed` if messages of this entity cannot be received in this session."""
    via = session.via
    if session.has_coordinator and via is not None and via != _queue_or_topic(path):
        raise NotAllowed(
            f"Messages of '{path}' cannot be received in an AMQP session whose transactions go via "
            f"'{via}', the entity that was used in it first."
        )


def _queue_or_topic(path: str) -> str:
    """Returns the entity that carries out a transaction: the topic of a subscription."""
    path = path.lower()
    for separator in _BELOW_ENTITY:
        path = path.partition(separator)[0]
    return path
