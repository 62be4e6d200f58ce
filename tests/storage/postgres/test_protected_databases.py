"""How a broker reaches a database that is protected: TLS, password files, and several servers.

With a real server and real certificates. What is wrong is one sentence with the fix.
"""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from storage.contract import StoreUnusable
from storage.urls import store_for
from tests.storage.sample_records import message_ids, stored
from tests.support.owned_stores import open_as_owner
from tests.support.postgres_server import DATABASE, LOCKED_ROLE, PASSWORD, ROLE, PostgresServer
from tests.support.server import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.postgres.store import PostgresStore


class Authority:
    """Someone who signs certificates."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._signed(self._name, self._key.public_key(), is_authority=True)
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, host: str) -> tuple[bytes, bytes]:
        """Returns a certificate for a host, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = self._signed(name, key.public_key(), is_authority=False)
        return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .sign(self._key, hashes.SHA256())
        )


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("the right authority")


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[PostgresServer]:
    """A server with TLS, which the role of the broker must use."""
    server = PostgresServer()
    try:
        server.create()
        certificate, key = authority.issue("localhost")
        server.write("server.crt", certificate)
        server.write("server.key", key)
        rules = (server.data / "pg_hba.conf").read_text()
        server.write("pg_hba.conf", f"hostnossl all {ROLE} all reject\n{rules}".encode())
        server.write("postgresql.auto.conf", b"ssl = on\n")
        server.start()
        server.create_database()
        with closing(server.connect()) as administrator:
            administrator.execute(f"GRANT CREATE ON DATABASE {DATABASE} TO {LOCKED_ROLE}")
        yield server
    finally:
        server.close()


@pytest.fixture
def right(authority: Authority, tmp_path: Path) -> Path:
    """The file with the authority of the server."""
    path = tmp_path / "right.pem"
    path.write_bytes(authority.pem)
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """The file with another authority."""
    path = tmp_path / "wrong.pem"
    path.write_bytes(Authority("somebody else").pem)
    return path


def url(server: PostgresServer, host: str = "localhost", **parameters: Any) -> str:
    more = "".join(f"&{name}={value}" for name, value in parameters.items())
    return server.url().replace("@127.0.0.1:", f"@{host}:") + more


def is_encrypted(store: PostgresStore) -> bool:
    with closing(store.database.connect()) as connection:
        found = connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        (is_encrypted,) = found.fetchone() or (False,)
    return bool(is_encrypted)


def use(store: PostgresStore) -> None:
    """Owns, commits and reads."""
    open_as_owner(store)
    store.commit([stored([1])])
    assert [1] == message_ids(store)
    store.close()


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_a_database_is_used_over_tls(server: PostgresServer, right: Path, mode: str) -> None:
    """With the parameters of libpq in the URL."""
    store = store_for(url(server, sslmode=mode, sslrootcert=right))
    use(store)  # type: ignore[arg-type]
    assert is_encrypted(store)  # type: ignore[arg-type]


def test_a_certificate_that_nobody_has_signed_is_enough_without_verification(
    server: PostgresServer,
) -> None:
    """`sslmode=require` encrypts only."""
    store = store_for(url(server, sslmode="require"))
    use(store)  # type: ignore[arg-type]
    assert is_encrypted(store)  # type: ignore[arg-type]


def refusal(address: str) -> str:
    with pytest.raises(StoreUnusable) as refused:
        store_for(address).open()
    text = str(refused.value)
    assert "\n" not in text
    return text


def test_a_wrong_authority_is_refused_with_the_fix(server: PostgresServer, wrong: Path) -> None:
    text = refusal(url(server, sslmode="verify-full", sslrootcert=wrong))
    assert "has a certificate that is not trusted; set sslrootcert in the URL" in text


def test_another_host_name_is_refused_with_the_fix(server: PostgresServer, right: Path) -> None:
    text = refusal(url(server, "127.0.0.1", sslmode="verify-full", sslrootcert=right))
    assert "has a certificate for another host name; correct the URL" in text


