"""Reports what went wrong in a namespace: messages that nobody received or settled, dead letters, refusals, and what
Azure would have refused.

Collects what the core, the refusals and `report_notes.py` know. It reads messages as the control API does, in slices
and without changing them, and up to a limit for each queue. Loaded with the first report.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from broker.app.observe.report_files import junit
from broker.app.observe.report_findings import (
    Finding,
    are,
    messages,
    of_counts,
    over_quota,
    refusal,
    sub_queue,
    was,
)
from broker.core.contract import control_operations as control
from broker.core.contract.commands import ControlRequest
from broker.core.contract.errors import BrokerError, UndecodableMessage
from broker.core.contract.observations import MESSAGE_IDS_MAX
from broker.core.routing.compiled_rule import rule_error
from config.files.azure_limits import beyond_azure
from config.model.definitions import SubscriptionDefinition
from config.model.limits import MEBIBYTE
from config.model.report_kinds import REPORT_KINDS
from protocol.codec import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence

    from broker.app.observe.report_notes import NamespaceNotes, ReportNotes
    from broker.app.runtime.durable_core import DurableCore
    from broker.core.contract.message import Message
    from broker.core.entities.entity import Entity
    from broker.core.namespace import Namespace
    from broker.core.queues.queue import Queue
    from config.model.limits import Limits
    from protocol.refusals import Refusals, RefusedCount, RefusedPlace

SCANNED_MAX_MESSAGES = 10_000
"""Messages of one queue that a report looks at."""
SCANNED_TOGETHER_MAX_MESSAGES = 50_000
"""Messages of all queues together. Of each queue at least one slice is looked at."""
SLICE_MESSAGES = 1_000
SLICE_S = 0.005
FINDINGS_MAX = 1_000
"""Findings of one kind in one report."""
ENDED_MAX = 1_000
"""Reports of namespaces that were deleted."""


@dataclass(slots=True)
class _Budget:
    """How many messages a report may still look at."""

    left: int = SCANNED_TOGETHER_MAX_MESSAGES


@dataclass(slots=True)
class _Scan:
    """The messages of one queue by what is wrong with them."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[Message]] = field(default_factory=dict)
    is_exact: bool = True

    def add(self, what: str, message: Message) -> None:
        self.counts[what] += 1
        first = self.first.setdefault(what, [])
        if len(first) < MESSAGE_IDS_MAX:
            first.append(message)


