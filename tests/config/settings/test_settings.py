"""Flags go before the environment, the environment before the file, the file before the defaults."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from config.files.emulator_reader import default_topology
from config.files.mistakes import ConfigError
from config.loader import load
from config.model.limits import RELAXED, STRICT, Tier, relaxed, strict
from config.settings.setting_sources import SETTINGS
from config.settings.settings import (
    Authorization,
    IdentityClients,
    LogFormat,
    LogLevel,
    Quotas,
    Settings,
    UndeclaredEntities,
)
from tests.config.reading import NOWHERE, any_rule


def settings(flags=None, environment=None):
    return load(flags or {}, environment or {}, any_rule, NOWHERE).settings


def mistakes(flags=None, environment=None):
    with pytest.raises(ConfigError) as caught:
        settings(flags, environment)
    return [str(one) for one in caught.value.mistakes]


def test_nothing_given_means_the_defaults(monkeypatch):
    """Loopback, the emulator's ports, a file in the user's data folder, the well-known key."""
    monkeypatch.setenv("XDG_DATA_HOME", "/home/me/data")
    found = settings()
    assert Settings() == found
    assert ("127.0.0.1", 5672, 5300, None) == (
        found.host,
        found.amqp_port,
        found.http_port,
        found.tls_port,
    )
    assert "sqlite:////home/me/data/peeklock/peeklock.db" == found.storage
    assert "SAS_KEY_VALUE" == found.shared_access_key


def test_without_a_data_folder_the_home_folder_is_used(monkeypatch):
    """As the XDG rules say."""
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert "sqlite:////home/me/.local/share/peeklock/peeklock.db" == Settings().storage


def test_mistakes_are_reported_to_a_user_without_a_home_folder(monkeypatch):
    """Containers run as users that the system does not know; HOME would be `/` there."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert "sqlite:////.local/share/peeklock/peeklock.db" == Settings().storage


def test_a_store_in_the_home_folder(monkeypatch):
    """No shell replaces the tilde inside a URL, and a folder called so is not what was meant."""
    monkeypatch.setenv("HOME", "/home/100%")
    assert "sqlite:////home/100%25/my.db" == settings({"storage": "sqlite:///~/my.db"}).storage


def test_each_file_has_a_store_of_its_own(tmp_path, monkeypatch):
    """Two projects share neither entities nor messages, however the file is named to the broker."""
    monkeypatch.setenv("XDG_DATA_HOME", "/home/me/data")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder in "ab":
        (tmp_path / folder / "entities.yaml").write_text("queues: {q: }")
    one, other = (settings({"config": str(tmp_path / name / "entities.yaml")}) for name in "ab")
    assert one.storage != other.storage
    assert one.storage.startswith("sqlite:////home/me/data/peeklock/stores/entities-")
    monkeypatch.chdir(tmp_path / "b")
    assert one == settings({"config": "../a/entities.yaml"})
    assert other == settings({}, {"PEEKLOCK_CONFIG": "entities.yaml"})


def test_a_file_that_names_its_store_has_that(tmp_path):
    """As a flag or a variable does."""
    path = tmp_path / "entities.yaml"
    path.write_text("settings: {storage: 'memory:'}\nqueues: {q: }")
    assert "memory:" == settings({"config": str(path)}).storage
    named = settings({"config": str(path), "storage": "sqlite:///mine.db"})
    assert "sqlite:///mine.db" == named.storage


def test_an_address_may_be_in_brackets():
    """As in a URL."""
    assert "::1" == settings({"host": "[::1]"}).host


@pytest.fixture
def certificate(tmp_path):
    path = tmp_path / "certificate.pem"
    path.touch()
    return path


