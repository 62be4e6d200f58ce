"""What a wait waits for. All conditions of a wait hold at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_peeklock.answers import Condition, Settledness, State, SubQueue

EVERY_MESSAGE = "1 = 1"
"""The broker shows messages of a condition that has an expression."""


def condition(
    entity: str,
    *,
    sub_queue: SubQueue | None = None,
    state: State | None = None,
    session: str | None = None,
    filter: str | None = None,
    at_least: int | None = None,
    at_most: int | None = None,
    equals: int | None = None,
) -> Condition:
    """A number of messages of an entity: one or more, if no number is given."""
    return _given(
        entity=entity,
        sub_queue=sub_queue,
        state=state,
        session=session,
        filter=filter,
        at_least=at_least,
        at_most=at_most,
        equals=equals,
    )


def settled(entity: str | None = None) -> Condition:
    """No message is active, locked or deferred: in an entity, or in the whole namespace."""
    return _is("settled", entity)


def unlocked(entity: str | None = None) -> Condition:
    """No message and no session is locked: in an entity, or in the whole namespace."""
    return _is("unlocked", entity)


def empty(entity: str | None = None) -> Condition:
    """There is no message: in an entity, or in the whole namespace. Dead letters do not count."""
    return _is("empty", entity)


def with_messages(one: Condition) -> Condition:
    """Returns the condition so that the broker shows the messages that it counts."""
    if "is" in one or "filter" in one:
        return one
    return cast("Condition", {**one, "filter": EVERY_MESSAGE})


def _is(what: Settledness, entity: str | None) -> Condition:
    return _given(**{"is": what, "entity": entity})


def _given(**fields: Any) -> Condition:
    return cast("Condition", given(fields))


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that are set."""
    return {name: one for name, one in fields.items() if one is not None}
