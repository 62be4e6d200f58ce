"""The .NET example is compiled and run as a user does it, plainly and over TLS.

Needs a `dotnet` on the PATH; the packages come from NuGet, or from wherever that `dotnet` has them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.conftest import UNAVAILABLE
from tests.support.server import ROOT, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BUILD_TIMEOUT_S = 110
RUN_TIMEOUT_S = 100
KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
EXPECTED = """\
shipped: 1 book
refused: no such thing
shipped: 2 pens
dead-lettered: no such thing (InvalidOrder)
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], list[str]]:
    """Compile a copy of a project; the command that runs it."""
    if shutil.which("dotnet") is None:
        pytest.skip(UNAVAILABLE + "dotnet is not on the PATH")

    def build(project: Path) -> list[str]:
        folder = tmp_path_factory.mktemp(project.name) / project.name
        shutil.copytree(project, folder, ignore=shutil.ignore_patterns("bin", "obj", "build"))
        done = subprocess.run(
            ["dotnet", "build", "--configuration", "Release", "--output", "build"],
            cwd=folder,
            env=os.environ | {"DOTNET_CLI_TELEMETRY_OPTOUT": "1"},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (definition,) = project.glob("*.csproj")
        return ["dotnet", str(folder / "build" / f"{definition.stem}.dll")]

    return build


@pytest.fixture(scope="module")
def example(compiled: Callable[[Path], list[str]]) -> list[str]:
    return compiled(ROOT / "examples" / "dotnet")


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def broker(tls_folder: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(environment={"PEEKLOCK_TLS_FOLDER": str(tls_folder)}) as process:
        yield process


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


def test_orders_with_the_emulators_connection_string(
    example: list[str], broker: BrokerProcess
) -> None:
    """Messaging and administration, neither with TLS."""
    done = run(
        example,
        SERVICEBUS_CONNECTION_STRING=broker.connection_string,
        SERVICEBUS_ADMIN_CONNECTION_STRING=broker.admin_connection_string,
    )
    assert (0, EXPECTED) == (done.returncode, done.stdout), done.stderr


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SERVICEBUS_CA_FILE"])
def test_orders_over_tls(
    example: list[str], broker: BrokerProcess, tls_folder: Path, variable: str
) -> None:
    """The authority is trusted by a variable, on Linux, or by the client's own code."""
    done = run(
        example,
        SERVICEBUS_CONNECTION_STRING=f"Endpoint=sb://localhost;{KEY}",
        SERVICEBUS_ADMIN_CONNECTION_STRING=broker.admin_connection_string,
        SERVICEBUS_TLS_ENDPOINT=f"amqps://localhost:{broker.amqp_port}",
        **{variable: str(tls_folder / "ca.pem")},
    )
    assert (0, EXPECTED) == (done.returncode, done.stdout), done.stderr


def test_the_administration_client_lists_what_the_sample_declares(
    compiled: Callable[[Path], list[str]],
) -> None:
    """Every key of ours can be read: one that cannot would fail the list of all queues."""
    listing = compiled(ROOT / "tests" / "examples" / "dotnet_listing")
    with BrokerProcess(config=ROOT / "docker" / "entities.yaml") as broker:
        done = run(listing, SERVICEBUS_ADMIN_CONNECTION_STRING=broker.admin_connection_string)
    assert done.returncode == 0, done.stderr
    assert "orders: shop warehouse" in done.stdout.splitlines()
    assert "prices: publisher" in done.stdout.splitlines()
