"""The types of what the control API answers and takes: plain JSON objects, as the broker writes them.

Written by `python -m tests.pytest_package.generate` from the OpenAPI document. Change that, not this.
"""

from __future__ import annotations

from typing import Any, Literal, Optional, TypedDict


class ActionModel(TypedDict, total=False):
    """What a rule does."""

    kind: FaultKind
    condition: str | None
    description: str | None
    seconds: float | None
    when: When | None


class Alert(TypedDict):
    """One alert."""

    kind: str
    entity: str | None
    connection: str | None
    message: str
    count: int


BodyFormat = Literal["auto", "text", "json", "base64", "none"]


class Client(TypedDict):
    """The client that caused a transition, or that held the lock."""

    connection: str
    container_id: str
    key_name: str | None


class ClientModel(TypedDict, total=False):
    """The clients whose operations a rule is about."""

    container_id: str | None
    key_name: str | None


class Clock(TypedDict):
    """The clock."""

    now: str
    now_ms: int
    is_frozen: bool
    ahead_ms: int


Condition = TypedDict(
    "Condition",
    {
        "entity": Optional["str"],
        "is": Optional["Settledness"],
        "sub_queue": "SubQueue",
        "state": Optional["State"],
        "session": Optional["str"],
        "filter": Optional["str"],
        "at_least": Optional["int"],
        "at_most": Optional["int"],
        "equals": Optional["int"],
    },
    total=False,
)
"""A number of messages, or `is`."""


class Connect(TypedDict):
    """How clients connect to a namespace."""

    namespace: str
    version: str
    authorization: str
    host: str
    is_tls: bool
    ports: Ports
    certificate_authority: str | None
    key_name: str | None
    key: str | None
    connection_string: str | None


class Connection(TypedDict):
    """A connection."""

    id: str
    client: str
    container_id: str
    product: str | None
    host: str
    opened_at: str | None
    links: list[Link]
    last_error: dict[str, Any] | None


class Connections(TypedDict):
    """All connections of the namespace."""

    connections: list[Connection]


class Count(TypedDict):
    """What was done."""

    count: int


class DeadLetter(TypedDict):
    """Why a message is a dead letter."""

    reason: str | None
    description: str | None
    source: str | None


class Deleted(TypedDict):
    """What was deleted."""

    deleted: str


class DetailedEntity(TypedDict):
    """One entity with all its properties."""

    path: str
    kind: Kind
    counts: EntityCounts
    size_bytes: int
    receivers: int
    senders: int
    held_sessions: int
    created_at: str | None
    updated_at: str | None
    accessed_at: str | None
    properties: dict[str, Any]
    all_properties: list[EntityProperty]


class DetailedMessage(TypedDict):
    """A message with the types of its properties."""

    sequence_number: int
    enqueued_sequence_number: int
    state: str
    sub_queue: SubQueue
    message_id: Any
    session_id: str | None
    correlation_id: Any
    subject: Any
    content_type: Any
    content_encoding: Any
    to: Any
    reply_to: Any
    reply_to_session_id: Any
    user_id: Any
    absolute_expiry_time: Any
    creation_time: Any
    group_sequence: Any
    partition_key: Any
    via_partition_key: Any
    delivery_count: int
    enqueued_at: str | None
    scheduled_for: str | None
    expires_at: str | None
    time_to_live_ms: int | None
    size_bytes: int
    lock: Lock | None
    dead_letter: DeadLetter | None
    application_properties: dict[str, Any]
    annotations: dict[str, Any]
    delivery_annotations: dict[str, Any]
    header: dict[str, Any]
    body: Any
    body_format: BodyFormat
    body_type: str | None
    types: dict[str, dict[str, str]]


class DraftRule(TypedDict, total=False):
    """A rule that the subscription does not have."""

    sql_filter: str | None
    action: str | None


class Entities(TypedDict):
    """Entities, ordered by path."""

    entities: list[Entity]
    next: str | None


class Entity(TypedDict):
    """One entity."""

    path: str
    kind: Kind
    counts: EntityCounts
    size_bytes: int
    receivers: int
    senders: int
    held_sessions: int
    created_at: str | None
    updated_at: str | None
    accessed_at: str | None
    properties: dict[str, Any]


class EntityCounts(TypedDict):
    """The counts of an entity. Those of its dead letters are in dead_letter."""

    active: int
    locked: int
    deferred: int
    scheduled: int
    dead_lettered: int
    transfer_dead_lettered: int
    dead_letter: StateCounts
    transfer_dead_letter: StateCounts


class EntityProperty(TypedDict):
    """A property of an entity, set or not."""

    name: str
    service_name: str
    value: bool | int | str | None
    is_default: bool


