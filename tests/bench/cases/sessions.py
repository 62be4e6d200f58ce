"""Session traffic beside plain traffic of the same shape.

A thousand sessions are sent to in turn; a hundred receivers take them, each the next one that is
free, whole, and then another, as a session processor does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.bench.cases.setting import FULL_COUNT, IN_FLIGHT, Comparison, in_turns
from tests.bench.load import new_run
from tests.bench.roles import Load, Mark, Take
from tests.bench.rows import Row, observed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.cases.setting import Setting
    from tests.bench.rows import Part

SESSIONS = 1_000
RECEIVERS = 100
SENDERS = 10
RECEIVER_CONNECTIONS = 10
ROUNDS = 5
SESSIONS_AGAINST_PLAIN = "1,000 sessions, 100 receivers: CPU against plain"


def sessions(setting: Setting, name: str) -> Iterator[Row]:
    """Through, in rounds, beside as many receivers on a queue without sessions."""
    comparison = Comparison()
    with setting.broker() as broker:
        plain = Load(
            port=broker.amqp_port,
            address="measured",
            count=setting.count(FULL_COUNT),
            streams=SENDERS,
            window=IN_FLIGHT // SENDERS,
            with_ids=True,
            credit=IN_FLIGHT // RECEIVERS,
        )
        in_sessions = replace(
            plain, address="sessions", streams=SESSIONS, mark=Mark.SESSION, take=Take.NEXT
        )
        loads = {"in sessions": in_sessions, "plain": plain}
        for number, order in in_turns(ROUNDS, tuple(loads)):
            rows = {}
            for kind in order:
                case = f"{name} {kind}, round {number + 1}"
                rows[kind] = observed(broker, case, *_parts(replace(loads[kind], run=new_run())))
                yield rows[kind]
            comparison.pairs.append((rows["in sessions"], rows["plain"]))
    yield comparison.row(SESSIONS_AGAINST_PLAIN)


def _parts(load: Load) -> tuple[Part, Part]:
    receive = replace(load, connections=RECEIVER_CONNECTIONS, links=RECEIVERS)
    return ("receive", receive), ("send", replace(load, connections=SENDERS, take=Take.ANY))