def test_a_missing_file_of_the_authority_is_named(server: PostgresServer, tmp_path: Path) -> None:
    text = refusal(url(server, sslmode="verify-full", sslrootcert=tmp_path / "none.pem"))
    assert "cannot be verified; set sslrootcert in the URL" in text
    assert "none.pem" in text


def test_a_database_that_wants_tls_says_so(server: PostgresServer) -> None:
    text = refusal(url(server, sslmode="disable"))
    assert "needs TLS; set sslmode=require in the URL" in text


def test_a_broker_serves_over_tls_and_ends_with_a_sentence_without_trust(
    server: PostgresServer, right: Path, wrong: Path
) -> None:
    """The process itself: exit code 1, one line, no traceback."""
    config: dict[str, Any] = {"queues": {"orders": {}}}
    address = url(server, sslmode="verify-full", sslrootcert=right)
    with BrokerProcess(config=config, storage=address) as broker:
        assert broker.is_healthy()
    broker = BrokerProcess(config=config, storage=address.replace(str(right), str(wrong)))
    broker.launch()
    assert 1 == broker.wait()
    text = broker.log_text()
    assert "start.failed" in text
    assert "set sslrootcert in the URL" in text
    assert "Traceback" not in text
    broker.close()
    broker._folder.cleanup()


# ---- password files -------------------------------------------------------------------------------


@pytest.fixture
def password_file(server: PostgresServer, tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    path.write_text(f"localhost:{server.port}:*:{LOCKED_ROLE}:{PASSWORD}\n")
    path.chmod(0o600)
    return path


def locked(server: PostgresServer, **parameters: Any) -> str:
    return url(server, **parameters).replace(f"//{ROLE}@", f"//{LOCKED_ROLE}@")


def test_a_password_file_in_the_url_is_used(server: PostgresServer, password_file: Path) -> None:
    use(store_for(locked(server, passfile=password_file)))  # type: ignore[arg-type]


def test_a_password_file_in_the_environment_is_used(
    server: PostgresServer, password_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", str(password_file))
    use(store_for(locked(server)))  # type: ignore[arg-type]


def test_a_wrong_password_in_the_file_is_refused_with_the_fix(
    server: PostgresServer, password_file: Path
) -> None:
    """The sentence does not contain the password."""
    password_file.write_text(f"*:*:*:*:{PASSWORD}-not\n")
    text = refusal(locked(server, passfile=password_file))
    assert "refuses the password; correct it in the URL, in the password file" in text
    assert f"{PASSWORD}-not" not in text


def test_a_password_file_that_others_may_read_is_not_used(
    server: PostgresServer, password_file: Path
) -> None:
    """libpq ignores it; the sentence says why."""
    password_file.chmod(0o644)
    text = refusal(locked(server, passfile=password_file))
    assert "needs a password" in text
    assert "that only its owner may read" in text


def test_a_broker_reads_its_password_from_a_file(
    server: PostgresServer, password_file: Path
) -> None:
    """Also the process. The log has no password."""
    environment = {"PGPASSFILE": str(password_file)}
    with BrokerProcess(storage=locked(server), environment=environment) as broker:
        assert broker.is_healthy()
        assert PASSWORD not in broker.log_text().replace("copyright", "")


# ---- several servers ------------------------------------------------------------------------------


def test_of_several_servers_the_one_that_can_be_written_to_is_used(server: PostgresServer) -> None:
    """The first one is read-only, as a replica is."""
    with PostgresServer() as other:
        with closing(other.connect()) as administrator:
            administrator.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            administrator.execute("SELECT pg_reload_conf()")
        address = server.url().replace(
            f"@127.0.0.1:{server.port}", f"@127.0.0.1:{other.port},localhost:{server.port}"
        )
        for more in ("&target_session_attrs=read-write", ""):
            store = store_for(address.replace("schema=", f"schema=more{len(more)}_") + more)
            use(store)  # type: ignore[arg-type]
            with closing(store.database.connect()) as connection:  # type: ignore[attr-defined]
                assert server.port == connection.info.port
