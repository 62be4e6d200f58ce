"""The container does what its Dockerfile says, as far as that can be tried without an engine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from broker.app.server import READY_TEXT
from config.loader import EMULATOR_FILE
from config.model.storage_urls import parse_storage_url
from config.settings.setting_sources import SETTINGS
from peeklock.__main__ import PACKAGES
from tests.conftest import UNAVAILABLE
from tests.packaging.conftest import run
from tests.packaging.dockerfile import ROOT, stages
from tests.support.server import free_ports

BUILD, FINAL = stages()


# --- the file ------------------------------------------------------------------------------------


def test_the_linter_finds_nothing():
    """Each exception is explained where it is made."""
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip(UNAVAILABLE + "hadolint has wheels for Linux on x86-64 only")
    assert "" == run(str(linter), str(ROOT / "Dockerfile"))


def test_the_compiler_stays_behind():
    """Only what was installed is copied into the image that is shipped."""
    assert "gcc" in " ".join(BUILD.of("RUN"))
    assert "apt-get" not in " ".join(FINAL.of("RUN"))
    assert ["--from=build /opt/peeklock /opt/peeklock"] == FINAL.of("COPY")
    assert BUILD.base == FINAL.base


def test_the_image_runs_as_an_unprivileged_user():
    """And the one folder it writes to is its own."""
    user = FINAL.only("USER").partition(":")[0]
    assert "0" != user
    assert f"--uid {user} " in " ".join(FINAL.of("RUN"))
    assert "/data" == FINAL.only("VOLUME")
    assert "--owner=peeklock --group=peeklock /data" in " ".join(FINAL.of("RUN"))


def test_the_folder_of_the_emulators_file_is_there():
    """Aspire and Testcontainers copy their file into it before the container starts."""
    (step,) = [text for text in FINAL.of("RUN") if "install --directory" in text]
    assert f" {EMULATOR_FILE.parent}" in step


def test_what_the_image_sets_are_settings():
    """A misspelt variable would be ignored without a word."""
    known = {one.variable for one in SETTINGS} | {"PATH"}
    assert FINAL.environment.keys() <= known
    assert "0.0.0.0" == FINAL.environment["PEEKLOCK_HOST"]
    assert "sqlite:////data/peeklock.db" == FINAL.environment["PEEKLOCK_STORAGE"]
    assert "/data/tls" == FINAL.environment["PEEKLOCK_TLS_FOLDER"]


def test_dependencies_are_installed_from_the_one_list():
    """The step that reads them from pyproject.toml prints them all, with the driver for PostgreSQL."""
    (step,) = [text for text in BUILD.of("RUN") if "tomllib" in text]
    code = re.search(r'python -c "(.*?)" >', step)
    assert code is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["postgresql"]
    assert wanted == run(sys.executable, "-c", code[1], cwd=ROOT).splitlines()


def test_what_the_build_needs_is_copied_and_not_ignored():
    """The build stage sees the packages that the wheel is made of."""
    copied = {word for text in BUILD.of("COPY") for word in text.split()[:-1]}
    assert copied >= {"pyproject.toml", "setup.py", "peeklock", *PACKAGES}
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert copied == allowed


def test_compose_takes_the_place_of_the_emulators():
    """The same ports, the same config path, the same alias on the network."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    (service,) = compose["services"].values()
    assert ["5672:5672", "5300:${EMULATOR_HTTP_PORT:-5300}"] == service["ports"]
    assert "${EMULATOR_HTTP_PORT:-5300}" == service["environment"]["EMULATOR_HTTP_PORT"]
    assert any(f":{EMULATOR_FILE}:ro" in volume for volume in service["volumes"])
    assert ["sb-emulator"] == service["networks"]["sb-emulator"]["aliases"]
    ports = {int(port) for port in FINAL.only("EXPOSE").split()}
    assert {5672, 5671, 5300} == ports


