"""The errors that a receiver gets when the broker detaches its link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from proton import Delivery, symbol
from proton.reactor import Filter
from proton.utils import BlockingConnection, LinkDetached

if TYPE_CHECKING:
    from tests.sdk.conftest import Live

from tests.sdk.support import send

TIMEOUT_S = 10


def test_deliveries_of_a_lost_session_are_refused_before_its_link_ends(live: Live) -> None:
    """A client that is settling one gets an answer: SDKs wait for it even after the link is
    detached."""
    queue = live.queue(RequiresSession=True, LockDuration="PT30S")
    send(live, queue, "slow", session_id="s")
    connection = BlockingConnection(f"127.0.0.1:{live.process.amqp_port}", timeout=TIMEOUT_S)
    try:
        session = Filter({symbol("com.microsoft:session-filter"): "s"})
        receiver = connection.create_receiver(queue, credit=1, options=session)
        assert b"slow" == receiver.receive(timeout=TIMEOUT_S).body
        (delivery,) = receiver.fetcher.unsettled
        live.advance(seconds=31)
        with pytest.raises(LinkDetached, match="session-lock-lost"):
            connection.wait(lambda: False, timeout=TIMEOUT_S)
        assert delivery.settled
        assert Delivery.REJECTED == delivery.remote_state
        assert "com.microsoft:session-lock-lost" == delivery.remote.condition.name
    finally:
        connection.close()
