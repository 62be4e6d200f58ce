"""`peeklock import`: from a live namespace, an ARM template and the emulator's file."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.config.files.test_arm_reader import TEMPLATE
from tests.support.server import ROOT, BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "queues": {
        "orders": {
            "lock_duration": "PT45S",
            "max_delivery_count": 4,
            "forward_dead_lettered_messages_to": "dead",
        },
        "dead": {
            "authorization_rules": {"reader": {"rights": ["Listen"], "primary_key": "k" * 44}},
        },
        **{f"many-{number:03}": {} for number in range(120)},
    },
    "topics": {
        "events": {
            "subscriptions": {
                "all": {},
                "red": {
                    "requires_session": True,
                    "rules": {
                        "red": {"sql_filter": "color = 'red'", "action": "SET seen = 1"},
                        "by-label": {"correlation_filter": {"label": "x", "properties": {"n": 5}}},
                    },
                },
            }
        }
    },
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "peeklock", "import", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )


def test_a_live_namespace_becomes_the_same_config_file():
    """Through the administration API, with more entities than one page has."""
    with BrokerProcess(config=CONFIG) as broker:
        done = run(broker.admin_connection_string)
        with_keys = run(broker.admin_connection_string, "--with-keys")
    assert 0 == done.returncode, done.stderr
    expected = json.loads(json.dumps(CONFIG))
    del expected["queues"]["dead"]["authorization_rules"]
    found = yaml.safe_load(done.stdout)
    assert _plain(expected) == _plain(found)
    assert "warning: dead: the authorization rules reader are left out" in done.stderr
    assert "k" * 44 not in done.stdout
    rule = yaml.safe_load(with_keys.stdout)["queues"]["dead"]["authorization_rules"]["reader"]
    assert "k" * 44 == rule["primary_key"]


def _plain(document: Any) -> Any:
    """An empty mapping and nothing are the same."""
    if isinstance(document, dict):
        return {name: _plain(value) or None for name, value in sorted(document.items())}
    return document


def test_an_imported_file_can_be_served(tmp_path: Path):
    """The entities of a template are those of a broker that starts with the file."""
    template = tmp_path / "main.json"
    template.write_text(TEMPLATE)
    output = tmp_path / "entities.yaml"
    done = run(str(template), "--output", str(output))
    assert 0 == done.returncode, done.stderr
    assert f"warning: {template}:18: " in done.stderr
    with BrokerProcess(config=output) as broker:
        live = run(broker.admin_connection_string)
    assert yaml.safe_load(output.read_text()) == yaml.safe_load(live.stdout)
    assert {"orders", "dead"} == set(yaml.safe_load(live.stdout)["queues"])


def test_the_emulators_file_is_converted(tmp_path: Path):
    """With the defaults of that file, and with a warning for what is ignored."""
    source = tmp_path / "Config.json"
    source.write_text(
        '{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", // as it is written\n'
        '"Queues": [{"Name": "q", "Properties": {"LockDuration": "PT20S", "Colour": "red"}}]}]}}'
    )
    done = run(str(source))
    assert 0 == done.returncode, done.stderr
    assert "PT20S" == yaml.safe_load(done.stdout)["queues"]["q"]["lock_duration"]
    assert f"warning: {source}:2: " in done.stderr
    emulator = run(str(source), "--form", "emulator")
    assert "UserConfig" in json.loads(emulator.stdout)


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ('{"hello": 1}', 1, "is none of these"),
        ('{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "a b"}]}]}}', 2, ":1: "),
        ("{", 2, "not valid JSON"),
        (None, 2, "cannot be read"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content, code, said):
    """Nothing is written."""
    source = tmp_path / "source.json"
    if content is not None:
        source.write_text(content)
    done = run(str(source))
    assert (code, "") == (done.returncode, done.stdout)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true",
            "does not answer",
        ),
        ("Endpoint=sb://127.0.0.1:1", "SharedAccessKeyName and SharedAccessKey"),
        ("Endpoint=sb://a..b;SharedAccessKeyName=n;SharedAccessKey=k", "Endpoint=sb://HOST"),
        ("~no-such-user/x.json", "begins with the home folder of an unknown user"),
    ],
)
def test_a_namespace_that_cannot_be_read_is_told(source, said):
    """With the reason."""
    done = run(source)
    assert (1, "") == (done.returncode, done.stdout)
    assert said in done.stderr


def test_a_wrong_key_is_told():
    """With the answer of the namespace."""
    with BrokerProcess(config=CONFIG) as broker:
        done = run(broker.admin_connection_string.replace("SAS_KEY_VALUE", "wrong"))
    assert (1, "") == (done.returncode, done.stdout)
    assert "401" in done.stderr
