# The functions and types of the compiled module. The C files say what they do.

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, final

from broker.core.contract.message import Message

OutcomeGroup: TypeAlias = tuple[Deliveries, list[int], int, bool]

# --- messages.c

def set_message_type(
    message: Message, read_annotations: Callable[[bytes, int], tuple[bytes, int]], /
) -> None: ...
def read_messages(payloads: Sequence[bytes], /) -> list[Message | None]: ...
def give_ids(messages: list[Message], prefix: bytes, number: int, /) -> int: ...
def write_heads(
    messages: Sequence[Message],
    tokens: Sequence[bytes | None],
    locked_until_ms: int,
    from_topic: bool,
    with_state: bool,
    /,
) -> list[bytes | None]: ...
def read_heads(bodies: list[bytes | None], max_bytes: int, /) -> list[bytes | None]: ...
def read_session_ids(bodies: list[bytes | None], /) -> list[str | None]: ...

# --- deliveries.c

@final
class SentSession:
    def take(self, first: int, last: int, settled: bool, /) -> list[OutcomeGroup]: ...

@final
class Deliveries:
    def __init__(self, session: SentSession = ..., /) -> None: ...
    def __len__(self) -> int: ...
    def add(self, address: int, /) -> int: ...
    def clear(self) -> None: ...
    def find(self, numbers: Sequence[int | None], forget: bool, /) -> list[int]: ...
    def numbers(self) -> list[int]: ...
    def settle(self, numbers: Sequence[int | None], code: int, /) -> None: ...
    def take(
        self,
        collector: int,
        link: int,
        limit: int,
        max_bytes: int,
        may_be_settled: bool,
        may_have_state: bool,
        /,
    ) -> tuple[list[int], list[bytes], bool, int]: ...

# --- frames.c

def set_proton(addresses: dict[str, int], /) -> None: ...
def set_events(delivery: int, flow: int, handled: bytes, /) -> None: ...
def skip_events(collector: int, skips_flows: bool, /) -> bool: ...
def is_plain(data: bytes, start: int, end: int, /) -> bool: ...
def send(
    link: int,
    tags: list[bytes],
    heads: list[bytes],
    bodies: list[bytes],
    start: int,
    settled: bool,
    limit_bytes: int,
    /,
) -> int: ...
def pump(transport: int, links: dict[int, Deliveries], /) -> tuple[bytes, bool]: ...
def free_connection(transport: int, connection: int, collector: int, /) -> None: ...
def push(transport: int, data: bytes, /) -> None: ...
def skip_transfers(
    data: bytes,
    position: int,
    max_frame_bytes: int,
    before: bytes,
    tag_size: int,
    after: bytes,
    id: int,  # noqa: A002
    /,
) -> tuple[int, int]: ...
def take_dispositions(
    data: bytes, position: int, max_frame_bytes: int, sessions: Mapping[int, object], /
) -> tuple[int, list[OutcomeGroup]]: ...

# --- sockets.c

def acknowledge(descriptor: int, /) -> None: ...
def write(descriptor: int, data: bytes, /) -> int: ...
