"""What the control API needs from the broker. The server creates it, and tests create it with fakes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from typing import Any

    from broker.core.contract.commands import Command
    from broker.core.contract.effects import Peer
    from broker.core.contract.transitions import Transitions
    from config.files.namespace_topology import NamespaceTopology
    from config.model.definitions import EntityDefinition
    from config.model.limits import Limits
    from protocol.faults.fault_registry import FaultRegistry
    from protocol.sources import ProtocolSources


class ClockState(NamedTuple):
    """The broker's clock."""

    now_ms: int
    is_frozen: bool
    ahead_ms: int
    """By how much it is ahead of the system clock; negative if it is behind, after it was frozen."""


class ControlledClock(Protocol):
    """The broker's clock, which all namespaces share. Each method returns the new state, and everything that
    has become due is done afterwards."""

    def state(self) -> ClockState:
        """Returns the time that it shows."""

    def advance(self, amount_ms: int) -> ClockState:
        """Moves the clock ahead."""

    def freeze(self) -> ClockState:
        """Stops the clock. It can still be moved."""

    def resume(self) -> ClockState:
        """Lets the clock run again, from the time that it shows."""


class LockHolder(NamedTuple):
    """The client that holds a lock, as far as it is known. Empty texts are not known."""

    connection_id: str = ""
    container_id: str = ""
    link: str = ""
    client: str = ""
    """Its network address."""


class ClientError(NamedTuple):
    """The last error that a connected client got."""

    connection_id: str
    container_id: str
    at_ms: int
    """In real time."""
    message: str


class ClientErrors(NamedTuple):
    """The connections of a namespace: how many there are, and which got errors."""

    connections: int
    errors: Sequence[ClientError]


class Endpoints(NamedTuple):
    """Where the broker listens, and its own key."""

    amqp_port: int
    http_port: int
    tls_port: int | None
    certificate_authority: str | None
    """The file with the broker's own authority. None if its certificate is another."""
    key_name: str
    key: str
    is_strict: bool


class ChangeWait(Protocol):
    """Waits for changes of some queues, in a `with` block."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    @property
    def is_changed(self) -> bool:
        """Whether there was a change since the last `clear`."""

    def clear(self) -> None:
        """Forgets the changes so far."""

    async def changed(self) -> None:
        """Waits for a change since the last `clear`."""


class HistoryReader(Protocol):
    """The transitions of one namespace."""

    last_number: int
    """The number of the last transition."""

    @property
    def first_number(self) -> int:
        """The number of the oldest transition that is kept."""

    def after(self, number: int, batches_max: int, /) -> Sequence[Transitions]:
        """Returns batches with transitions after this number, in order. The first may also have earlier ones."""

    async def changed(self, number: int, /) -> bool:
        """Waits for transitions after this number. Returns False if the namespace was deleted."""

    def wake(self) -> None:
        """Ends all waits, though nothing may have changed."""


class HistoryControl(Protocol):
    """The histories of all namespaces."""

    @property
    def can_record(self) -> bool:
        """Whether transitions can be kept."""

    def is_recording(self, name: str) -> bool:
        """Returns whether the transitions of a namespace are kept."""

    def set_recording(self, name: str, *, recording: bool) -> None:
        """Begins or ends recording. What was recorded stays."""

    def of(self, name: str) -> HistoryReader | None:
        """Returns the history of a namespace."""


class NamespaceAuthorization(Protocol):
    """Checks whether a request to a namespace may be made."""

    def __call__(
        self, header: str | None, path: str, host: str, namespace: str | None, /
    ) -> str | None:
        """Returns the name of the namespace, or None if there is none of this name. Raises `Unauthorized`.

        The arguments are the Authorization header, the path of the request, the host, and the namespace that
        the path names. Without one, the host name or the key of the token selects the namespace, or else the
        default namespace is used.
        """


class NamespaceView(NamedTuple):
    """A namespace."""

    name: str
    key_name: str | None
    """The rule with all rights that selects the namespace. None for one that the config file declares."""
    key: str | None
    created_time_ms: int
    is_ephemeral: bool
    entity_count: int
    message_count: int
    snapshot_count: int


class SnapshotView(NamedTuple):
    """A snapshot of a namespace."""

    name: str
    taken_time_ms: int
    clock_ahead_ms: int
    is_ephemeral: bool
    entity_count: int
    message_count: int
    size_bytes: int


class StorageView(NamedTuple):
    """The store of the broker."""

    kind: str
    """`memory`, `sqlite` or `postgresql`."""
    file: str | None = None
    """The absolute path of the SQLite file."""
    file_id: str | None = None
    """The numbers of its device and its inode."""
    database_schema: str | None = None
    """The schema in the PostgreSQL database."""


class NamespaceControl(Protocol):
    """The operations on whole namespaces. All of them raise `BrokerError`s."""

    async def create(
        self,
        name: str | None,
        topology: NamespaceTopology,
        *,
        is_ephemeral: bool,
        snapshot: tuple[str, str] | None,
    ) -> NamespaceView:
        """Creates a namespace: empty, with entities, or with the content of a snapshot, which is given by its
        namespace and name. Without a name it gets one."""

    def view(self, name: str) -> NamespaceView:
        """Returns one namespace."""

    def views(self) -> Sequence[NamespaceView]:
        """Returns all namespaces, the default namespace first."""

    async def delete(self, name: str) -> None:
        """Deletes a namespace with everything in it, and its snapshots."""

    def snapshots(self, namespace: str) -> Sequence[SnapshotView]:
        """Returns the snapshots of a namespace, ordered by name."""

    def snapshot(self, namespace: str, name: str) -> SnapshotView:
        """Returns one snapshot."""

    async def take_snapshot(
        self, namespace: str, name: str, *, is_ephemeral: bool, replace: bool
    ) -> SnapshotView:
        """Takes a snapshot, which may replace another of the same name."""

    async def restore_snapshot(self, namespace: str, name: str) -> SnapshotView:
        """Replaces the content of a namespace by that of a snapshot."""

    async def delete_snapshot(self, namespace: str, name: str) -> None:
        """Deletes a snapshot."""

    def clock(self, namespace: str) -> ClockState:
        """Returns the clock of a namespace."""

    def advance_clock(self, namespace: str, amount_ms: int) -> ClockState:
        """Moves the clock of one namespace ahead."""

    def freeze_clock(self, namespace: str) -> ClockState:
        """Stops the clock of one namespace. It can still be moved."""

    def resume_clock(self, namespace: str) -> ClockState:
        """Lets the clock of one namespace run again, from the time that it shows."""


class FrameWatch(Protocol):
    """A live view of frames, in a `with` block."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

    def end(self) -> None:
        """Ends the view after the frames that wait."""

    async def taken(self) -> tuple[int, Sequence[Any]]:
        """Waits for frames. Returns how many were dropped before them, and the frames. No frames: there will be no
        more."""