class Fault(TypedDict):
    """A fault rule and how often it has acted."""

    name: str
    operation: Operation
    entity: str | None
    sub_queue: SubQueue | None
    management_operation: str | None
    client: ClientModel | None
    filter: str | None
    occurrence: OccurrenceModel | None
    action: ActionModel
    matched: int
    hits: int


FaultKind = Literal[
    "refuse",
    "server_busy",
    "delay",
    "no_answer",
    "detach",
    "drop_connection",
    "lose_lock",
    "deliver_twice",
    "expire_token",
    "close_session",
]


class Faults(TypedDict):
    """All fault rules of a namespace, in the order in which they were made."""

    faults: list[Fault]


class Frame(TypedDict):
    """A frame, or a protocol header."""

    number: int
    time: str
    connection: str
    container_id: str
    direction: str
    channel: int | None
    performative: str
    fields: dict[str, Any]
    frame_bytes: int
    payload_bytes: int
    message: dict[str, Any] | None
    error: str | None


class Frames(TypedDict):
    """Recorded frames, the oldest first."""

    recording: bool
    last: int
    frames: list[Frame]


class History(TypedDict):
    """Transitions, the oldest first. A page may have fewer than `limit`."""

    recording: bool
    transitions: list[Transition]
    next: int | None
    last: int


class KeyedNamespace(TypedDict):
    """One namespace, and how clients connect to it."""

    name: str
    is_default: bool
    is_declared: bool
    ephemeral: bool
    created_at: str | None
    entities: int
    messages: int
    snapshots: int
    key_name: str | None
    key: str | None
    connection_string: str | None
    warnings: list[str]


Kind = Literal["queue", "topic", "subscription"]


class Link(TypedDict):
    """A link."""

    name: str
    role: str
    address: str
    session_id: str | None
    credit: int
    deliveries: int
    unsettled: int


class Lock(TypedDict):
    """A lock."""

    token: str | None
    until: str | None
    holder: LockHolder


class LockHolder(TypedDict):
    """The client that holds a lock. Null: not known."""

    connection_id: str | None
    container_id: str | None
    link: str | None
    client: str | None


class Message(TypedDict):
    """A message."""

    sequence_number: int
    enqueued_sequence_number: int
    state: str
    sub_queue: SubQueue
    message_id: Any
    session_id: str | None
    correlation_id: Any
    subject: Any
    content_type: Any
    content_encoding: Any
    to: Any
    reply_to: Any
    reply_to_session_id: Any
    user_id: Any
    absolute_expiry_time: Any
    creation_time: Any
    group_sequence: Any
    partition_key: Any
    via_partition_key: Any
    delivery_count: int
    enqueued_at: str | None
    scheduled_for: str | None
    expires_at: str | None
    time_to_live_ms: int | None
    size_bytes: int
    lock: Lock | None
    dead_letter: DeadLetter | None
    application_properties: dict[str, Any]
    annotations: dict[str, Any]
    delivery_annotations: dict[str, Any]
    header: dict[str, Any]
    body: Any
    body_format: BodyFormat
    body_type: str | None


class Messages(TypedDict):
    """Messages in the order of their sequence numbers. A page may have fewer than `limit`."""

    messages: list[Message]
    next: int | None


class Namespace(TypedDict):
    """One namespace."""

    name: str
    is_default: bool
    is_declared: bool
    ephemeral: bool
    created_at: str | None
    entities: int
    messages: int
    snapshots: int


class Namespaces(TypedDict):
    """All namespaces, the default namespace first."""

    namespaces: list[Namespace]


class OccurrenceModel(TypedDict, total=False):
    """Which of the fitting operations a rule acts on: one of nth, every, first and probability."""

    nth: int | None
    every: int | None
    first: int | None
    probability: float | None
    seed: int | None


Operation = Literal[
    "connect",
    "open",
    "attach",
    "send",
    "deliver",
    "settle",
    "renew",
    "management",
    "put_token",
    "administration",
]


class Overview(TypedDict):
    """A namespace at one moment."""

    time: str | None
    namespace: str
    interval_s: float
    connections: int
    clock: Clock
    entities: list[OverviewEntity]
    alerts: list[Alert]


class OverviewCounts(TypedDict):
    """How many messages are in each state."""

    active: int
    locked: int
    deferred: int
    scheduled: int
    dead_lettered: int
    transfer_dead_lettered: int


class OverviewEntity(TypedDict):
    """What the overview has of an entity."""

    path: str
    kind: Kind
    counts: OverviewCounts
    incoming_per_s: float
    outgoing_per_s: float
    is_busy: bool
    oldest_enqueued: str | None
    receivers: int
    senders: int
    size_bytes: int
    held_sessions: int | None


class Place(TypedDict):
    """Where a message went."""

    entity: str
    sub_queue: str | None
    sequence_number: int | None