def test_compose_with_a_database_has_two_brokers_behind_one_name():
    """Both have the same database, entities and certificate, and every variable is a setting."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.postgres.yaml").read_text())
    services = compose["services"]
    first, second = services["broker-1"], services["broker-2"]
    different = {name for name in first if first[name] != second[name]}
    assert {"ports"} == different
    assert ["sb-emulator"] == first["networks"]["sb-emulator"]["aliases"]
    assert first["environment"].keys() <= {one.variable for one in SETTINGS}
    database = services["database"]["environment"]
    url = first["environment"]["PEEKLOCK_STORAGE"]
    parsed = parse_storage_url(url.replace("${POSTGRES_PASSWORD:-peeklock}", "secret"))
    user, password, host, name = (
        database["POSTGRES_USER"],
        "secret",
        "database",
        database["POSTGRES_DB"],
    )
    assert f"postgresql://{user}:{password}@{host}/{name}" == parsed.database
    assert any(f":{EMULATOR_FILE}:ro" in volume for volume in first["volumes"])
    assert set(compose["volumes"]) >= {
        volume.partition(":")[0] for volume in first["volumes"] if volume[0].isalpha()
    }


@pytest.mark.parametrize(
    ("status", "reason", "code"), [(200, "", 0), (503, "standby", 0), (503, "starting", 1)]
)
def test_compose_takes_a_standby_for_healthy(status, reason, code):
    """It waits as it should. A broker that starts or stops is not healthy."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.postgres.yaml").read_text())
    _, program, *arguments = compose["services"]["broker-1"]["healthcheck"]["test"]
    assert "python" == program

    class Health(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b'{"reason":"%s"}' % reason.encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.handle_request).start()
        port = str(server.server_port)
        command = [sys.executable, *(text.replace("5300", port) for text in arguments)]
        assert code == subprocess.run(command, capture_output=True, check=False).returncode


# --- its steps -----------------------------------------------------------------------------------


@contextmanager
def started(environment, tmp_path, **variables):
    """`ENTRYPOINT` and `CMD` with the image's own variables, on ports of ours."""
    amqp_port, http_port = free_ports(2)
    given = FINAL.environment | {
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "PEEKLOCK_HOST": "127.0.0.1",
        "PEEKLOCK_AMQP_PORT": str(amqp_port),
        "PEEKLOCK_STORAGE": f"sqlite:///{tmp_path / 'peeklock.db'}",
        "PEEKLOCK_TLS_FOLDER": str(tmp_path / "tls"),
        "EMULATOR_HTTP_PORT": str(http_port),
    }
    command = json.loads(FINAL.only("ENTRYPOINT")) + json.loads(FINAL.only("CMD"))
    process = subprocess.Popen(
        [environment / "bin" / command[0], *command[1:]],
        cwd=tmp_path,
        env=given | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process, given
    finally:
        process.kill()
        process.communicate()


def healthy(environment, variables):
    program, *arguments = FINAL.health_check
    command = [environment / "bin" / program, *arguments]
    return 0 == subprocess.run(command, env=variables, capture_output=True, check=False).returncode


def test_the_installed_command_serves_and_is_found_healthy(environment, tmp_path):
    """It is healthy from the line that says so on, and ends with 0 when it is told to stop."""
    with started(environment, tmp_path) as (process, variables):
        log = []
        for line in process.stdout:
            log.append(line)
            if READY_TEXT in line:
                break
        assert READY_TEXT in "".join(log[-1:]), "".join(log)
        assert healthy(environment, variables)
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
        assert 0 == process.returncode, rest
        assert not healthy(environment, variables)


def test_the_installed_command_refuses_a_wrong_file(environment, tmp_path):
    """Exit code 2 and the place, before anything is opened."""
    path = tmp_path / "Config.json"
    path.write_text('{"UserConfig": {"Namespaces": [{"Name": "a", "Queues": [{}]}]}}')
    with started(environment, tmp_path, PEEKLOCK_CONFIG=str(path)) as (process, _):
        output, _ = process.communicate(timeout=30)
        assert 2 == process.returncode
        assert f"{path}:1: UserConfig.Namespaces[0].Queues[0]: Name is missing" in output
        assert not (tmp_path / "peeklock.db").exists()
