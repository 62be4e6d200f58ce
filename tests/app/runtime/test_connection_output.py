"""Connections with output: prepared, written once, or ended."""

from __future__ import annotations

import pytest

from broker.app.runtime.connection_output import ConnectionOutput


class Recorded:
    """A connection that records its calls."""

    def __init__(self, *, fails: bool = False) -> None:
        self.calls: list[str] = []
        self._fails = fails

    def prepare(self) -> None:
        self._called("prepare")

    def write_prepared(self) -> None:
        self._called("write_prepared")

    def flush(self) -> None:
        self._called("flush")

    def abort(self) -> None:
        self.calls.append("abort")

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self._fails:
            raise RuntimeError("a bug")


@pytest.fixture
def output():
    return ConnectionOutput()


def test_a_connection_is_flushed_once(output):
    """However often it was touched."""
    one, other = Recorded(), Recorded()
    for connection in (one, other, one):
        output.touch(connection)
    output.forget(other)
    output.flush()
    output.flush()
    assert (["flush"], []) == (one.calls, other.calls)


def test_prepared_output_is_written_and_not_built_again(output):
    """Unless there is more of it since then."""
    one, other = Recorded(), Recorded()
    output.touch(one)
    output.touch(other)
    output.prepare()
    output.touch(other)
    output.flush()
    assert ["prepare", "write_prepared"] == one.calls
    assert ["prepare", "flush"] == other.calls


def test_output_of_what_was_not_stored_is_never_written(output):
    """The connection ends instead."""
    one = Recorded()
    output.touch(one)
    output.prepare()
    output.abort()
    output.flush()
    assert ["prepare", "abort"] == one.calls


@pytest.mark.parametrize("prepares", [False, True])
def test_a_bug_on_one_connection_ends_that_one(output, prepares):
    """The others are written."""
    broken, good = Recorded(fails=True), Recorded()
    output.touch(good)
    output.touch(broken)
    if prepares:
        output.prepare()
    output.flush()
    assert ["prepare" if prepares else "flush", "abort"] == broken.calls
    assert (["prepare", "write_prepared"] if prepares else ["flush"]) == good.calls
