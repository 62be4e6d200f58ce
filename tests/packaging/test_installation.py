"""The distribution installs one name, and runs beside anything a user may have of the same names."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from broker import __version__
from broker.app.server import READY_TEXT
from peeklock.__main__ import PACKAGES
from tests.packaging.conftest import build, run, site_packages
from tests.packaging.dockerfile import ROOT
from tests.support.server import free_ports

BUILD_SDIST = "from setuptools.build_meta import build_sdist; print(build_sdist('.'))"
CONNECTION_STRING = (
    "Endpoint=sb://127.0.0.1:{};SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
)
OF_OTHERS = ["aiohttp", "argparse", "asyncio", "json", "logging", "rich", "structlog", "uvloop"]
"""Modules of dependencies, of the standard library, and one that structlog imports if it is there."""
NOT_INSTALLED = {".c", ".h", ".so"}
"""The source of the compiled module, and modules that were compiled in the source tree."""
HOSTILE = "raise SystemExit('imported ' + __file__)\n"
SITECUSTOMIZE = """\
import importlib.machinery, pathlib, sys, types
sys.path.insert(0, {installed!r})
import config, config.settings       # a distribution's
sys.path.remove({installed!r})
sys.modules["storage"] = types.ModuleType("storage")
sys.modules["structlog"] = types.ModuleType("structlog")
sys.modules["structlog"].__file__ = str(pathlib.Path(__file__).with_name("structlog.py"))

class Finder:                        # as editable installations of other tools put in the first place
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            folders = path if "." in name else [{installed!r}]
            return importlib.machinery.PathFinder.find_spec(name, folders, target)

sys.meta_path.insert(0, Finder())
"""
"""What Python runs in every process before ours begins."""


# --- what is installed ---------------------------------------------------------------------------


def contents(path):
    """Hashes of the files of a wheel by name, but for the list of the files itself."""
    with zipfile.ZipFile(path) as archive:
        return {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if not name.endswith("/RECORD")
        }


def test_the_wheel_has_one_name_at_the_top(wheel):
    """And the folder that describes it."""
    assert {"peeklock", f"peeklock-{__version__}.dist-info"} == {
        name.partition("/")[0] for name in contents(wheel)
    }


def test_the_wheel_holds_every_module_and_its_data(wheel):
    """Files with SQL and the compiled modules are there, too, and no module is there twice."""
    expected = {
        f"peeklock/_packages/{path.relative_to(ROOT)}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in NOT_INSTALLED
    }
    expected |= {
        f"peeklock/_packages/{package}/native/compiled{EXTENSION_SUFFIXES[0]}"
        for package in ("protocol", "storage")
    }
    expected |= {f"peeklock/{path.name}" for path in (ROOT / "peeklock").glob("*.py")}
    assert expected == {name for name in contents(wheel) if ".dist-info/" not in name}


def test_the_source_distribution_builds_the_same_wheel(source, wheel, tmp_path):
    """File for file: some users install from it."""
    copy = tmp_path / "source"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "*.whl"))
    with tarfile.open(build(copy, BUILD_SDIST)) as archive:
        archive.extractall(tmp_path, filter="data")
    assert contents(wheel) == contents(build(tmp_path / f"peeklock-{__version__}"))


# --- beside others -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded(make_environment):
    """An environment with other distributions whose packages have the names of ours."""
    environment = make_environment()
    for name in PACKAGES:
        package = site_packages(environment) / name
        package.mkdir()
        (package / "__init__.py").write_text("WHOSE = 'a distribution'\n")
        (package / "settings.py").write_text("WHOSE = 'a distribution'\n")
        (package / "__main__.py").write_text(HOSTILE)
        described = site_packages(environment) / f"{name}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    return environment


@pytest.fixture
def project(crowded, tmp_path):
    """A user's folder with modules of all these names, which are in the way if they are imported."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in [*PACKAGES, *OF_OTHERS]:
        (folder / f"{name}.py").write_text(HOSTILE)
    preloading = tmp_path / "preloading"
    preloading.mkdir()
    (preloading / "sitecustomize.py").write_text(
        SITECUSTOMIZE.format(installed=str(site_packages(crowded)), packages=set(PACKAGES))
    )
    (preloading / "structlog.py").write_text(HOSTILE)
    return folder


def variables_of(project):
    """An environment in which Python searches the user's folders first."""
    inherited = {name: value for name, value in os.environ.items() if "PEEKLOCK" not in name}
    search = [".", str(project.parent / "preloading"), str(project)]
    return inherited | {"PYTHONPATH": os.pathsep.join(search), "PYTHONSTARTUP": "config.py"}