VALUES = [
    ("host", "0.0.0.0", "0.0.0.0"),
    ("amqp_port", "0", 0),
    ("http_port", "65535", 65535),
    ("tls_port", "5671", 5671),
    ("tls_folder", "/somewhere/tls", Path("/somewhere/tls")),
    ("tls_names", "localhost, 10.0.0.1", ("localhost", "10.0.0.1")),
    ("http_names", "bus.example.com, other.example", ("bus.example.com", "other.example")),
    ("http_names", "*", ("*",)),
    ("storage", "memory:", "memory:"),
    ("storage", "sqlite:///some/where.db", "sqlite:///some/where.db"),
    ("storage", "postgresql://h/d?schema=a", "postgresql://h/d?schema=a"),
    ("storage_wait", "5m", 300_000),
    ("ownership_lease", "3s", 3_000),
    ("payload_memory", "1000", 1000),
    ("payload_memory", "64KiB", 64 * 1024),
    ("payload_memory", "2 gib", 2 * 1024**3),
    ("log_format", "json", LogFormat.JSON),
    ("log_level", "DEBUG", LogLevel.DEBUG),
    ("authorization", "strict", Authorization.STRICT),
    ("shared_access_key_name", "me", "me"),
    ("shared_access_key", "a=b", "a=b"),
    ("jwt_issuer", "https://issuer", "https://issuer"),
    ("jwt_audience", "peeklock", "peeklock"),
    ("identity_clients", "any", IdentityClients.ANY),
    ("default_lock_duration", "1m", 60_000),
    ("undeclared_entities", "drop", UndeclaredEntities.DROP),
    ("create_on_first_use", "yes", True),
    ("tier", "standard", Tier.STANDARD),
    ("quotas", "strict", Quotas.STRICT),
    ("testing_api", "true", True),
    ("testing_api", "off", False),
    ("control_api", "on", True),
    ("control_api", "off", False),
    ("frames", "1000", 1000),
    ("history", "0", 0),
    ("history", "5000", 5_000),
    ("report", "/tmp/a.json, /tmp/b.XML", (Path("/tmp/a.json"), Path("/tmp/b.XML"))),
    ("report_fail_on", "refused, dead_letters", ("dead_letters", "refused")),
    ("report_fail_on", "none", ()),
    ("tracing", "on", True),
    ("hold_locks_after_connection_loss", "1", True),
    ("idle_timeout", "PT2M", 120_000),
    ("shutdown_grace", "1s", 1_000),
]


@pytest.mark.parametrize(("name", "text", "value"), VALUES)
def test_every_setting_has_a_flag_a_variable_and_a_name_in_the_file(tmp_path, name, text, value):
    """One name, three spellings, one meaning."""
    (setting,) = [one for one in SETTINGS if one.name == name]
    path = tmp_path / "settings.yaml"
    path.write_text(f"settings:\n  {name}: '{text}'\n")
    expected = Settings(**{"storage": "memory:", setting.field: value})
    elsewhere = {} if name == "storage" else {"storage": "memory:"}
    assert expected == settings({name: text, **elsewhere})
    assert expected == settings(elsewhere, {f"PEEKLOCK_{name.upper()}": text})
    assert expected == settings({"config": str(path), **elsewhere})
    assert "--" + name.replace("_", "-") == setting.flag


@pytest.mark.parametrize("name", ["tls_certificate", "tls_key", "jwt_keys"])
def test_files_of_keys_must_exist(certificate, name):
    """A missing file is reported at start, not at the first client."""
    assert certificate == getattr(settings({name: str(certificate)}), name)
    (found,) = mistakes({name: "/nonexistent"})
    assert "'/nonexistent' is not allowed; expected the path of a file that exists" in found


def test_every_setting_can_be_given():
    """A field that no flag reaches would be no setting."""
    assert [one.name for one in fields(Settings)] == [one.field for one in SETTINGS]
    assert {one.name for one in SETTINGS} == {name for name, _, _ in VALUES} | {
        "jwt_keys",
        "tls_certificate",
        "tls_key",
    }


def test_a_flag_goes_before_the_environment_and_that_before_the_file(tmp_path):
    """And the file before the default."""
    path = tmp_path / "settings.yaml"
    path.write_text("settings: {amqp_port: 1, http_port: 1, tls_port: 1}\n")
    environment = {
        "PEEKLOCK_CONFIG": str(path),
        "PEEKLOCK_AMQP_PORT": "2",
        "PEEKLOCK_HTTP_PORT": "2",
    }
    found = settings({"amqp_port": "3"}, environment)
    assert (3, 2, 1) == (found.amqp_port, found.http_port, found.tls_port)
    assert Settings().host == found.host


def test_the_emulators_variables_are_used_or_ignored():
    """The emulator's variable sets the HTTP port, unless the broker's own setting does. Variables
    of SQL Server are ignored."""
    emulator = {
        "EMULATOR_HTTP_PORT": "5301",
        "ACCEPT_EULA": "N",
        "SQL_SERVER": "sqledge",
        "MSSQL_SA_PASSWORD": "x",
        "SQL_WAIT_INTERVAL": "soon",
    }
    assert Settings(http_port=5301) == settings({}, emulator)
    assert 5302 == settings({}, emulator | {"PEEKLOCK_HTTP_PORT": "5302"}).http_port


