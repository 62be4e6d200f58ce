"""`peeklock export`: writes the entities of a running broker or of a store as a config file.

What the file cannot express is written to standard error, one line each.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from broker.app import topology_export
from broker.app.cli.topology_fetch import BrokerAddress, ExportFailed, address_in, fetch
from broker.app.cli.user_paths import user_path
from broker.app.exit_codes import ExitCode
from broker.app.network.client_addresses import client_host
from config.model.storage_urls import mask_password
from storage.contract import StorageError
from storage.urls import store_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from broker.app.topology_export import ExportedFile
    from config.settings.settings import Settings


def run(settings: Settings, options: Mapping[str, str]) -> int:
    """Writes the file. Returns the exit code."""
    form = options["form"]
    try:
        authority = _authority(options)
        exported = _exported(settings, options.get("source"), form, authority)
        text = topology_export.as_text(exported.document, form)
        if "output" in options:
            user_path(options["output"]).write_text(text, "utf-8")
        else:
            sys.stdout.write(text)
    except (ExportFailed, StorageError, OSError) as error:
        sys.stderr.write(f"peeklock: {error}\n")
        return ExitCode.FAILED
    for loss in exported.losses:
        sys.stderr.write(f"warning: {loss}\n")
    return ExitCode.OK


def _authority(options: Mapping[str, str]) -> Path | None:
    if "authority" not in options:
        return None
    path = user_path(options["authority"])
    if not path.is_file():
        raise ExportFailed(
            f"--authority: there is no file {path}; `peeklock tls --path` prints the path of the broker's own"
        )
    return path


def _exported(
    settings: Settings, source: str | None, form: str, authority: Path | None
) -> ExportedFile:
    if source is None:
        host = client_host(settings)
        name, key = settings.shared_access_key_name, settings.shared_access_key
        return fetch(BrokerAddress(host, settings.http_port, name, key, authority), form)
    if "=" in source.partition("://")[0]:  # Endpoint=sb://...
        return fetch(address_in(source, authority), form)
    store = store_for(source)
    if not store.exists():  # opening it would create one
        raise StorageError(f"there is no store at {mask_password(source)}")
    return topology_export.in_form(
        topology_export.of_store(store), form, settings.default_lock_duration_ms
    )