def commands(environment):
    """The ways to start: by the script, as a module, and with Python's own isolation."""
    python = str(environment / "bin" / "python")
    return {
        "script": [str(environment / "bin" / "peeklock")],
        "module": [python, "-m", "peeklock"],
        "isolated": [python, "-I", "-m", "peeklock"],
    }


def test_the_surroundings_are_hostile(crowded, project):
    """Or the tests below show nothing: what they must not import is what Python would find."""
    python = crowded / "bin" / "python"
    program = "import sys; del sys.modules['structlog']; import structlog"
    command = [python, "-c", program]
    done = subprocess.run(
        command, cwd=project, env=variables_of(project), capture_output=True, text=True, check=False
    )
    assert f"imported {project}/structlog.py" in done.stderr
    program = (
        "import config, config.settings, storage; print(config.WHOSE, vars(storage).get('WHOSE'))"
    )
    printed = run(python, "-c", program, cwd=project, env=variables_of(project))
    assert "a distribution None\n" == printed


@pytest.mark.parametrize("way", ["script", "module", "isolated"])
def test_the_command_says_its_version_whatever_is_around_it(crowded, project, way):
    """The version that is installed."""
    command = commands(crowded)[way]
    printed = run(*command, "--version", cwd=project, env=variables_of(project))
    assert f"peeklock {__version__}\n" == printed


@contextmanager
def serving(command, folder, variables):
    """A broker that is ready; gives its AMQP port."""
    amqp_port, http_port = free_ports(2)
    ports = ["--amqp-port", str(amqp_port), "--http-port", str(http_port)]
    store = f"sqlite:///{folder / 'peeklock.db'}"
    process = subprocess.Popen(
        [*command, "serve", "--host", "127.0.0.1", *ports, "--storage", store],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        log = []
        for line in process.stdout:
            log.append(line)
            if READY_TEXT in line:
                break
        assert READY_TEXT in "".join(log[-1:]), "".join(log)
        yield amqp_port
        process.send_signal(signal.SIGTERM)
        remaining, _ = process.communicate(timeout=30)
        assert 0 == process.returncode, remaining
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("way", ["script", "module"])
def test_the_command_serves_whatever_is_around_it(crowded, project, way):
    """A stock client sends and receives, over the store whose SQL is in the wheel."""
    with serving(commands(crowded)[way], project, variables_of(project)) as port:
        with ServiceBusClient.from_connection_string(CONNECTION_STRING.format(port)) as client:
            with client.get_queue_sender("queue.1") as sender:
                sender.send_messages(ServiceBusMessage("hello"))
            with client.get_queue_receiver("queue.1") as receiver:
                (message,) = receiver.receive_messages(max_wait_time=10)
                receiver.complete_message(message)
    assert "hello" == str(message)


def test_users_import_their_own(crowded, tmp_path):
    """Importing `peeklock`, or its launcher, changes nothing about what a process can import."""
    (tmp_path / "broker.py").write_text("WHOSE = 'the user'\n")
    program = """
import importlib.metadata, json, sys
before = list(sys.path), list(sys.meta_path)
import peeklock, peeklock.__main__
unchanged = before == (sys.path, sys.meta_path)
import broker, config
print(json.dumps([unchanged, broker.WHOSE, config.WHOSE, importlib.metadata.version("peeklock")]))
"""
    printed = run(crowded / "bin" / "python", "-c", program, cwd=tmp_path)
    assert [True, "the user", "a distribution", __version__] == json.loads(printed)


# --- other ways to install -----------------------------------------------------------------------


@pytest.mark.parametrize("ours_first", [True, False])
def test_an_installation_that_only_the_path_names_runs(wheel, project, tmp_path, ours_first):
    """After `pip install --target`, PYTHONPATH is how Python finds us and our dependencies."""
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "empty"))
    target = tmp_path / "target"
    zipfile.ZipFile(wheel).extractall(target)
    variables = variables_of(project)
    installed = [str(target), sysconfig.get_path("purelib")]
    search = (
        [*installed, variables["PYTHONPATH"]]
        if ours_first
        else [variables["PYTHONPATH"], *installed]
    )
    command = [tmp_path / "empty" / "bin" / "python", "-m", "peeklock", "--version"]
    printed = run(*command, cwd=project, env=variables | {"PYTHONPATH": os.pathsep.join(search)})
    assert f"peeklock {__version__}\n" == printed


def test_the_source_tree_runs_from_anywhere(tmp_path):
    """As tests and developers start it."""
    (tmp_path / "config.py").write_text(HOSTILE)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([".", str(ROOT)])}
    command = [sys.executable, "-m", "peeklock", "--version"]
    assert f"peeklock {__version__}\n" == run(*command, cwd=tmp_path, env=variables)
