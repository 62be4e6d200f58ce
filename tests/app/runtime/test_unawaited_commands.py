"""Which commands may wait for the next turn."""

from __future__ import annotations

from typing import Any

import pytest

from broker.app.runtime.unawaited_commands import UNAWAITED_MAX, is_unawaited
from broker.core.contract.commands import Settle, Tick
from broker.core.contract.settlement_values import ABANDON, COMPLETE, DEAD_LETTER, RELEASE

PEER: Any = "peer"
TOKEN = bytes(16)


def settle(
    *handles: object, settlement: Any = COMPLETE, transaction: bytes | None = None
) -> Settle:
    return Settle(PEER, [TOKEN] * len(handles), handles, settlement, transaction)


@pytest.mark.parametrize("count", [1, 2, UNAWAITED_MAX])
def test_completing_without_an_answer_may_wait(count):
    """The receiver has settled the deliveries, and nobody gets the messages."""
    assert is_unawaited(settle(*[None] * count))


@pytest.mark.parametrize(
    "command",
    [
        Tick(),
        settle(1),
        settle(None, 1),
        settle(None, settlement=ABANDON),
        settle(None, settlement=RELEASE),
        settle(None, settlement=DEAD_LETTER),
        settle(None, transaction=b"1"),
        settle(*[None] * (UNAWAITED_MAX + 1)),
    ],
)
def test_others_do_not_wait(command):
    """An answer is expected, another receiver may get the messages, or the work is large."""
    assert not is_unawaited(command)
