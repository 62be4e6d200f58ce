"""Every operation of the control API as a method. `client.py` adds what tests need beside them.

Written by `python -m tests.pytest_package.generate` from the OpenAPI document. Change that, not this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_peeklock.http_requests import HttpRequests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_peeklock.answers import (
        ActionModel,
        BodyFormat,
        ClientModel,
        Clock,
        Condition,
        Connect,
        Connections,
        Count,
        Deleted,
        DetailedEntity,
        DetailedMessage,
        DraftRule,
        Entities,
        Fault,
        Faults,
        Frames,
        FramesRecording,
        History,
        HistoryRecording,
        KeyedNamespace,
        Kind,
        Messages,
        Namespaces,
        OccurrenceModel,
        Operation,
        Overview,
        Removed,
        Report,
        ReportBegan,
        ReportFormat,
        Reset,
        Rules,
        Send,
        SentMessage,
        Sessions,
        Snapshot,
        SnapshotOrigin,
        Snapshots,
        State,
        Storage,
        StoredMessage,
        SubQueue,
        Try,
        Wait,
    )

__tracebackhide__ = True  # a test's traceback ends in the test


class ControlApi(HttpRequests):
    """The operations of the broker's OpenAPI document, each with its name and its fields. None: the field is left
    out. Answers are the JSON objects that the broker writes. What it refuses is raised as `PeeklockError`."""

    def list_namespaces(self) -> Namespaces:
        """List the namespaces, the default namespace first."""
        answer: Namespaces = self.request("GET", "/namespaces")
        return answer

    def create_namespace(
        self,
        *,
        name: str | None = None,
        topology: dict[str, Any] | str | None = None,
        from_: SnapshotOrigin | None = None,
        ephemeral: bool | None = None,
    ) -> KeyedNamespace:
        """Create a namespace with a key of its own."""
        answer: KeyedNamespace = self.request(
            "POST",
            "/namespaces",
            body={"name": name, "topology": topology, "from": from_, "ephemeral": ephemeral},
        )
        return answer

    def get_namespace(self, *, namespace: str | None = None) -> KeyedNamespace:
        """Get one namespace and how clients connect to it."""
        answer: KeyedNamespace = self.request("GET", f"/namespaces/{self.named(namespace)}")
        return answer

    def delete_namespace(self, *, namespace: str | None = None) -> Deleted:
        """Delete a namespace that this API has created, with everything in it and with its snapshots."""
        answer: Deleted = self.request("DELETE", f"/namespaces/{self.named(namespace)}")
        return answer

    def get_namespace_clock(self, *, namespace: str | None = None) -> Clock:
        """Show the clock of one namespace."""
        answer: Clock = self.request("GET", f"/namespaces/{self.named(namespace)}/clock")
        return answer

    def advance_namespace_clock(
        self,
        *,
        namespace: str | None = None,
        seconds: float | None = None,
        milliseconds: int | None = None,
    ) -> Clock:
        """Move the clock of one namespace ahead; what becomes due in it is done."""
        answer: Clock = self.request(
            "POST",
            f"/namespaces/{self.named(namespace)}/clock/advance",
            body={"seconds": seconds, "milliseconds": milliseconds},
        )
        return answer

    def set_namespace_clock(self, time: str, *, namespace: str | None = None) -> Clock:
        """Move the clock of one namespace ahead to a time."""
        answer: Clock = self.request(
            "POST", f"/namespaces/{self.named(namespace)}/clock/set", body={"time": time}
        )
        return answer

    def freeze_namespace_clock(self, *, namespace: str | None = None) -> Clock:
        """Stop the clock of one namespace; it can still be moved."""
        answer: Clock = self.request(
            "POST", f"/namespaces/{self.named(namespace)}/clock/freeze", body={}
        )
        return answer

    def resume_namespace_clock(self, *, namespace: str | None = None) -> Clock:
        """Let the clock of one namespace run again, from the time that it shows."""
        answer: Clock = self.request(
            "POST", f"/namespaces/{self.named(namespace)}/clock/resume", body={}
        )
        return answer

    def list_snapshots(self) -> Snapshots:
        """List the snapshots of the namespace."""
        answer: Snapshots = self.request("GET", f"{self.base}/snapshots")
        return answer

    def take_snapshot(
        self, name: str, *, ephemeral: bool | None = None, replace: bool | None = None
    ) -> Snapshot:
        """Take a snapshot of the namespace."""
        answer: Snapshot = self.request(
            "POST",
            f"{self.base}/snapshots",
            body={"name": name, "ephemeral": ephemeral, "replace": replace},
        )
        return answer

    def get_snapshot(self, snapshot: str) -> Snapshot:
        """Get one snapshot."""
        answer: Snapshot = self.request("GET", f"{self.base}/snapshots/{quote(snapshot, safe='')}")
        return answer

    def delete_snapshot(self, snapshot: str) -> Deleted:
        """Delete a snapshot."""
        answer: Deleted = self.request(
            "DELETE", f"{self.base}/snapshots/{quote(snapshot, safe='')}"
        )
        return answer

    def restore_snapshot(self, snapshot: str) -> Snapshot:
        """Replace the content of the namespace by that of a snapshot; clients have to connect again."""
        answer: Snapshot = self.request(
            "POST", f"{self.base}/snapshots/{quote(snapshot, safe='')}/restore", body={}
        )
        return answer

    def get_overview(self) -> Overview:
        """Get the counts and rates of all entities, and alerts."""
        answer: Overview = self.request("GET", f"{self.base}/overview")
        return answer

    def stream_overview(self) -> Iterator[dict[str, Any]]:
        """The overview as server-sent events: first all entities, then those that have changed."""
        return self.stream("GET", f"{self.base}/overview/stream")

    def get_connect(self) -> Connect:
        """Get the connection string and the ports."""
        answer: Connect = self.request("GET", f"{self.base}/connect")
        return answer

    def list_entities(
        self, *, kind: Kind | None = None, after: str | None = None, limit: int | None = None
    ) -> Entities:
        """List queues, topics and subscriptions with their counts."""
        answer: Entities = self.request(
            "GET", f"{self.base}/entities", query={"kind": kind, "after": after, "limit": limit}
        )
        return answer

    def get_entity(self, entity: str) -> DetailedEntity:
        """Get one queue, topic or subscription with its counts."""
        answer: DetailedEntity = self.request(
            "GET", f"{self.base}/entity", query={"entity": entity}
        )
        return answer

    def list_rules(self, entity: str) -> Rules:
        """List the rules of a subscription."""
        answer: Rules = self.request("GET", f"{self.base}/rules", query={"entity": entity})
        return answer

    def try_rules(
        self,
        entity: str,
        *,
        message: SentMessage | None = None,
        stored: StoredMessage | None = None,
        draft: DraftRule | None = None,
    ) -> Try:
        """Say which rules of a subscription match a message, and what actions make of it."""
        answer: Try = self.request(
            "POST",
            f"{self.base}/rules/try",
            body={"entity": entity, "message": message, "stored": stored, "draft": draft},
        )
        return answer

    def list_messages(
        self,
        entity: str,
        *,
        sub_queue: SubQueue | None = None,
        state: State | None = None,
        session: str | None = None,
        filter: str | None = None,
        text: str | None = None,
        after: int | None = None,
        limit: int | None = None,
        body: BodyFormat | None = None,
    ) -> Messages:
        """Read messages without locking them, by state, session or SQL expression."""
        answer: Messages = self.request(
            "GET",
            f"{self.base}/messages",
            query={
                "entity": entity,
                "sub_queue": sub_queue,
                "state": state,
                "session": session,
                "filter": filter,
                "text": text,
                "after": after,
                "limit": limit,
                "body": body,
            },
        )
        return answer

    def send_messages(self, entity: str, messages: list[SentMessage]) -> Send:
        """Send messages to a queue or topic."""
        answer: Send = self.request(
            "POST", f"{self.base}/messages", body={"entity": entity, "messages": messages}
        )
        return answer

    def get_message(
        self,
        entity: str,
        sequence_number: int,
        *,
        sub_queue: SubQueue | None = None,
        body: BodyFormat | None = None,
    ) -> DetailedMessage:
        """Read one message by its sequence number."""
        answer: DetailedMessage = self.request(
            "GET",
            f"{self.base}/message",
            query={
                "entity": entity,
                "sub_queue": sub_queue,
                "sequence_number": sequence_number,
                "body": body,
            },
        )
        return answer

    def delete_messages(
        self,
        entity: str,
        *,
        sub_queue: SubQueue | None = None,
        sequence_numbers: list[int] | None = None,
        state: State | None = None,
        session: str | None = None,
        filter: str | None = None,
    ) -> Count:
        """Delete messages, whatever their state."""
        answer: Count = self.request(
            "POST",
            f"{self.base}/messages/delete",
            body={
                "entity": entity,
                "sub_queue": sub_queue,
                "sequence_numbers": sequence_numbers,
                "state": state,
                "session": session,
                "filter": filter,
            },
        )
        return answer

    def dead_letter_messages(
        self,
        entity: str,
        *,
        sub_queue: SubQueue | None = None,
        sequence_numbers: list[int] | None = None,
        state: State | None = None,
        session: str | None = None,
        filter: str | None = None,
        reason: str | None = None,
        description: str | None = None,
    ) -> Count:
        """Dead-letter messages, whatever their state."""
        answer: Count = self.request(
            "POST",
            f"{self.base}/messages/dead-letter",
            body={
                "entity": entity,
                "sub_queue": sub_queue,
                "sequence_numbers": sequence_numbers,
                "state": state,
                "session": session,
                "filter": filter,
                "reason": reason,
                "description": description,
            },
        )
        return answer

    def release_messages(
        self,
        entity: str,
        *,
        sub_queue: SubQueue | None = None,
        sequence_numbers: list[int] | None = None,
        state: State | None = None,
        session: str | None = None,
        filter: str | None = None,
    ) -> Count:
        """Make messages ready now: end locks without a failed delivery, return deferred ones, activate scheduled ones."""
        answer: Count = self.request(
            "POST",
            f"{self.base}/messages/release",
            body={
                "entity": entity,
                "sub_queue": sub_queue,
                "sequence_numbers": sequence_numbers,
                "state": state,
                "session": session,
                "filter": filter,
            },
        )
        return answer

    def resubmit_messages(
        self,
        entity: str,
        *,
        sub_queue: SubQueue | None = None,
        sequence_numbers: list[int] | None = None,
        state: State | None = None,
        session: str | None = None,
        filter: str | None = None,
        to: str | None = None,
    ) -> Count:
        """Move dead letters back to their entity, or to another queue or topic."""
        answer: Count = self.request(
            "POST",
            f"{self.base}/resubmit",
            body={
                "entity": entity,
                "sub_queue": sub_queue,
                "sequence_numbers": sequence_numbers,
                "state": state,
                "session": session,
                "filter": filter,
                "to": to,
            },
        )
        return answer

    def expire_locks(
        self,
        entity: str,
        *,
        sub_queue: SubQueue | None = None,
        sequence_numbers: list[int] | None = None,
        session: str | None = None,
    ) -> Count:
        """Expire locks now, as if their time had come."""
        answer: Count = self.request(
            "POST",
            f"{self.base}/locks/expire",
            body={
                "entity": entity,
                "sub_queue": sub_queue,
                "sequence_numbers": sequence_numbers,
                "session": session,
            },
        )
        return answer

    def purge_entity(self, entity: str, *, sub_queue: SubQueue | None = None) -> Count:
        """Delete all messages of an entity or a sub-queue."""
        answer: Count = self.request(
            "POST", f"{self.base}/purge", body={"entity": entity, "sub_queue": sub_queue}
        )
        return answer

    def reset_namespace(self) -> Reset:
        """Make the namespace as it is declared, without messages."""
        answer: Reset = self.request("POST", f"{self.base}/reset", body={})
        return answer

    def list_sessions(
        self, entity: str, *, after: str | None = None, limit: int | None = None
    ) -> Sessions:
        """List the sessions of an entity with holders and states."""
        answer: Sessions = self.request(
            "GET", f"{self.base}/sessions", query={"entity": entity, "after": after, "limit": limit}
        )
        return answer

    def list_connections(self) -> Connections:
        """List the AMQP connections with links, credit, unsettled messages and the last error."""
        answer: Connections = self.request("GET", f"{self.base}/connections")
        return answer

    def list_frames(
        self,
        *,
        last: int | None = None,
        after: int | None = None,
        connection: str | None = None,
        container_id: str | None = None,
    ) -> Frames:
        """List the recorded AMQP frames of all connections, decoded, without secrets."""
        answer: Frames = self.request(
            "GET",
            f"{self.base}/frames",
            query={
                "last": last,
                "after": after,
                "connection": connection,
                "container_id": container_id,
            },
        )
        return answer

    def record_frames(self, *, recording: bool, last: int | None = None) -> FramesRecording:
        """Start or stop recording the AMQP frames of the namespace."""
        answer: FramesRecording = self.request(
            "PUT", f"{self.base}/frames", body={"recording": recording, "last": last}
        )
        return answer

    def stream_frames(self, *, container_id: str | None = None) -> Iterator[dict[str, Any]]:
        """Stream the AMQP frames of all connections, also of those that are opened later."""
        return self.stream(
            "GET", f"{self.base}/frames/stream", query={"container_id": container_id}
        )

    def list_connection_frames(
        self, connection: str, *, last: int | None = None, after: int | None = None
    ) -> Frames:
        """List the recorded AMQP frames of one connection."""
        answer: Frames = self.request(
            "GET",
            f"{self.base}/connections/{quote(connection, safe='')}/frames",
            query={"last": last, "after": after},
        )
        return answer

    def stream_connection_frames(self, connection: str) -> Iterator[dict[str, Any]]:
        """Stream the AMQP frames of one connection until it is closed."""
        return self.stream(
            "GET", f"{self.base}/connections/{quote(connection, safe='')}/frames/stream"
        )

    def get_report(
        self, *, format: ReportFormat | None = None, fail_on: str | None = None
    ) -> Report | str:
        """Report messages that nobody received or settled, dead letters, refusals, and what Azure would have refused."""
        answer: Report | str = self.request(
            "GET", f"{self.base}/report", query={"format": format, "fail_on": fail_on}
        )
        return answer

    def begin_report(self) -> ReportBegan:
        """Begin a new report: forget what has happened in the namespace so far."""
        answer: ReportBegan = self.request("DELETE", f"{self.base}/report")
        return answer

    def wait_for_conditions(
        self, conditions: list[Condition], *, timeout_s: float | None = None
    ) -> Wait:
        """Wait until conditions on counts or messages hold."""
        answer: Wait = self.request(
            "POST", f"{self.base}/wait", body={"conditions": conditions, "timeout_s": timeout_s}
        )
        return answer

    def list_faults(self) -> Faults:
        """List the fault rules."""
        answer: Faults = self.request("GET", f"{self.base}/faults")
        return answer

    def add_fault(
        self,
        operation: Operation,
        action: ActionModel,
        *,
        name: str | None = None,
        entity: str | None = None,
        sub_queue: SubQueue | None = None,
        management_operation: str | None = None,
        client: ClientModel | None = None,
        filter: str | None = None,
        occurrence: OccurrenceModel | None = None,
    ) -> Fault:
        """Make a fault rule: operations of clients that it fits fail as it says."""
        answer: Fault = self.request(
            "POST",
            f"{self.base}/faults",
            body={
                "name": name,
                "operation": operation,
                "entity": entity,
                "sub_queue": sub_queue,
                "management_operation": management_operation,
                "client": client,
                "filter": filter,
                "occurrence": occurrence,
                "action": action,
            },
        )
        return answer

    def remove_faults(self) -> Removed:
        """Remove all fault rules."""
        answer: Removed = self.request("DELETE", f"{self.base}/faults")
        return answer

    def get_fault(self, fault: str) -> Fault:
        """Get one fault rule and how often it has acted."""
        answer: Fault = self.request("GET", f"{self.base}/faults/{quote(fault, safe='')}")
        return answer

    def remove_fault(self, fault: str) -> Fault:
        """Remove a fault rule."""
        answer: Fault = self.request("DELETE", f"{self.base}/faults/{quote(fault, safe='')}")
        return answer

    def read_history(
        self,
        *,
        entity: str | None = None,
        sub_queue: SubQueue | None = None,
        message_id: str | None = None,
        sequence_number: int | None = None,
        session: str | None = None,
        filter: str | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> History:
        """Read what happened to messages, by message id, sequence number, session or SQL expression."""
        answer: History = self.request(
            "GET",
            f"{self.base}/history",
            query={
                "entity": entity,
                "sub_queue": sub_queue,
                "message_id": message_id,
                "sequence_number": sequence_number,
                "session": session,
                "filter": filter,
                "after": after,
                "limit": limit,
            },
        )
        return answer

    def set_history_recording(self, *, recording: bool) -> HistoryRecording:
        """Begin or end recording what happens to messages."""
        answer: HistoryRecording = self.request(
            "PUT", f"{self.base}/history", body={"recording": recording}
        )
        return answer

    def stream_history(
        self,
        *,
        entity: str | None = None,
        sub_queue: SubQueue | None = None,
        message_id: str | None = None,
        sequence_number: int | None = None,
        session: str | None = None,
        filter: str | None = None,
        after: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Follow what happens to messages, as server-sent events."""
        return self.stream(
            "GET",
            f"{self.base}/history/stream",
            query={
                "entity": entity,
                "sub_queue": sub_queue,
                "message_id": message_id,
                "sequence_number": sequence_number,
                "session": session,
                "filter": filter,
                "after": after,
            },
        )

    def get_clock(self) -> Clock:
        """Show the broker's clock."""
        answer: Clock = self.request("GET", "/clock")
        return answer

    def advance_clock(
        self, *, seconds: float | None = None, milliseconds: int | None = None
    ) -> Clock:
        """Move the clock ahead; what becomes due is done."""
        answer: Clock = self.request(
            "POST", "/clock/advance", body={"seconds": seconds, "milliseconds": milliseconds}
        )
        return answer

    def set_clock(self, time: str) -> Clock:
        """Move the clock ahead to a time."""
        answer: Clock = self.request("POST", "/clock/set", body={"time": time})
        return answer

    def freeze_clock(self) -> Clock:
        """Stop the clock; it can still be moved."""
        answer: Clock = self.request("POST", "/clock/freeze", body={})
        return answer

    def resume_clock(self) -> Clock:
        """Let the clock run again, from the time that it shows."""
        answer: Clock = self.request("POST", "/clock/resume", body={})
        return answer

    def flush_storage(self) -> Storage:
        """Write everything that was accepted to the store's main file, so that a copy of it is complete."""
        answer: Storage = self.request("POST", "/storage/flush", body={})
        return answer

    def get_description(self) -> dict[str, Any]:
        """This description of the API."""
        answer: dict[str, Any] = self.request("GET", "/openapi.json")
        return answer
