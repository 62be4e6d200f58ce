# The type of `synced_writes.c`, which says what each method does.
from typing import final

from typing_extensions import Buffer

@final
class SyncedWriter:
    uses_kernel: bool
    def __new__(cls, done: int, /) -> SyncedWriter: ...
    def begin(
        self, file: int, data: Buffer, position: int, is_direct: bool, caller_waits: bool, /
    ) -> None: ...
    def end(self) -> int: ...
    def close(self) -> None: ...
