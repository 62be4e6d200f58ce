"""`peeklock tls`: prints where the certificate authority of the brokers on this machine is, and how clients can
trust it.

Creates the authority if there is none yet, so that it can be trusted before the first start. Changes no trust
settings: that is the developer's decision.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from broker.app.exit_codes import ExitCode
from broker.app.security import tls

if TYPE_CHECKING:
    from config.settings.settings import Settings


OWN_CERTIFICATE = """\
The broker is set to use your own certificate:

  {certificate}

Clients must trust the authority that issued it.
"""

GUIDE = """\
The certificate authority of the brokers on this machine, and a bundle that also contains the certificates
that this machine trusts:

  {ca}
  {bundle}

Both are created once and do not change. The broker's certificate is valid for these names (--tls-names,
PEEKLOCK_TLS_NAMES):

  {names}

With UseDevelopmentEmulator=true in the connection string, messaging needs no certificate: every SDK sends
plain AMQP to the port in Endpoint, or to 5672. SDKs use TLS without that flag, with a credential in place of
a key, and in every administration client except .NET's. The broker accepts TLS on each of its ports, but
SDKs connect to 5671 for messaging: `peeklock serve --tls-port 5671`.

For one client:

  .NET        Linux:   SSL_CERT_FILE={bundle}
              macOS:   security add-trusted-cert -r trustRoot \\
                         -k ~/Library/Keychains/login.keychain-db {ca}
              Windows: certutil -user -addstore Root {ca}
              in code: ServiceBusClientOptions.CertificateValidationCallback, as in
                       examples/dotnet/Tls.cs; CustomEndpointAddress for another port than 5671
              With the emulator flag the administration client (7.20.1 or later) uses plain HTTP to
              the port in Endpoint: Endpoint=sb://localhost:5300;...
  Python      messaging: ServiceBusClient(..., connection_verify="{ca}")
              and custom_endpoint_address="sb://localhost:PORT", transport_type=TransportType.Amqp
              for another port than 5671. It ignores variables and trusts certifi's certificates.
              administration: the same connection_verify, or
                REQUESTS_CA_BUNDLE={bundle}, for asyncio
                SSL_CERT_FILE={bundle}
              for a whole environment (except asyncio's administration client):
                cat {ca} >> "$(python -m certifi)"
  JavaScript  NODE_EXTRA_CA_CERTS={ca}
  Java        keytool -importcert -noprompt -alias peeklock -file {ca} \\
                -keystore peeklock.p12 -storetype PKCS12 -storepass changeit
              java -Djavax.net.ssl.trustStore=peeklock.p12 \\
                -Djavax.net.ssl.trustStorePassword=changeit ...
              Its administration client ignores the port in the connection string and uses 443:
              `peeklock serve --tls-port 443`, or a pipeline policy that sets the port.
  Go          SSL_CERT_FILE={bundle} (Linux),
              or RootCAs from {ca} in ClientOptions.TLSConfig
  curl        curl --cacert {ca} https://localhost:5300/health

For the whole machine:

  Debian, Ubuntu  sudo cp {ca} /usr/local/share/ca-certificates/peeklock.crt
                  sudo update-ca-certificates
  Fedora, RHEL    sudo cp {ca} /etc/pki/ca-trust/source/anchors/peeklock.pem
                  sudo update-ca-trust
  macOS           sudo security add-trusted-cert -d -r trustRoot \\
                    -k /Library/Keychains/System.keychain {ca}
  Windows         certutil -addstore -f Root {ca} (as administrator)

Python and Java have their own certificates and ignore the machine's. `peeklock env` prints the variables
for all of them. From a container: docker cp CONTAINER:/data/tls/ca.pem .
"""


def run(settings: Settings, *, only_path: bool) -> int:
    """Prints the instructions. Returns the exit code."""
    if settings.tls_certificate is not None:
        sys.stdout.write(OWN_CERTIFICATE.format(certificate=settings.tls_certificate))
        return ExitCode.OK
    try:
        files = tls.own_certificate(settings.tls_folder, settings.tls_names)
    except OSError as error:
        sys.stderr.write(f"peeklock: no authority in {settings.tls_folder}: {error}\n")
        return ExitCode.FAILED
    assert files.authority is not None
    if only_path:
        sys.stdout.write(f"{files.authority}\n")
    else:
        sys.stdout.write(
            GUIDE.format(
                ca=files.authority,
                bundle=tls.bundle_with_system(files.authority),
                names=", ".join(settings.tls_names),
            )
        )
    return ExitCode.OK