def test_an_empty_variable_is_not_set():
    """Compose files pass on variables that have no value."""
    assert Settings() == settings({}, {"PEEKLOCK_TLS_PORT": "", "EMULATOR_HTTP_PORT": ""})


REPORTS = "paths that end with .json or .xml, in folders that exist, with commas between them"
STORES = (
    "memory:, sqlite:///relative/path, sqlite:////absolute/path or postgresql://user@host/database"
)
UNKNOWN_HOME = "a path; it begins with the home folder of an unknown user"


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("default_lock_duration", "1s", "a duration from PT5S to PT5M"),
        ("default_lock_duration", "PT5M1S", "a duration from PT5S to PT5M"),
        ("undeclared_entities", "forget", "keep or drop"),
        ("amqp_port", "amqp", "a port from 1 to 65535, or 0 for a free one"),
        ("amqp_port", "65536", "a port from 1 to 65535, or 0 for a free one"),
        ("http_port", "-1", "a port from 1 to 65535, or 0 for a free one"),
        ("host", "a..b", "an address to listen on, such as 127.0.0.1, 0.0.0.0 or ::1"),
        ("host", "[]", "an address to listen on, such as 127.0.0.1, 0.0.0.0 or ::1"),
        ("tls_names", " , ", "host names or addresses with commas between them"),
        ("tls_names", "localhost,my host", "host names or addresses with commas between them"),
        ("tls_names", "1::2::3", "host names or addresses with commas between them"),
        ("http_names", "my host", "host names with commas between them, or * for any"),
        ("tls_folder", "~nobody-here/tls", UNKNOWN_HOME),
        ("tls_certificate", "~nobody-here/cert.pem", UNKNOWN_HOME),
        ("tls_certificate", "nowhere.pem", "the path of a file that exists"),
        ("storage", "mysql://h", STORES),
        ("storage", "postgresql:h/d", STORES),
        ("storage", "postgresql://h/d?schema=a-b", STORES),
        ("storage", "peeklock.db", STORES),
        ("storage", "sqlite:///", STORES),
        ("storage", "sqlite:///folder/", STORES),
        ("storage", "memory:name", STORES),
        ("shared_access_key_name", "a;b", "text without semicolons, and not empty"),
        ("shared_access_key_name", ";", "text without semicolons, and not empty"),
        ("payload_memory", "much", "a size such as 512MiB or 2GiB"),
        ("payload_memory", "512MB", "a size such as 512MiB or 2GiB"),
        ("log_format", "xml", "console or json"),
        ("log_level", "loud", "debug or info or warning or error"),
        ("authorization", "none", "development or strict"),
        ("tier", "gold", "Basic or Standard or Premium"),
        ("testing_api", "perhaps", "true or false"),
        ("frames", "-1", "a number from 0 to 10000000"),
        ("frames", "many", "a number from 0 to 10000000"),
        ("history", "-1", "a number from 0 to 10000000"),
        ("history", "many", "a number from 0 to 10000000"),
        ("report", "report.txt", REPORTS),
        ("report", "/nowhere/report.xml", REPORTS),
        ("report_fail_on", "bugs", "names of findings with commas between them, all or none"),
        ("idle_timeout", "4", "a duration such as PT30S or 30s"),
        ("idle_timeout", "unlimited", "a duration of 24d or less, or 0s for none"),
    ],
)
def test_a_wrong_value_is_reported_under_the_name_it_was_given(name, text, allowed):
    """Flag or variable: the operator finds it where it was written."""
    tail = f"{text!r} is not allowed; expected {allowed}"
    flag, variable = "--" + name.replace("_", "-"), "PEEKLOCK_" + name.upper()
    assert [f"{flag}: {tail}"] == mistakes({name: text})
    assert [f"{variable}: {tail}"] == mistakes({}, {variable: text})


def test_a_setting_that_needs_another_says_which(certificate):
    """A key without its certificate would be overlooked."""
    loaded = load({"tls_key": str(certificate)}, {}, any_rule, NOWHERE)
    assert ["--tls-key: has no effect without tls_certificate"] == [
        str(one) for one in loaded.warnings
    ]


def test_passwords_are_not_repeated():
    """A mistake ends up in a CI log."""
    (mistake,) = mistakes({"storage": "mysql://me:secret@host/db"})
    assert "'mysql://***@host/db'" in mistake
    assert "secret" not in mistake


def test_a_refused_key_is_not_repeated():
    assert [
        "--shared-access-key: this value is not allowed; expected text without semicolons, and not empty"
    ] == mistakes({"shared_access_key": "secret;"})


