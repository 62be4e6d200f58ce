"""All routes of the control API."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from protocol.http.control import (
    changes_resource,
    clock_resource,
    connect_resource,
    connections_resource,
    entities_resource,
    faults_resource,
    frames_resource,
    history_resource,
    messages_resource,
    namespaces_resource,
    overview_resource,
    report_resource,
    rules_resource,
    sending_resource,
    sessions_resource,
    snapshots_resource,
    storage_resource,
    wait_resource,
)

if TYPE_CHECKING:
    from protocol.http.control.routes import Route

ROUTES: tuple[Route, ...] = (
    *namespaces_resource.ROUTES,
    *snapshots_resource.ROUTES,
    *overview_resource.ROUTES,
    *connect_resource.ROUTES,
    *entities_resource.ROUTES,
    *rules_resource.ROUTES,
    *messages_resource.ROUTES,
    *sending_resource.ROUTES,
    *changes_resource.ROUTES,
    *sessions_resource.ROUTES,
    *connections_resource.ROUTES,
    *frames_resource.ROUTES,
    *report_resource.ROUTES,
    *wait_resource.ROUTES,
    *faults_resource.ROUTES,
    *history_resource.ROUTES,
    *clock_resource.ROUTES,
    *storage_resource.ROUTES,
)


class RouteTable:
    """Finds the route of a request."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        by_length: dict[int, list[tuple[list[str], Route]]] = {}
        for route in routes:
            for path in route.paths:
                pattern = path.strip("/").split("/")
                by_length.setdefault(len(pattern), []).append((pattern, route))
        for (
            patterns
        ) in by_length.values():  # a fixed segment comes before one that stands for any text
            patterns.sort(key=lambda one: [segment.startswith("{") for segment in one[0]])
        self._by_length = by_length

    def find(self, raw_path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """Returns the routes of a path by method, and the texts of its variable segments. The path is below the
        base and still percent-encoded, so a text may contain an encoded slash. No routes: there is none."""
        given = [unquote(segment) for segment in raw_path.strip("/").split("/")]
        found: dict[str, Route] = {}
        texts: dict[str, str] = {}
        matched: list[str] | None = None
        for pattern, route in self._by_length.get(len(given), ()):
            if matched is not None and [*map(_shape, pattern)] != [*map(_shape, matched)]:
                continue
            taken = _match(pattern, given)
            if taken is not None:
                matched = pattern
                found.setdefault(route.method, route)
                texts |= taken
        return found, texts


def _shape(segment: str) -> str:
    return "{}" if segment.startswith("{") else segment


def _match(pattern: list[str], given: list[str]) -> dict[str, str] | None:
    texts: dict[str, str] = {}
    for expected, segment in zip(pattern, given, strict=True):
        if expected.startswith("{"):
            if not segment:
                return None
            texts[expected[1:-1]] = segment
        elif expected != segment:
            return None
    return texts
