"""How much the broker does at a time, in a run, and which thread commits.

Long work is done in parts, between which others are served. A run has a few hundred messages, so in half
of the runs parts are as small as that needs: what happens between two parts is then tried as well.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from broker.app.network import amqp_transport
from broker.app.runtime import committer, unfinished_commands
from broker.app.runtime.inline_commit_policy import InlineCommitPolicy
from broker.core import restore
from broker.core.operations import command_parts, message_requests
from broker.core.queues import backlog, ready_messages, receiver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from broker.core.contract.turn import Turn

SMALL_SHARE = 0.5
SMALL_SIZES: tuple[tuple[object, str, tuple[int, ...]], ...] = (
    (amqp_transport, "READ_PER_TURN_BYTES", (512, 4_096)),
    (amqp_transport, "SLICE_FIRST_BYTES", (16, 256)),
    (amqp_transport, "SLICE_MIN_BYTES", (8, 64)),
    (backlog, "PART_MESSAGES", (1, 3, 10)),
    (committer, "BATCH_WEIGHT", (1, 8, 64)),
    (receiver, "BURST_MAX_MESSAGES", (1, 7)),
    (message_requests, "PEEK_MAX_BYTES", (1, 1_024)),
    (command_parts, "PART_MAX_MESSAGES", (1, 3)),
    (ready_messages, "READ_AHEAD_MESSAGES", (1, 8)),
    (restore, "CHUNK_ROWS", (1, 7)),
    (unfinished_commands, "PART_WEIGHT", (1, 16)),
)
"""Each size, and what it may be in place of what it is. What counts as a loaded store stays as it is: parts that
wait for the store are done after a client has connected again, and order is promised on one link only."""


INLINE_SHARES = (0.0, 0.5, 1.0, 1.0)
"""Of the small batches, how many the event loop commits itself."""


@contextmanager
def drawn_threads(chance: Random) -> Iterator[None]:
    """Small batches are committed on the event loop, in the commit thread, or now here and now there, by the
    seed: how long a commit takes does not tell in a run on virtual time."""
    share = chance.choice(INLINE_SHARES)
    allows = InlineCommitPolicy.allows

    def allows_some(self: InlineCommitPolicy, turn: Turn) -> bool:
        return chance.random() < share and allows(self, turn)

    with mock.patch.object(InlineCommitPolicy, "allows", allows_some):
        yield


@contextmanager
def drawn_sizes(chance: Random) -> Iterator[None]:
    """Sizes by the seed; each is small or stays as it is."""
    with ExitStack() as stack:
        if chance.random() < SMALL_SHARE:
            for owner, name, sizes in SMALL_SIZES:
                size = chance.choice((*sizes, getattr(owner, name)))
                stack.enter_context(mock.patch.object(owner, name, size))
        yield
