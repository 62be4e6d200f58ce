"""Hostile bytes: cases can be made again, recordings are there, and a short run finds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz import recordings, run
from tests.fuzz.cases import Cases
from tests.fuzz.mutations import frames
from tests.support.amqp_frames import HEADER, begin_frame, open_frame

if TYPE_CHECKING:
    import pytest

SEED = 20_261_117
CLIENTS = {"dotnet", "go", "java", "javascript", "python"}
WELL_BEHAVED_P99_MS = 5_000.0
"""While other tests run on the same machine nothing less than a standstill can be told."""


def test_every_official_sdk_is_recorded():
    """Mutations of streams that no client sends would not get far."""
    streams = recordings.load()
    assert set(streams) >= CLIENTS
    assert all(stream for client in CLIENTS for stream in streams[client])


def test_a_case_can_be_made_again():
    """The seed and the number of a case are sufficient."""
    first, second = Cases(SEED), Cases(SEED)
    for number in range(50):
        first.case(number)
    assert first.case(7) == second.case(7)
    assert len({first.case(number).kind for number in range(200)}) > len(CLIENTS)


def test_whole_frames_are_separated():
    """So that they can be moved as they are."""
    parts = [HEADER, open_frame(), begin_frame()]
    assert [*parts, b"rest"] == frames(b"".join(parts) + b"rest")


def test_a_short_run_finds_nothing(capsys: pytest.CaptureFixture[str]):
    """Seed and figures are printed; `make fuzz` runs longer."""
    options = ["--seconds", "8", "--seed", str(SEED), "--victim-p99-ms", str(WELL_BEHAVED_P99_MS)]
    code = run.main(options)
    said = capsys.readouterr().out
    assert 0 == code, said
    assert str(SEED) in said
