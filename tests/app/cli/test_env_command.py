"""`peeklock env`: the variables of a shell whose programs are to use the broker here."""

from __future__ import annotations

import json
import ssl
import subprocess
from pathlib import Path

import pytest

from broker.app.cli.command_line import main

NAMES = [
    "SERVICEBUS_CONNECTION_STRING",
    "SERVICEBUS_ADMIN_CONNECTION_STRING",
    "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE",
    "SERVICEBUS_ADMIN_FULLY_QUALIFIED_NAMESPACE",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
    "SERVICEBUS_CA_FILE",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
]


@pytest.fixture
def env(tmp_path, capsys, monkeypatch):
    """Run the command; what it printed. The folder's name needs quotes in every form."""
    monkeypatch.setenv("PEEKLOCK_TLS_FOLDER", str(tmp_path / "it's $HOME"))

    def run(*arguments: str) -> str:
        assert 0 == main(["env", *arguments])
        printed: str = capsys.readouterr().out
        return printed

    return run


@pytest.fixture
def variables(env):
    return lambda *arguments: json.loads(env("--form", "json", *arguments))


def test_everything_a_client_needs_is_there(variables):
    """Addresses, keys, identity and whom to trust."""
    found = variables("--amqp-port", "5999", "--http-port", "5998", "--shared-access-key", "k")
    assert NAMES == list(found)
    assert found["SERVICEBUS_CONNECTION_STRING"] == (
        "Endpoint=sb://localhost:5999;SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=k;UseDevelopmentEmulator=true;"
    )
    assert "sb://localhost:5998;" in found["SERVICEBUS_ADMIN_CONNECTION_STRING"]
    assert "localhost" == found["SERVICEBUS_FULLY_QUALIFIED_NAMESPACE"]
    assert "localhost:5998" == found["SERVICEBUS_ADMIN_FULLY_QUALIFIED_NAMESPACE"]
    assert "http://localhost:5998/msi/token" == found["IDENTITY_ENDPOINT"]
    assert 64 == len(found["IDENTITY_HEADER"])
    assert found["IDENTITY_HEADER"] != variables()["IDENTITY_HEADER"]


def test_the_usual_port_is_left_out(variables):
    """As in connection strings of the documentation."""
    assert "Endpoint=sb://localhost;" in variables()["SERVICEBUS_CONNECTION_STRING"]


def test_administration_clients_get_the_port_even_if_it_is_the_usual_one(variables):
    """Their default port is not 5672."""
    found = variables("--amqp-port", "5671", "--http-port", "5672")
    assert "sb://localhost:5672;" in found["SERVICEBUS_ADMIN_CONNECTION_STRING"]


def test_the_settings_may_come_from_the_brokers_file(variables, tmp_path):
    """The one it is started with."""
    path = tmp_path / "entities.yaml"
    path.write_text("settings: {http_port: 5997, host: broker.test}\nqueues: {q: }")
    found = variables("--config", str(path))
    assert "http://broker.test:5997/msi/token" == found["IDENTITY_ENDPOINT"]


def test_programs_still_trust_the_certificates_of_the_system(variables):
    """Variables that replace a program's certificates name a file with the system's in it."""
    found = variables()
    authority = Path(found["SERVICEBUS_CA_FILE"]).read_text()
    bundle = Path(found["SSL_CERT_FILE"]).read_text()
    assert bundle.endswith(authority)
    context = ssl.create_default_context(cafile=found["SSL_CERT_FILE"])
    assert context.cert_store_stats()["x509_ca"] >= 1
    assert found == variables()
    assert bundle == Path(found["SSL_CERT_FILE"]).read_text()


def test_a_shell_reads_them(env, variables):
    """With any characters in a path."""
    script = env() + "".join(f'printf "%s\\n" "${name}"\n' for name in NAMES)
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert list(variables().values()) == done.stdout.splitlines()


def test_powershell_reads_them(env, variables):
    """A quote is doubled, and nothing else means anything."""
    lines = env("--form", "powershell").splitlines()
    found = {}
    for line in lines:
        name, _, value = line.partition(" = ")
        assert value[0] == value[-1] == "'"
        found[name.removeprefix("$env:")] = value[1:-1].replace("''", "'")
    assert variables() == found


def test_dotenv_has_quotes_only_where_they_are_needed(env):
    """Docker takes them for a part of the value."""
    lines = dict(line.split("=", 1) for line in env("--form", "dotenv").splitlines())
    assert lines["SERVICEBUS_CONNECTION_STRING"].startswith("Endpoint=sb://localhost;")
    assert lines["SERVICEBUS_CA_FILE"].startswith("'")


def test_no_identity_is_printed_if_no_tokens_are_issued(variables, monkeypatch):
    """A credential would only be refused."""
    monkeypatch.setenv("PEEKLOCK_IDENTITY_CLIENTS", "none")
    assert not {"IDENTITY_ENDPOINT", "IDENTITY_HEADER"} & variables().keys()


def test_the_help_does_not_offer_port_0(capsys):
    """`serve` chooses a free port for it; here nothing could know which one."""
    with pytest.raises(SystemExit):
        main(["env", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "port for AMQP; not 0" in text
    assert "free" not in text


def test_port_0_is_refused(capsys):
    """The broker picks it when it starts."""
    assert 2 == main(["env", "--amqp-port", "0"])
    printed = capsys.readouterr()
    assert ("", True) == (printed.out, "port 0" in printed.err)


def test_the_port_for_credentials_is_named_if_nothing_listens_on_it(capsys, tmp_path):
    """On standard error, so that the output can be evaluated."""
    folder = ["--tls-folder", str(tmp_path)]
    assert 0 == main(["env", *folder])
    assert "--tls-port 5671" in capsys.readouterr().err
    assert 0 == main(["env", *folder, "--tls-port", "5671"])
    assert "" == capsys.readouterr().err


def test_a_certificate_of_the_operators_own_is_trusted_by_other_means(
    variables, tmp_path, monkeypatch
):
    """Then there is no authority of the broker to print."""
    certificate = tmp_path / "mine.pem"
    certificate.touch()
    monkeypatch.setenv("PEEKLOCK_TLS_CERTIFICATE", str(certificate))
    assert NAMES[:6] == list(variables())
