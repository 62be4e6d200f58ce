"""The attached links of one connection, and what the core is told when they end.

Each link has a peer: the object that handles its frames and gets its effects. What a client can attach to is in
`nodes/link_factory.py`. A link that is not here any more gets no events of the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from broker.core.contract.commands import Detach
from protocol.amqp.links.link_view import view_of
from protocol.amqp.links.receiving_link import ReceivingLink
from protocol.amqp.links.sending_link import SendingLink
from protocol.amqp.nodes.coordinator import CoordinatorLink
from protocol.amqp.nodes.management import ManagementNode
from protocol.amqp.nodes.request_response import ResponseLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.core.contract.errors import BrokerError
    from protocol.amqp.authorization import ConnectionAuthorization
    from protocol.amqp.engine.engine import EngineLink
    from protocol.amqp.links.link_context import LinkContext
    from protocol.amqp.links.link_view import LinkView
    from protocol.amqp.namespace_commands import NamespaceCommands
    from protocol.amqp.nodes.link_factory import LinkFactory

KNOWN_TO_CORE = SendingLink | ReceivingLink | CoordinatorLink | ManagementNode
"""Peers that are attached in the core. A `Detach` command must follow when they end."""


class AttachedLinks:
    """The links of one connection."""

    def __init__(
        self,
        context: LinkContext,
        authorization: ConnectionAuthorization,
        commands: NamespaceCommands,
        nodes: LinkFactory,
    ) -> None:
        self._context = context
        self._authorization = authorization
        self._commands = commands
        self._nodes = nodes
        self._peers: dict[EngineLink, Any] = {}
        self._detached: WeakSet[ReceivingLink] = WeakSet()
        """Receivers that are detached. The core refers to them as long as they have locks."""

    def __len__(self) -> int:
        return len(self._peers)

    def add(self, link: EngineLink, peer: object) -> None:
        """Attaches a link to its peer."""
        link.context = peer
        self._peers[link] = peer

    def of_kind(self, *kinds: type) -> list[EngineLink]:
        """Returns the links whose peers are of one of these classes."""
        return [link for link, peer in self._peers.items() if isinstance(peer, kinds)]

    def views(self) -> list[LinkView]:
        """Returns the links for the control API."""
        return [view_of(self._context.engine, link, peer) for link, peer in self._peers.items()]

    def pause(self) -> None:
        """Stops deliveries and responses."""
        for link in self.of_kind(ReceivingLink, ResponseLink):
            self._peers[link].pause()

    def resume(self) -> None:
        """Continues after `pause`."""
        for link in self.of_kind(ReceivingLink, ResponseLink):
            self._peers[link].resume()

    def end(self, link: EngineLink, error: BrokerError) -> None:
        """Detaches a link with an error."""
        peer = self._peers.get(link)
        self.forget([link])
        context = self._context
        refusal = context.refuse(error, entity=getattr(peer, "path", ""), operation="link ended")
        context.engine.detach(link, refusal)
        if peer is not None:
            peer.on_detach()

    def forget(self, links: Sequence[EngineLink]) -> None:
        """Forgets links that have ended. The core is told of it elsewhere, or does not know them."""
        for link in links:
            self._authorization.forget(link)
            peer = self._peers.pop(link, None)
            link.context = None
            self._nodes.forget(peer)
            if isinstance(peer, ReceivingLink):
                self._detached.add(peer)

    def detach(self, links: Sequence[EngineLink]) -> None:
        """Detaches links of an AMQP session that has ended, those that the core knows with one command. Their locks
        stay."""
        peers = [link.context for link in links if link.context is not None]
        self.forget(links)
        self._detach_peers(peers, connection_lost=False)
        for peer in peers:
            if isinstance(peer, SendingLink | ReceivingLink):
                peer.clear()
            elif not isinstance(peer, KNOWN_TO_CORE):
                peer.on_detach()

    def detach_all(self, *, connection_lost: bool) -> None:
        """Detaches all links from the core, also those that are detached but may have locks. The locks are released
        only if the connection is lost."""
        requesters = self._nodes.requesters if self._commands.has_entered else ()
        peers = [*self._peers.values(), *self._detached, *requesters]
        self._detach_peers(peers, connection_lost=connection_lost)
        self._detached.clear()
        self.clear()

    def clear(self) -> None:
        """Forgets all links without a command to the core."""
        for link in self._peers:
            link.context = None
        self._peers.clear()
        self._nodes.clear()

    def _detach_peers(self, peers: Sequence[object], *, connection_lost: bool) -> None:
        known = [peer for peer in peers if isinstance(peer, KNOWN_TO_CORE)]
        if known:
            self._commands.submit(Detach(known, connection_lost))
