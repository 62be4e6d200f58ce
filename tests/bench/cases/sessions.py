"""Session traffic beside plain traffic of the same shape.

Three shapes: receivers that keep their sessions; receivers that take one session after the other, whole, as a session
processor does, of messages that were all sent before; and the same while the sessions are sent to in turn. Plain
receivers are as many, with as much credit, and get messages that wait as long, except in the third shape: there most
messages of sessions wait for a receiver, and plain messages do not. So no bound applies to the third shape.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tests.bench.cases.setting import FULL_COUNT, IN_FLIGHT, Comparison, in_turns
from tests.bench.load import new_run
from tests.bench.roles import Load, Mark, Take
from tests.bench.rows import Row, observed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.bench.cases.setting import Setting
    from tests.bench.rows import Part
    from tests.support.server import BrokerProcess

SESSIONS = 1_000
RECEIVERS = 100
SENDERS = 10
RECEIVER_CONNECTIONS = 10
ROUNDS = 5
SESSIONS_AGAINST_PLAIN = "1,000 sessions, 100 receivers: CPU against plain"
KEPT_SESSIONS_AGAINST_PLAIN = "100 sessions that 100 receivers keep: CPU against plain"
WAITING_SESSIONS_AGAINST_PLAIN = "1,000 waiting sessions, 100 receivers: CPU against plain"


class Shape(NamedTuple):
    """How session traffic and plain traffic are compared."""

    row: str
    sessions: int
    take: Take
    is_sent_first: bool
    """All messages are sent before one is received."""


SHAPES = (
    Shape(KEPT_SESSIONS_AGAINST_PLAIN, RECEIVERS, Take.OWN, is_sent_first=False),
    Shape(WAITING_SESSIONS_AGAINST_PLAIN, SESSIONS, Take.NEXT, is_sent_first=True),
    Shape(SESSIONS_AGAINST_PLAIN, SESSIONS, Take.NEXT, is_sent_first=False),
)


def sessions(setting: Setting, name: str) -> Iterator[Row]:
    """Each shape in rounds, beside as many receivers on a queue without sessions."""
    with setting.broker() as broker:
        plain = Load(
            port=broker.amqp_port,
            address="measured",
            count=FULL_COUNT,  # also with --quick: a session has a hundred messages, which share its accept
            streams=SENDERS,
            window=IN_FLIGHT // SENDERS,
            with_ids=True,
            credit=IN_FLIGHT // RECEIVERS,
        )
        for shape in SHAPES:
            comparison = Comparison()
            in_sessions = replace(
                plain,
                address="sessions",
                streams=shape.sessions,
                mark=Mark.SESSION,
                take=shape.take,
            )
            loads = {"in sessions": in_sessions, "plain": plain}
            for number, order in in_turns(ROUNDS, tuple(loads)):
                rows = {}
                for kind in order:
                    case = f"{name} {shape.row.partition(':')[0]}, {kind}, round {number + 1}"
                    phases = _phases(replace(loads[kind], run=new_run()), shape)
                    rows[kind] = _observed(broker, case, phases)
                    yield rows[kind]
                comparison.pairs.append((rows["in sessions"], rows["plain"]))
            yield comparison.row(shape.row)


def _phases(load: Load, shape: Shape) -> Sequence[Sequence[Part]]:
    """Returns what is done one after the other, each with the roles that run together."""
    receive = replace(load, connections=RECEIVER_CONNECTIONS, links=RECEIVERS)
    send = replace(load, connections=SENDERS, take=Take.ANY)
    if shape.is_sent_first:
        return (("send", send),), (("receive", receive),)
    return ((("receive", receive), ("send", send)),)


def _observed(broker: BrokerProcess, case: str, phases: Sequence[Sequence[Part]]) -> Row:
    """Returns a row for all phases together."""
    rows = [observed(broker, case, *parts) for parts in phases]
    if len(rows) == 1:
        return rows[0]
    s_per_message = sum([1 / max(row.figures.get("messages_per_s", 0.0), 1e-9) for row in rows])
    figures = {
        "messages_per_s": 1 / s_per_message,
        "broker_cpu_us": sum([row.figures.get("broker_cpu_us", 0.0) for row in rows]),
    }
    problems = [row.problem for row in rows if row.problem]
    return Row(case, figures, all(row.is_clean for row in rows), "; ".join(problems))
