"""What the README and the pages in docs/ show is run, or at least read by what it is meant for."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys

import pytest

from broker.__main__ import main, read_arguments
from config.settings.sources import SETTINGS
from tests.clients import table
from tests.conftest import UNAVAILABLE
from tests.packaging import settings_table
from tests.packaging.dockerfile import ROOT
from tests.support.server import BrokerProcess

README = (ROOT / "README.md").read_text()
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
LINKS = [
    (page, link)
    for page in PAGES
    for link in sorted(set(re.findall(r"\]\(([^):#]+)\)", page.read_text())))
]
COMMANDS = sorted(
    {
        command.partition("#")[0].strip()
        for page in PAGES
        for command in re.findall(r"(?:^|[`(])(peeklock [^`)\n]+)", page.read_text(), re.MULTILINE)
    }
)


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


@pytest.mark.parametrize(("page", "link"), LINKS, ids=lambda one: str(one).rpartition("/")[2])
def test_files_that_a_page_points_to_exist(page, link):
    """No dead ends."""
    assert (page.parent / link).is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_a_page_shows_can_be_given(command):
    """Every option of theirs exists; what they do is tested elsewhere."""
    _, *arguments = shlex.split(command)
    if "--help" in arguments:
        with pytest.raises(SystemExit) as ended:
            read_arguments(arguments)
        assert 0 == ended.value.code
    else:
        assert read_arguments(arguments)["run"]


def test_the_page_of_settings_has_them_all():
    """As they are: `python -m tests.packaging.settings_table` writes them anew."""
    assert settings_table.table() == settings_table.written()


def test_the_python_example_is_the_same_everywhere():
    """One to keep right."""
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert example in (ROOT / "docs" / "connecting.md").read_text()


def test_the_markers_of_the_clients_tables_are_on_their_page():
    """`make clients` puts the tables there."""
    page = (ROOT / "docs" / "clients.md").read_text()
    assert 1 == page.count(table.BEGIN) == page.count(table.END)
    assert table.BEGIN not in README


def test_dotnet_comes_first():
    """Most users come with it."""
    assert README.index("```csharp") < README.index("```python")
    assert README.index("| .NET |") < README.index("| Python |")


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