def test_mistakes_of_flags_variables_and_file_are_reported_together(tmp_path):
    """Also when the file cannot be read at all."""
    path = tmp_path / "broken.json"
    path.write_text('{"a": }')
    found = mistakes({"config": str(path), "amqp_port": "x"}, {"PEEKLOCK_TIER": "y"})
    assert {"--amqp-port", "PEEKLOCK_TIER", str(path)} == {one.partition(":")[0] for one in found}


def test_a_folder_in_place_of_the_emulators_file_is_a_mistake(tmp_path):
    """Container engines make one when the file to be mounted is missing; the entities would be too."""
    with pytest.raises(ConfigError, match="is a folder"):
        load({}, {}, any_rule, tmp_path)


def test_a_file_in_the_home_folder_of_an_unknown_user():
    """It is reported as any other missing file."""
    (mistake,) = mistakes({"config": "~nobody-here/Config.json"})
    assert f"~nobody-here/Config.json: is not {UNKNOWN_HOME}" == mistake


def test_a_misspelt_variable_is_a_warning():
    """Kubernetes sets variables for a service named peeklock. These are ignored."""
    environment = {"PEEKLOCK_AMPQ_PORT": "1", "PEEKLOCK_SERVICE_HOST": "10.0.0.1"}
    loaded = load({}, environment, any_rule, NOWHERE)
    assert ["PEEKLOCK_AMPQ_PORT: is not a setting; did you mean 'AMQP_PORT'?"] == [
        str(one) for one in loaded.warnings
    ]


def test_the_emulators_file_is_read_where_its_container_has_it(tmp_path):
    """If it is there and no other file is named."""
    path = tmp_path / "Config.json"
    assert default_topology() == load({}, {}, any_rule, path).topology
    path.write_text('{"UserConfig": {"Namespaces": [{"Name": "mounted"}]}}')
    assert {"mounted": {}} == load({}, {}, any_rule, path).topology.namespaces
    other = tmp_path / "other.yaml"
    other.write_text("namespaces: {other: }")
    assert {"other": {}} == load({"config": str(other)}, {}, any_rule, path).topology.namespaces


def test_without_a_file_there_is_what_the_emulator_has_without_one():
    """A first try needs no configuration: queue.1 and topic.1 with four subscriptions."""
    topology = load({}, {}, any_rule, NOWHERE).topology
    subscriptions = [f"topic.1/Subscriptions/subscription.{number}" for number in range(1, 5)]
    assert {"sbemulatorns": ["queue.1", "topic.1", *subscriptions]} == {
        name: list(entities) for name, entities in topology.namespaces.items()
    }


def test_a_home_folder_is_found_in_a_path(monkeypatch, tmp_path):
    """A shell does not expand `~` behind an equals sign."""
    monkeypatch.setenv("HOME", str(tmp_path))
    Path(tmp_path / "mine.yaml").write_text("namespaces: {mine: }")
    assert ["mine"] == list(
        load({"config": "~/mine.yaml"}, {}, any_rule, NOWHERE).topology.namespaces
    )


def test_quotas_are_relaxed_or_those_of_a_tier():
    """Relaxed by default, in the tier that can do most."""
    assert RELAXED == Settings().limits
    assert STRICT == Settings(quotas=Quotas.STRICT).limits
    basic = Settings(quotas=Quotas.STRICT, tier=Tier.BASIC).limits
    assert strict(Tier.BASIC) == basic
    assert 256 * 1024 == basic.message_max_bytes
    assert 14 * 86_400_000 == basic.time_to_live_max_ms
    assert relaxed(Tier.BASIC) == Settings(tier=Tier.BASIC).limits


def test_the_basic_tier_starts_with_its_queues_only():
    """What it does not offer is not in the entities of a start without a file."""
    loaded = load({"tier": "Basic"}, {}, any_rule, Path("nowhere"))
    assert [["queue.1"]] == [list(one) for one in loaded.topology.namespaces.values()]


@pytest.mark.parametrize("tier", Tier)
def test_no_strict_quota_is_wider_than_the_relaxed_one(tier):
    """Relaxed is what protects the broker; a quota of Azure's never undoes that."""
    for one in fields(RELAXED):
        loosely, strictly = getattr(relaxed(tier), one.name), getattr(strict(tier), one.name)
        lower, upper = (strictly, loosely) if "_min_" not in one.name else (loosely, strictly)
        assert lower <= upper, one.name
