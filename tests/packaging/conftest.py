"""The wheel and an environment it is installed in, for all tests of this folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig

import pytest

from tests.packaging.dockerfile import ROOT, stages

BUILD_WHEEL = "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"


def run(*command, **options):
    done = subprocess.run(command, check=False, capture_output=True, text=True, **options)
    assert 0 == done.returncode, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(source, program=BUILD_WHEEL):
    """Builds without a network, in the folder of the source; returns the path of what was built."""
    return source / run(sys.executable, "-c", program, cwd=source).splitlines()[-1]


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """A copy of what the build stage of the image is given."""
    folder = tmp_path_factory.mktemp("source")
    for text in stages()[0].of("COPY"):
        *names, target = text.split()
        for name in names:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so")
                shutil.copytree(ROOT / name, folder / target, ignore=ignored)
            else:
                shutil.copy(ROOT / name, folder / target)
    return folder


@pytest.fixture(scope="session")
def wheel(source):
    return build(source)


@pytest.fixture(scope="session")
def make_environment(wheel, tmp_path_factory):
    """Makes environments with the wheel installed; its dependencies are those that run this test."""

    def make():
        folder = tmp_path_factory.mktemp("environment")
        run(sys.executable, "-m", "venv", "--without-pip", str(folder))
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
        run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel))
        # Behind the installed code: an editable installation among them is not looked at.
        (site_packages(folder) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        return folder

    return make


def site_packages(environment):
    (folder,) = environment.glob("lib/python*/site-packages")
    return folder


@pytest.fixture(scope="session")
def environment(make_environment):
    """An environment with nothing else in it."""
    return make_environment()
