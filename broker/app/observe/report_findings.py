"""The findings of a report, as sentences: what the counts, the observations and the refusals of a namespace say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from broker.core.contract.counting import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.app.observe.report_notes import NamespaceNotes
    from broker.core.contract.observations import Observation
    from broker.core.queues.queue import Queue
    from protocol.refusals import RefusedCount, RefusedPlace

DEAD_LETTER_SUFFIX = "/$DeadLetterQueue"
TRANSFER_SUFFIX = "/$Transfer"
_ENDINGS = frozenset(
    {
        *("link ended", "sender ended", "receiver ended", "browse"),
        *("session ended", "connection ended", "close connection"),
    }
)
"""The operations whose refusals end a link, a session or a connection."""
_QUOTAS = {
    "message_max_bytes": "a message of {} bytes",
    "batch_max_messages": "a batch of {} messages",
    "batch_max_bytes": "a batch of {} bytes",
    "transaction_max_operations": "a transaction with {} messages",
    "delete_max_messages": "a request to delete {} messages",
    "receivers_per_entity_max": "{} receivers of an entity",
    "session_state_max_bytes": "a session state of {} bytes",
}


class Finding(NamedTuple):
    """One finding."""

    kind: str
    entity: str
    sentence: str
    count: int = 1  # type: ignore[assignment]  # hides `tuple.count`, which is not used
    message_ids: list[str | None] = []  # noqa: RUF012 -- never changed
    is_exact: bool = True
    """False: the count may be higher."""
    details: dict[str, Any] = {}  # noqa: RUF012


def of_counts(queue: Queue, notes: NamespaceNotes) -> Iterator[Finding]:
    """Returns what the counts of a queue say."""
    lost = notes.since_then(queue.counts, Outcome.LOCK_LOST)
    if lost:
        locks = "1 lock" if lost == 1 else f"{lost} locks"
        sentence = f"{locks} of '{queue.path}' {was(lost)} lost: expired, or with the connection."
        yield Finding("lost_locks", queue.path, sentence, lost)
    expired = notes.since_then(queue.counts, Outcome.EXPIRED)
    if expired:
        sentence = f"The time to live of {messages(expired)} of '{queue.path}' has ended."
        yield Finding("expired", queue.path, sentence, expired)


def over_quota(quota: str, path: str, seen: Observation) -> Finding:
    """Returns that more was used than Azure allows."""
    what = _QUOTAS[quota].format(seen.largest)
    where = f" in '{path}'" if path else ""
    return Finding(
        "over_quota",
        path,
        f"Azure would refuse {what}{where}: it allows {seen.limit}.",
        seen.count,
        list(seen.message_ids),
        details={"quota": quota, "limit": seen.limit, "largest": seen.largest},
    )


def refusal(place: RefusedPlace, refused: RefusedCount) -> Finding:
    """Returns that operations were refused, or links closed."""
    is_ending = place.operation in _ENDINGS
    times = "Once" if refused.count == 1 else f"{refused.count} times"
    where = f" on '{place.entity}'" if place.entity else ""
    verb = "" if is_ending else " was refused"
    return Finding(
        "links_closed" if is_ending else "refused",
        place.entity,
        f"{times}, {place.operation}{where}{verb}, with {place.condition}: {refused.sentence}",
        refused.count,
        details={"operation": place.operation, "condition": place.condition},
    )


def messages(count: int, *, is_exact: bool = True) -> str:
    """Returns, for instance, `3 messages`."""
    words = "1 message" if count == 1 else f"{count} messages"
    return words if is_exact else f"At least {words}"


def was(count: int) -> str:
    """Returns the verb."""
    return "was" if count == 1 else "were"


def are(count: int) -> str:
    """Returns the verb."""
    return "is" if count == 1 else "are"


def sub_queue(queue: Queue) -> str:
    """Returns the name of a sub-queue for people."""
    is_transfer = queue.path.lower().endswith(f"{TRANSFER_SUFFIX}{DEAD_LETTER_SUFFIX}".lower())
    return "the transfer dead-letter queue" if is_transfer else "the dead-letter queue"
