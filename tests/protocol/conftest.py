"""Settings of the property tests in this folder, and a broker for those in the .NET SDK's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.dotnet_setup import DotNetSetup
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.dotnet_client import DotNetClient

# A busy machine is no failure: what takes too long shows in `--durations`, not as a red test.
settings.register_profile("protocol", deadline=None)
settings.load_profile("protocol")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as process:
        yield process


@pytest.fixture
def setup(broker: BrokerProcess) -> DotNetSetup:
    return DotNetSetup(broker)


@pytest.fixture
def client(setup: DotNetSetup) -> Iterator[DotNetClient]:
    with setup.client() as connected:
        yield connected
