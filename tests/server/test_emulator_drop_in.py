"""In place of the official emulator: its ports, paths, variables, strings and words, and no change
on the user's side but the image's name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest
import yaml

from config.loader import EMULATOR_FILE
from tests.packaging.dockerfile import stages
from tests.support.server import ROOT

EMULATOR_IMAGE = "mcr.microsoft.com/azure-messaging/servicebus-emulator"

TEMPLATE = """
name: microsoft-azure-servicebus-emulator
services:
  emulator:
    container_name: "servicebus-emulator"
    image: mcr.microsoft.com/azure-messaging/servicebus-emulator:latest
    pull_policy: always
    volumes:
      - "${CONFIG_PATH}:/ServiceBus_Emulator/ConfigFiles/Config.json"
    ports:
      - "5672:5672"
      - "5300:5300"
    environment:
      SQL_SERVER: mssql
      MSSQL_SA_PASSWORD: "${MSSQL_SA_PASSWORD}"
      ACCEPT_EULA: ${ACCEPT_EULA}
      SQL_WAIT_INTERVAL: ${SQL_WAIT_INTERVAL}
    depends_on:
      - mssql
    networks:
      sb-emulator:
        aliases:
          - "sb-emulator"
  mssql:
    container_name: "mssql"
    image: "mcr.microsoft.com/mssql/server:2022-latest"
    networks:
      sb-emulator:
        aliases:
          - "mssql"
    environment:
      ACCEPT_EULA: ${ACCEPT_EULA}
      MSSQL_SA_PASSWORD: "${MSSQL_SA_PASSWORD}"
networks:
  sb-emulator:
"""
"""The compose file of the emulator's documentation, as far as it says anything to the emulator."""

CONFIG = """{
  // As users have it: with comments and trailing commas.
  "UserConfig": {
    "Namespaces": [{
      "Name": "sbemulatorns",
      "Queues": [{"Name": "orders", "Properties": {"MaxDeliveryCount": 3, "LockDuration": "PT1M",}}],
      "Topics": [{
        "Name": "events",
        "Subscriptions": [{
          "Name": "json",
          "Rules": [{
            "Name": "only-json",
            "Properties": {
              "FilterType": "Correlation",
              "CorrelationFilter": {"ContentType": "application/json"},
            },
          }],
        }],
      }],
    }],
    "Logging": {"Type": "File"},
  },
}
"""

NAMESPACES = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
"""A network namespace in which every port is free, and a mount namespace whose root can have other folders."""

PREPARE_NAMESPACES = """
set -e
ip link set lo up
root=$1 config=$2; shift 2
mount -t tmpfs none "$root"
for entry in /*; do
  if [ -L "$entry" ]; then cp -P "$entry" "$root$entry"
  elif [ -d "$entry" ]; then mkdir "$root$entry"; mount --rbind "$entry" "$root$entry"
  fi
done
mkdir -p "$root/data" "$root/ServiceBus_Emulator/ConfigFiles"
cp "$config" "$root/ServiceBus_Emulator/ConfigFiles/Config.json"
exec chroot "$root" "$@"
"""


def template_variables() -> dict[str, str]:
    """What the template sets in the emulator's container, filled in as its `.env` says."""
    filled = {
        "MSSQL_SA_PASSWORD": "Secret-1234",
        "ACCEPT_EULA": "Y",
        "SQL_WAIT_INTERVAL": "15",
        "SQL_SERVER": "mssql",
    }
    named = yaml.safe_load(TEMPLATE)["services"]["emulator"]["environment"]
    return {name: filled[name] for name in named}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Returns what a user of the emulator sees with the image of this broker; see
    `emulator_user`."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("unshare or ip is not on the PATH")
    allowed = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if allowed.returncode:
        pytest.skip(f"no namespaces for this user: {allowed.stderr.strip()}")
    folder = tmp_path_factory.mktemp("emulator")
    (folder / "root").mkdir()
    (folder / "Config.json").write_text(CONFIG)
    own = {name: value for name, value in os.environ.items() if not name.startswith("PEEKLOCK_")}
    image = dict(stages()[1].environment)
    image.pop("PATH", None)
    prepare = [
        "sh",
        "-c",
        PREPARE_NAMESPACES,
        "prepare",
        str(folder / "root"),
        str(folder / "Config.json"),
    ]
    python = [sys.executable, "-m"]
    user = [*python, "tests.server.emulator_user", *python, "peeklock", "serve"]
    done = subprocess.run(
        [*NAMESPACES, *prepare, *user],
        cwd=ROOT,
        env={**own, **image, **template_variables(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert 0 == done.returncode, f"{done.stdout}\n{done.stderr}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_the_ready_line_comes_on_standard_output(found: dict[str, Any]) -> None:
    """Test containers and scripts wait for it there; it did not take the emulator's time."""
    assert 0 < found["ready_after_s"] < 15


def test_health_is_good_from_the_ready_line_on(found: dict[str, Any]) -> None:
    """On 5300, byte for byte."""
    assert [200, '{"status":"healthy","message":"Service is healthy."}'] == found["health"]


def test_the_well_known_string_reaches_what_the_file_declares(found: dict[str, Any]) -> None:
    """No port in the string: 5672. The file lies where the emulator has it."""
    assert {"orders": ["to the queue"], "events": ["json"]} == found["received"]


def test_the_administration_string_works(found: dict[str, Any]) -> None:
    """And rules are those of the file, without one that takes everything."""
    assert ["only-json"] == found["rules"]


def test_a_stopped_container_ends_in_order(found: dict[str, Any]) -> None:
    """`docker stop` sends SIGTERM."""
    assert 0 == found["exit_code"]


def test_the_config_path_is_the_emulators() -> None:
    """What the template mounts is what is read."""
    (mount,) = yaml.safe_load(TEMPLATE)["services"]["emulator"]["volumes"]
    assert str(EMULATOR_FILE) == mount.rpartition(":")[2]


def test_our_compose_file_says_all_that_theirs_says() -> None:
    """Every key that concerns the emulator, with the same ports, path, variables and alias."""
    theirs = yaml.safe_load(TEMPLATE)["services"]["emulator"]
    ours = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]["emulator"]
    not_needed = {"depends_on", "pull_policy"}
    assert theirs.keys() - not_needed <= ours.keys()
    assert theirs["container_name"] == ours["container_name"]
    assert theirs["environment"].keys() <= ours["environment"].keys()
    assert theirs["networks"] == ours["networks"]
    default = [port.replace("${EMULATOR_HTTP_PORT:-5300}", "5300") for port in ours["ports"]]
    assert theirs["ports"] == default
    assert EMULATOR_IMAGE not in ours["image"]
    targets = [volume.removesuffix(":ro").rpartition(":")[2] for volume in ours["volumes"]]
    assert str(EMULATOR_FILE) in targets
