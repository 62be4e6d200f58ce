"""The README: its first screen, its examples, and what it has in common with other pages.

`test_pages.py` checks the commands, snippets and links of all pages.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from broker.app.cli.command_line import main
from tests.clients import table
from tests.conftest import UNAVAILABLE
from tests.packaging.dockerfile import ROOT
from tests.support.server import BrokerProcess

README = (ROOT / "README.md").read_text()
SCREEN_LINES = 50


def test_the_first_screen_has_what_a_newcomer_needs():
    """What it is, how to start, how to connect, three advantages, and every page in docs/."""
    screen = "\n".join(README.splitlines()[:SCREEN_LINES])
    parts = ["make run", "Endpoint=sb://localhost;", "1. ", "2. ", "3. ", "**Read on**"]
    assert [] == [part for part in parts if part not in screen]
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)\)", screen))
    assert linked == {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}


def test_the_connection_string_is_the_one_the_examples_use():
    (string,) = re.findall(r"```\n(Endpoint=.*)\n```", README)
    assert 2 == README.count(f'"{string}"')


def test_the_sample_passes_our_own_check(capsys):
    """The SQL expressions of its rules are compiled, too."""
    assert 0 == main(["check", str(ROOT / "docker" / "entities.yaml")])
    assert "3 namespaces" in capsys.readouterr().out


def test_the_python_example_is_the_same_on_both_pages():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert example in (ROOT / "docs" / "connecting.md").read_text()


def test_the_markers_of_the_clients_tables_are_on_their_page():
    """`make clients ARGS=--readme` writes the tables between them."""
    page = (ROOT / "docs" / "clients.md").read_text()
    assert 1 == page.count(table.BEGIN) == page.count(table.END)
    assert table.BEGIN not in README


def test_dotnet_comes_first():
    """Most users of Service Bus use .NET."""
    assert README.index("```csharp") < README.index("```python")
    connecting = (ROOT / "docs" / "connecting.md").read_text()
    assert connecting.index("## .NET") < connecting.index("## Python")


def test_the_dotnet_example_runs_as_it_is_printed(tmp_path):
    """Compiled with the project file of the examples."""
    if shutil.which("dotnet") is None:
        pytest.skip(UNAVAILABLE + "dotnet is not on the PATH")
    (example,) = re.findall(r"```csharp\n(.*?)```", README, re.DOTALL)
    shutil.copy(ROOT / "examples" / "dotnet" / "Orders.csproj", tmp_path / "Example.csproj")
    with BrokerProcess() as broker:
        program = example.replace("sb://localhost;", f"sb://localhost:{broker.amqp_port};")
        assert program != example
        (tmp_path / "Program.cs").write_text(program)
        build = ["dotnet", "build", "--output", "build"]
        built = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr
        run = ["dotnet", "build/Example.dll"]
        done = subprocess.run(
            run, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
        )
    assert (0, "hello\n") == (done.returncode, done.stdout), done.stderr
