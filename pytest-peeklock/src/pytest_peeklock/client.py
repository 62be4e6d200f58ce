"""The client that tests use: the operations of the control API, and waits, faults and time as tests write them.

It only builds requests and reads answers; the broker does the work.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, cast

from pytest_peeklock import waits
from pytest_peeklock.async_waits import AsyncWaits
from pytest_peeklock.conditions import given
from pytest_peeklock.control_api import ControlApi
from pytest_peeklock.errors import WaitTimedOut
from pytest_peeklock.fault_rule import FaultRule
from pytest_peeklock.waits import blocking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_peeklock.answers import (
        ActionModel,
        BodyFormat,
        ClientModel,
        Condition,
        EntityCounts,
        FaultKind,
        Message,
        OccurrenceModel,
        Operation,
        Seen,
        SentMessage,
        SnapshotOrigin,
        State,
        SubQueue,
        When,
    )

__tracebackhide__ = True  # a test's traceback ends in the test
PAGE_LIMIT = 1000


class Peeklock(ControlApi):
    """One namespace of a broker, or its default namespace.

    `connection_string` is what the SDK's clients take. `aio` has the waits for tests that run in an event loop.
    """

    @property
    def aio(self) -> AsyncWaits:
        """Returns the waits and streams of this client, to be awaited."""
        return AsyncWaits(self)

    def __repr__(self) -> str:
        return f"<Peeklock {self.url} {self.namespace or 'default namespace'}>"

    # --- namespaces ----------------------------------------------------------------------------

    def new_namespace(
        self,
        name: str | None = None,
        *,
        topology: dict[str, Any] | str | None = None,
        snapshot: SnapshotOrigin | None = None,
    ) -> Peeklock:
        """Creates a namespace, which the next start of the broker deletes, and returns a client of it."""
        created = self.create_namespace(
            name=name, topology=topology, from_=snapshot, ephemeral=True
        )
        client = Peeklock(self.url, created["name"], created["connection_string"])
        client.wait_timeout_s = self.wait_timeout_s
        return client

    @contextmanager
    def temporary_namespace(
        self,
        name: str | None = None,
        *,
        topology: dict[str, Any] | str | None = None,
        snapshot: SnapshotOrigin | None = None,
    ) -> Iterator[Peeklock]:
        """A namespace that exists for a block."""
        created = self.new_namespace(name, topology=topology, snapshot=snapshot)
        try:
            yield created
        finally:
            created.delete_namespace()

    @contextmanager
    def restored_afterwards(self) -> Iterator[None]:
        """Takes a snapshot, and restores it at the end of the block. SDK clients have to connect again then, which
        they do by themselves."""
        name = f"block-{uuid.uuid4().hex}"
        self.take_snapshot(name, ephemeral=True)
        try:
            yield
        finally:
            self.restore_snapshot(name)
            self.delete_snapshot(name)

    # --- messages ------------------------------------------------------------------------------

    def send(self, entity: str, *messages: str | SentMessage) -> list[int]:
        """Sends messages, each a text or a JSON object with its fields. Returns their sequence numbers."""
        written = [
            cast("SentMessage", {"body": one}) if isinstance(one, str) else one for one in messages
        ]
        return self.send_messages(entity, written)["sequence_numbers"]

    def messages(
        self,
        entity: str,
        *,
        sub_queue: SubQueue | None = None,
        state: State | None = None,
        session: str | None = None,
        filter: str | None = None,
        body: BodyFormat | None = None,
    ) -> list[Message]:
        """Returns all messages of an entity in their order, without locking them."""
        found: list[Message] = []
        after: int | None = None
        while True:
            page = self.list_messages(
                entity,
                sub_queue=sub_queue,
                state=state,
                session=session,
                filter=filter,
                after=after,
                limit=PAGE_LIMIT,
                body=body,
            )
            found += page["messages"]
            after = page["next"]
            if after is None:
                return found

    def dead_letters(self, entity: str, *, filter: str | None = None) -> list[Message]:
        """Returns the dead letters of an entity, without locking them."""
        return self.messages(entity, sub_queue="dead_letter", filter=filter)

    def counts(self, entity: str) -> EntityCounts:
        """Returns how many messages of an entity are in each state."""
        return self.get_entity(entity)["counts"]

    # --- waiting -------------------------------------------------------------------------------

    def wait_until(self, *wanted: Condition, timeout_s: float | None = None) -> list[Seen]:
        """Waits until all conditions hold, and returns what was seen of each. Raises `WaitTimedOut`."""
        if timeout_s is None:
            timeout_s = self.wait_timeout_s
        try:
            return self.wait_for_conditions(list(wanted), timeout_s=timeout_s)["seen"]
        except WaitTimedOut as error:
            error.conditions = wanted
            raise

    wait_for = blocking(waits.wait_for)
    wait_until_settled = blocking(waits.wait_until_settled)
    wait_until_unlocked = blocking(waits.wait_until_unlocked)
    wait_until_empty = blocking(waits.wait_until_empty)

    @contextmanager
    def expecting(self, *wanted: Condition, timeout_s: float | None = None) -> Iterator[list[Seen]]:
        """Waits at the end of the block until the conditions hold. The list then has what was seen."""
        seen: list[Seen] = []
        yield seen
        seen += self.wait_until(*wanted, timeout_s=timeout_s)

    # --- time ----------------------------------------------------------------------------------

    def now(self) -> datetime:
        """Returns the time that the clock of the namespace shows."""
        clock = self.get_clock() if self.namespace is None else self.get_namespace_clock()
        return datetime.fromtimestamp(clock["now_ms"] / 1000, timezone.utc)

    def advance(
        self,
        delta: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Moves the clock of the namespace ahead, and does what becomes due. Returns the new time. Other namespaces
        do not notice. The client of the default namespace moves the clock of the whole broker."""
        moved = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        moved += delta or timedelta()
        milliseconds = round(moved / timedelta(milliseconds=1))
        if self.namespace is None:
            clock = self.advance_clock(milliseconds=milliseconds)
        else:
            clock = self.advance_namespace_clock(milliseconds=milliseconds)
        return datetime.fromtimestamp(clock["now_ms"] / 1000, timezone.utc)

    @contextmanager
    def frozen_clock(self) -> Iterator[None]:
        """Stops the clock of the namespace for a block: no lock expires, no schedule comes due and no message
        expires. `advance` moves it all the same. The client of the default namespace stops the clock of the whole
        broker."""
        if self.namespace is None:
            self.freeze_clock()
        else:
            self.freeze_namespace_clock()
        try:
            yield
        finally:
            if self.namespace is None:
                self.resume_clock()
            else:
                self.resume_namespace_clock()

    # --- faults --------------------------------------------------------------------------------

    @contextmanager
    def fault(
        self,
        operation: Operation,
        kind: FaultKind,
        *,
        entity: str | None = None,
        sub_queue: SubQueue | None = None,
        filter: str | None = None,
        management_operation: str | None = None,
        container_id: str | None = None,
        key_name: str | None = None,
        nth: int | None = None,
        every: int | None = None,
        first: int | None = None,
        probability: float | None = None,
        seed: int | None = None,
        condition: str | None = None,
        description: str | None = None,
        seconds: float | None = None,
        when: When | None = None,
        name: str | None = None,
    ) -> Iterator[FaultRule]:
        """Makes operations of clients fail for a block: `fault("send", "server_busy", entity="orders", first=2)`."""
        action = {
            "kind": kind,
            "condition": condition,
            "description": description,
            "seconds": seconds,
            "when": when,
        }
        client = {"container_id": container_id, "key_name": key_name}
        occurrence = {
            "nth": nth,
            "every": every,
            "first": first,
            "probability": probability,
            "seed": seed,
        }
        made = self.add_fault(
            operation,
            cast("ActionModel", given(action)),
            name=name,
            entity=entity,
            sub_queue=sub_queue,
            management_operation=management_operation,
            client=cast("ClientModel", given(client)) or None,
            filter=filter,
            occurrence=cast("OccurrenceModel", given(occurrence)) or None,
        )
        rule = FaultRule(self, made)
        try:
            yield rule
        finally:
            rule.remove()
