"""When to disturb a job: by what it has stored, however fast the machine is."""

import subprocess
import time

import psycopg
import pytest
from hosts import Host

from rag_core.storage import embedded

STORED = "select count(*) from rag.documents"


def wait_for(documents: int, process: "subprocess.Popen[bytes]", host: Host) -> None:
    """Waits until so many documents are stored; with 0, until the tables exist."""
    with psycopg.connect(embedded.server_dsn(host.home / "postgres"), autocommit=True) as connection:
        while process.poll() is None:
            try:
                row = connection.execute(STORED).fetchone()
            except psycopg.errors.UndefinedTable:
                row = None
            if row and row[0] >= documents:
                return
            time.sleep(0.005)
    pytest.fail(f"the job ended with {process.returncode}, before it had stored {documents} documents")