class RunReports:
    """Makes the reports of all namespaces."""

    def __init__(
        self,
        core: DurableCore,
        refusals: Refusals,
        notes: ReportNotes,
        azure: Limits,
        *,
        kept_fail_on: Collection[str] | None = None,
    ) -> None:
        """`kept_fail_on`: the reports of namespaces are kept when they are deleted, with these failures."""
        self._core = core
        self._refusals = refusals
        self._notes = notes
        self._azure = azure
        self._kept_fail_on = kept_fail_on
        self._reader = Reader()
        self.ended: deque[dict[str, Any]] = deque(maxlen=ENDED_MAX)
        """Reports of namespaces that were deleted."""

    def begin(self, name: str, event: str) -> None:
        """Begins a new report of a namespace."""
        self._forget_refusals(name)
        self._notes.begin(self._core.namespaces[name], event)

    def began(self, name: str, event: str) -> None:
        """Begins the report of a namespace that was created or restored."""
        if name in self._core.namespaces:
            self.begin(name, event)

    async def deleting(self, name: str) -> None:
        """Keeps the report of a namespace that is about to be deleted, if it is wanted at the end."""
        if self._kept_fail_on is not None and name in self._core.registry.definitions:
            self.ended.append(await self.report(name, self._kept_fail_on))

    def deleted(self, name: str) -> None:
        """Forgets a namespace."""
        self._forget_refusals(name)
        self._notes.forget(name)

    def junit(self, reports: Sequence[dict[str, Any]]) -> str:
        """Returns reports as JUnit XML."""
        return junit(reports)

    async def all_reports(self, fail_on: Collection[str]) -> list[dict[str, Any]]:
        """Returns the reports of all namespaces: of those that were deleted, and of those that exist."""
        return [
            *self.ended,
            *[await self.report(name, fail_on) for name in list(self._core.namespaces)],
        ]

    async def report(self, name: str, fail_on: Collection[str]) -> dict[str, Any]:
        """Returns the report of a namespace as plain data."""
        namespace = self._core.namespaces[name]
        notes = self._notes.of(name)
        findings: dict[str, list[Finding]] = {one.name: [] for one in REPORT_KINDS}
        async for one in self._findings(namespace, notes):
            findings[one.kind].append(one)
        shown = [one for found in findings.values() for one in found[:FINDINGS_MAX]]
        return {
            "namespace": name,
            "since": _time(notes.since.time_ms),
            "since_event": notes.since.event,
            "time": _time(self._notes.now_ms()),
            "is_passed": not any(findings[kind] for kind in fail_on),
            "fail_on": list(fail_on),
            "kinds": [
                {
                    "kind": kind.name,
                    "expectation": kind.expectation,
                    "is_failure": kind.name in fail_on,
                    "is_passed": kind.name not in fail_on or not findings[kind.name],
                    "findings": len(findings[kind.name]),
                    "count": sum(one.count for one in findings[kind.name]),
                }
                for kind in REPORT_KINDS
            ],
            "findings": [one._asdict() for one in shown],
        }

    # --- findings ------------------------------------------------------------------------------

    async def _findings(
        self, namespace: Namespace, notes: NamespaceNotes
    ) -> AsyncIterator[Finding]:
        budget = _Budget()
        resume_s = time.perf_counter() + SLICE_S
        for entity in list(namespace.entities()):
            for queue in entity.queues:
                if queue.count:
                    async for finding in self._of_messages(namespace.name, entity, queue, budget):
                        yield finding
                for finding in of_counts(queue, notes):
                    yield finding
            if (over_size := self._over_size(entity)) is not None:
                yield over_size
            if time.perf_counter() > resume_s:
                await asyncio.sleep(0)
                resume_s = time.perf_counter() + SLICE_S
        for finding in self._of_the_past(namespace, notes):
            yield finding

    async def _of_messages(
        self, name: str, entity: Entity, queue: Queue, budget: _Budget
    ) -> AsyncIterator[Finding]:
        """Returns what is wrong with the messages that are in a queue now."""
        is_main = queue is entity.main
        try:
            scan = await self._scan(name, queue.path, budget, is_main=is_main)
        except BrokerError:
            return  # it was deleted meanwhile
        path = entity.path
        if not is_main:
            for reason, count in scan.counts.items():
                ids = await self._ids(scan.first[reason])
                why = f"with the reason '{reason}'" if reason else "without a reason"
                yield Finding(
                    "dead_letters",
                    path,
                    f"{messages(count, is_exact=scan.is_exact)} {are(count)} in {sub_queue(queue)} of '{path}', {why}.",
                    count,
                    ids,
                    scan.is_exact,
                    {"reason": reason or None},
                )
            return
        if count := scan.counts["never_received"]:
            ids = await self._ids(scan.first["never_received"])
            sentence = f"{messages(count, is_exact=scan.is_exact)} of '{path}' {was(count)} never received."
            yield Finding("never_received", path, sentence, count, ids, scan.is_exact)
        states = {state: scan.counts[state] for state in ("locked", "deferred", "returned")}
        if count := sum(states.values()):
            first = [one for state in states for one in scan.first.get(state, ())]
            parts = ", ".join(f"{number} {state}" for state, number in states.items() if number)
            yield Finding(
                "never_settled",
                path,
                f"{messages(count, is_exact=scan.is_exact)} of '{path}' {was(count)} received and not settled: {parts}.",
                count,
                await self._ids(first[:MESSAGE_IDS_MAX]),
                scan.is_exact,
                states,
            )

    async def _scan(self, name: str, path: str, budget: _Budget, *, is_main: bool) -> _Scan:
        scan = _Scan()
        after = looked_at = 0
        while True:
            operation = control.ReadMessages(path, after, SLICE_MESSAGES, SLICE_MESSAGES)
            read = await self._core.ask(
                name,
                lambda peer, mark, operation=operation: ControlRequest(peer, mark, operation),  # type: ignore[misc]
            )
            assert isinstance(read, control.MessagesRead)
            for view in read.messages:
                message = view.message
                if not is_main:
                    changes = message.changes
                    scan.add((changes and changes.dead_letter_reason) or "", message)
                elif view.state != "active":
                    scan.add(view.state, message)
                else:
                    scan.add("returned" if message.delivery_count else "never_received", message)
            looked_at += len(read.messages)
            budget.left -= len(read.messages)
            if read.next_after is None:
                return scan
            if looked_at >= SCANNED_MAX_MESSAGES or budget.left <= 0:
                scan.is_exact = False
                return scan
            after = read.next_after
            await asyncio.sleep(0)

    async def _ids(self, chosen: list[Message]) -> list[str | None]:
        """Returns the ids of messages whose bodies may be in the store."""
        missing = [one.payload_id for one in chosen if one.body is None]
        payloads = await self._core.read_payloads(missing)
        ids: list[str | None] = []
        for one in chosen:
            body = one.body if one.body is not None else payloads.get(one.payload_id, (b"",))[0]
            try:
                ids.append(self._reader.message_id(body))
            except UndecodableMessage:
                ids.append(None)
        return ids

    def _over_size(self, entity: Entity) -> Finding | None:
        definition = entity.definition
        if isinstance(definition, SubscriptionDefinition):
            return None  # its messages count towards the size of the topic
        azure = self._azure
        most = (definition.max_size_megabytes or azure.entity_size_default_megabytes) * MEBIBYTE
        if definition.enable_partitioning:
            most *= azure.partition_count
        size_bytes = entity.usage.size_bytes
        if size_bytes <= most:
            return None
        sentence = f"'{entity.path}' has {size_bytes} bytes of messages. Azure would allow {most}."
        return Finding("over_quota", entity.path, sentence, details={"quota": "entity_size"})

    def _of_the_past(self, namespace: Namespace, notes: NamespaceNotes) -> Iterator[Finding]:
        """Returns what has happened since the report began."""
        for (path, reason), seen in notes.dead_lettered.items():
            why = f"with the reason '{reason}'" if reason else "without a reason"
            sentence = f"{messages(seen.count)} of '{path}' {was(seen.count)} dead-lettered {why}."
            details = {"reason": reason or None}
            yield Finding(
                "dead_lettered", path, sentence, seen.count, list(seen.message_ids), details=details
            )
        for path, seen in namespace.observations.unmatched.items():
            sentence = f"{messages(seen.count)} sent to '{path}' matched no subscription."
            yield Finding("unmatched", path, sentence, seen.count, list(seen.message_ids))
        for (quota, path), seen in namespace.observations.over_quota.items():
            yield over_quota(quota, path, seen)
        entities = {view.path: view.definition for view in namespace.views()}
        for path, sentence in beyond_azure(entities, self._azure, rule_error):
            yield Finding("over_quota", path, sentence)
        for place, refused in self._refused(namespace.name):
            yield refusal(place, refused)

    def _refused(self, name: str) -> Iterable[tuple[RefusedPlace, RefusedCount]]:
        by_namespace = self._refusals.by_namespace
        found = list(by_namespace.get(name, {}).items())
        if name == self._core.default_namespace:
            found += by_namespace.get("", {}).items()
        return found

    def _forget_refusals(self, name: str) -> None:
        self._refusals.by_namespace.pop(name, None)
        if name == self._core.default_namespace:
            self._refusals.by_namespace.pop("", None)


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
