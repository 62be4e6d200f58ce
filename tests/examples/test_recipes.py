"""Workflows, compose files and containers: run where that is possible, else held against the image."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from broker.app.cli.command_line import main as peeklock
from broker.app.server import READY_TEXT
from config.loader import EMULATOR_FILE
from tests.packaging.dockerfile import stages
from tests.support.server import ROOT

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = ROOT / "examples"
IMAGE = stages()[1]
IMAGE_PORTS = {int(port) for port in IMAGE.only("EXPOSE").split()}

CONFIG = """{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "orders"}]}],
"Logging": {"Type": "Console"}}}"""

USER_TEST = """
import os
from azure.servicebus import ServiceBusClient, ServiceBusMessage

def test_an_order():
    string = os.environ["SERVICEBUS_CONNECTION_STRING"]
    with ServiceBusClient.from_connection_string(string) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("one"))
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=5)
            receiver.complete_message(message)
    assert str(message) == "one"
"""

NETWORK = [
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "bash",
    "-ec",
    'ip link set lo up; "$@"',
]
"""Where the usual ports are free. The job's steps run one after the other, as a runner has them."""


def workflow(name: str) -> dict[str, Any]:
    document: dict[Any, Any] = yaml.safe_load((EXAMPLES / "github-actions" / name).read_text())
    assert "push" == document[True], "YAML reads `on` as true"
    job: dict[str, Any] = document["jobs"]["test"]
    assert "ubuntu-latest" == job["runs-on"]
    return job


def a_project(folder: Path) -> None:
    """What the repository of a user has in it."""
    (folder / "Config.json").write_text(CONFIG)
    (folder / "requirements.txt").write_text("")
    (folder / "test_orders.py").write_text(USER_TEST)
    (folder / "pytest.ini").write_text("[pytest]\n")


def installers(folder: Path) -> None:
    """`pipx` and `pip` that find everything installed: this tree, and what runs this test."""
    (folder / "pipx").write_text("#!/bin/sh\n")
    (folder / "pip").write_text("#!/bin/sh\n")
    (folder / "peeklock").write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m peeklock "$@"\n'
    )
    (folder / "pytest").write_text(f'#!/bin/sh\nexec {sys.executable} -m pytest "$@"\n')
    for one in folder.iterdir():
        one.chmod(0o755)


def test_the_commands_of_the_job_without_a_container_work(tmp_path: Path) -> None:
    """Started, waited for, tested against: word for word, but for what installs."""
    if (
        not shutil.which("unshare")
        or subprocess.run([*NETWORK, "_", "true"], check=False).returncode
    ):
        pytest.skip("no network namespaces for this user")
    steps = [step for step in workflow("with-pip.yaml")["steps"] if "run" in step]
    commands = "\n".join(
        "".join(f'export {name}="{value}"\n' for name, value in step.get("env", {}).items())
        + step["run"]
        for step in steps
        if "if" not in step
    )
    project, tools = tmp_path / "project", tmp_path / "tools"
    project.mkdir()
    tools.mkdir()
    a_project(project)
    installers(tools)
    done = subprocess.run(
        [*NETWORK, "_", "bash", "-ec", f"trap 'kill $(jobs -p)' EXIT\n{commands}"],
        cwd=project,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    log = (project / "peeklock.log").read_text()
    assert 0 == done.returncode, f"{done.stdout}{done.stderr}{log}"
    assert "1 passed" in done.stdout
    assert READY_TEXT in log


def test_the_service_of_the_other_job_is_the_image() -> None:
    """Its ports are exposed and its variables are known to the image."""
    job = workflow("with-service.yaml")
    service = job["services"]["peeklock"]
    assert service["image"].rpartition("/")[2].startswith("peeklock:")
    assert {int(port.split(":")[1]) for port in service["ports"]} <= IMAGE_PORTS
    assert set(service["env"]) <= _known_variables()
    assert _strings(job) == _strings(workflow("with-pip.yaml"))


def _known_variables() -> set[str]:
    from config.settings.setting_sources import SETTINGS

    return {one.variable for one in SETTINGS}


def _strings(job: dict[str, Any]) -> set[str]:
    return {step["env"]["SERVICEBUS_CONNECTION_STRING"] for step in job["steps"] if step.get("env")}


def test_the_application_waits_for_a_broker_that_can_be_used(capsys) -> None:
    """`service_healthy` needs the image's health check; the mounted file passes our own check."""
    services = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]
    assert "service_healthy" == services["application"]["depends_on"]["peeklock"]["condition"]
    assert IMAGE.health_check
    assert (
        "sb://peeklock;" in services["application"]["environment"]["SERVICEBUS_CONNECTION_STRING"]
    )
    (mount,) = services["peeklock"]["volumes"]
    file, target = mount.removesuffix(":ro").split(":")
    assert str(EMULATOR_FILE) == target
    assert 0 == peeklock(["check", str(EXAMPLES / file)])
    assert ".yaml" in capsys.readouterr().out


def test_the_testcontainers_example_fits_the_image() -> None:
    """It cannot be run without a container engine; its names are those of the image."""
    tree = ast.parse((EXAMPLES / "testcontainers_python.py").read_text())
    values = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
    }
    assert READY_TEXT == values["READY"]
    assert set(values["(AMQP_PORT, HTTP_PORT)"]) <= IMAGE_PORTS
    assert "peeklock:latest" == values["IMAGE"]
