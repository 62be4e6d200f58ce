"""Which ends of a connection a workload counts as failures of the broker."""

from __future__ import annotations

import asyncio
from multiprocessing import Event, Value
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.client_workload import ClientWorkload
from tests.crash.ledgers.report import Report, found_in
from tests.crash.workload import Surroundings
from tests.support.proton.connection import PeerFailed

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

RUN = 1


class FailingClient(ClientWorkload):
    """Its connection ends at once, in a group as a failed task leaves it."""

    name = "a client that fails"
    failure: Exception

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self._fail()

    async def _fail(self) -> None:
        raise ExceptionGroup("of a task", [self.failure])

    async def conclude(self) -> Report:
        return Report({})


@pytest.mark.parametrize(
    ("text", "is_faulty", "found"),
    [
        ("connection closed: amqp:internal-error: a mistake", 0, {"closed with an error": 1}),
        ("session closed: amqp:session:window-violation", 0, {"closed with an error": 1}),
        ("connection closed: amqp:internal-error: a mistake", 1, {}),
        ("connection closed: amqp:connection:forced: The broker is shutting down.", 0, {}),
        ("transport: amqp:connection:framing-error: connection aborted", 0, {}),
    ],
)
def test_a_connection_that_the_broker_closes_with_an_error(
    text: str, is_faulty: int, found: dict[str, int]
) -> None:
    surroundings = Surroundings(
        host="localhost",
        amqp_port=0,
        http_port=0,
        connection_string="",
        admin_connection_string="",
        seed=0,
        broker_run=Value("i", RUN),
        faulty=Value("i", is_faulty),
        stop=Event(),
    )
    workload = FailingClient(surroundings)
    workload.failure = PeerFailed(text)

    async def work_in_one_run() -> Report:
        await workload.work_in_one_run(RUN)
        return await workload.empty_and_audit()

    report = asyncio.run(work_in_one_run())
    assert found == found_in(report)
    for texts in report.violations.values():
        assert texts in ([], [text])
