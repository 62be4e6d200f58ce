"""`peeklock tls`: what a developer is told about trusting the broker."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from broker.__main__ import main

CLIENTS = ["Python", "JavaScript", "Java", "Go", ".NET", "curl", "Debian", "macOS", "Windows"]


def test_the_authority_is_there_when_its_path_is_printed(tmp_path, capsys):
    """Made on the spot, so that it can be trusted before the first start."""
    assert 0 == main(["tls", "--tls-folder", str(tmp_path / "new"), "--path"])
    printed = Path(capsys.readouterr().out.strip())
    assert tmp_path / "new" / "ca.pem" == printed
    ssl.create_default_context(cafile=str(printed))


def test_it_stays_the_same(tmp_path, capsys):
    """Trusted once, trusted for good."""
    main(["tls", "--tls-folder", str(tmp_path), "--path"])
    before = (tmp_path / "ca.pem").read_bytes()
    main(["tls", "--tls-folder", str(tmp_path)])
    assert before == (tmp_path / "ca.pem").read_bytes()


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_is_told_how(tmp_path, capsys, client):
    """With the path of the file, ready to paste."""
    main(["tls", "--tls-folder", str(tmp_path)])
    told = capsys.readouterr().out
    place = told.index(f"  {client}")
    assert str(tmp_path / "ca.pem") in told[place : place + 400]


def test_a_certificate_of_the_operators_own_is_named(tmp_path, capsys, monkeypatch):
    """There is no authority of ours to trust then."""
    certificate = tmp_path / "mine.pem"
    certificate.touch()
    monkeypatch.setenv("PEEKLOCK_TLS_CERTIFICATE", str(certificate))
    assert 0 == main(["tls"])
    assert str(certificate) in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_said(tmp_path, capsys):
    """In words, with an exit code."""
    (tmp_path / "file").touch()
    assert 1 == main(["tls", "--tls-folder", str(tmp_path / "file" / "tls")])
    assert str(tmp_path / "file" / "tls") in capsys.readouterr().err
