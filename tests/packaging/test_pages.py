"""Commands, snippets, links and names on every Markdown page are valid."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from broker import __version__
from broker.app.cli import client_arguments
from broker.app.cli.arguments import read_arguments
from broker.app.cli.client_arguments import CONNECTION_STRING_VARIABLE, URL_VARIABLE
from broker.app.cli.command_line import main
from broker.core.contract.counting import DeadLetterCause, Outcome
from config.files import emulator_reader
from config.files.yaml_reader import TOP_LEVEL
from config.loader import load
from config.model.authorization_keys import KEY_LENGTH
from config.model.definitions import UNLIMITED_MS, QueueDefinition
from config.settings.setting_sources import CONFIG_VARIABLE, SETTINGS
from pytest_peeklock.plugin import OPTIONS as OPTIONS_OF_PYTEST
from tests.conftest import UNAVAILABLE
from tests.packaging import limits_table, settings_table
from tests.packaging.dockerfile import ROOT
from tests.packaging.markdown import Page, pages
from tests.support.server import BrokerProcess

PAGES = pages()
MODULES_OF_TARGETS = {
    "bench": "tests.bench.run",
    "clients": "tests.clients.run",
    "crash": "tests.crash.run",
    "fuzz": "tests.fuzz.run",
    "soak": "tests.soak.run",
}
PROGRAMS = {
    "cat", "cd", "curl", "docker", "eval", "git", "make", "openssl", "peeklock", "pg_dump", "pip", "pipx",
    "pre-commit", "psql", "pytest", "python", "sqlite3",
}  # fmt: skip
"""What the shell blocks may start."""
FILES_OF_USERS = {"Config.json", "ca.pem", "config.py", "entities.yaml", "peeklock.db"}
"""Names of files that the reader has and the repository need not have."""
_FILE = re.compile(r"[\w.\-/]*\w\.(?:c|cs|json|md|py|pyi|sql|toml|txt|yaml|yml)")
_FOLDER = re.compile(r"(?:[\w.\-]+/)+")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def each(*kinds: str) -> list[tuple[Page, str]]:
    """Every code block of these languages, with its page."""
    return [(page, block) for page in PAGES for block in page.blocks(*kinds)]


def named(one: object) -> str:
    return one.name if isinstance(one, Page) else str(one)[:60].replace("\n", " ")


@cache
def options_of(module: str) -> frozenset[str]:
    """The options in the source of a module that is run with `python -m`."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return frozenset(re.findall(r'"(--[a-z][a-z-]*)"', Path(spec.origin).read_text()))


@cache
def make_targets() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text()
    return frozenset(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))


# --- links and names -----------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_to_a_file_and_a_heading(page):
    missing = []
    for link in page.links():
        name, _, anchor = link.partition("#")
        target = page.path.parent / name if name else page.path
        if not target.exists() or (anchor and anchor not in Page(target).anchors()):
            missing.append(link)
    assert [] == missing


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=named)
def test_every_file_name_exists(page):
    """A name with a folder is a path from the root or from the page. A name alone exists somewhere."""
    known = {path.name for path in ROOT.glob("*")}
    for folder in (
        "broker",
        "config",
        "docker",
        "docs",
        "examples",
        "protocol",
        "pytest-peeklock",
        "storage",
        "tests",
    ):
        known |= {path.name for path in (ROOT / folder).rglob("*")}
    missing = []
    for code in page.inline_code():
        if _FILE.fullmatch(code):
            found = "/" not in code and code in known | FILES_OF_USERS
        elif _FOLDER.fullmatch(code):
            found = False
        else:
            continue
        if not (
            found
            or code.startswith("/")
            or any((base / code).exists() for base in (ROOT, page.path.parent))
        ):
            missing.append(code)
    assert [] == missing


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_names_are_in_the_file_that_the_page_says(page):
    """Such as "`Store` in `storage/contract.py`"."""
    prose = re.sub(r"\s+", " ", page.prose())
    found = re.findall(r"`(\w+)` in `([\w/.]+\.\w+)`", prose)
    assert [] == [(name, path) for name, path in found if name not in (ROOT / path).read_text()]


