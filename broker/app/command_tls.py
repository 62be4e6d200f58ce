"""`peeklock tls`: where the authority of this machine's brokers is, and how clients trust it.

Makes it if there is none yet, so that it can be trusted before the first start. Says, and does not
do: whose trust is changed, and how, is the developer's decision.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from broker.app import tls

if TYPE_CHECKING:
    from config.settings import Settings

EXIT_OK, EXIT_FAILED = 0, 1

OWN_CERTIFICATE = """\
The broker is set to use a certificate of yours:

  {certificate}

Clients must trust whoever issued it.
"""

GUIDE = """\
Certificate authority of this machine's brokers:

  {ca}

It is made once and stays; whoever trusts it can use TLS on every port of a broker. Clients that go
to port 5671 whenever they use TLS, as Python's does, need `peeklock serve --tls-port 5671`. The
broker's certificate is for these names (--tls-names, PEEKLOCK_TLS_NAMES):

  {names}

For one client:

  Python      ServiceBusClient.from_connection_string(..., connection_verify="{ca}")
              the same for ServiceBusAdministrationClient; or, for a whole program:
              SSL_CERT_FILE={ca} REQUESTS_CA_BUNDLE={ca}
  JavaScript  NODE_EXTRA_CA_CERTS={ca}
  Java        keytool -importcert -noprompt -alias peeklock -file {ca} \\
                -keystore peeklock.p12 -storetype PKCS12 -storepass changeit
              java -Djavax.net.ssl.trustStore=peeklock.p12 \\
                -Djavax.net.ssl.trustStorePassword=changeit ...
  Go          SSL_CERT_FILE={ca} (Linux), or RootCAs in ClientOptions.TLSConfig
  .NET        SSL_CERT_FILE={ca} (Linux); elsewhere the whole machine, below
  curl        curl --cacert {ca} https://localhost:5300/health

For the whole machine:

  Debian, Ubuntu  sudo cp {ca} /usr/local/share/ca-certificates/peeklock.crt
                  sudo update-ca-certificates
  Fedora, RHEL    sudo cp {ca} /etc/pki/ca-trust/source/anchors/peeklock.pem
                  sudo update-ca-trust
  macOS           sudo security add-trusted-cert -d -r trustRoot \\
                    -k /Library/Keychains/System.keychain {ca}
  Windows         certutil -addstore -f Root {ca}

From a container: docker cp CONTAINER:/data/tls/ca.pem .
"""


def run(settings: Settings, *, only_path: bool) -> int:
    """Print it; the exit code."""
    if settings.tls_certificate is not None:
        sys.stdout.write(OWN_CERTIFICATE.format(certificate=settings.tls_certificate))
        return EXIT_OK
    try:
        files = tls.own_certificate(settings.tls_folder, settings.tls_names)
    except OSError as error:
        sys.stderr.write(f"peeklock: no authority in {settings.tls_folder}: {error}\n")
        return EXIT_FAILED
    if only_path:
        sys.stdout.write(f"{files.authority}\n")
    else:
        sys.stdout.write(GUIDE.format(ca=files.authority, names=", ".join(settings.tls_names)))
    return EXIT_OK
