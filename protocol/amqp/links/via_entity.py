"""The via entity of an AMQP session that has a transaction coordinator.

Transactions across entities are carried out by the first entity that is used in such a session, and
what is sent to others goes via that one. Nothing can be received via another entity, so the service
refuses it, and the .NET and Java SDKs, in their cross-entity mode, make the session again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.contract.errors import NotAllowed

if TYPE_CHECKING:
    from protocol.amqp.engine.interface import EngineSession

_BELOW_ENTITY = ("/subscriptions/", "/$deadletterqueue", "/$transfer/")


def record_via_entity(session: EngineSession, path: str) -> None:
    """A link to an entity was granted. The first entity of a session becomes its via entity."""
    if session.via is None:
        session.via = _queue_or_topic(path)


def check_receiving(session: EngineSession, path: str) -> None:
    """Raises if messages of this entity cannot be received in this session."""
    via = session.via
    if session.has_coordinator and via is not None and via != _queue_or_topic(path):
        raise NotAllowed(
            f"Messages of '{path}' cannot be received in an AMQP session whose transactions go via "
            f"'{via}', the entity that was used in it first."
        )


def _queue_or_topic(path: str) -> str:
    """The entity that carries out a transaction: for a subscription its topic."""
    path = path.lower()
    for separator in _BELOW_ENTITY:
        path = path.partition(separator)[0]
    return path
