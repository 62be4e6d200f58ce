"""`peeklock env`: prints environment variables with which clients find and trust a local broker.

Everything is derived from the settings; the broker need not run. The output contains keys.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

from broker.app.exit_codes import ExitCode
from broker.app.network.client_addresses import (
    address_text,
    administration_connection_string,
    client_host,
    connection_string,
)
from broker.app.security import tls
from config.settings.settings import IdentityClients
from protocol.http.identity_endpoint import PATH
from protocol.identity.managed_identity import ManagedIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from config.settings.settings import Settings


TLS_PORT = 5671
"""SDKs with a host name and a credential connect to this port."""

_NEEDS_QUOTES = re.compile(r"[\s#$'\"\\]")


def run(settings: Settings, form: str) -> int:
    """Prints the variables. Returns the exit code."""
    if 0 in (settings.amqp_port, settings.http_port, settings.tls_port):
        sys.stderr.write(
            "peeklock: with port 0 the broker chooses a free port; give the port that it has chosen\n"
        )
        return ExitCode.MISUSED
    try:
        variables = _variables(settings)
    except OSError as error:
        sys.stderr.write(f"peeklock: no authority in {settings.tls_folder}: {error}\n")
        return ExitCode.FAILED
    sys.stdout.write(FORMS[form](variables))
    if settings.tls_port != TLS_PORT:
        sys.stderr.write(
            f"note: a client with a credential in place of a key connects to port {TLS_PORT}; "
            f"start the broker with --tls-port {TLS_PORT}\n"
        )
    return ExitCode.OK


def _variables(settings: Settings) -> dict[str, str]:
    host = client_host(settings)
    http = address_text(host, settings.http_port)
    variables = {
        "SERVICEBUS_CONNECTION_STRING": connection_string(settings, settings.amqp_port),
        "SERVICEBUS_ADMIN_CONNECTION_STRING": administration_connection_string(settings),
        # SDKs accept no port here: messaging uses 5671, administration 443.
        "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": host,
        "SERVICEBUS_ADMIN_FULLY_QUALIFIED_NAMESPACE": http,
    }
    if settings.identity_clients is not IdentityClients.NONE:
        variables |= {
            "IDENTITY_ENDPOINT": f"http://{http}{PATH}",
            "IDENTITY_HEADER": ManagedIdentity(settings.shared_access_key).secret,
        }
    if settings.tls_certificate is None:
        authority = tls.own_certificate(settings.tls_folder, settings.tls_names).authority
        assert authority is not None
        bundle = str(tls.bundle_with_system(authority))
        variables |= {
            "SERVICEBUS_CA_FILE": str(authority),  # for code: Python's connection_verify
            "SSL_CERT_FILE": bundle,  # .NET on Linux, Go, OpenSSL
            "REQUESTS_CA_BUNDLE": bundle,  # Python's requests
            "NODE_EXTRA_CA_CERTS": str(authority),  # adds to what Node trusts
        }
    return variables


# --- forms ---------------------------------------------------------------------------------------


def _sh(variables: Mapping[str, str]) -> str:
    return "".join(f"export {name}={_single_quoted(value)}\n" for name, value in variables.items())


def _single_quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def _powershell(variables: Mapping[str, str]) -> str:
    return "".join(
        "$env:{} = '{}'\n".format(name, value.replace("'", "''"))
        for name, value in variables.items()
    )


def _dotenv(variables: Mapping[str, str]) -> str:
    """Quotes a value only if needed: `docker run --env-file` takes quotes as a part of the value."""
    return "".join(
        f"{name}={_single_quoted(value) if _NEEDS_QUOTES.search(value) else value}\n"
        for name, value in variables.items()
    )


def _json(variables: Mapping[str, str]) -> str:
    return json.dumps(variables, indent=2) + "\n"


FORMS: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "sh": _sh,
    "powershell": _powershell,
    "dotenv": _dotenv,
    "json": _json,
}
