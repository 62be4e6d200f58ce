"""SECURITY.md says what the limits are, and names what exists."""

from __future__ import annotations

import re

import pytest

from broker.app.network.amqp_transport import UNREAD_MAX_BYTES
from config.model.limits import KIBIBYTE, MEBIBYTE, RELAXED
from protocol.amqp.nodes.link_factory import (
    CBS_REQUEST_MAX_BYTES,
    COORDINATOR_REQUEST_MAX_BYTES,
    MANAGEMENT_REQUEST_MAX_BYTES,
)
from protocol.amqp.nodes.request_intake import ANSWERS_MAX_BYTES
from tests.support.server import ROOT

PAGE = (ROOT / "SECURITY.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]


def mebibytes(size_bytes: int) -> str:
    return f"{size_bytes // MEBIBYTE} MiB"


def kibibytes(size_bytes: int) -> str:
    return f"{size_bytes // KIBIBYTE} KiB"


@pytest.mark.parametrize(
    ("beginning", "figures"),
    [
        (
            "sessions, links and unfinished messages of a connection",
            [
                mebibytes(RELAXED.held_per_connection_max_bytes),
                f"{RELAXED.links_per_connection_max:,} links",
            ],
        ),
        ("the same of all connections", [mebibytes(RELAXED.held_max_bytes)]),
        (
            "the same before a token was accepted",
            [
                kibibytes(RELAXED.held_without_token_per_connection_max_bytes),
                mebibytes(RELAXED.held_without_token_max_bytes),
                f"{RELAXED.authorization_timeout_ms // 1000} seconds",
            ],
        ),
        (
            "a request to",
            [
                kibibytes(CBS_REQUEST_MAX_BYTES),
                mebibytes(MANAGEMENT_REQUEST_MAX_BYTES),
                kibibytes(COORDINATOR_REQUEST_MAX_BYTES),
            ],
        ),
        (
            "answers that a client leaves unread",
            [mebibytes(ANSWERS_MAX_BYTES), mebibytes(UNREAD_MAX_BYTES)],
        ),
        ("what all clients together leave unread", [mebibytes(RELAXED.unread_max_bytes)]),
        (
            "open transactions",
            [
                f"{RELAXED.transactions_per_connection_max:,} for a connection",
                f"{RELAXED.transactions_without_token_max} before its token",
                mebibytes(RELAXED.transactions_max_bytes),
                mebibytes(RELAXED.transactions_reserve_bytes),
            ],
        ),
        (
            "connections, HTTP included",
            [
                f"{RELAXED.connections_max:,}",
                f"{RELAXED.handshake_timeout_ms // 1000} seconds",
            ],
        ),
    ],
)
def test_figures_are_those_of_the_limits(beginning: str, figures: list[str]):
    (row,) = [one for one in ROWS if one.startswith(f"| {beginning}")]
    assert [] == [figure for figure in figures if figure not in row]


def test_tests_that_are_named_exist():
    names = re.findall(r"`((?:tests|config)/[\w/.]+)`", PAGE)
    assert names
    assert [] == [name for name in names if not (ROOT / name).exists()]