@pytest.mark.parametrize(
    "what", ["setting", "property of an entity", "management operation", "storage backend", "fault"]
)
def test_contributing_says_how_to_add(what):
    headings = [
        line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if "## " in line
    ]
    assert f"## How to add a {what}" in headings


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "SCENARIOS" not in page.name], ids=named
)
def test_every_variable_exists(page):
    """The page of scenarios names variables that the runner of the clients sets."""
    known = {one.variable for one in SETTINGS} | {CONFIG_VARIABLE}
    known |= {URL_VARIABLE, CONNECTION_STRING_VARIABLE}
    found = set(re.findall(r"PEEKLOCK_[A-Z_]+", page.text)) - {"PEEKLOCK_"}
    assert set() == found - known


# --- commands ------------------------------------------------------------------------------------

PEEKLOCK_COMMANDS = sorted(
    {
        command.rstrip(")")
        for page in PAGES
        for line in page.command_lines()
        for command in re.findall(r"(?:^|\$\()(peeklock [a-z-][^)#>&]*)", line)
    }
)
MAKE_COMMANDS = sorted(
    {line for page in PAGES for line in page.command_lines() if re.match(r"make [a-z]", line)}
)
MODULES = sorted(
    {
        line
        for page in PAGES
        for line in page.command_lines()
        if re.match(r"(\.venv/bin/)?python -m tests", line)
    }
)


@pytest.mark.parametrize("command", PEEKLOCK_COMMANDS)
def test_peeklock_accepts_the_command(command):
    _, *arguments = shlex.split(command)
    if arguments in (
        ["check"],
        ["check", "--strict"],
        ["import"],
        ["peek"],
    ):  # in a sentence about the command
        arguments.append("FILE")
    if "--help" in arguments or "--version" in arguments:
        with pytest.raises(SystemExit) as ended:
            read_arguments(arguments)
        assert 0 == ended.value.code
    else:
        check_values(read_arguments(arguments))


def check_values(options):
    """Each setting has a value that is allowed; raises `ConfigError` if not."""
    names = {one.name for one in SETTINGS}
    given = {name: value for name, value in options.items() if name in names and value is not None}
    load(given, {}, no_rule_is_wrong, ROOT / "no such file")


@pytest.mark.parametrize("command", MAKE_COMMANDS)
def test_make_has_the_target_and_the_target_has_the_options(command):
    _, target, *rest = shlex.split(command)
    assert target in make_targets()
    arguments = [word for one in rest for word in shlex.split(one.removeprefix("ARGS="))]
    if target == "run":
        check_values(read_arguments(["serve", *arguments]))
    elif target in MODULES_OF_TARGETS:
        options = {word.partition("=")[0] for word in arguments if word.startswith("--")}
        assert set() == options - options_of(MODULES_OF_TARGETS[target])
    else:
        assert not arguments or target == "test"


@pytest.mark.parametrize("command", MODULES)
def test_the_module_exists_and_has_the_options(command):
    words = shlex.split(command)
    assert set() == set(_OPTION.findall(command)) - options_of(words[2])


def test_every_option_that_stands_alone_exists():
    """Such as `--quotas strict`: an option of `peeklock` or of a module that `make` runs."""
    known = {one.flag for one in SETTINGS} | {
        "--config",
        "--form",
        "--output",
        "--strict",
        "--path",
        "--with-keys",
    }
    known |= set(_OPTION.findall(Path(client_arguments.__file__).read_text()))
    known |= {f"--peeklock-{name}" for name in OPTIONS_OF_PYTEST}
    for module in [*MODULES_OF_TARGETS.values(), "tests.simulation.run"]:
        known |= options_of(module)
    unknown = {
        (page.name, option)
        for page in PAGES
        for code in page.inline_code()
        if code.startswith("--")
        for option in _OPTION.findall(code)
        if option not in known
    }
    assert set() == unknown


OPTIONS_WITH_VALUES = sorted(
    {
        code
        for page in PAGES
        for code in page.inline_code()
        if re.match(r"--[a-z-]+ [^-]", code)
        and set(_OPTION.findall(code)) <= {one.flag for one in SETTINGS}
    }
)


