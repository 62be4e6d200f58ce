"""Waits until conditions hold. They are looked at again only after a turn that may have changed their queues.

What is seen is durable, because the core answers after it is stored.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic import Field

from broker.core.contract.errors import EntityNotFound, ServerBusy
from protocol.http.control.control_errors import ControlError, of_broker_error
from protocol.http.control.open_waits import OPEN_WAITS
from protocol.http.control.request_models import AnswerModel, RequestModel
from protocol.http.control.routes import Route
from protocol.http.control.wait_conditions import (
    NOT_SEEN,
    Condition,
    SeenAnswer,
    look,
    watched,
)

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call
    from protocol.http.control.wait_conditions import Watched
    from protocol.http.control_services import ChangeWait

TIMEOUT_MAX_S = 600
CONDITIONS_MAX = 100
LOOKS_MAX = 5
"""How often conditions that are looked at one after the other are looked at again because something changed between
them."""
FIRST_LOOK_S = 1.0
STOPPING_TEXT = "The broker is stopping."
BUSY_PAUSE_S = 0.05
"""How long to pause while the broker is starting again from its store."""


class WaitBody(RequestModel):
    """What to wait for. All conditions must hold at the same time."""

    conditions: list[Condition] = Field(min_length=1, max_length=CONDITIONS_MAX)
    timeout_s: float = Field(
        10, ge=0, le=TIMEOUT_MAX_S, allow_inf_nan=False, description="in seconds of real time"
    )


class WaitAnswer(AnswerModel):
    """The conditions hold. What was seen of each, in their order."""

    seen: list[SeenAnswer]
    waited_s: float


async def wait(call: Call) -> Answer:
    """Waits until all conditions hold."""
    body: WaitBody = call.body
    conditions = [
        watched(call, one, f"conditions[{position}]")
        for position, one in enumerate(body.conditions)
    ]
    stopwatch_s = call.services.sources.stopwatch_s
    began_s = stopwatch_s()
    seen = [NOT_SEEN] * len(conditions)
    paths = list(dict.fromkeys(one.watched_path for one in conditions))
    now_s = asyncio.get_running_loop().time()
    open_waits = call.request.app[OPEN_WAITS]
    with call.services.wait_for_change(call.namespace, paths) as change:
        try:
            # The first look has a moment, even if there is no time to wait.
            async with asyncio.timeout(max(body.timeout_s, FIRST_LOOK_S)) as timeout:
                open_waits.add(timeout)
                await _look(call, conditions, change, seen)
                timeout.reschedule(now_s + body.timeout_s)
                while not all(one["holds"] for one in seen):
                    await change.changed()
                    await _look(call, conditions, change, seen)
        except TimeoutError:
            if not timeout.expired():
                raise
            if timeout not in open_waits:
                raise ServerBusy(STOPPING_TEXT) from None
            raise _timed_out(body, seen) from None
        except EntityNotFound as error:
            raise _not_found(error, conditions) from None
        finally:
            open_waits.discard(timeout)
    return {"seen": seen, "waited_s": round(stopwatch_s() - began_s, 3)}


async def _look(
    call: Call, conditions: list[Watched], change: ChangeWait, seen: list[dict[str, Any]]
) -> None:
    """Looks at each condition. If all hold, they hold together: nothing changed between the looks, unless something
    changes all the time."""
    while True:
        try:
            for _ in range(LOOKS_MAX):
                change.clear()
                await look(call, conditions, seen)
                if not change.is_changed or not all(one["holds"] for one in seen):
                    return
                if not any(one.is_scanned for one in conditions):
                    return  # all were counted at one moment
        except ServerBusy:
            await asyncio.sleep(BUSY_PAUSE_S)
        else:
            return


def _not_found(error: EntityNotFound, conditions: list[Watched]) -> ControlError:
    """Returns the error for an entity that does not exist, with the condition that names it."""
    found = of_broker_error(error, str(error))
    paths = [one.path for one in conditions]
    if error.path in paths:
        found.field = f"conditions[{paths.index(error.path)}].entity"
    return found


def _timed_out(body: WaitBody, seen: list[dict[str, Any]]) -> ControlError:
    missing = [position for position, one in enumerate(seen) if not one["holds"]] or [0]
    first = missing[0]
    others = f", and {len(missing) - 1} others" if len(missing) > 1 else ""
    return ControlError(
        408,
        "wait_timed_out",
        f"After {body.timeout_s:g} s, conditions[{first}]{others} did not hold: "
        f"{seen[first]['count']} was seen last.",
        f"conditions[{first}]",
        seen=seen,
    )


ROUTES = (
    Route(
        "POST",
        "/wait",
        "waitForConditions",
        "Wait until conditions on counts or messages hold",
        wait,
        WaitAnswer,
        body=WaitBody,
        refusals={
            408: "The conditions did not hold in time; `seen` is what was seen last.",
            503: "The broker is stopping.",
        },
    ),
)
