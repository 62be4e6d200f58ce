"""The namespaces of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from protocol.http.control.request_models import AnswerModel
from protocol.http.control.routes import Route, Scope

if TYPE_CHECKING:
    from protocol.http.control.routes import Answer, Call


class NamespaceAnswer(AnswerModel):
    """One namespace."""

    name: str
    is_default: bool = Field(description="whether paths without a namespace concern it")


class NamespacesAnswer(AnswerModel):
    """All namespaces, the default namespace first."""

    namespaces: list[NamespaceAnswer]


async def list_namespaces(call: Call) -> Answer:
    """Lists the namespaces."""
    names = call.services.namespaces()
    return {
        "namespaces": [{"name": name, "is_default": name == names[0]} for name in names],
    }


ROUTES = (
    Route(
        "GET",
        "/namespaces",
        "listNamespaces",
        "List the namespaces, the default namespace first",
        list_namespaces,
        NamespacesAnswer,
        scope=Scope.BROKER,
    ),
)