@pytest.mark.parametrize("code", OPTIONS_WITH_VALUES)
def test_options_that_stand_alone_have_allowed_values(code):
    check_values(read_arguments(["serve", *shlex.split(code)]))


@pytest.mark.parametrize(("page", "block"), each("sh"), ids=named)
def test_shell_blocks_start_known_programs(page, block):
    """Each program is checked by one of the tests here, or belongs to the reader's machine."""
    lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
    starts = {shlex.split(line, comments=True)[0] for line in lines}
    assert set() == starts - PROGRAMS


@pytest.fixture(scope="module")
def broker():
    with BrokerProcess() as process:
        yield process


CURLS = sorted(
    {line for page in PAGES for line in page.command_lines() if line.startswith("curl ")}
)


@pytest.mark.parametrize("line", CURLS)
def test_curl_commands_succeed(line, broker):
    if shutil.which("curl") is None:
        pytest.skip(UNAVAILABLE + "curl is not on the PATH")
    command = line.replace("localhost:5300", f"localhost:{broker.http_port}")
    assert command != line
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert 0 == done.returncode, done.stderr
    assert "error" not in json.loads(done.stdout)


def test_the_command_for_keys_prints_a_key_of_the_length_that_the_page_names():
    if shutil.which("openssl") is None:
        pytest.skip(UNAVAILABLE + "openssl is not on the PATH")
    page = Page(ROOT / "docs" / "configuration.md")
    (command,) = [line for line in page.command_lines() if line.startswith("openssl ")]
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True)
    assert KEY_LENGTH == len(done.stdout.strip())
    assert f"{KEY_LENGTH} characters" in page.text


# --- snippets ------------------------------------------------------------------------------------


def no_rule_is_wrong(*_):
    return None


@pytest.mark.parametrize(("page", "block"), each("yaml", "json"), ids=named)
def test_configuration_snippets_are_accepted(page, block, tmp_path):
    """A config file passes `peeklock check`. Other YAML and JSON can be parsed."""
    document = yaml.safe_load(block)
    assert document
    top_level = {*TOP_LEVEL, "settings", "UserConfig"}
    if not document.keys() <= top_level:
        json.loads(block)
        return
    path = tmp_path / "snippet.yaml"
    path.write_text(block)
    assert not load({"config": str(path)}, {}, no_rule_is_wrong).warnings
    assert 0 == main(["check", "--strict", str(path)])


@pytest.mark.parametrize(("page", "block"), each("python"), ids=named)
def test_python_snippets_compile(page, block):
    compile(block, page.name, "exec")


def whole_programs():
    """Python blocks that import what they use and print something."""
    found = {
        block: page for page, block in each("python") if "import " in block and "print(" in block
    }
    return [(page, block) for block, page in found.items()]


@pytest.mark.parametrize(("page", "block"), whole_programs(), ids=named)
def test_whole_programs_run_as_printed(page, block, broker):
    """With the SDK as it is installed, against a broker without a config file."""
    program = block.replace("sb://localhost;", f"sb://localhost:{broker.amqp_port};")
    program = program.replace("localhost:5300", f"localhost:{broker.http_port}")
    assert program != block
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (0, "hello\n") == (done.returncode, done.stdout), done.stderr


# --- tables that are written by programs ---------------------------------------------------------


def test_the_table_of_settings_is_current():
    """`python -m tests.packaging.settings_table` writes it."""
    assert settings_table.table() == settings_table.written()


def test_the_table_of_limits_is_current():
    """`python -m tests.packaging.limits_table` writes it."""
    assert limits_table.table() == limits_table.written()


