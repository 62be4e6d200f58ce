# The functions of the compiled module. The C files say what they do.

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from broker.core.contract.message import Message

_Link = TypeVar("_Link")

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

# --- frames.c

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
def read_dispositions(
    data: bytes, position: int, max_frame_bytes: int, sessions: Mapping[int, object], /
) -> tuple[int, list[tuple[int, int, int, int, bool]]]: ...

# --- proton.c

def set_proton(addresses: dict[str, int], /) -> None: ...
def skip_events(collector: int, handled: bytes, /) -> bool: ...
def take(
    collector: int,
    link: int,
    addresses: dict[int, int],
    number: int,
    limit: int,
    max_bytes: int,
    may_be_settled: bool,
    may_have_state: bool,
    /,
) -> tuple[list[int], list[bytes], bool, int]: ...
def settle(addresses: dict[int, int], numbers: Sequence[int | None], code: int, /) -> None: ...
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
def pump(
    transport: int, links: dict[int, _Link], /
) -> tuple[bytes, bool, list[tuple[_Link, int, int]]]: ...

# --- sockets.c

def acknowledge(descriptor: int, /) -> None: ...
def write(descriptor: int, data: bytes, /) -> int: ...
