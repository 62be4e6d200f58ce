"""Creates a certificate authority, which a developer trusts once, and server certificates of it.

Imported only when a certificate has to be created, because the cryptography library is slow to load.
"""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

AUTHORITY_LIFETIME = timedelta(days=3650)
CERTIFICATE_LIFETIME = timedelta(days=397)
"""Some clients refuse certificates that are valid longer."""
BACKDATED = timedelta(days=1)
"""For machines whose clocks differ a little."""


class Authority:
    """A certificate authority."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def new(cls, now: datetime) -> Authority:
        """Returns a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"Peeklock CA {now:%Y-%m-%d}")
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _builder(name, name, key, now, AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes, now: datetime) -> Authority | None:
        """Returns the authority in these files; None if they are broken or it expires too soon."""
        try:
            loaded = x509.load_pem_x509_certificate(certificate)
            loaded_key = serialization.load_pem_private_key(key, None)
        except (ValueError, TypeError):
            return None
        if not isinstance(loaded_key, ec.EllipticCurvePrivateKey):
            return None
        if loaded.not_valid_after_utc - CERTIFICATE_LIFETIME <= now:
            return None
        return cls(loaded, loaded_key)

    @property
    def pem(self) -> bytes:
        """The certificate, which clients trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key."""
        return _key_pem(self._key)

    def issue(self, names: Sequence[str], now: datetime) -> tuple[bytes, bytes]:
        """Returns a server certificate with its chain, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_name("Peeklock"), self._certificate.subject, key, now, CERTIFICATE_LIFETIME)
            .add_extension(
                x509.SubjectAlternativeName([_general_name(name) for name in names]),
                critical=False,
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM) + self.pem, _key_pem(key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