class Ports(TypedDict):
    """The ports on which the broker listens. Each accepts AMQP, HTTP and WebSocket, with and without TLS."""

    amqp: int
    http: int
    tls: int | None


class Removed(TypedDict):
    """How many rules were removed."""

    count: int


class Report(TypedDict):
    """The report of a namespace."""

    namespace: str
    since: str
    since_event: str
    time: str
    is_passed: bool
    fail_on: list[str]
    kinds: list[ReportKind]
    findings: list[ReportFinding]


class ReportBegan(TypedDict):
    """A new report has begun."""

    namespace: str


class ReportFinding(TypedDict):
    """One finding."""

    kind: str
    entity: str
    sentence: str
    count: int
    message_ids: list[str | None]
    is_exact: bool
    details: dict[str, Any]


ReportFormat = Literal["json", "junit"]


class ReportKind(TypedDict):
    """The findings of one kind together."""

    kind: str
    expectation: str
    is_failure: bool
    is_passed: bool
    findings: int
    count: int


class Reset(TypedDict):
    """What was reset."""

    purged: int


class Rule(TypedDict):
    """A rule."""

    name: str
    definition: dict[str, Any]


class Rules(TypedDict):
    """The rules of a subscription."""

    rules: list[Rule]


class Seen(TypedDict):
    """What was seen of one condition."""

    holds: bool
    count: int
    messages: list[Message]


class Send(TypedDict):
    """What was sent."""

    sent: int
    sequence_numbers: list[int]


SentBodyFormat = Literal["auto", "text", "json", "base64"]


class SentMessage(TypedDict, total=False):
    """A message to send."""

    body: Any
    body_format: SentBodyFormat
    message_id: str | None
    session_id: str | None
    correlation_id: str | None
    subject: str | None
    content_type: str | None
    to: str | None
    reply_to: str | None
    reply_to_session_id: str | None
    partition_key: str | None
    time_to_live_s: float | None
    scheduled_for: str | None
    application_properties: dict[str, str | bool | int | float | None]


class Session(TypedDict):
    """A session."""

    session_id: str
    messages: int
    locked: int
    lock: Lock | None
    state: str | None
    state_format: str | None
    state_size_bytes: int
    state_updated_at: str | None


class Sessions(TypedDict):
    """Sessions, ordered by id. A page may have fewer than `limit`, if their states are large."""

    sessions: list[Session]
    waiting_receivers: int
    next: str | None


Settledness = Literal["settled", "unlocked", "empty"]


class Snapshot(TypedDict):
    """One snapshot."""

    name: str
    taken_at: str | None
    clock_ahead_ms: int
    ephemeral: bool
    entities: int
    messages: int
    size_bytes: int


class SnapshotOrigin(TypedDict, total=False):
    """The snapshot whose content a namespace begins with."""

    namespace: str | None
    snapshot: str


class Snapshots(TypedDict):
    """All snapshots of a namespace, ordered by name."""

    snapshots: list[Snapshot]


State = Literal["active", "locked", "deferred", "scheduled", "dead_lettered"]


class StateCounts(TypedDict):
    """How many messages are in each state. Each message is in one."""

    active: int
    locked: int
    deferred: int
    scheduled: int


class Storage(TypedDict):
    """The store of the broker."""

    kind: Literal["memory", "sqlite", "postgresql"]
    file: str | None
    file_id: str | None
    database_schema: str | None


class StoredMessage(TypedDict, total=False):
    """A message that the broker has."""

    entity: str
    sub_queue: SubQueue
    sequence_number: int


SubQueue = Literal["main", "dead_letter", "transfer_dead_letter"]


class Transition(TypedDict):
    """One transition of one message."""

    number: int
    time: str | None
    entity: str
    sub_queue: str | None
    sequence_number: int | None
    message_id: str | None
    session_id: str | None
    event: str
    delivery_count: int
    client: Client | None
    rule: str | None
    locked_until: str | None
    reason: str | None
    description: str | None
    transaction: str | None
    to: Place | None


class TriedRule(TypedDict):
    """What one rule does with the message."""

    name: str
    is_draft: bool
    definition: dict[str, Any]
    matches: bool
    error: str | None
    result: Message | None


class Try(TypedDict):
    """What a subscription would do with the message, drafts left out of the copies."""

    rules: list[TriedRule]
    copies: int
    message: Message


class Wait(TypedDict):
    """The conditions hold. What was seen of each, in their order."""

    seen: list[Seen]
    waited_s: float


When = Literal["before", "after"]


class FramesRecording(TypedDict):
    """Whether frames are recorded."""

    recording: bool
    last: int


class HistoryRecording(TypedDict):
    """Whether transitions are recorded."""

    recording: bool