class FrameControl(Protocol):
    """The AMQP frames of connections. `FrameAnswer` describes a frame."""

    def record(self, namespace: str, last: int) -> None:
        """Records the last frames of a namespace from now on. 0: records nothing any more."""

    def recorded_last(self, namespace: str) -> int:
        """Returns how many frames of a namespace are recorded at most; 0 if none."""

    def frames(
        self,
        namespace: str,
        connection_id: str | None,
        container_id: str | None,
        after: int,
        last: int,
    ) -> Sequence[Any]:
        """Returns the last of the recorded frames after a number, the oldest first."""

    def watch(
        self, namespace: str, connection_id: str | None, container_id: str | None
    ) -> FrameWatch:
        """Returns a live view."""

    def is_connected(self, namespace: str, connection_id: str) -> bool:
        """Returns whether there is such a connection."""

    def describe(self, seen: Any) -> dict[str, Any]:
        """Returns a frame as plain data."""


class ReportControl(Protocol):
    """The reports of namespaces. `ReportAnswer` describes a report."""

    async def report(self, namespace: str, fail_on: Collection[str], /) -> dict[str, Any]:
        """Returns a report."""

    def junit(self, reports: Sequence[dict[str, Any]], /) -> str:
        """Returns reports as JUnit XML."""

    def begin(self, namespace: str, event: str, /) -> None:
        """Begins a new report of a namespace."""


@dataclass(frozen=True, slots=True)
class ControlServices:
    """The functions and values that the handlers of the control API use."""

    ask: Callable[[str, Callable[[Peer, object], Command]], Awaitable[object]]
    """Builds a request command, runs it in a namespace and waits until it is durable. Returns its value or
    raises its error."""
    namespaces: Callable[[], Sequence[str]]
    """Returns the names of all namespaces. The default namespace is the first."""
    authorize: NamespaceAuthorization
    authorize_broker: Callable[[str | None, str], None]
    """Takes the Authorization header and the host. Raises `Unauthorized` unless the request may concern all
    namespaces."""
    read_payloads: Callable[[Sequence[int]], Awaitable[Mapping[int, tuple[bytes, bytes]]]]
    """Returns bodies and annotations from the store, by payload id. Those of deleted messages are missing."""
    wait_for_change: Callable[[str, Sequence[str | None]], ChangeWait]
    """Takes a namespace and the paths of queues; None for all queues. Returns a wait for changes of them."""
    holder_of: Callable[[Peer], LockHolder]
    """Returns who holds a lock."""
    connections: Callable[[str], Sequence[Mapping[str, Any]]]
    """Returns the AMQP connections of a namespace as plain data: see `ConnectionAnswer`."""
    frames: FrameControl
    reports: ReportControl
    client_errors: Callable[[str], ClientErrors]
    """Returns the errors of the AMQP connections of a namespace."""
    endpoints: Callable[[], Endpoints]
    """Returns where the broker listens."""
    is_known_host: Callable[[str], bool]
    """Takes the host of a request, without port. Returns whether this broker is known by it."""
    declared: Callable[[str], Mapping[str, EntityDefinition]]
    """Returns the entities that the configuration declares in a namespace."""
    flush_storage: Callable[[], Awaitable[StorageView]]
    """Waits until all turns so far are durable and a copy of the store's file has them. Raises `ServerBusy`."""
    clock: ControlledClock
    namespace_control: NamespaceControl
    faults: FaultRegistry
    history: HistoryControl
    limits: Limits
    sources: ProtocolSources
    version: str
    """The version of the broker."""
    overviews: dict[str, Any] = field(default_factory=dict)
    """What `overview_resource.py` knows of each namespace."""
