"""What a client can attach a link to: entities, their `$management`, `$cbs`, the coordinator.

Chooses the kind of link for each attach, and the link on which a response is sent. What each kind does is in
`sending_link.py`, `receiving_link.py`, `browsing_link.py`, `request_response.py`, `cbs.py`, `management.py` and `coordinator.py`. No link is
made that the client has no permit for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

import structlog

from broker.core.contract.commands import AttachReceiver, AttachSender, SessionRequest
from broker.core.contract.errors import (
    EntityNotFound,
    InvalidField,
    NotAllowed,
    NotImplementedHere,
)
from broker.core.contract.settlement_values import ReceiveMode
from protocol.addresses import Address, NodeKind, parse
from protocol.amqp.links.browsing_link import BrowsingLink, BrowsingTurns
from protocol.amqp.links.receiving_link import ReceivingLink
from protocol.amqp.links.sending_link import SendingLink
from protocol.amqp.links.session_filters import (
    SESSION_FILTER,
    SessionFilterAnswer,
    compares_session_ids_by_case,
)
from protocol.amqp.links.via_entity import check_receiving
from protocol.amqp.nodes.cbs import CbsNode
from protocol.amqp.nodes.coordinator import CoordinatorLink
from protocol.amqp.nodes.management import ManagementNode
from protocol.amqp.nodes.request_intake import RequestIntake
from protocol.amqp.nodes.request_response import Request, RequestLink, ResponseLink
from protocol.codec import REJECTED_SYMBOL
from protocol.identity import LISTEN, SEND
from protocol.repeated_events import repeated_events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.core.contract.commands import Declare
    from protocol.amqp.authorization import ConnectionAuthorization
    from protocol.amqp.browsing_slots import BrowsingSlots
    from protocol.amqp.engine.attach import Attach
    from protocol.amqp.engine.engine import EngineLink
    from protocol.amqp.links.link_context import LinkContext
    from protocol.amqp.nodes.request_response import RequestNode

log = structlog.get_logger("peeklock.amqp")

SETTLED_MODE = 1
CBS_REQUEST_MAX_BYTES = 64 * 1024
"""A token and its properties. Every client may attach here, before a token is checked."""
MANAGEMENT_REQUEST_MAX_BYTES = 16 * 1024 * 1024
"""Many messages to schedule, or the state of a session. Not more than the largest message."""
COORDINATOR_REQUEST_MAX_BYTES = 4 * 1024
"""A declare or a discharge."""
SESSION_WAIT_DEFAULT_MS = 65_000
NON_EXCLUSIVE_SESSION_FILTER = "com.microsoft:non-exclusive-session-filter:list"
SELECTORS = frozenset(
    {
        0x0000468C00000003,
        0x0000468C00000004,
        "apache.org:no-local-filter:list",
        "apache.org:selector-filter:string",
    }
)
"""Selectors of generic clients, by descriptor. They are refused: without its selector a client would receive the
messages of others."""


class ClientLink(Protocol):
    """What every kind of link has."""

    def on_detach(self) -> None: ...


class LinkFactory:
    """Makes the links of one connection."""

    def __init__(
        self,
        context: LinkContext,
        authorization: ConnectionAuthorization,
        submit_later: Callable[[Declare], bool],
        grants_changed: Callable[[bool], None],
        has_entity: Callable[[str, str], bool],
        browsing_slots: BrowsingSlots,
    ) -> None:
        self._context = context
        self._authorization = authorization
        self._submit_later = submit_later
        self._responses: list[ResponseLink] = []
        self._intake = RequestIntake()
        self.browsing = BrowsingTurns(browsing_slots)
        self._spells_session_ids = False
        """The client compares session ids by case, see `session_filters.py`. Known from its open on."""
        self._management: WeakValueDictionary[str, ManagementNode] = WeakValueDictionary()
        """By path. The core refers to a node without links as long as it has locks."""
        self._token_link: RequestLink | None = None
        """The link on which the client sends tokens."""
        self._cbs = CbsNode(
            authorization,
            grants_changed,
            has_entity,
            self._respond,
            context.sources.refusals,
            context.faults,
        )

    def open(self, properties: Mapping[str, object]) -> None:
        """Takes the properties of the client's open, which name its software."""
        self._cbs.recognise(properties)
        self._spells_session_ids = compares_session_ids_by_case(properties)

    def forget(self, peer: object) -> None:
        """Forgets a link."""
        if isinstance(peer, ResponseLink):
            self._responses.remove(peer)
        elif peer is self._token_link:
            self._token_link = None

    def clear(self) -> None:
        """Forgets all links."""
        self._intake.clear()
        self.browsing.clear()
        self._responses.clear()
        self._management.clear()
        self._token_link = None

    def connection_lost(self) -> None:
        """Breaks reference cycles, so that the memory of the connection is freed at once."""
        self.clear()
        del self._cbs, self._context, self._submit_later

    @property
    def requesters(self) -> list[ManagementNode]:
        """The management nodes of this connection, which may have locked messages."""
        return list(self._management.values())

    def attach(self, link: EngineLink, attach: Attach) -> ClientLink:
        """Returns the peer of a link to the node that its address names. Raises `BrokerError` if it is refused."""
        if attach.is_receiver and attach.target_is_coordinator:
            return self._attach_coordinator(link, attach)
        text = attach.node_address
        if attach.dynamic:
            raise NotImplementedHere(
                "Dynamic nodes are not supported: create a queue and use its name as the address."
            )
        if not text:
            raise EntityNotFound("")
        address = parse(text)
        if address.kind is NodeKind.ENTITY:
            if attach.is_receiver:
                return self._attach_sender(link, attach, address.path)
            _check_filters(attach)
            if attach.copies:
                return self._attach_browser(link, attach, address.path)
            return self._attach_receiver(link, attach, address.path)
        if address.kind is NodeKind.MANAGEMENT:
            self._authorization.require(link, (None, _management(address.path)))
        if not attach.is_receiver:
            return self._attach_responses(link, attach, address)
        if address.kind is NodeKind.CBS:
            return self._attach_tokens(link, address)
        limit_bytes = min(self._context.limits.message_max_bytes, MANAGEMENT_REQUEST_MAX_BYTES)
        node = self._management_node(address.path)
        return self._attach_requests(link, address, node, limit_bytes)

    def _attach_sender(self, link: EngineLink, attach: Attach, path: str) -> SendingLink:
        via = attach.properties.get("com.microsoft:transfer-destination-address")
        destination = None if via is None else parse(str(via)).path
        paths = [path] if destination is None else [path, destination]
        self._authorization.require(link, *((SEND, one) for one in paths))
        peer = SendingLink(
            self._context,
            link,
            path,
        )
        self._context.submit(AttachSender(peer, path, destination, self._context.engine))
        return peer

    def _attach_receiver(self, link: EngineLink, attach: Attach, path: str) -> ReceivingLink:
        self._authorization.require(link, (LISTEN, path))
        check_receiving(link.session, path)
        session, session_filter = self._session_request(attach)
        presettled = attach.snd_settle_mode == SETTLED_MODE
        peer = ReceivingLink(
            self._context,
            link,
            path,
            presettled=presettled,
            session_filter=session_filter,
        )
        mode = ReceiveMode.RECEIVE_AND_DELETE if presettled else ReceiveMode.PEEK_LOCK
        self._context.submit(
            AttachReceiver(peer, path, mode, session, self._context.engine, link.name)
        )
        return peer

    def _attach_browser(self, link: EngineLink, attach: Attach, path: str) -> BrowsingLink:
        self._authorization.require(link, (LISTEN, path))
        session, _ = self._session_request(attach)
        peer = BrowsingLink(
            self._context,
            link,
            path,
            self.browsing,
            presettled=attach.snd_settle_mode == SETTLED_MODE,
            session_id=session.session_id if session is not None else None,
        )
        peer.begin()
        return peer

    def _session_request(
        self, attach: Attach
    ) -> tuple[SessionRequest | None, SessionFilterAnswer | None]:
        """Returns the session that a receiver asks for, and how the answer names the session."""
        wanted = attach.filter.get(SESSION_FILTER)
        if wanted is None:
            return None, None
        session_id = wanted.value
        if session_id is not None and not isinstance(session_id, str):
            raise InvalidField("The session filter must hold a string, or null for any session.")
        timeout_ms = attach.properties.get("com.microsoft:timeout")
        if not isinstance(timeout_ms, int) or timeout_ms <= 0:
            timeout_ms = SESSION_WAIT_DEFAULT_MS
        session_id = None if session_id is None else str(session_id)
        spelling = session_id if self._spells_session_ids else None
        answer = SessionFilterAnswer(wanted.descriptor, spelling)
        return SessionRequest(session_id, int(timeout_ms)), answer

    def _attach_coordinator(self, link: EngineLink, attach: Attach) -> CoordinatorLink:
        peer = CoordinatorLink(
            self._context,
            link,
            self._submit_later,
            self._authorization.authorize_transaction,
            rejects=not attach.outcomes or REJECTED_SYMBOL in attach.outcomes,
        )
        link.session.has_coordinator = True
        peer.attach(COORDINATOR_REQUEST_MAX_BYTES)
        return peer

    def _attach_tokens(self, link: EngineLink, node: Address) -> RequestLink:
        """Returns the link for tokens. A connection has one, as in the service: the Go SDK relies on the refusal to
        find out that an interrupted request left its link open, and then connects again."""
        if self._token_link is not None:
            raise NotAllowed("This connection has a sender to $cbs already: use it, or detach it.")
        self._token_link = self._attach_requests(link, node, self._cbs, CBS_REQUEST_MAX_BYTES)
        return self._token_link

    def _attach_requests(
        self, link: EngineLink, node: Address, answerer: RequestNode, limit_bytes: int
    ) -> RequestLink:
        peer = RequestLink(self._context, link, node, answerer, self._intake)
        peer.attach(limit_bytes)
        return peer

    def _attach_responses(self, link: EngineLink, attach: Attach, node: Address) -> ResponseLink:
        peer = ResponseLink(
            self._context,
            link,
            node,
            attach.target_address,
            self._intake,
            presettled=attach.snd_settle_mode == SETTLED_MODE,
        )
        peer.attach()
        self._responses.append(peer)
        return peer

    def _management_node(self, path: str) -> ManagementNode:
        node = self._management.get(path.lower())
        if node is None:
            node = ManagementNode(path, self._context, self._respond, self._authorize_request)
            self._management[path.lower()] = node
        return node

    def _authorize_request(self, claim: str, path: str) -> None:
        """Raises `Unauthorized` unless the claim is granted on the management node: some clients put a token for the
        node of an entity, and not for the entity."""
        self._authorization.authorize(claim, _management(path))

    def _respond(self, request: Request, response: bytes) -> None:
        """Sends a response on a response link of the same node: in the same AMQP session if there is one, and with
        the reply address if there are several.

        `reply-to` alone does not identify the link: clients omit it, reuse it, or write a link name in it.
        """
        if request.instead_of_answer is not None:
            request.drop()
            request.instead_of_answer()
            return
        node = request.link.node
        candidates = [link for link in self._responses if link.node == node]
        in_session = [link for link in candidates if link.link.session is request.link.link.session]
        named = [
            link
            for link in in_session or candidates
            if request.reply_to and request.reply_to in (link.address, link.link.name)
        ]
        chosen = named or in_session or candidates
        if chosen:
            chosen[-1].respond(request, response)
        else:
            self._intake.answer_sent(request)
            repeated_events.note(log.info, "response.dropped", node, node=node)


def _check_filters(attach: Attach) -> None:
    if NON_EXCLUSIVE_SESSION_FILTER in attach.filter:
        raise NotImplementedHere("Non-exclusive sessions are not supported.")
    if any(wanted.descriptor in SELECTORS for wanted in attach.filter.values()):
        raise NotImplementedHere(
            "A receiver cannot have a selector: create a subscription with a rule."
        )


def _management(path: str) -> str:
    return f"{path}/$management".lstrip("/")
