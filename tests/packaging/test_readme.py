"""What the README shows is run."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from broker.__main__ import main
from config.sources import SETTINGS
from tests.packaging.dockerfile import ROOT
from tests.support.server import BrokerProcess

README = (ROOT / "README.md").read_text()


def test_the_example_runs_as_it_is_printed():
    """Against a broker that was given no configuration, in the SDK nobody changed."""
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    with BrokerProcess() as broker:
        program = example.replace("sb://localhost;", f"sb://localhost:{broker.amqp_port};")
        assert program != example
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
        )
    assert (0, "hello\n") == (done.returncode, done.stdout), done.stderr


def test_the_connection_string_is_the_one_the_example_uses():
    """One string to paste."""
    (string,) = re.findall(r"```\n(Endpoint=.*)\n```", README)
    assert f'"{string}"' in README


def test_settings_the_readme_names_exist():
    """In the table, by their names in the file."""
    table = README[README.index("| setting |") : README.index("In the container")]
    named = {
        name
        for line in re.findall(r"^\|(.*?)\|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", line)
    }
    assert named
    assert named <= {one.name for one in SETTINGS}


def test_the_sample_passes_our_own_check(capsys):
    """SQL texts included."""
    assert 0 == main(["check", str(ROOT / "docker" / "entities.yaml")])
    assert "3 namespaces" in capsys.readouterr().out


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^):]+)\)", README))))
def test_files_the_readme_points_to_exist(link):
    """No dead ends."""
    assert (ROOT / link).is_file()
