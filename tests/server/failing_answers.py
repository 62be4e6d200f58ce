"""A broker that fails once while it gives an effect to a peer, as a bug would make it.

`FAILING_ANSWER` names the class of the peer and the kind of the effect. Otherwise this is the real broker.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from broker.__main__ import main
from protocol.amqp.links.receiving_link import ReceivingLink
from protocol.amqp.links.sending_link import SendingLink
from protocol.amqp.nodes.management import ManagementNode

if TYPE_CHECKING:
    from broker.core.contract.effects import Effect

VARIABLE = "FAILING_ANSWER"
PEERS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (ReceivingLink, SendingLink, ManagementNode)
}


def build_in(peer: str, kind: str) -> None:
    """The first effect of this kind to such a peer is not received."""
    if peer == "RequestPeer":  # loads the HTTP server, which is not loaded at start
        from protocol.http.data_plane.data_plane_api import RequestPeer

        PEERS[peer] = RequestPeer
    receive = PEERS[peer].receive
    has_failed = False

    def receive_or_fail(self: Any, effect: Effect) -> None:
        nonlocal has_failed
        if type(effect).__name__ == kind and not has_failed:
            has_failed = True
            raise ValueError("an injected bug")
        receive(self, effect)

    PEERS[peer].receive = receive_or_fail


if __name__ == "__main__":
    build_in(*os.environ[VARIABLE].split())
    sys.exit(main(sys.argv[1:]))