def test_the_table_of_defaults_is_current():
    """It compares a queue of our own with one in the emulator's file."""
    page = Page(ROOT / "docs" / "limits.md").text
    ours, theirs = QueueDefinition(), emulator_reader.QUEUE
    assert (30_000, 60_000) == (ours.lock_duration_ms, theirs.lock_duration_ms)
    assert "| lock duration | 30 seconds, or `default_lock_duration` | 1 minute |" in page
    assert (10, 3) == (ours.max_delivery_count, theirs.max_delivery_count)
    assert "| maximum delivery count | 10 | 3 |" in page
    hour_ms = 3_600_000
    assert (UNLIMITED_MS, hour_ms) == (ours.default_time_to_live_ms, theirs.default_time_to_live_ms)
    assert "| time to live | unlimited | 1 hour |" in page
    assert (600_000, 20_000) == (ours.duplicate_window_ms, theirs.duplicate_window_ms)
    assert "| duplicate detection window | 10 minutes | 20 seconds |" in page


@cache
def sources() -> str:
    folders = ("broker", "protocol", "storage", "config")
    return "\n".join(
        path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")
    )


def first_column(page: Page, heading: str) -> list[str]:
    """The code in the first column of the first table below a heading."""
    _, _, text = page.text.partition(f"\n{heading}\n")
    rows = re.search(r"^\|.*?(?=\n[^|])", text, re.MULTILINE | re.DOTALL)
    assert rows is not None
    cells = [line.split("|")[1] for line in rows[0].splitlines()]
    return [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]


def test_the_metrics_are_those_of_a_broker(broker):
    _, text = broker.request("GET", "/metrics")
    given = set(re.findall(r"^# TYPE (\w+) ", text.decode(), re.MULTILINE))
    assert given == set(first_column(Page(ROOT / "docs" / "operations.md"), "## Metrics"))


def logged_events() -> set[str]:
    """The events that the source logs at info or above."""
    found = set(re.findall(r'log\.(?:info|warning|error|exception)\(\s*"([a-z_.]+)"', sources()))
    return found | set(re.findall(r'note\(\s*log\.\w+,\s*"([a-z_.]+)"', sources()))


def test_the_table_of_events_is_complete():
    named_events = set(first_column(Page(ROOT / "docs" / "operations.md"), "## Logs"))
    assert set() == {one for one in named_events if f'"{one}"' not in sources()}
    assert set() == logged_events() - named_events


def test_the_tables_of_outcomes_and_reasons_are_complete():
    text = Page(ROOT / "docs" / "operations.md").text
    for heading, values in (
        ("| `outcome` |", Outcome),
        ("| `reason` of dead letters |", DeadLetterCause),
    ):
        rows = text.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]
        cells = [line.split("|")[1] for line in rows]
        names = [name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell)]
        assert sorted(values) == sorted(names)


# --- changelog and repository files --------------------------------------------------------------


def test_the_changelog_has_the_current_version():
    """Keep a Changelog: `## [1.2.3] - 2026-01-31`, the newest first, perhaps after `[Unreleased]`."""
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if headings[0] == "[Unreleased]":
        del headings[0]
    found = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)", one) for one in headings]
    assert all(found), headings
    versions = [(tuple(map(int, one[1].split("."))), one[2]) for one in found if one]
    assert sorted(versions, reverse=True) == versions
    assert __version__ in {one[1] for one in found if one}


def test_the_workflow_runs_make_test_and_nothing_else():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yaml").read_text())
    (job,) = workflow["jobs"].values()
    assert ["make test"] == [step["run"] for step in job["steps"] if "run" in step]
    allowed = {"actions/checkout", "actions/setup-python"}
    used = {step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step}
    assert used == allowed
    oldest = re.search(r'requires-python = ">=(.*)"', (ROOT / "pyproject.toml").read_text())
    assert oldest is not None
    assert oldest[1] in job["strategy"]["matrix"]["python"]


@pytest.mark.parametrize("name", ["bug.yaml", "feature.yaml"])
def test_issue_templates_are_forms(name):
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text())
    assert form["name"]
    assert form["description"]
    fields = [one for one in form["body"] if one["type"] != "markdown"]
    assert all(one["type"] in {"textarea", "input"} for one in fields)
    assert len({one["id"] for one in fields}) == len(fields)
    assert all(one["attributes"]["label"] for one in fields)


def test_no_page_names_a_path_of_a_developers_machine():
    home = str(Path.home())
    found = [
        page.name
        for page in PAGES
        if "/root/" in page.text or (len(home) > 5 and f"{home}/" in page.text)
    ]
    assert [] == found
