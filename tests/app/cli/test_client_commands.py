"""The commands that ask a running broker, as shell scripts call them: what they print and what they exit with."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from broker.app.cli.client_arguments import CLIENT_COMMANDS, EXIT_CODES
from broker.app.cli.command_line import main
from broker.app.cli.control_client import ControlClient as ControlConnection
from broker.app.cli.control_client import control_client
from broker.app.exit_codes import ExitCode
from protocol.identity import sas
from tests.control.client import ControlClient
from tests.packaging.markdown import Page
from tests.support.event_server import event_server
from tests.support.server import ROOT, BrokerProcess, free_ports

TOPOLOGY: dict[str, object] = {"queues": {"orders": {}}}
CONFIG = {**TOPOLOGY, "namespaces": {"team-b": TOPOLOGY}}


@pytest.fixture(scope="module")
def broker():
    with BrokerProcess(config=CONFIG, testing_api=False) as running:
        yield running


@pytest.fixture
def api(broker):
    """A namespace of its own for each test."""
    root = ControlClient(broker.http_port)
    created = root.post("/namespaces", topology=TOPOLOGY)["name"]
    client = ControlClient(broker.http_port, created)
    yield client
    root.request("DELETE", f"/namespaces/{created}")


@pytest.fixture
def peeklock(broker, api, capsys, monkeypatch):
    """Runs a command in the namespace of the test, or in that which it names; returns its exit code and what it
    printed."""
    monkeypatch.setenv("PEEKLOCK_URL", f"http://127.0.0.1:{broker.http_port}")
    monkeypatch.delenv("PEEKLOCK_CONNECTION_STRING", raising=False)

    def run(*arguments: str, stdin: bytes = b"", in_default: bool = False) -> SimpleNamespace:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        if not in_default and "--namespace" not in arguments:
            arguments = (*arguments, "--namespace", api.namespace)
        code = main(list(arguments))
        printed = capsys.readouterr()
        return SimpleNamespace(code=code, out=printed.out, err=printed.err)

    return run


# --- send ----------------------------------------------------------------------------------------


def test_texts_become_messages_with_the_given_fields(peeklock, api):
    done = peeklock(
        *("send", "orders", "one", "two", "--subject", "greeting", "--content-type", "text/plain"),
        *("--property", "color=red", "--property", "size=x=l", "--time-to-live", "60"),
    )
    assert (0, "2 sent\n", "") == (done.code, done.out, done.err)
    first, second = api.get("/messages", entity="orders")["messages"]
    assert ("one", "two") == (first["body"], second["body"])
    assert {"color": "red", "size": "x=l"} == first["application_properties"]
    assert ("greeting", "text/plain", 60_000) == (
        second["subject"],
        second["content_type"],
        second["time_to_live_ms"],
    )


def test_messages_do_not_control_the_terminal(peeklock, api):
    """Control characters are escaped, other characters are not."""
    message = {
        "message_id": "\x1b[2J",
        "subject": "größe",
        "application_properties": {"\x1b]0;name\x07": "\x9b1m"},
        "body": {"größe": "\x9b"},
    }
    api.post("/messages", entity="orders", messages=[message])
    done = peeklock("peek", "orders")
    (line,) = done.out.splitlines()
    assert line.isprintable()
    assert " subject=größe " in line
    assert r'message_id="\u001b[2J"' in line


def test_options_may_be_between_the_entity_and_the_texts(peeklock, api):
    done = peeklock("send", "orders", "one", "--subject", "s", "two", "three")
    assert (0, "3 sent\n", "") == (done.code, done.out, done.err)
    found = api.get("/messages", entity="orders")["messages"]
    assert ["one", "two", "three"] == [one["body"] for one in found]


def test_an_unknown_home_folder(peeklock):
    done = peeklock("backup", "~no-such-user/copy.db", in_default=True)
    assert ExitCode.MISUSED == done.code
    assert "~no-such-user/copy.db begins with the home folder of an unknown user" in done.err


@pytest.mark.parametrize(
    ("form", "content", "bodies"),
    [
        ([], b"all of\nit\n", ["all of\nit"]),
        (["--form", "lines"], b"one\ntwo\n", ["one", "two"]),
        (["--form", "json"], b'[{"body": {"n": 1}}, {"body": "two"}]', [{"n": 1}, "two"]),
        (["--form", "json"], b'{"body": "one"}\n\n{"body": "two"}\n', ["one", "two"]),
        (["--form", "json"], b'{"body": "one"}', ["one"]),
        ([], b"\xff\x00", ["/wA="]),
    ],
)
def test_messages_come_from_standard_input(peeklock, api, form, content, bodies):
    done = peeklock("send", "orders", *form, stdin=content)
    assert 0 == done.code, done.err
    found = api.get("/messages", entity="orders")["messages"]
    assert bodies == [one["body"] for one in found]


def test_messages_come_from_a_file(peeklock, api, tmp_path):
    """More than one request can send."""
    file = tmp_path / "messages.txt"
    file.write_text("".join(f"{number}\n" for number in range(2_500)))
    done = peeklock("send", "orders", "--file", str(file), "--form", "lines", "--json")
    answer = json.loads(done.out)
    assert (0, 2_500) == (done.code, answer["sent"])
    assert list(range(1, 2_501)) == answer["sequence_numbers"]
    assert 2_500 == api.get("/entity", entity="orders")["counts"]["active"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "sentence"),
    [
        (["--file", "/no/such/file"], b"", "cannot be read"),
        (["--form", "json"], b'{"body": "one"}\n{"body"', "line 2 of the input is not valid JSON"),
        (["--form", "json"], b"[1]", "a message is a JSON object"),
        (["--form", "json"], b"[" * 100_000, "the input is not valid JSON: too many arrays"),
        (
            ["--form", "json"],
            b"{}\n" + b"[" * 100_000,
            "line 2 of the input is not valid JSON: too many",
        ),
        (["--form", "json"], b"[]", "the input is empty"),
        (["--form", "lines"], b"", "the input is empty"),
        (["hello", "--form", "lines"], b"", "TEXT cannot be combined"),
        (["hello", "--property", "color"], b"", "must be NAME=TEXT"),
        (["--form", "json"], b'{"boddy": "one"}', "There is no field 'messages[0].boddy'"),
    ],
)
def test_wrong_input_sends_nothing(peeklock, api, arguments, stdin, sentence):
    done = peeklock("send", "orders", *arguments, stdin=stdin)
    assert (ExitCode.MISUSED, "") == (done.code, done.out)
    assert sentence in done.err
    assert 0 == api.get("/entity", entity="orders")["counts"]["active"]


# --- peek, purge ---------------------------------------------------------------------------------


def test_messages_are_shown_without_locking_them(peeklock, api):
    api.post(
        "/messages",
        entity="orders",
        messages=[
            {"body": {"id": 7}, "message_id": "order 7", "application_properties": {"n": 1}},
            {"body": "x" * 300, "message_id": "b"},
        ],
    )
    done = peeklock("peek", "orders")
    first, second = done.out.splitlines()
    assert '#1 active message_id="order 7" delivery_count=0 n=1 body="{\\"id\\": 7}"' == first
    assert second.endswith("x…")
    assert 0 == done.code
    assert 2 == api.get("/entity", entity="orders")["counts"]["active"]
    selected = json.loads(peeklock("peek", "orders", "--filter", "n = 1", "--json").out)
    assert ["order 7"] == [one["message_id"] for one in selected["messages"]]
    assert 1 == len(peeklock("peek", "orders", "--limit", "1").out.splitlines())


def test_nothing_is_found(peeklock):
    done = peeklock("peek", "orders", "--sub-queue", "dead_letter")
    assert (ExitCode.NOT_SO, "", "") == (done.code, done.out, done.err)
    done = peeklock("peek", "orders", "--json")
    assert (ExitCode.NOT_SO, []) == (done.code, json.loads(done.out)["messages"])


def test_a_queue_is_purged(peeklock, api):
    api.post("/messages", entity="orders", messages=[{"body": "one"}, {"body": "two"}])
    api.post("/messages/dead-letter", entity="orders", sequence_numbers=[1], reason="Bad")
    done = peeklock("purge", "orders", "--sub-queue", "dead_letter")
    assert (0, "1 deleted\n") == (done.code, done.out)
    assert {"count": 1} == json.loads(peeklock("purge", "orders", "--json").out)


# --- wait ----------------------------------------------------------------------------------------


def test_a_condition_that_holds(peeklock, api):
    api.post("/messages", entity="orders", messages=[{"body": "one", "message_id": "a"}])
    done = peeklock("wait", "orders", "--filter", "sys.MessageId = 'a'", "--timeout", "5")
    assert 0 == done.code, done.err
    assert "message_id=a" in done.out
    assert 0 == peeklock("wait", "--is", "unlocked").code
    both = ["--condition", '{"entity": "orders", "equals": 1}', "--condition", '{"is": "unlocked"}']
    assert 2 == len(json.loads(peeklock("wait", *both, "--json").out)["seen"])


def test_a_wait_that_times_out(peeklock):
    done = peeklock("wait", "orders", "--at-least", "3", "--timeout", "0.01")
    assert (ExitCode.NOT_SO, "") == (done.code, done.out)
    assert "0 was seen last" in done.err
    done = peeklock("wait", "orders", "--timeout", "0", "--json")
    assert (ExitCode.NOT_SO, False) == (done.code, json.loads(done.out)["seen"][0]["holds"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "what to wait for is missing"),
        (["--condition", "{"], "--condition is not valid JSON"),
        (["orders", "--is", "settled", "--equals", "1"], "can be combined with entity only"),
        (["orders", "--filter", "color ="], "line 1, column 8"),
    ],
)
def test_a_wait_that_makes_no_sense(peeklock, arguments, sentence):
    done = peeklock("wait", *arguments)
    assert ExitCode.MISUSED == done.code
    assert sentence in done.err


# --- faults, history -----------------------------------------------------------------------------


def test_faults_are_made_listed_and_removed(peeklock, api):
    made = peeklock(
        *(
            "faults",
            "add",
            "send",
            "refuse",
            "--name",
            "busy",
            "--entity",
            "orders",
            "--first",
            "2",
        ),
        *("--condition", "com.microsoft:server-busy", "--key-name", "Root*"),
    )
    assert 0 == made.code, made.err
    assert "busy: send entity=orders" in made.out
    assert "-> refuse condition=com.microsoft:server-busy" in made.out
    assert "0 hits of 0" in made.out
    peeklock("faults", "add", "settle", "lose_lock", "--name", "lost")
    assert 2 == len(peeklock("faults").out.splitlines())
    assert ["busy", "lost"] == [
        one["name"] for one in json.loads(peeklock("faults", "list", "--json").out)["faults"]
    ]
    assert 0 == peeklock("faults", "remove", "busy").code
    assert "1 removed\n" == peeklock("faults", "clear").out
    missing = peeklock("faults", "remove", "busy")
    assert (ExitCode.FAILED, "peeklock: There is no fault 'busy'.\n") == (missing.code, missing.err)


def test_a_fault_that_makes_no_sense(peeklock):
    done = peeklock("faults", "add", "send", "expire_tokenn")
    assert ExitCode.MISUSED == done.code
    assert "action.kind" in done.err


def test_the_options_of_the_broker_come_before_or_after_the_action(peeklock, broker):
    url = f"http://127.0.0.1:{broker.http_port}"
    before = peeklock("faults", "--namespace", "team-b", "--url", url, "list", "--json")
    after = peeklock("faults", "list", "--url", url, "--namespace", "team-b", "--json")
    assert (0, 0) == (before.code, after.code)
    assert before.out == after.out


def test_the_history_of_a_message(peeklock, api):
    assert "recording\n" == peeklock("history", "--record", "on").out
    api.post("/messages", entity="orders", messages=[{"body": "one", "message_id": "a"}])
    api.post("/messages/dead-letter", entity="orders", sequence_numbers=[1], reason="Bad")
    done = peeklock("history", "--message-id", "a")
    assert 0 == done.code
    sent, dead_lettered = done.out.splitlines()[:2]
    assert " orders #1 sent message_id=a" in sent
    assert " dead_lettered " in dead_lettered
    assert "reason=Bad" in dead_lettered
    answer = json.loads(peeklock("history", "orders", "--limit", "1", "--json").out)
    assert 1 == len(answer["transitions"])
    assert ExitCode.NOT_SO == peeklock("history", "--message-id", "b").code
    assert "not recording\n" == peeklock("history", "--record", "off").out


def test_transitions_that_the_broker_dropped_are_told(peeklock):
    with event_server(b'event: dropped\ndata: {"count": 3}\n\n') as url:
        done = peeklock("history", "--follow", "--url", url)
    assert (0, "", "peeklock: 3 transitions were dropped\n") == (done.code, done.out, done.err)


def test_the_history_is_followed(broker, api):
    """Each transition is printed when it happens, until the command is interrupted."""
    api.request("PUT", "/history", {"recording": True})
    command = [sys.executable, "-m", "peeklock", "history", "--follow", "--json"]
    command += ["--namespace", api.namespace]
    url = f"http://127.0.0.1:{broker.http_port}"
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PEEKLOCK_URL": url},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            # What happens before the stream is open is not shown, so messages are sent until one is.
            os.set_blocking(process.stdout.fileno(), False)
            line = ""
            ends_s = time.monotonic() + 30
            while not line and time.monotonic() < ends_s:
                api.post("/messages", entity="orders", messages=[{"body": "one"}])
                line = process.stdout.readline()
            assert "sent" == json.loads(line)["event"]
        finally:
            process.send_signal(2)
        assert 0 == process.wait(30)
    api.request("PUT", "/history", {"recording": False})


# --- which broker --------------------------------------------------------------------------------


def test_another_namespace(peeklock, broker):
    assert 0 == peeklock("send", "orders", "hello", "--namespace", "team-b").code
    other = ControlClient(broker.http_port, "team-b")
    assert 1 == other.get("/entity", entity="orders")["counts"]["active"]
    other.post("/purge", entity="orders")
    missing = peeklock("purge", "orders", "--namespace", "team-c")
    assert (ExitCode.FAILED, "peeklock: There is no namespace 'team-c'.\n") == (
        missing.code,
        missing.err,
    )


def test_what_the_broker_refuses(peeklock):
    done = peeklock("purge", "orderz", "--json")
    assert ExitCode.FAILED == done.code
    assert "entity_not_found" == json.loads(done.out)["error"]["code"]
    assert "orderz" in done.err


def test_no_broker_answers(peeklock):
    (port,) = free_ports(1)
    done = peeklock("purge", "orders", "--url", f"http://127.0.0.1:{port}")
    assert (ExitCode.NOT_REACHABLE, "") == (done.code, done.out)
    assert f"http://127.0.0.1:{port} does not answer" in done.err


@pytest.mark.parametrize(
    "url", ["localhost:5300", "ftp://localhost", "http://localhost:x", "http://a..b"]
)
def test_an_address_that_is_none(peeklock, url):
    done = peeklock("purge", "orders", "--url", url)
    assert ExitCode.MISUSED == done.code
    assert "is not an address" in done.err


def test_strict_authorization_wants_a_key(peeklock, monkeypatch):
    """By option or by variable. The address is in the connection string."""
    arguments = ["--authorization", "strict", "--control-api", "on"]
    monkeypatch.delenv("PEEKLOCK_URL")
    with BrokerProcess(config=CONFIG, testing_api=False, arguments=arguments) as strict:
        string = strict.admin_connection_string
        url = f"http://127.0.0.1:{strict.http_port}"
        refused = peeklock("send", "orders", "hello", "--url", url, in_default=True)
        assert ExitCode.FAILED == refused.code
        assert (
            0
            == peeklock(
                "send", "orders", "hello", "--connection-string", string, in_default=True
            ).code
        )
        monkeypatch.setenv("PEEKLOCK_CONNECTION_STRING", string)
        assert 0 == peeklock("peek", "orders", in_default=True).code
        wrong = string.replace("SAS_KEY_VALUE", "other")
        assert (
            ExitCode.FAILED
            == peeklock("peek", "orders", "--connection-string", wrong, in_default=True).code
        )
    bad = peeklock("peek", "orders", "--connection-string", "Endpoint=sb://localhost")
    assert (ExitCode.MISUSED, True) == (bad.code, "SharedAccessKeyName" in bad.err)


def test_tls(peeklock, broker, tmp_path):
    with BrokerProcess(
        config=CONFIG, testing_api=False, environment={"PEEKLOCK_TLS_FOLDER": str(tmp_path)}
    ) as encrypted:
        url = f"https://localhost:{encrypted.http_port}"
        assert (
            ExitCode.NOT_REACHABLE == peeklock("peek", "orders", "--url", url, in_default=True).code
        )
        trusted = ["--authority", str(tmp_path / "ca.pem")]
        assert (
            ExitCode.NOT_SO
            == peeklock("peek", "orders", "--url", url, *trusted, in_default=True).code
        )


# --- the process ---------------------------------------------------------------------------------


def test_a_reader_that_has_enough(broker, api):
    """As with `peeklock peek orders | head -1`."""
    api.post("/messages", entity="orders", messages=[{"body": "x" * 1_000}] * 1_000)
    command = f"{sys.executable} -m peeklock peek orders --limit 1000 --namespace {api.namespace} | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PEEKLOCK_URL": f"http://127.0.0.1:{broker.http_port}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    assert 1 == len(done.stdout.splitlines())


def test_what_is_not_needed_is_not_loaded(broker):
    """These commands start quickly, because scripts call them often."""
    program = (
        "import sys; from broker.app.cli.command_line import main; main(['faults']); "
        "print(*sorted({'aiohttp', 'asyncio', 'pydantic', 'cryptography', 'structlog', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PEEKLOCK_URL": f"http://127.0.0.1:{broker.http_port}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\n" == done.stdout, done.stdout


def in_shell(broker, command: str) -> subprocess.CompletedProcess[str]:
    """Runs `peeklock COMMAND` in a shell, in an environment with the address of the broker."""
    return subprocess.run(
        ["bash", "-c", f"{sys.executable} -m peeklock {command}"],
        cwd=ROOT,
        env={**os.environ, "PEEKLOCK_URL": f"http://127.0.0.1:{broker.http_port}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_answer_that_cannot_be_written(broker):
    """The disk is full."""
    done = in_shell(broker, "faults clear > /dev/full")
    assert (
        ExitCode.FAILED,
        "peeklock: the answer cannot be written: No space left on device\n",
    ) == (
        done.returncode,
        done.stderr,
    )


def test_an_argument_that_is_not_text(broker):
    done = in_shell(broker, "peek $'\\xff' --json")
    assert ExitCode.MISUSED == done.returncode
    assert "wrong_argument" == json.loads(done.stdout)["error"]["code"]
    assert "peeklock: an argument is not text" in done.stderr


def test_every_character_can_be_printed(peeklock, broker, api):
    """Also where the terminal does not know it, and where it is half of a character."""
    body = {"body": '"\\ud800 é"', "content_type": "application/json"}
    api.post("/messages", entity="orders", messages=[body])
    printed = json.loads(peeklock("peek", "orders", "--json").out)
    assert "\ud800 é" == printed["messages"][0]["body"]
    done = in_shell(broker, f"peek orders --namespace {api.namespace}")
    assert (ExitCode.OK, "") == (done.returncode, done.stderr)


def test_a_wait_that_is_interrupted(peeklock, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ControlConnection, "request", interrupted)
    done = peeklock("wait", "orders")
    assert (ExitCode.INTERRUPTED, "", "") == (done.code, done.out, done.err)


def test_messages_that_were_sent_before_a_refusal_are_told(peeklock, api):
    lines = b'{"body": 1}\n' * 1000 + b'{"wrong": 1}\n'
    done = peeklock("send", "orders", "--form", "json", stdin=lines)
    assert ExitCode.MISUSED == done.code
    assert "1000 messages were sent before this" in done.err
    assert 1000 == api.get("/entity", entity="orders")["counts"]["active"]


def test_an_authority_that_cannot_be_read(peeklock):
    done = peeklock("peek", "orders", "--url", "https://localhost:1", "--authority", "/nosuch")
    assert ExitCode.MISUSED == done.code
    assert "--authority /nosuch cannot be read: No such file or directory" in done.err


def test_help_and_the_page_explain_the_exit_codes(capsys):
    page = Page(ROOT / "docs" / "testing.md").text
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE))
    assert {str(int(code)): meaning for code, meaning in EXIT_CODES.items()} == rows
    for command in CLIENT_COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert 0 == ended.value.code
        printed = " ".join(capsys.readouterr().out.split())
        assert all(f"{code} {meaning}" in printed for code, meaning in EXIT_CODES.items())


@pytest.mark.parametrize(
    "arguments",
    [
        ["peek"],
        ["peek", "orders", "--lim", "1"],
        ["faults", "drop"],
        ["send", "a", "--form", "x"],
        ["wait", "orders", "--timeout", "nan"],
        ["send", "orders", "x", "--time-to-live", "inf"],
    ],
)
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ExitCode.MISUSED == ended.value.code
    assert "usage: peeklock" in capsys.readouterr().err


def test_commands_work_after_the_clock_of_a_strict_broker_was_moved(capsys, monkeypatch):
    """It compares tokens with its own clock."""
    monkeypatch.delenv("PEEKLOCK_URL", raising=False)
    arguments = ["--authorization", "strict", "--control-api", "on"]
    with BrokerProcess(config=CONFIG, testing_api=False, arguments=arguments) as strict:
        string = strict.admin_connection_string
        client = control_client({"connection_string": string}, {})
        client.request("POST", "/clock/advance", body={"seconds": 40 * 86400})
        assert 0 == main(["send", "orders", "hello", "--connection-string", string])
        assert 0 == main(["export", string])
        assert 0 == main(["import", string]), capsys.readouterr().err


def test_the_token_is_made_with_the_key(broker):
    """It is for the host of the address."""
    string = "Endpoint=sb://example:1234;SharedAccessKeyName=name;SharedAccessKey=key;"
    client = control_client({"connection_string": string}, {})
    assert "http://example:1234" == client.url
    assert client.token is not None
    token = sas.read(client.token)
    assert ("example", "name") == (token.host, token.key_name)
    assert token.is_signed_with(b"key")
