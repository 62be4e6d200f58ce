# The functions of the compiled module. The C files say what they do.

from collections.abc import Callable, Mapping, Sequence

from broker.core.contract.message import Message

# --- messages.c

def set_message_type(
    message_type: type[Message], read_prelude: Callable[[bytes], Message], /
) -> None: ...
def read_messages(payloads: Sequence[bytes], /) -> list[Message | None]: ...
def give_ids(messages: list[Message], prefix: bytes, number: int, /) -> int: ...
def write_heads(
    messages: list[Message],
    tokens: list[bytes | None],
    start: int,
    shape: int,
    template: bytes,
    places: bytes,
    /,
) -> list[bytes]: ...
def read_heads(bodies: list[bytes | None], /) -> list[bytes | None]: ...
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
) -> tuple[int, list[tuple[int, int, int]]]: ...

# --- proton.c

def set_proton(addresses: dict[str, int], /) -> None: ...
def take(
    collector: int,
    link: int,
    addresses: dict[int, int],
    number: int,
    limit: int,
    max_bytes: int,
    may_be_settled: bool,
    /,
) -> tuple[list[int], list[bytes], bool, int]: ...
def settle(addresses: dict[int, int], numbers: list[int | None], code: int, /) -> None: ...
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
    transport: int, links: Mapping[int, object], collector: int, handled: bytes, /
) -> tuple[bytes, bool, list[tuple[int, int, int]], bool]: ...

# --- module.c

def acknowledge(descriptor: int, /) -> None: ...
