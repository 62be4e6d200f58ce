"""The waits that tests write, each described once: its conditions, its longest time, and what it returns.

`blocking` and `awaited` make the methods of the client and of its `aio` from these descriptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar

from pytest_peeklock import conditions

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Protocol

    from typing_extensions import Concatenate, ParamSpec

    from pytest_peeklock.answers import Condition, Message, Seen, State, SubQueue

    P = ParamSpec("P")

    class Blocking(Protocol):
        """Waits until all conditions hold."""

        def wait_until(self, *wanted: Condition, timeout_s: float | None = None) -> list[Seen]: ...

    class Awaited(Protocol):
        """Waits until all conditions hold, while the event loop runs."""

        async def wait_until(
            self, *wanted: Condition, timeout_s: float | None = None
        ) -> list[Seen]: ...


__tracebackhide__ = True  # a test's traceback ends in the test
T = TypeVar("T")


@dataclass(frozen=True)
class Wait(Generic[T]):
    """One wait."""

    wanted: Sequence[Condition]
    timeout_s: float | None
    read: Callable[[list[Seen]], T]
    """Makes what the test gets from what was seen of each condition."""


def wait_for(
    entity: str,
    *,
    sub_queue: SubQueue | None = None,
    state: State | None = None,
    session: str | None = None,
    filter: str | None = None,
    at_least: int | None = None,
    at_most: int | None = None,
    equals: int | None = None,
    timeout_s: float | None = None,
) -> Wait[list[Message]]:
    """Waits for messages, and returns the first ten of them. Raises `WaitTimedOut`."""
    wanted = conditions.condition(
        entity,
        sub_queue=sub_queue,
        state=state,
        session=session,
        filter=filter,
        at_least=at_least,
        at_most=at_most,
        equals=equals,
    )
    return Wait([conditions.with_messages(wanted)], timeout_s, lambda seen: seen[0]["messages"])


def wait_until_settled(entity: str | None = None, *, timeout_s: float | None = None) -> Wait[None]:
    """Waits until no message is active, locked or deferred. Raises `WaitTimedOut`."""
    return Wait([conditions.settled(entity)], timeout_s, _nothing)


def wait_until_unlocked(entity: str | None = None, *, timeout_s: float | None = None) -> Wait[None]:
    """Waits until no message and no session is locked. Raises `WaitTimedOut`."""
    return Wait([conditions.unlocked(entity)], timeout_s, _nothing)


def wait_until_empty(entity: str | None = None, *, timeout_s: float | None = None) -> Wait[None]:
    """Waits until there is no message. Raises `WaitTimedOut`."""
    return Wait([conditions.empty(entity)], timeout_s, _nothing)


def blocking(describe: Callable[P, Wait[T]]) -> Callable[Concatenate[Any, P], T]:
    """Returns the method that waits."""

    @wraps(describe)
    def method(client: Blocking, /, *args: P.args, **fields: P.kwargs) -> T:
        wait = describe(*args, **fields)
        return wait.read(client.wait_until(*wait.wanted, timeout_s=wait.timeout_s))

    return method


def awaited(
    describe: Callable[P, Wait[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Returns the coroutine method that waits."""

    @wraps(describe)
    async def method(client: Awaited, /, *args: P.args, **fields: P.kwargs) -> T:
        wait = describe(*args, **fields)
        return wait.read(await client.wait_until(*wait.wanted, timeout_s=wait.timeout_s))

    return method


def _nothing(seen: list[Seen]) -> None:
    """The test waits only."""
