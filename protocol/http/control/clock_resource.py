"""The broker's clock: show it, move it ahead, stop it, let it run again.

Locks, schedules, times to live, duplicate windows and idle deletion follow this clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from protocol.http.control import control_errors
from protocol.http.control.clock_api import ADVANCE_MAX_MS, CLOCK_MAX_MS
from protocol.http.control.request_models import AnswerModel, RequestModel
from protocol.http.control.routes import Route, Scope
from protocol.http.control.times import read_time, write_time

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call
    from protocol.http.control_services import ClockState


class ClockAnswer(AnswerModel):
    """The clock."""

    now: str = Field(description="the time, in UTC")
    now_ms: int = Field(description="the time in milliseconds since 1970")
    is_frozen: bool
    ahead_ms: int = Field(description="by how much it is ahead of the system clock, or behind it")


class AdvanceClock(RequestModel):
    """How far to move the clock."""

    seconds: float = Field(0, ge=0, le=ADVANCE_MAX_MS / 1000, allow_inf_nan=False)
    milliseconds: int = Field(0, ge=0, le=ADVANCE_MAX_MS)

    @property
    def amount_ms(self) -> int:
        """Both together."""
        return min(self.milliseconds + round(self.seconds * 1000), ADVANCE_MAX_MS)


class SetClock(RequestModel):
    """Where to move the clock."""

    time: str = Field(
        description="a time that the clock has not reached yet, such as 2026-02-03T04:05:06Z",
        json_schema_extra={"format": "date-time"},
    )


class NoBody(RequestModel):
    """Nothing: an empty body or an empty object."""


async def show(call: Call) -> Answer:
    """Shows the clock."""
    return write_clock(call.services.clock.state())


async def advance(call: Call) -> Answer:
    """Moves the clock ahead."""
    clock = call.services.clock
    return write_clock(clock.advance(amount_ahead(call.body, clock.state().now_ms)))


async def set_time(call: Call) -> Answer:
    """Moves the clock ahead to a time."""
    clock = call.services.clock
    return write_clock(clock.advance(amount_until(call.body, clock.state().now_ms)))


def amount_ahead(body: AdvanceClock, now_ms: int) -> int:
    """Returns by how much a clock that shows `now_ms` has to be moved. Raises `ControlError`."""
    _check_end("seconds", now_ms + body.amount_ms)
    return body.amount_ms


def amount_until(body: SetClock, now_ms: int) -> int:
    """Returns by how much a clock that shows `now_ms` has to be moved. Raises `ControlError`."""
    time_ms = read_time("time", body.time)
    _check_end("time", time_ms)
    amount_ms = time_ms - now_ms
    if amount_ms > ADVANCE_MAX_MS:
        raise control_errors.bad_field("time", "The clock moves by at most a century at once.")
    if amount_ms < 0:
        raise control_errors.bad_field(
            "time", f"The clock moves only forward, and it shows {write_time(now_ms)} already."
        )
    return amount_ms


def _check_end(field: str, time_ms: int) -> None:
    if time_ms > CLOCK_MAX_MS:
        raise control_errors.bad_field(
            field, f"The clock cannot be moved beyond {write_time(CLOCK_MAX_MS)}."
        )


async def freeze(call: Call) -> Answer:
    """Stops the clock."""
    return write_clock(call.services.clock.freeze())


async def resume(call: Call) -> Answer:
    """Lets the clock run again."""
    return write_clock(call.services.clock.resume())


def write_clock(state: ClockState) -> Answer:
    """Returns a clock as plain data."""
    return {
        "now": write_time(state.now_ms),
        "now_ms": state.now_ms,
        "is_frozen": state.is_frozen,
        "ahead_ms": state.ahead_ms,
    }


ROUTES = (
    Route(
        "GET",
        "/clock",
        "getClock",
        "Show the broker's clock",
        show,
        ClockAnswer,
        scope=Scope.BROKER,
    ),
    Route(
        "POST",
        "/clock/advance",
        "advanceClock",
        "Move the clock ahead; what becomes due is done",
        advance,
        ClockAnswer,
        body=AdvanceClock,
        scope=Scope.BROKER,
    ),
    Route(
        "POST",
        "/clock/set",
        "setClock",
        "Move the clock ahead to a time",
        set_time,
        ClockAnswer,
        body=SetClock,
        scope=Scope.BROKER,
    ),
    Route(
        "POST",
        "/clock/freeze",
        "freezeClock",
        "Stop the clock; it can still be moved",
        freeze,
        ClockAnswer,
        body=NoBody,
        scope=Scope.BROKER,
    ),
    Route(
        "POST",
        "/clock/resume",
        "resumeClock",
        "Let the clock run again, from the time that it shows",
        resume,
        ClockAnswer,
        body=NoBody,
        scope=Scope.BROKER,
    ),
)
