"""TLS, with the operator's certificate or one that the broker creates.

If no certificate is set, a certificate authority is created once and kept in a folder, so that a developer trusts
it once. A new server certificate is created when the names change or the old one expires.
"""

from __future__ import annotations

import json
import os
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

RENEW_AFTER = timedelta(days=360)

SYSTEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),  # Debian, Ubuntu, Alpine
    Path("/etc/pki/tls/certs/ca-bundle.crt"),  # Fedora, RHEL
    Path("/etc/ssl/ca-bundle.pem"),  # openSUSE
    Path("/etc/ssl/cert.pem"),  # macOS
)
"""Files with the certificates that a system trusts."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path
    authority: Path | None = None
    """The authority that clients must trust, if the broker created it."""


def own_certificate(
    folder: Path, names: Sequence[str], now: datetime | None = None
) -> CertificateFiles:
    """Returns a certificate for these names from the authority in this folder. Creates both if needed."""
    now = now or datetime.now(UTC)
    files = _files(folder)
    if not _is_current(folder, files, names, now):
        folder.mkdir(parents=True, exist_ok=True)
        _make(folder, files, names, now)
    return files


def create_in_child(folder: Path, names: Sequence[str]) -> None:
    """Creates the certificate in a child process, if it is needed. Must be called before there are threads.

    The library that creates certificates takes 12 MB, which this process would keep. If the child fails, so will
    `own_certificate`, which then says why.
    """
    now = datetime.now(UTC)
    files = _files(folder)
    if _is_current(folder, files, names, now):
        return
    child = os.fork()
    if child == 0:
        try:
            own_certificate(folder, names, now)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def bundle_with_system(authority: Path) -> Path:
    """Returns a file with the authority and all certificates that this machine trusts.

    For variables such as SSL_CERT_FILE, which replace the trusted certificates of a program: with the authority
    alone, it would trust no other server.
    """
    path = authority.with_name("ca-bundle.pem")
    system = next((one for one in SYSTEM_BUNDLES if one.is_file()), None)
    content = authority.read_bytes()
    if system is not None:
        content = system.read_bytes().rstrip() + b"\n" + content
    if not path.is_file() or path.read_bytes() != content:
        _write(path, content)
    return path


def server_context(files: CertificateFiles) -> ssl.SSLContext:
    """Returns a server context. Raises OSError, with the names of the files, if they cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        raise OSError(
            0, f"the certificate {files.certificate} with the key {files.key} is unusable: {error}"
        ) from error
    return context


def _files(folder: Path) -> CertificateFiles:
    return CertificateFiles(folder / "server.pem", folder / "server.key", folder / "ca.pem")


def _is_current(folder: Path, files: CertificateFiles, names: Sequence[str], now: datetime) -> bool:
    """Returns whether the certificate is current, by a JSON file beside it: parsing certificates is slow."""
    try:
        note = json.loads((folder / "server.json").read_text())
        made = datetime.fromisoformat(note["made"])
        same_names = note["names"] == list(names)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    exist = all(path.is_file() for path in (files.certificate, files.key, folder / "ca.pem"))
    return exist and same_names and now - made < RENEW_AFTER


def _make(folder: Path, files: CertificateFiles, names: Sequence[str], now: datetime) -> None:
    from broker.app.security.certificates import Authority  # slow to load, and rarely needed

    authority_path, authority_key_path = folder / "ca.pem", folder / "ca.key"
    authority = None
    if authority_path.is_file() and authority_key_path.is_file():
        authority = Authority.load(
            authority_path.read_bytes(), authority_key_path.read_bytes(), now
        )
    if authority is None:
        authority = Authority.new(now)
        _write(authority_key_path, authority.key_pem, private=True)
        _write(authority_path, authority.pem)
    certificate, key = authority.issue(names, now)
    _write(files.key, key, private=True)
    _write(files.certificate, certificate)
    note = {"names": list(names), "made": now.isoformat()}
    _write(folder / "server.json", json.dumps(note).encode())


def _write(path: Path, content: bytes, *, private: bool = False) -> None:
    """Writes a file completely or not at all, because another broker may read it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    written = Path(temporary)
    written.chmod(0o600 if private else 0o644)
    written.replace(path)
