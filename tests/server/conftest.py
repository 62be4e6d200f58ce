"""A broker whose file calls can be made to fail or wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.io_faults import IoFaults
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[IoFaults]:
    with IoFaults(tmp_path) as faults:
        yield faults


@pytest.fixture
def faulty_broker(tmp_path: Path, faults: IoFaults) -> Iterator[BrokerProcess]:
    """A broker on a file, whose file calls `faults` strikes."""
    storage = f"sqlite:///{tmp_path / 'peeklock.db'}"
    with BrokerProcess(storage=storage, environment=faults.environment) as broker:
        yield broker
