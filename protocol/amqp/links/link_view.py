"""A link as the control API shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from protocol.amqp.engine.engine import Engine, EngineLink


class LinkView(NamedTuple):
    """A link, for the control API."""

    name: str
    role: str
    """`sender` or `receiver`: what the client is."""
    address: str
    session_id: str | None
    credit: int
    deliveries: int
    unsettled: int


def view_of(engine: Engine, link: EngineLink, peer: object) -> LinkView:
    """Returns the view of a link that is attached to a peer."""
    return LinkView(
        link.name,
        "sender" if link.is_receiver else "receiver",
        getattr(peer, "path", link.address),
        getattr(peer, "session_id", None),
        max(0, engine.credit(link)),
        link.received if link.is_receiver else link.sent,
        len(link.unsettled),
    )
