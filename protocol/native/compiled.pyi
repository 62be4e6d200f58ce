# The functions of the compiled module. The C files say what they do.

from collections.abc import Sequence

from broker.core.contract.message import Message

def set_message_type(message: Message, /) -> None: ...
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
