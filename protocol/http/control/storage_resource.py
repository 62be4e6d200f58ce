"""The store of the broker: where it is, and that it is complete there.

A copy of an SQLite file that begins after the answer has everything that was accepted before the request. The broker does
not write the copy itself: `peeklock backup` does, with the rights of the person who runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from protocol.http.control.request_models import AnswerModel, RequestModel
from protocol.http.control.routes import Route, Scope

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call


class StorageAnswer(AnswerModel):
    """The store of the broker."""

    kind: Literal["memory", "sqlite", "postgresql"]
    file: str | None = Field(description="for sqlite: the absolute path, as the broker sees it")
    file_id: str | None = Field(
        description="for sqlite: the numbers of the file's device and of its inode, which differ for another file with "
        "this path, for example outside of the broker's container"
    )
    database_schema: str | None = Field(description="for postgresql: the schema")


class NoBody(RequestModel):
    """Nothing: an empty body or an empty object."""


async def flush_storage(call: Call) -> Answer:
    """Writes everything that was accepted to where copies of the store find it."""
    store = await call.services.flush_storage()
    return store._asdict()


ROUTES = (
    Route(
        "POST",
        "/storage/flush",
        "flushStorage",
        "Write everything that was accepted to the store's main file, so that a copy of it is complete",
        flush_storage,
        StorageAnswer,
        body=NoBody,
        scope=Scope.BROKER,
    ),
)
